// The only file that includes XGBoost.
#include <xgboost/c_api.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <random>
#include <utility>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "cost_model/blob.h"
#include "cost_model/features/features.h"
#include "cost_model/model/attention_model.h"
#include "cost_model/model/model.h"

namespace heddle::cost_model {
namespace {

constexpr std::string_view kXgboostMagic = "HDLMODEL";
constexpr uint32_t kXgboostVersion = 2;

constexpr size_t kMostColumns = size_t{1} << 16;  // of a blob; there are some hundred features
constexpr float kBase = 0.5f;                     // the prediction with no trees

constexpr std::array<std::pair<const char*, const char*>, 9> kParameters = {{
    {"base_score", "0.5"},  // kBase; some versions would estimate it otherwise
    {"nthread", "1"},       // threads would spin under contention, and change the result
    {"tree_method", "hist"},
    {"max_bin", "64"},
    {"eta", "0.3"},
    {"lambda", "1"},
    {"gamma", "0.0001"},
    {"num_pairsample", "4"},
    {"verbosity", "0"},
}};

uint64_t SpecHash(const ModelSpec& spec) {
  BlobWriter w;
  w.Unsigned(static_cast<uint64_t>(spec.objective));
  w.Signed(spec.rounds);
  w.Signed(spec.depth);
  w.Double(spec.min_child_weight);
  w.Signed(spec.members);
  return HashBytes(std::move(w).Take());
}

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

class XgboostModel final : public Model {
 public:
  explicit XgboostModel(const ModelSpec& spec, uint64_t seed) : spec_(spec), seed_(seed) {}

  absl::Status Fit(std::span<const Sample> samples) override;
  absl::StatusOr<std::vector<Estimate>> Predict(
      std::span<const std::vector<float>> features) const override;
  bool trained() const override { return booster_ != nullptr; }
  std::vector<double> Importance() const override;
  std::string Serialize() const override;
  absl::Status Load(std::string_view bytes);
  // Adds trees to those that there are.
  absl::Status Boost(DMatrixHandle matrix, size_t columns);

 private:
  absl::StatusOr<Booster> NewBooster(DMatrixHandle matrix) const;

  const ModelSpec spec_;
  const uint64_t seed_;
  size_t columns_ = 0;
  Booster booster_;  // null before the first Fit
};

absl::StatusOr<Booster> XgboostModel::NewBooster(DMatrixHandle matrix) const {
  BoosterHandle handle = nullptr;
  HEDDLE_RETURN_IF_ERROR(FromXgboost(XGBoosterCreate(&matrix, matrix == nullptr ? 0 : 1, &handle),
                                     "making a booster"));
  Booster booster(handle);
  const auto set = [&](const char* name, const std::string& value) {
    return FromXgboost(XGBoosterSetParam(handle, name, value.c_str()), name);
  };
  for (const auto& [name, value] : kParameters) HEDDLE_RETURN_IF_ERROR(set(name, value));
  HEDDLE_RETURN_IF_ERROR(
      set("objective", spec_.objective == Objective::kRank ? "rank:pairwise" : "reg:squarederror"));
  HEDDLE_RETURN_IF_ERROR(set("max_depth", std::to_string(spec_.depth)));
  HEDDLE_RETURN_IF_ERROR(set("min_child_weight", std::to_string(spec_.min_child_weight)));
  // XGBoost's seeds are ints.
  HEDDLE_RETURN_IF_ERROR(set("seed", std::to_string(seed_ & 0x7fffffff)));
  return booster;
}

absl::Status XgboostModel::Fit(std::span<const Sample> samples) {
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
  std::vector<float> values, labels, weights, margins;
  std::vector<uint32_t> sizes;
  values.reserve(samples.size() * columns);
  const bool rank = spec_.objective == Objective::kRank;
  for (const auto& [group, members] : groups) {
    sizes.push_back(static_cast<uint32_t>(members.size()));
    // For ranking, XGBoost wants one weight for each group.
    if (rank) weights.push_back(members[0]->weight);
    for (const Sample* s : members) {
      if (!rank) weights.push_back(s->weight);
      values.insert(values.end(), s->features.begin(), s->features.end());
      labels.push_back(s->score);
      margins.push_back(kBase + s->prior);
    }
  }
  HEDDLE_ASSIGN_OR_RETURN(Matrix matrix, MakeMatrix(values, samples.size(), columns));
  HEDDLE_RETURN_IF_ERROR(FromXgboost(
      XGDMatrixSetFloatInfo(matrix.get(), "label", labels.data(), labels.size()), "labels"));
  if (rank) {
    HEDDLE_RETURN_IF_ERROR(FromXgboost(
        XGDMatrixSetUIntInfo(matrix.get(), "group", sizes.data(), sizes.size()), "groups"));
  }
  HEDDLE_RETURN_IF_ERROR(FromXgboost(
      XGDMatrixSetFloatInfo(matrix.get(), "weight", weights.data(), weights.size()), "weights"));
  HEDDLE_RETURN_IF_ERROR(FromXgboost(
      XGDMatrixSetFloatInfo(matrix.get(), "base_margin", margins.data(), margins.size()),
      "priors"));
  booster_.reset();
  return Boost(matrix.get(), columns);
}

absl::Status XgboostModel::Boost(DMatrixHandle matrix, size_t columns) {
  int first = 0;
  if (booster_ == nullptr) {
    HEDDLE_ASSIGN_OR_RETURN(booster_, NewBooster(matrix));
  } else {
    HEDDLE_RETURN_IF_ERROR(
        FromXgboost(XGBoosterBoostedRounds(booster_.get(), &first), "counting rounds"));
  }
  columns_ = columns;
  for (int round = first; round < first + spec_.rounds; ++round) {
    const absl::Status boosted =
        FromXgboost(XGBoosterUpdateOneIter(booster_.get(), round, matrix), "boosting");
    if (boosted.ok()) continue;
    booster_.reset();
    return boosted;
  }
  // A loaded booster predicts like the trained one, but differs inside. So every model goes through
  // the serialised form, and a restored search continues exactly like one that was never saved.
  return Load(Serialize());
}

absl::StatusOr<std::vector<Estimate>> XgboostModel::Predict(
    std::span<const std::vector<float>> features) const {
  if (booster_ == nullptr || features.empty()) return std::vector<Estimate>(features.size());
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
  std::vector<Estimate> estimates(features.size());
  for (size_t i = 0; i < estimates.size(); ++i) estimates[i].score = result[i];
  return estimates;
}

std::vector<double> XgboostModel::Importance() const {
  if (booster_ == nullptr) return {};
  bst_ulong count = 0, dim = 0;
  const char** names = nullptr;
  const bst_ulong* shape = nullptr;
  const float* scores = nullptr;
  std::vector<double> importance(columns_);
  if (XGBoosterFeatureScore(booster_.get(), R"({"importance_type":"total_gain"})", &count, &names,
                            &dim, &shape, &scores) != 0) {
    return importance;
  }
  double sum = 0;
  for (bst_ulong i = 0; i < count; ++i) {  // unnamed features are f0, f1, ..
    const size_t column = std::strtoul(names[i] + 1, nullptr, 10);
    if (column < columns_) importance[column] = scores[i];
    sum += scores[i];
  }
  for (double& v : importance) v = sum > 0 ? v / sum : 0;
  return importance;
}

std::string XgboostModel::Serialize() const {
  BlobWriter w;
  w.Unsigned(static_cast<uint64_t>(kFeatureVersion));
  w.Unsigned(SpecHash(spec_));
  w.Unsigned(columns_);
  bst_ulong size = 0;
  const char* bytes = nullptr;
  if (booster_ != nullptr &&
      XGBoosterSaveModelToBuffer(booster_.get(), R"({"format":"deprecated"})", &size, &bytes) !=
          0) {
    size = 0;  // probably out of memory; it then counts as untrained
  }
  w.Bytes(std::string_view(bytes, size));
  return Seal(kXgboostMagic, kXgboostVersion, std::move(w).Take());
}

absl::Status XgboostModel::Load(std::string_view bytes) {
  HEDDLE_ASSIGN_OR_RETURN(const std::string_view payload,
                          Unseal(kXgboostMagic, kXgboostVersion, bytes));
  BlobReader r(payload);
  const uint64_t feature_version = r.Unsigned();
  const uint64_t spec = r.Unsigned();
  const size_t columns = r.Unsigned();
  const std::string_view model = r.Bytes();
  if (!r.AtEnd() || columns > kMostColumns) return absl::DataLossError("model blob: malformed");
  if (feature_version != static_cast<uint64_t>(kFeatureVersion)) {
    return absl::DataLossError("model blob: made for features of version " +
                               std::to_string(feature_version));
  }
  if (spec != SpecHash(spec_)) return absl::DataLossError("model blob: of another kind of model");
  Booster booster;
  if (!model.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(booster, NewBooster(nullptr));
    const absl::Status loaded = FromXgboost(
        XGBoosterLoadModelFromBuffer(booster.get(), model.data(), model.size()), "loading");
    if (!loaded.ok()) return absl::DataLossError(loaded.message());
    // Use the parameters of this process, in particular one thread, not those that were saved.
    HEDDLE_RETURN_IF_ERROR(
        FromXgboost(XGBoosterSetParam(booster.get(), "nthread", "1"), "nthread"));
  }
  booster_ = std::move(booster);
  columns_ = columns;
  return absl::OkStatus();
}

// Feeds XGBoost with the blocks of a source.
class SourceReader {
 public:
  explicit SourceReader(SampleSource* source) : source_(source) {}

  // The samples, with their features in files in `folder`. It reads them before it returns.
  absl::StatusOr<Matrix> Read(const std::string& folder);
  size_t columns() const { return columns_; }

 private:
  // XGBoost's callbacks. After an error there are no more blocks.
  static void OnReset(DataIterHandle self) { static_cast<SourceReader*>(self)->Rewind(); }
  static int OnNext(DataIterHandle self) {
    return static_cast<SourceReader*>(self)->Next() ? 1 : 0;
  }
  void Rewind() {
    if (status_.ok()) status_ = source_->Rewind();
    first_pass_ = first_pass_ && labels_.empty();
  }
  bool Next();
  absl::Status NextBlock();
  // Of each sample and group, in the first pass.
  void Note();

  SampleSource* const source_;
  absl::Status status_;
  bool first_pass_ = true;
  size_t columns_ = 0;
  std::vector<Sample> block_;
  std::vector<float> values_;  // features of the block
  Matrix proxy_;               // through which XGBoost takes a block
  std::vector<float> labels_, margins_, weights_;
  std::vector<uint32_t> sizes_;  // of groups
};

absl::StatusOr<Matrix> SourceReader::Read(const std::string& folder) {
  DMatrixHandle handle = nullptr;
  HEDDLE_RETURN_IF_ERROR(FromXgboost(XGProxyDMatrixCreate(&handle), "making a matrix"));
  proxy_.reset(handle);
  HEDDLE_RETURN_IF_ERROR(source_->Rewind());
  const std::string config =
      R"({"missing":NaN,"nthread":1,"cache_prefix":")" + folder + R"(/samples"})";
  const absl::Status made = FromXgboost(
      XGDMatrixCreateFromCallback(this, proxy_.get(), OnReset, OnNext, config.c_str(), &handle),
      "reading samples");
  Matrix matrix(made.ok() ? handle : nullptr);
  HEDDLE_RETURN_IF_ERROR(status_);  // of the source, which tells more
  if (labels_.empty()) return absl::InvalidArgumentError("no samples to fit");
  HEDDLE_RETURN_IF_ERROR(made);
  HEDDLE_RETURN_IF_ERROR(FromXgboost(
      XGDMatrixSetFloatInfo(matrix.get(), "label", labels_.data(), labels_.size()), "labels"));
  HEDDLE_RETURN_IF_ERROR(FromXgboost(
      XGDMatrixSetUIntInfo(matrix.get(), "group", sizes_.data(), sizes_.size()), "groups"));
  HEDDLE_RETURN_IF_ERROR(FromXgboost(
      XGDMatrixSetFloatInfo(matrix.get(), "weight", weights_.data(), weights_.size()), "weights"));
  HEDDLE_RETURN_IF_ERROR(FromXgboost(
      XGDMatrixSetFloatInfo(matrix.get(), "base_margin", margins_.data(), margins_.size()),
      "priors"));
  return matrix;
}

bool SourceReader::Next() {
  if (status_.ok()) status_ = NextBlock();
  return status_.ok() && !block_.empty();
}

absl::Status SourceReader::NextBlock() {
  HEDDLE_RETURN_IF_ERROR(source_->Next(&block_));
  if (block_.empty()) {
    first_pass_ = false;
    return absl::OkStatus();
  }
  // XGBoost takes the samples of a group one after another.
  std::stable_sort(block_.begin(), block_.end(),
                   [](const Sample& a, const Sample& b) { return a.group < b.group; });
  if (columns_ == 0) columns_ = block_[0].features.size();
  values_.clear();
  for (const Sample& s : block_) {
    if (s.features.size() != columns_ || columns_ == 0) {
      return absl::InvalidArgumentError("samples have " + std::to_string(columns_) + " and " +
                                        std::to_string(s.features.size()) + " features");
    }
    values_.insert(values_.end(), s.features.begin(), s.features.end());
  }
  if (first_pass_) Note();
  const std::string array = "{\"data\":[" +
                            std::to_string(reinterpret_cast<uintptr_t>(values_.data())) +
                            ",true],\"shape\":[" + std::to_string(block_.size()) + "," +
                            std::to_string(columns_) + "],\"typestr\":\"<f4\",\"version\":3}";
  return FromXgboost(XGProxyDMatrixSetDataDense(proxy_.get(), array.c_str()), "taking a block");
}

void SourceReader::Note() {
  for (size_t i = 0; i < block_.size(); ++i) {
    const Sample& s = block_[i];
    labels_.push_back(s.score);
    margins_.push_back(kBase + s.prior);
    if (i == 0 || s.group != block_[i - 1].group) {
      sizes_.push_back(0);
      weights_.push_back(s.weight);
    }
    ++sizes_.back();
  }
}

// Several models, each fitted to samples drawn with replacement.
class Ensemble final : public Model {
 public:
  Ensemble(const ModelSpec& spec, uint64_t seed) : seed_(seed) {
    for (int k = 0; k < spec.members; ++k) {
      members_.push_back(std::make_unique<XgboostModel>(spec, seed + static_cast<uint64_t>(k)));
    }
  }

  absl::Status Fit(std::span<const Sample> samples) override {
    if (samples.empty()) return absl::InvalidArgumentError("no samples to fit");
    std::mt19937_64 rng(seed_);
    std::uniform_int_distribution<size_t> any(0, samples.size() - 1);
    for (const auto& member : members_) {
      std::vector<Sample> drawn;
      for (size_t i = 0; i < samples.size(); ++i) drawn.push_back(samples[any(rng)]);
      HEDDLE_RETURN_IF_ERROR(member->Fit(drawn));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<Estimate>> Predict(
      std::span<const std::vector<float>> features) const override {
    const auto n = static_cast<float>(members_.size());
    // Until the end, `deviation` holds the mean of squares.
    std::vector<Estimate> sums(features.size());
    for (const auto& member : members_) {
      HEDDLE_ASSIGN_OR_RETURN(const std::vector<Estimate> found, member->Predict(features));
      for (size_t i = 0; i < sums.size(); ++i) {
        sums[i].score += found[i].score / n;
        sums[i].deviation += found[i].score * found[i].score / n;
      }
    }
    for (Estimate& e : sums) {
      e.deviation = std::sqrt(std::max(0.0f, e.deviation - e.score * e.score));
    }
    return sums;
  }

  bool trained() const override { return members_[0]->trained(); }

  std::vector<double> Importance() const override {
    std::vector<double> sum;
    for (const auto& member : members_) {
      const std::vector<double> own = member->Importance();
      sum.resize(own.size());
      for (size_t k = 0; k < own.size(); ++k)
        sum[k] += own[k] / static_cast<double>(members_.size());
    }
    return sum;
  }

  std::string Serialize() const override {
    BlobWriter w;
    for (const auto& member : members_) w.Bytes(member->Serialize());
    return std::move(w).Take();
  }

  absl::Status Load(std::string_view bytes) {
    BlobReader r(bytes);
    for (const auto& member : members_) HEDDLE_RETURN_IF_ERROR(member->Load(r.Bytes()));
    return r.AtEnd() ? absl::OkStatus() : absl::DataLossError("model blob: malformed");
  }

 private:
  const uint64_t seed_;
  std::vector<std::unique_ptr<XgboostModel>> members_;
};

}  // namespace

std::unique_ptr<Model> MakeModel(const ModelSpec& spec, uint64_t seed) {
  if (spec.kind == ModelKind::kAttention) return MakeAttentionModel(spec, seed);
  if (spec.members > 1) return std::make_unique<Ensemble>(spec, seed);
  return std::make_unique<XgboostModel>(spec, seed);
}

absl::StatusOr<std::unique_ptr<Model>> FitToSource(const ModelSpec& spec, uint64_t seed,
                                                   SampleSource* source, const std::string& folder,
                                                   const Model* before) {
  if (spec.kind != ModelKind::kTrees || spec.objective != Objective::kRank || spec.members != 1)
    return absl::InvalidArgumentError("only a ranking model of trees is fitted to a source");
  SourceReader reader(source);
  HEDDLE_ASSIGN_OR_RETURN(const Matrix matrix, reader.Read(folder));
  auto model = std::make_unique<XgboostModel>(spec, seed);
  if (before != nullptr) HEDDLE_RETURN_IF_ERROR(model->Load(before->Serialize()));
  HEDDLE_RETURN_IF_ERROR(model->Boost(matrix.get(), reader.columns()));
  return model;
}

absl::StatusOr<std::unique_ptr<Model>> ParseModel(std::string_view bytes, const ModelSpec& spec,
                                                  uint64_t seed) {
  if (spec.kind == ModelKind::kAttention) return ParseAttentionModel(bytes, spec, seed);
  if (spec.members > 1) {
    auto model = std::make_unique<Ensemble>(spec, seed);
    HEDDLE_RETURN_IF_ERROR(model->Load(bytes));
    return model;
  }
  auto model = std::make_unique<XgboostModel>(spec, seed);
  HEDDLE_RETURN_IF_ERROR(model->Load(bytes));
  return model;
}

}  // namespace heddle::cost_model
