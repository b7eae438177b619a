// Costs of kernels: records count as they are, and what was measured predicts the rest.
#include "compiler/plan/kernel_costs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/zoo/zoo.h"
#include "compiler/driver/compile.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/operator.h"
#include "compiler/graph/core/tensor_data.h"

namespace heddle::plan {
namespace {

using Source = KernelCost::Source;

graph::FusedGraph Prepared(const char* model) {
  return *PrepareModel(*zoo::MakeZooModel(model, 0), {}, *ParseTarget("llvm -mcpu=skylake-avx512"));
}

TEST(KernelCosts, RecordsCountAsTheyAre) {
  const graph::FusedGraph fused = Prepared("squeezenet");
  KernelCosts costs({}, {{fused.groups[0].key, 1234}});
  EXPECT_EQ(costs.Of(fused, fused.groups[0]).ns, 1234);
  EXPECT_EQ(costs.Of(fused, fused.groups[0]).source, Source::kRecord);
  EXPECT_EQ(costs.Of(fused, fused.groups[1]).source, Source::kMachine);
  costs.Learn(fused);
  EXPECT_EQ(costs.Of(fused, fused.groups[1]).source, Source::kLearned);
}

// Kernels take a planted multiple of the machine model, another one for each operator. Those that were
// not measured are predicted by those that were, and the more were, the better.
TEST(KernelCosts, FactorsOfOperatorsAreLearned) {
  const graph::FusedGraph fused = Prepared("inception_v3");
  const KernelCosts machine({}, {});
  const auto truth = [&](const graph::Group& group) {
    const bool convolution = group.label.find("conv") != std::string::npos;
    return machine.Of(fused, group).ns * (convolution ? 1.5 : 9);
  };
  double first_error = 0, last_error = 0;
  for (const size_t share : {32, 2}) {  // one of so many is measured
    std::map<std::string, double> measured;
    for (size_t i = 0; i < fused.groups.size(); i += share)
      measured[fused.groups[i].key] = truth(fused.groups[i]);
    KernelCosts costs({}, measured);
    costs.Learn(fused);
    costs.Learn(fused);  // what is known teaches nothing
    double error = 0;
    int predicted = 0;
    for (const graph::Group& group : fused.groups) {
      const KernelCost cost = costs.Of(fused, group);
      if (cost.source == Source::kRecord) continue;
      EXPECT_GT(cost.spread, 0);
      error += std::abs(std::log(cost.ns / truth(group)));
      ++predicted;
    }
    ASSERT_GT(predicted, 0);
    error /= predicted;
    (share == 32 ? first_error : last_error) = error;
    if (share == 2) {  // the error that it says it has is about the one it has
      EXPECT_EQ(costs.Error().kernels, static_cast<int>(measured.size()));
      EXPECT_LT(costs.Error().rms, 0.5);
      EXPECT_LE(costs.Error().median, costs.Error().rms);
    }
  }
  EXPECT_LT(last_error, 0.1);
  EXPECT_LT(last_error, first_error);
}

// ---- what earlier jobs found ----

// A number in [-1, 1] that follows from a text.
double Drawn(const std::string& text) {
  uint64_t hash = 14695981039346656037u;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211u;
  hash = (hash ^ (hash >> 29)) * 0xbf58476d1ce4e5b9u;
  return static_cast<double>(hash >> 11) / static_cast<double>(uint64_t{1} << 52) - 1;
}

// Devices on which kernels take planted multiples of the machine model: by operator, by window, by device,
// by operator and device, and by kernel.
class Devices {
 public:
  Devices(std::string seed, std::vector<const graph::FusedGraph*> models) : seed_(std::move(seed)) {
    const KernelCosts machine({}, {});
    for (const graph::FusedGraph* model : models) {
      for (const graph::Group& group : model->groups)
        estimates_[group.key] = machine.Of(*model, group).ns;
    }
    for (const graph::FusedGraph* model : models) {
      KernelCosts costs({}, estimates_);
      costs.Learn(*model);
      for (const KernelFactor& factor : costs.learned()) classes_[factor.key] = factor;
    }
  }
  double LogFactor(const std::string& key, const std::string& device) const {
    const KernelFactor& kernel = classes_.at(key);
    const auto drawn = [&](const std::string& of) { return Drawn(seed_ + "/" + of); };
    return drawn(kernel.op) + 0.5 * drawn(kernel.op + kernel.layout + kernel.window) +
           0.3 * drawn(device) + 0.2 * drawn(device + kernel.op) + 0.1 * drawn(device + key);
  }
  // Times of every `share`th kernel.
  std::map<std::string, double> Times(const graph::FusedGraph& model, const std::string& device,
                                      size_t share = 1) const {
    std::map<std::string, double> times;
    for (size_t i = 0; i < model.groups.size(); i += share) {
      const std::string& key = model.groups[i].key;
      times[key] = estimates_.at(key) * std::exp(LogFactor(key, device));
    }
    return times;
  }
  std::vector<KernelFactor> Found(const graph::FusedGraph& model, const std::string& device) const {
    KernelCosts costs({}, Times(model, device));
    costs.Learn(model);
    return costs.learned();
  }
  // The mean error of predictions of kernels that are not measured.
  double Error(const KernelCosts& costs, const graph::FusedGraph& model,
               const std::string& device) const {
    const std::map<std::string, double> truth = Times(model, device);
    double error = 0;
    int predicted = 0;
    for (const graph::Group& group : model.groups) {
      const KernelCost cost = costs.Of(model, group);
      if (cost.source == Source::kRecord) continue;
      error += std::abs(std::log(cost.ns / truth.at(group.key)));
      ++predicted;
    }
    return predicted == 0 ? 0 : error / predicted;
  }

 private:
  std::string seed_;
  std::map<std::string, double> estimates_;
  std::map<std::string, KernelFactor> classes_;
};

// A new model on a device that other jobs have used is predicted best, one on a new device worse, and with
// no experience at all worst. A few kernels of its own make up for most of what the device lacks.
TEST(Experience, OfTheDeviceHelpsMostAndOfOthersSomewhat) {
  const graph::FusedGraph earlier = Prepared("inception_v3"), model = Prepared("squeezenet");
  double none = 0, others = 0, device = 0, few = 0, few_and_others = 0;
  constexpr int kSeeds = 20;
  for (int seed = 0; seed < kSeeds; ++seed) {
    const Devices devices(std::to_string(seed), {&earlier, &model});
    const std::vector<KernelFactor> here = devices.Found(earlier, "here"),
                                    there = devices.Found(earlier, "there");
    none += devices.Error(KernelCosts({}, {}), model, "here");
    others += devices.Error(KernelCosts({}, {}, {{}, there}), model, "here");
    device += devices.Error(KernelCosts({}, {}, {here, there}), model, "here");
    const std::map<std::string, double> measured = devices.Times(model, "here", 6);
    KernelCosts alone({}, measured), helped({}, measured, {{}, there});
    alone.Learn(model);
    helped.Learn(model);
    few += devices.Error(alone, model, "here");
    few_and_others += devices.Error(helped, model, "here");
  }
  EXPECT_LT(others, 0.85 * none);
  EXPECT_LT(device, 0.75 * others);
  EXPECT_LT(few_and_others, 0.9 * few);
  EXPECT_LT(few_and_others, others);
  EXPECT_LT(device / kSeeds, 0.35);
}

// What the device adds is the same for all kernels here, so a few of them tell it, and the rest is known
// from elsewhere, kernel by kernel.
TEST(Experience, PlantedFactorsAreRecovered) {
  const graph::FusedGraph model = Prepared("inception_v3");
  const Devices devices("planted", {&model});
  const double slower = std::log(3);
  std::vector<KernelFactor> there;
  for (int device = 0; device < 16; ++device) {  // many devices that agree
    for (const KernelFactor& factor : devices.Found(model, "there")) there.push_back(factor);
  }
  std::map<std::string, double> truth = devices.Times(model, "there"), measured;
  size_t i = 0;
  for (auto& [key, ns] : truth) {
    ns *= std::exp(slower);
    if (i++ % 8 == 0) measured[key] = ns;
  }
  KernelCosts costs({}, measured, {{}, there});
  costs.Learn(model);
  for (const graph::Group& group : model.groups)
    EXPECT_NEAR(std::log(costs.Of(model, group).ns / truth.at(group.key)), 0, 0.1) << group.label;
}

TEST(Experience, OfTheSameKernelIsTakenAtItsWord) {
  const graph::FusedGraph model = Prepared("squeezenet");
  const Devices devices("word", {&model});
  const std::vector<KernelFactor> here = devices.Found(model, "here");
  const std::map<std::string, double> truth = devices.Times(model, "here");
  const graph::Group& group = model.groups[0];
  const KernelCost cost = KernelCosts({}, {}, {here, {}}).Of(model, group);
  EXPECT_NEAR(cost.ns, truth.at(group.key), 1e-6 * cost.ns);
  EXPECT_EQ(cost.source, Source::kLearned) << "this job has not measured it";
  EXPECT_GT(cost.spread, 0);
  KernelCosts measured({}, {{group.key, 77}}, {here, {}});
  EXPECT_EQ(measured.Of(model, group).ns, 77) << "what the job measures counts instead";
  measured.Learn(model);
  ASSERT_EQ(measured.learned().size(), 1u) << "only that is told to later jobs";
  EXPECT_NEAR(std::exp(measured.learned()[0].log_factor) * KernelCosts({}, {}).Of(model, group).ns,
              77, 1e-6);
}

// Devices that have nothing in common with this one do not spoil its predictions.
TEST(Experience, ThatMisleadsIsLeftOut) {
  const graph::FusedGraph model = Prepared("inception_v3");
  const Devices devices("misled", {&model});
  std::vector<KernelFactor> nonsense = devices.Found(model, "there");
  for (KernelFactor& factor : nonsense) factor.log_factor = 5 * Drawn("nonsense" + factor.key);
  const std::map<std::string, double> measured = devices.Times(model, "here", 3);
  KernelCosts without({}, measured), with({}, measured, {{}, nonsense});
  without.Learn(model);
  with.Learn(model);
  EXPECT_DOUBLE_EQ(devices.Error(with, model, "here"), devices.Error(without, model, "here"));
}

// The error of experience is that of predictions which know nothing of the job, and nothing of the kernel.
TEST(Experience, ItsErrorIsMeasured) {
  const graph::FusedGraph earlier = Prepared("inception_v3"), model = Prepared("squeezenet");
  const Devices devices("error", {&earlier, &model});
  const std::map<std::string, double> measured = devices.Times(model, "here");
  const auto error = [&](const Experience& experience) {
    KernelCosts costs({}, measured, experience);
    costs.Learn(model);
    return costs.ErrorOfExperience();
  };
  EXPECT_EQ(error({}).kernels, 0);
  const PredictionError found = error({devices.Found(earlier, "here"), {}});
  EXPECT_EQ(found.kernels, static_cast<int>(measured.size()));
  EXPECT_GT(found.median, 0);
  EXPECT_LT(found.median, error({{}, devices.Found(earlier, "there")}).median);
  // An earlier job with the same model tells each kernel by the others, as the job itself does.
  KernelCosts itself({}, measured);
  itself.Learn(model);
  const PredictionError same = error({devices.Found(model, "here"), {}});
  EXPECT_NEAR(same.rms, itself.Error().rms, 1e-9);
  EXPECT_EQ(same.kernels, itself.Error().kernels);
}

// A graph with a product of [64, 64] by each matrix: half of them constants, half of them given.
graph::FusedGraph Products(const std::vector<int64_t>& columns) {
  graph::GraphBuilder b;
  const graph::ValueId x = b.Input("x", {ir::DType::kF32, {64, 64}});
  std::vector<std::pair<std::string, graph::ValueId>> outputs;
  for (const int64_t n : columns) {
    const graph::TensorType type{ir::DType::kF32, {64, n}};
    for (const bool constant : {true, false}) {
      const graph::ValueId w =
          constant ? b.Constant("w", graph::Filled(type, 1)) : b.Input(absl::StrCat("w", n), type);
      outputs.emplace_back(absl::StrCat("y", outputs.size()),
                           *b.Add(graph::OpKind::kMatmul, {x, w}, {}, "product"));
    }
  }
  return *graph::Fuse(*b.Build(outputs));
}

bool HasConstant(const graph::FusedGraph& fused, const graph::Group& group) {
  return std::any_of(group.inputs.begin(), group.inputs.end(),
                     [&](graph::ValueId v) { return fused.graph.constants.contains(v); });
}

TEST(KernelCosts, ConstantsComeFromMemoryAndTheRestFromCaches) {
  machine::TargetInfo target;
  machine::GraphSpeed& speed = target.graph_speed;
  speed.peak_gflops = 1e6;
  speed.call_ns = 7;
  speed.l2_bytes = 64 << 10;
  speed.l3_bytes = 256 << 10;
  speed.l2_read_bytes_per_ns = 64;
  speed.l3_read_bytes_per_ns = 32;
  speed.memory_read_bytes_per_ns = 16;
  const double kib = 1024;
  // By columns: with a matrix that is a constant, and with one that is not.
  const std::map<int64_t, std::pair<double, double>> expected = {
      {32, {8 * kib / 16 + 24 * kib / 64, 32 * kib / 64}},
      {128, {32 * kib / 16 + 48 * kib / 64, 80 * kib / 32}},
      {1024, {256 * kib / 16 + 272 * kib / 16, 528 * kib / 16}}};
  std::vector<int64_t> columns;
  for (const auto& [n, ns] : expected) columns.push_back(n);
  const graph::FusedGraph fused = Products(columns);
  ASSERT_EQ(fused.groups.size(), 6u);
  const KernelCosts costs(target, {});
  for (const graph::Group& group : fused.groups) {
    const auto& [constant, given] =
        expected.at(fused.graph.values[static_cast<size_t>(group.outputs[0])].type.shape[1]);
    EXPECT_DOUBLE_EQ(costs.Of(fused, group).ns, 7 + (HasConstant(fused, group) ? constant : given))
        << group.label;
  }
}

// Trees are timed with warm tables on CPUs, and with cold ones on GPUs (measure/measure.h).
TEST(KernelCosts, TablesOfTreesAreWarmOnCpus) {
  graph::GraphBuilder b;
  const graph::Shape nodes{1, 4, 4096};
  const auto table = [&](const char* name, ir::DType dtype, const graph::Shape& shape) {
    return b.Constant(name, graph::Filled({dtype, shape}, 0));
  };
  const graph::ValueId x = b.Input("x", {ir::DType::kF32, {4, 64}});
  const std::vector<graph::ValueId> inputs{
      x, table("columns", ir::DType::kI32, nodes), table("thresholds", ir::DType::kF32, nodes),
      table("left", ir::DType::kI32, nodes), table("values", ir::DType::kF32, {1, 4, 4096, 1})};
  const graph::ValueId y =
      *b.Add(graph::OpKind::kForestWalk, inputs, {{"steps", int64_t{8}}}, "forest");
  const graph::FusedGraph fused = *graph::Fuse(*b.Build({{"y", y}}));
  ASSERT_EQ(fused.groups.size(), 1u);
  const graph::Group& group = fused.groups[0];
  ASSERT_TRUE(group.timed_warm);
  machine::TargetInfo target;
  machine::GraphSpeed& speed = target.graph_speed;
  speed.peak_gflops = 1e6;
  speed.call_ns = 7;
  speed.l2_bytes = 1 << 20;
  speed.l3_bytes = 4 << 20;
  speed.l2_read_bytes_per_ns = 64;
  speed.l3_read_bytes_per_ns = 32;
  speed.memory_read_bytes_per_ns = 16;
  const KernelWork work = WorkOf(fused, group, TouchedBytes(fused, group));
  ASSERT_GT(work.constant_bytes, 0);
  const double cold = 7 + Roofline(target).ColdNs(work);
  EXPECT_LT(KernelCosts(target, {}).Of(fused, group).ns, cold);
  target.execution = machine::Execution::kGrid;
  EXPECT_DOUBLE_EQ(KernelCosts(target, {}).Of(fused, group).ns, 7 + Roofline(target).ColdNs(work));
}

// What a factor depends on is learned: here, whether the matrix is a constant.
TEST(KernelCosts, ProductsByConstantsAreNotLikeOthers) {
  const graph::FusedGraph fused = Products({16, 24, 32, 40, 48, 56});
  const KernelCosts machine({}, {});
  const auto truth = [&](const graph::Group& group) {
    return machine.Of(fused, group).ns * (HasConstant(fused, group) ? 1.2 : 4);
  };
  std::map<std::string, double> measured;
  for (size_t i = 0; i < 8; ++i) measured[fused.groups[i].key] = truth(fused.groups[i]);
  KernelCosts costs({}, measured);
  costs.Learn(fused);
  for (size_t i = 8; i < fused.groups.size(); ++i)
    EXPECT_NEAR(std::log(costs.Of(fused, fused.groups[i]).ns / truth(fused.groups[i])), 0, 0.1);
}

}  // namespace
}  // namespace heddle::plan
