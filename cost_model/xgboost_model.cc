// The only file that includes XGBoost.
#include <xgboost/c_api.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "compiler/ir/status_macros.h"
#include "cost_model/blob.h"
#include "cost_model/features.h"
#include "cost_model/model.h"

namespace heddle::cost_model {
namespace {

constexpr std::string_view kMagic = "HDLMODEL";
constexpr uint32_t kVersion = 1;

// Trees of depth 6 separate tiles by several features at once; 40 rounds at 0.3 fit a thousand
// samples in a fraction of a second on one thread, and more of either did not rank held-out
// candidates better.
constexpr int kRounds = 40;
constexpr std::array<std::pair<const char*, const char*>, 11> kParameters = {{
    {"objective", "rank:pairwise"},
    {"nthread", "1"},  // threads would spin under contention, and change the result
    {"tree_method", "hist"},
    {"max_bin", "64"},
    {"max_depth", "6"},
    {"eta", "0.3"},
    {"lambda", "1"},
    {"gamma", "0.0001"},
    {"min_child_weight", "0.1"},
    {"num_pairsample", "4"},
    {"verbosity", "0"},
}};

absl::Status FromXgboost(int rc, const char* what) {
  if (rc == 0) return absl::OkStatus();
  return absl::InternalError(std::string("XGBoost: ") + what + ": " + XGBGetLastError());
}

struct MatrixDeleter {
  void operator()(void* h) const { XGDMatrixFree(h); }
};
struct BoosterDeleter {
  void operator()(void* h) const { XGBoosterFree(h); }
};
using Matrix = std::unique_ptr<void, MatrixDeleter>;
using Booster = std::unique_ptr<void, BoosterDeleter>;

absl::StatusOr<Matrix> MakeMatrix(const std::vector<float>& values, size_t rows, size_t columns) {
  DMatrixHandle handle = nullptr;
  HEDDLE_RETURN_IF_ERROR(FromXgboost(
      XGDMatrixCreateFromMat_omp(values.data(), rows, columns, /*missing=*/NAN, &handle, 1),
      "making a matrix"));
  return Matrix(handle);
}

class XgboostRankModel : public Model {
 public:
  explicit XgboostRankModel(uint64_t seed) : seed_(seed) {}

  absl::Status Fit(std::span<const Sample> samples) override;
  absl::StatusOr<std::vector<float>> Predict(
      std::span<const std::vector<float>> features) const override;
  bool trained() const override { return booster_ != nullptr; }
  std::string Serialize() const override;
  absl::Status Load(std::string_view bytes);

 private:
  absl::StatusOr<Booster> NewBooster(DMatrixHandle matrix) const;

  uint64_t seed_;
  size_t columns_ = 0;
  Booster booster_;  // null before the first Fit
};

absl::StatusOr<Booster> XgboostRankModel::NewBooster(DMatrixHandle matrix) const {
  BoosterHandle handle = nullptr;
  HEDDLE_RETURN_IF_ERROR(FromXgboost(XGBoosterCreate(&matrix, matrix == nullptr ? 0 : 1, &handle),
                                     "making a booster"));
  Booster booster(handle);
  for (const auto& [name, value] : kParameters) {
    HEDDLE_RETURN_IF_ERROR(FromXgboost(XGBoosterSetParam(handle, name, value), name));
  }
  const std::string seed = std::to_string(seed_ & 0x7fffffff);  // XGBoost's seeds are ints
  HEDDLE_RETURN_IF_ERROR(FromXgboost(XGBoosterSetParam(handle, "seed", seed.c_str()), "seed"));
  return booster;
}

absl::Status XgboostRankModel::Fit(std::span<const Sample> samples) {
  if (samples.empty()) return absl::InvalidArgumentError("no samples to fit");
  std::map<int, std::vector<const Sample*>> groups;
  for (const Sample& s : samples) {
    if (s.features.size() != samples[0].features.size() || s.features.empty()) {
      return absl::InvalidArgumentError("samples have " +
                                        std::to_string(samples[0].features.size()) + " and " +
                                        std::to_string(s.features.size()) + " features");
    }
    groups[s.group].push_back(&s);
  }
  const size_t columns = samples[0].features.size();
  std::vector<float> values, labels;
  std::vector<uint32_t> sizes;
  values.reserve(samples.size() * columns);
  for (const auto& [group, members] : groups) {
    sizes.push_back(static_cast<uint32_t>(members.size()));
    for (const Sample* s : members) {
      values.insert(values.end(), s->features.begin(), s->features.end());
      labels.push_back(s->score);
    }
  }
  HEDDLE_ASSIGN_OR_RETURN(Matrix matrix, MakeMatrix(values, samples.size(), columns));
  HEDDLE_RETURN_IF_ERROR(FromXgboost(
      XGDMatrixSetFloatInfo(matrix.get(), "label", labels.data(), labels.size()), "labels"));
  HEDDLE_RETURN_IF_ERROR(FromXgboost(
      XGDMatrixSetUIntInfo(matrix.get(), "group", sizes.data(), sizes.size()), "groups"));
  HEDDLE_ASSIGN_OR_RETURN(Booster booster, NewBooster(matrix.get()));
  for (int round = 0; round < kRounds; ++round) {
    HEDDLE_RETURN_IF_ERROR(
        FromXgboost(XGBoosterUpdateOneIter(booster.get(), round, matrix.get()), "boosting"));
  }
  // A booster that was loaded instead of trained predicts the same, but is not the same object
  // inside: always go through the serialised form, so that a search that is saved and restored goes
  // on exactly like one that is not.
  booster_ = std::move(booster);
  columns_ = columns;
  return Load(Serialize());
}

absl::StatusOr<std::vector<float>> XgboostRankModel::Predict(
    std::span<const std::vector<float>> features) const {
  if (booster_ == nullptr || features.empty()) return std::vector<float>(features.size(), 0.0f);
  std::vector<float> values;
  values.reserve(features.size() * columns_);
  for (const std::vector<float>& row : features) {
    if (row.size() != columns_) {
      return absl::InvalidArgumentError("the model was fitted to " + std::to_string(columns_) +
                                        " features, not " + std::to_string(row.size()));
    }
    values.insert(values.end(), row.begin(), row.end());
  }
  HEDDLE_ASSIGN_OR_RETURN(Matrix matrix, MakeMatrix(values, features.size(), columns_));
  constexpr const char* kConfig =
      R"({"type":0,"training":false,"iteration_begin":0,"iteration_end":0,"strict_shape":false})";
  const bst_ulong* shape = nullptr;
  bst_ulong dim = 0;
  const float* result = nullptr;
  HEDDLE_RETURN_IF_ERROR(FromXgboost(
      XGBoosterPredictFromDMatrix(booster_.get(), matrix.get(), kConfig, &shape, &dim, &result),
      "predicting"));
  return std::vector<float>(result, result + features.size());
}

std::string XgboostRankModel::Serialize() const {
  BlobWriter w;
  w.Unsigned(static_cast<uint64_t>(kFeatureVersion));
  w.Unsigned(columns_);
  bst_ulong size = 0;
  const char* bytes = nullptr;
  if (booster_ != nullptr &&
      XGBoosterSaveModelToBuffer(booster_.get(), R"({"format":"deprecated"})", &size, &bytes) !=
          0) {
    size = 0;  // out of memory at worst; an untrained model is the safe reading
  }
  w.Bytes(std::string_view(bytes, size));
  return Seal(kMagic, kVersion, std::move(w).Take());
}

absl::Status XgboostRankModel::Load(std::string_view bytes) {
  HEDDLE_ASSIGN_OR_RETURN(const std::string_view payload, Unseal(kMagic, kVersion, bytes));
  BlobReader r(payload);
  const uint64_t feature_version = r.Unsigned();
  const size_t columns = r.Unsigned();
  const std::string_view model = r.Bytes();
  if (!r.AtEnd()) return absl::DataLossError("model blob: malformed");
  if (feature_version != static_cast<uint64_t>(kFeatureVersion)) {
    return absl::DataLossError("model blob: made for features of version " +
                               std::to_string(feature_version));
  }
  Booster booster;
  if (!model.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(booster, NewBooster(nullptr));
    const absl::Status loaded = FromXgboost(
        XGBoosterLoadModelFromBuffer(booster.get(), model.data(), model.size()), "loading");
    if (!loaded.ok()) return absl::DataLossError(loaded.message());
    // The parameters of this process, in particular one thread, not those of the one that saved.
    HEDDLE_RETURN_IF_ERROR(
        FromXgboost(XGBoosterSetParam(booster.get(), "nthread", "1"), "nthread"));
  }
  booster_ = std::move(booster);
  columns_ = columns;
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<Model> MakeXgboostRankModel(uint64_t seed) {
  return std::make_unique<XgboostRankModel>(seed);
}

absl::StatusOr<std::unique_ptr<Model>> ParseXgboostRankModel(std::string_view bytes,
                                                             uint64_t seed) {
  auto model = std::make_unique<XgboostRankModel>(seed);
  HEDDLE_RETURN_IF_ERROR(model->Load(bytes));
  return model;
}

}  // namespace heddle::cost_model
