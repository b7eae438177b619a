#include "compiler/driver/compile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/str_replace.h"
#include "client/zoo/zoo.h"
#include "compiler/codegen/backend.h"
#include "compiler/ir/text.h"
#include "compiler/measure/compare.h"
#include "compiler/schedule/space.h"
#include "tests/driver/onnx_models.h"
#include "tests/driver/run_model.h"

namespace heddle {
namespace {

using ::testing::HasSubstr;

Target Native(int threads = 1) {
  Target target;
  target.threads = threads;
  return codegen::ResolveTarget(target).value();
}

absl::StatusOr<runtime::Module> Compile(const std::string& onnx, const ModelOptions& options = {},
                                        ScheduleChoice choice = ScheduleChoice::kTrace,
                                        const std::map<std::string, BestRecord>& best = {},
                                        std::vector<std::string>* warnings = nullptr,
                                        int threads = 1) {
  CompileOptions compile;
  compile.choice = choice;
  compile.model_name = "test";
  HEDDLE_ASSIGN_OR_RETURN(const std::string bytes,
                          CompileModel(onnx, options, Native(threads), best, compile, warnings));
  return runtime::ParseModule(bytes);
}

std::string Mlp() { return zoo::MakeZooModel("mlp", 1).value(); }

TEST(CompileModelTest, MlpAgreesWithTheInterpreterUnderEverySchedule) {
  const std::string onnx = Mlp();
  std::vector<std::string> inputs, expected;
  for (ScheduleChoice choice : {ScheduleChoice::kNaive, ScheduleChoice::kDefault}) {
    for (int threads : {1, 2}) {
      const auto module = Compile(onnx, {}, choice, {}, nullptr, threads);
      ASSERT_TRUE(module.ok()) << module.status();
      EXPECT_EQ(module->manifest.threads, threads);
      if (expected.empty()) {
        inputs = RandomInputs(module->manifest, 7);
        const auto reference = InterpretModel(onnx, {}, inputs);
        ASSERT_TRUE(reference.ok()) << reference.status();
        expected = *reference;
      }
      const auto outputs = RunModule(*module, inputs, /*runs=*/2);
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      ASSERT_EQ(outputs->size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_LE(RelativeError((*outputs)[i], expected[i]), runtime::kDirectTolerance.relative);
      }
    }
  }
}

TEST(CompileModelTest, NeitherFusionNorPassesNorSharingChangeTheResult) {
  const std::string onnx = Mlp();
  ModelOptions plain;
  plain.fuse.enabled = false;
  plain.share_memory = false;
  for (const std::string& pass : graph::PassNames()) plain.passes.disabled.insert(pass);
  const auto fused = Compile(onnx);
  const auto unfused = Compile(onnx, plain);
  ASSERT_TRUE(fused.ok() && unfused.ok()) << fused.status() << unfused.status();
  EXPECT_LT(fused->manifest.calls.size(), unfused->manifest.calls.size());
  const std::vector<std::string> inputs = RandomInputs(fused->manifest, 3);
  const auto a = RunModule(*fused, inputs);
  const auto b = RunModule(*unfused, inputs);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_LE(RelativeError((*a)[0], (*b)[0]), runtime::kDirectTolerance.relative);
}

TEST(CompileModelTest, ManifestSaysWhatTheModuleIs) {
  const auto module = Compile(Mlp());
  ASSERT_TRUE(module.ok()) << module.status();
  const runtime::Manifest& m = module->manifest;
  EXPECT_EQ(m.model, "test");
  EXPECT_EQ(m.model_digest.size(), 64u);
  EXPECT_EQ(m.target, ToText(Native()));
  EXPECT_THAT(m.producer, HasSubstr("heddle "));
  std::set<std::string> tasks;
  for (const runtime::KernelSpec& kernel : m.kernels) {
    EXPECT_TRUE(tasks.insert(kernel.task).second) << "kernels are distinct";
    EXPECT_EQ(kernel.schedule, "default");
  }
  EXPECT_LE(m.arena_bytes, m.unshared_bytes);
}

TEST(CompileModelTest, RecordsAreUsedAndBadOnesNamed) {
  const std::string onnx = Mlp();
  const auto fused = PrepareModel(onnx, {});
  ASSERT_TRUE(fused.ok()) << fused.status();
  const auto tasks = graph::ExtractTasks(*fused);
  ASSERT_GE(tasks.size(), 2u);
  const auto naive = ir::Parse(tasks[0].workload);
  const auto info = codegen::DescribeTarget(Native());
  const auto trace = schedule::DefaultTrace(*naive, *info);
  ASSERT_TRUE(trace.ok());
  const std::map<std::string, BestRecord> best = {
      {tasks[0].key, {schedule::ToText(*trace), 2e6}},
      {tasks[1].key, {"split nowhere.i0 4 4\n", 1e6}},
      {"0000000000000000", {"", 1}},  // of another model
  };
  std::vector<std::string> warnings;
  const auto module = Compile(onnx, {}, ScheduleChoice::kTrace, best, &warnings);
  ASSERT_TRUE(module.ok()) << module.status();
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr(tasks[1].key));
  for (const runtime::KernelSpec& kernel : module->manifest.kernels) {
    EXPECT_EQ(kernel.schedule, kernel.task == tasks[0].key ? "tuned" : "default");
    EXPECT_EQ(kernel.record_ms, kernel.task == tasks[0].key ? 2.0 : 0.0);
  }
}

// A module with blocks of rows chooses among them by what each kernel took, so a default schedule that was measured has its time, too.
TEST(CompileModelTest, ADefaultScheduleKeepsTheTimeItWasMeasuredWith) {
  const std::string onnx = Mlp();
  const auto tasks = graph::ExtractTasks(PrepareModel(onnx, {}).value());
  ASSERT_GE(tasks.size(), 2u);
  const std::map<std::string, BestRecord> best = {{tasks[0].key, {std::nullopt, 3e6}}};
  for (const ScheduleChoice choice :
       {ScheduleChoice::kTrace, ScheduleChoice::kDefault, ScheduleChoice::kNaive}) {
    const auto module = Compile(onnx, {}, choice, best);
    ASSERT_TRUE(module.ok()) << module.status();
    const bool naive = choice == ScheduleChoice::kNaive;
    for (const runtime::KernelSpec& kernel : module->manifest.kernels) {
      EXPECT_EQ(kernel.schedule, naive ? "naive" : "default");
      EXPECT_EQ(kernel.record_ms, !naive && kernel.task == tasks[0].key ? 3.0 : 0.0);
    }
  }
}

// One row of one position: a transpose of it moves nothing, but as a reshape it would stand between
// a product and what follows.
TEST(CompileModelTest, ProductsOfOneRowKeepTheirEpilogues) {
  for (const int64_t batch : {1, 4}) {
    OnnxModel model;
    model.Input("x", {batch, 1, 64}).Constant("w", {64, 64}, std::vector<float>(64 * 64, 0.01f));
    model.Constant("b", {64}, std::vector<float>(64, 0.5f));
    model.Node("MatMul", {"x", "w"}, {"p"}).Node("Add", {"p", "b"}, {"s"});
    model.Node("Relu", {"s"}, {"y"}).Output("y", {batch, 1, 64});
    const auto module = Compile(model.Bytes());
    ASSERT_TRUE(module.ok()) << module.status();
    EXPECT_EQ(module->manifest.kernels.size(), 1u) << batch;
  }
}

// Weights of 4 bits in a matrix and in a convolution, each with a scale for each output channel,
// wherever the kernels want those channels.
TEST(CompileModelTest, WeightsOfFewBitsTakeFewBytesInTheFile) {
  const auto weight = [](int64_t i, int64_t channel) {
    return static_cast<float>(i * 7 % 15 - 7) * (0.01F + 0.003F * static_cast<float>(channel));
  };
  std::vector<float> matrix(144 * 64), filters(16 * 4 * 9);
  for (int64_t i = 0; i < 144 * 64; ++i) matrix[static_cast<size_t>(i)] = weight(i, i % 64);
  for (int64_t i = 0; i < 16 * 36; ++i) filters[static_cast<size_t>(i)] = weight(i, i / 36);
  OnnxModel model;
  model.Input("x", {1, 4, 5, 5}).Constant("f", {16, 4, 3, 3}, filters);
  model.Constant("m", {144, 64}, matrix).Ints("flat", {1, 144});
  model.Node("Conv", {"x", "f"}, {"c"}).Node("Reshape", {"c", "flat"}, {"r"});
  model.Node("MatMul", {"r", "m"}, {"y"}).Output("y", {1, 64});
  CompileOptions compile;
  compile.choice = ScheduleChoice::kDefault;
  const auto bytes = CompileModel(model.Bytes(), {}, Native(), {}, compile);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  const auto module = runtime::ParseModule(*bytes);
  ASSERT_TRUE(module.ok()) << module.status();
  ASSERT_EQ(module->manifest.packed.size(), 1u) << "the filters are too small";
  EXPECT_EQ(module->manifest.packed[0].bits, 4);
  EXPECT_LT(bytes->size() - module->code.size(), 144 * 64 * 4 / 3);
  const std::vector<std::string> inputs = RandomInputs(module->manifest, 3);
  const auto expected = InterpretModel(model.Bytes(), {}, inputs);
  const auto outputs = RunModule(*module, inputs, /*runs=*/1);
  ASSERT_TRUE(expected.ok() && outputs.ok());
  EXPECT_LE(RelativeError((*outputs)[0], (*expected)[0]), runtime::kDirectTolerance.relative);
}

// A convolution of few channels, which is direct by default, with the given weights. Of enough work
// for channels last to be worth its transposes.
OnnxModel Convolution(float weight) {
  std::vector<float> weights(16 * 4 * 9);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = i % 5 < 2 ? weight : -0.5f * weight;
  OnnxModel model;
  model.Input("x", {1, 4, 26, 26}).Constant("w", {16, 4, 3, 3}, weights);
  model.Node("Conv", {"x", "w"}, {"y"}).Output("y", {1, 16, 24, 24});
  return model;
}

std::map<std::string, BestRecord> WinogradRecord(const std::string& onnx) {
  for (const graph::Task& task : graph::ExtractTasks(*PrepareModel(onnx, {}))) {
    if (task.label.find("conv2d") == 0) return {{task.key, {"winograd conv2d 4", 1e6}}};
  }
  return {};
}

const runtime::KernelSpec& ConvolutionOf(const runtime::Manifest& manifest) {
  for (const runtime::KernelSpec& kernel : manifest.kernels) {
    if (kernel.label.find("conv2d") == 0) return kernel;
  }
  return manifest.kernels.at(0);
}

TEST(CompileModelTest, WinogradKernelsAreNamed) {
  const std::string onnx = Convolution(0.1f).Bytes();
  std::vector<std::string> warnings;
  const auto module = Compile(onnx, {}, ScheduleChoice::kTrace, WinogradRecord(onnx), &warnings);
  ASSERT_TRUE(module.ok()) << module.status();
  EXPECT_THAT(warnings, ::testing::IsEmpty());
  EXPECT_EQ(ConvolutionOf(module->manifest).schedule, "tuned");
  EXPECT_TRUE(ConvolutionOf(module->manifest).numerics.winograd);
  const std::vector<std::string> inputs = RandomInputs(module->manifest, 3);
  const auto outputs = RunModule(*module, inputs);
  const auto expected = InterpretModel(onnx, {}, inputs);
  ASSERT_TRUE(outputs.ok() && expected.ok());
  EXPECT_LE(RelativeError((*outputs)[0], (*expected)[0]), runtime::kWinogradTolerance.relative);
  const auto direct = Compile(onnx);
  ASSERT_TRUE(direct.ok()) << direct.status();
  EXPECT_FALSE(ConvolutionOf(direct->manifest).numerics.winograd);
}

// Weights whose sums overflow: transformed ones are infinite, and what is made with them is NaN.
// The direct form has no such sums.
TEST(CompileModelTest, ATunedKernelThatComputesNonsenseIsNotUsed) {
  const std::string onnx = Convolution(2e38f).Bytes();
  std::vector<std::string> warnings;
  const auto module = Compile(onnx, {}, ScheduleChoice::kTrace, WinogradRecord(onnx), &warnings);
  ASSERT_TRUE(module.ok()) << module.status();
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr(ConvolutionOf(module->manifest).task));
  EXPECT_THAT(warnings[0], HasSubstr("wrong result: output 0"));
  EXPECT_EQ(ConvolutionOf(module->manifest).schedule, "default");
  EXPECT_FALSE(ConvolutionOf(module->manifest).numerics.winograd);
  EXPECT_EQ(ConvolutionOf(module->manifest).record_ms, 0);
}

// A copy is a kernel like any other: its record is used, after it was run with the module's
// threads.
TEST(CompileModelTest, CopiesAreVerifiedToo) {
  OnnxModel model;
  model.Input("x", {64, 64}).Node("Identity", {"x"}, {"y"}).Output("y", {64, 64});
  const auto plain = Compile(model.Bytes(), {}, ScheduleChoice::kTrace, {}, nullptr, /*threads=*/2);
  ASSERT_TRUE(plain.ok()) << plain.status();
  ASSERT_EQ(plain->manifest.kernels.size(), 1u);
  const std::string task = plain->manifest.kernels[0].task;
  std::vector<std::string> warnings;
  const auto module = Compile(model.Bytes(), {}, ScheduleChoice::kTrace,
                              {{task, {"split y.i0 2 2048\nparallel y.i0.0\n", 1000}}}, &warnings,
                              /*threads=*/2);
  ASSERT_TRUE(module.ok()) << module.status();
  EXPECT_THAT(warnings, ::testing::IsEmpty());
  EXPECT_EQ(module->manifest.kernels[0].schedule, "tuned");
  const std::string x = RandomFloats(64 * 64 * 4, 1);
  EXPECT_EQ((*RunModule(*module, {x}, 1, 2))[0], x);
}

// The rows of a table that are not looked up are not read.
TEST(CompileModelTest, ATableIsNotReadAsAWhole) {
  OnnxModel model;
  model.Input("x", {1000, 8}).Ints("rows", {3, 5}).Node("Gather", {"x", "rows"}, {"y"});
  model.Output("y", {2, 8});
  const auto module = Compile(model.Bytes());
  ASSERT_TRUE(module.ok()) << module.status();
  int64_t untouched = 0;
  for (const runtime::KernelSpec& k : module->manifest.kernels) untouched += k.untouched_bytes;
  EXPECT_EQ(untouched, (1000 - 2) * 8 * 4);
}

// A module runs with fewer threads than it is made for, and computes the same.
TEST(CompileModelTest, ThreadsAreChosenWhenAModuleRuns) {
  const auto module = Compile(Mlp(), {}, ScheduleChoice::kTrace, {}, nullptr, /*threads=*/2);
  ASSERT_TRUE(module.ok()) << module.status();
  const std::vector<std::string> inputs = RandomInputs(module->manifest, 3);
  const auto two = RunModule(*module, inputs, 2, /*threads=*/2);
  const auto one = RunModule(*module, inputs, 2, /*threads=*/1);
  ASSERT_TRUE(two.ok() && one.ok()) << two.status() << one.status();
  EXPECT_EQ(*one, *two);
}

// An output that is an input, one that is a constant, one value twice, one that is another view of
// a second, and one computed.
TEST(CompileModelTest, OutputsThatNoKernelWrites) {
  OnnxModel model;
  model.Input("x", {2, 6}).Constant("c", {2}, {4, 5}).Ints("shape", {3, 4});
  model.Node("Relu", {"x"}, {"y"}).Node("Reshape", {"y", "shape"}, {"z"});
  model.Node("Identity", {"x"}, {"same"}).Node("Identity", {"c"}, {"fixed"});
  model.Node("Identity", {"y"}, {"again"});
  model.Output("y", {2, 6}).Output("z", {3, 4}).Output("same", {2, 6});
  model.Output("fixed", {2}).Output("again", {2, 6});
  const auto module = Compile(model.Bytes());
  ASSERT_TRUE(module.ok()) << module.status();
  const std::string x = RandomFloats(48, 5);
  const auto outputs = RunModule(*module, {x});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  ASSERT_EQ(outputs->size(), 5u);
  std::vector<float> relu = Floats(x);
  for (float& value : relu) value = std::max(value, 0.0f);
  EXPECT_EQ(Floats((*outputs)[0]), relu);
  EXPECT_EQ(Floats((*outputs)[1]), relu);
  EXPECT_EQ((*outputs)[2], x);
  EXPECT_EQ(Floats((*outputs)[3]), (std::vector<float>{4, 5}));
  EXPECT_EQ(Floats((*outputs)[4]), relu);
  const auto reference = InterpretModel(model.Bytes(), {}, {x});
  ASSERT_TRUE(reference.ok()) << reference.status();
  EXPECT_EQ(*reference, *outputs);
}

// Views of an input, of a value that two kernels read under different shapes, of a value that is an
// output too, and a view that is an output, of which another kernel reads the source.
TEST(CompileModelTest, ReshapesCopyNothing) {
  OnnxModel model;
  model.Input("x", {4, 6}).Constant("w", {6, 4}, std::vector<float>(24, 0.25f));
  model.Constant("u", {8, 2}, std::vector<float>(16, 0.5f)).Ints("flat", {2, 8});
  model.Ints("six", {4, 6}).Ints("line", {1, 24}).Ints("wide", {8, 3});
  model.Constant("v", {3, 5}, std::vector<float>(15, 1.5f));
  model.Node("Reshape", {"x", "wide"}, {"xw"}).Node("MatMul", {"xw", "v"}, {"a"});
  model.Node("MatMul", {"x", "w"}, {"m"}).Node("Reshape", {"m", "flat"}, {"mf"});
  model.Node("MatMul", {"mf", "u"}, {"b"}).Node("MatMul", {"m", "m"}, {"c"});
  model.Node("Reshape", {"x", "line"}, {"xl"});
  model.Node("Reshape", {"c", "flat"}, {"cf"}).Node("MatMul", {"c", "m"}, {"d"});
  model.Output("a", {8, 5}).Output("b", {2, 2}).Output("c", {4, 4}).Output("xl", {1, 24});
  model.Output("cf", {2, 8}).Output("d", {4, 4});
  const auto module = Compile(model.Bytes());
  ASSERT_TRUE(module.ok()) << module.status();
  int copies = 0;
  for (const runtime::CallSpec& call : module->manifest.calls) {
    const std::string& label = module->manifest.kernels[call.kernel].label;
    EXPECT_EQ(label.find("reshape"), std::string::npos) << label;
    copies += label.find("copy") == 0;
  }
  EXPECT_EQ(copies, 2) << "the input as an output, and one value as two outputs";
  const std::vector<std::string> inputs = RandomInputs(module->manifest, 5);
  const auto outputs = RunModule(*module, inputs, /*runs=*/2);
  const auto expected = InterpretModel(model.Bytes(), {}, inputs);
  ASSERT_TRUE(outputs.ok() && expected.ok()) << outputs.status() << expected.status();
  for (size_t i = 0; i < expected->size(); ++i) {
    EXPECT_LE(RelativeError((*outputs)[i], (*expected)[i]), runtime::kDirectTolerance.relative)
        << i;
  }
}

TEST(CompileModelTest, EqualConstantsAreStoredOnce) {
  std::vector<float> values(1024, 0.5f);
  OnnxModel model;
  model.Input("x", {1024}).Constant("a", {1024}, values).Constant("b", {1024}, values);
  model.Node("Add", {"x", "a"}, {"y"}).Node("Mul", {"y", "b"}, {"z"}).Output("z", {1024});
  ModelOptions options;
  options.fuse.enabled = false;
  const auto module = Compile(model.Bytes(), options);
  ASSERT_TRUE(module.ok()) << module.status();
  EXPECT_EQ(module->params->size(), 4096u);
}

TEST(CompileModelTest, ProgressCountsEveryKernel) {
  CompileOptions compile;
  int last = -1, total = 0;
  compile.progress = [&](int done, int of, const std::string& label) {
    EXPECT_GE(done, last);
    EXPECT_FALSE(label.empty());
    last = done;
    total = of;
  };
  ASSERT_TRUE(CompileModel(Mlp(), {}, Native(), {}, compile).ok());
  EXPECT_GT(total, 1);
  EXPECT_EQ(last, total);
}

TEST(CompileModelTest, AModuleForALargerCpuIsRefusedWithItsName) {
  Target target;
  target.cpu = "graniterapids";
  if (codegen::BackendOf(target).RunsHere(target))
    GTEST_SKIP() << "this machine runs graniterapids code";
  const auto bytes = CompileModel(Mlp(), {}, target, {}, {});
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  auto module = runtime::ParseModule(*bytes);
  ASSERT_TRUE(module.ok());
  const auto executor = runtime::Executor::Create(*std::move(module));
  ASSERT_FALSE(executor.ok());
  EXPECT_THAT(std::string(executor.status().message()), HasSubstr("graniterapids"));
  EXPECT_THAT(std::string(executor.status().message()), HasSubstr("lacks"));
}

// A 3 x 3 convolution of a 12 x 12 image, 32 channels to 40.
constexpr int64_t kWeightBytes = 40 * 32 * 9 * 4;

std::string SmallConvolution() {
  OnnxModel model;
  model.Input("x", {1, 32, 12, 12});
  model.Constant("w", {40, 32, 3, 3}, Floats(RandomFloats(kWeightBytes, 11)));
  model.Node("Conv", {"x", "w"}, {"y"}).Node("Relu", {"y"}, {"z"});
  model.Output("z", {1, 40, 10, 10});
  return model.Bytes();
}

// A trace for the one task of a model that has a convolution. Empty if there is no such task.
std::map<std::string, BestRecord> ConvolutionRecord(const std::string& onnx,
                                                    const std::string& trace) {
  for (const graph::Task& task : graph::ExtractTasks(PrepareModel(onnx, {}).value())) {
    if (task.workload.find("f32[3, 3, 32, 40] const") == std::string::npos) continue;
    const size_t at = task.workload.find(" sum init");
    const size_t block = task.workload.rfind("block ", at) + 6;
    const std::string name = task.workload.substr(block, task.workload.find('(', block) - block);
    return {{task.key, {absl::StrReplaceAll(trace, {{"CONV", name}}), 1e6}}};
  }
  return {};
}

// With transformed or packed weights the module matches the interpreter, and holds the weights in
// the one form that its kernel reads.
TEST(CompileModelTest, PrepackedWeightsAreStoredOnce) {
  const std::string onnx = SmallConvolution();
  struct Case {
    const char* trace;
    int64_t bytes;  // of the weights
    double tolerance;
  };
  // Transformed, the weights of F(m x m, 3 x 3) are (m + 2)^2 instead of 9. Panels of 16 channels:
  // three of them for 40.
  for (const Case& c : {Case{"winograd CONV 2\n", kWeightBytes / 9 * 16, 1e-4},
                        Case{"winograd CONV 4\n", kWeightBytes / 9 * 36, 1e-3},
                        Case{"winograd CONV 6\n", kWeightBytes / 9 * 64, 1e-3},
                        Case{"pack CONV p1 1 1 1 16 3 0 1 2\n", kWeightBytes / 40 * 48, 1e-4},
                        Case{"", kWeightBytes, 1e-4}}) {
    SCOPED_TRACE(c.trace);
    const auto best = ConvolutionRecord(onnx, c.trace);
    ASSERT_EQ(best.size(), 1u);
    std::vector<std::string> warnings;
    const auto module = Compile(onnx, {}, ScheduleChoice::kTrace, best, &warnings);
    ASSERT_TRUE(module.ok()) << module.status();
    EXPECT_THAT(warnings, ::testing::IsEmpty());
    EXPECT_EQ(static_cast<int64_t>(module->params->size()), c.bytes);
    const std::vector<std::string> inputs = RandomInputs(module->manifest, 9);
    const auto found = RunModule(*module, inputs, /*runs=*/2);
    const auto expected = InterpretModel(onnx, {}, inputs);
    ASSERT_TRUE(found.ok() && expected.ok()) << found.status() << expected.status();
    EXPECT_LE(RelativeError((*found)[0], (*expected)[0]), c.tolerance);
  }
}

// Two convolutions share their weights and their kernel's schedule: one prepacked copy serves both.
TEST(CompileModelTest, SharedWeightsArePrepackedOnce) {
  OnnxModel model;
  model.Input("a", {1, 32, 12, 12}).Input("b", {1, 32, 12, 12});
  model.Constant("w", {40, 32, 3, 3}, Floats(RandomFloats(kWeightBytes, 11)));
  model.Node("Conv", {"a", "w"}, {"y"}).Output("y", {1, 40, 10, 10});
  model.Node("Conv", {"b", "w"}, {"z"}).Output("z", {1, 40, 10, 10});
  const std::string onnx = model.Bytes();
  const auto best = ConvolutionRecord(onnx, "winograd CONV 2\n");
  ASSERT_EQ(best.size(), 1u);
  const auto module = Compile(onnx, {}, ScheduleChoice::kTrace, best);
  ASSERT_TRUE(module.ok()) << module.status();
  EXPECT_EQ(static_cast<int64_t>(module->params->size()), kWeightBytes / 9 * 16);
  const std::vector<std::string> inputs = RandomInputs(module->manifest, 9);
  const auto found = RunModule(*module, inputs);
  const auto expected = InterpretModel(onnx, {}, inputs);
  ASSERT_TRUE(found.ok() && expected.ok()) << found.status() << expected.status();
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_LE(RelativeError((*found)[i], (*expected)[i]), 1e-4);
  }
}

TEST(BuildCandidateTest, PrepackIsAKernelOfItsOwn) {
  const std::string onnx = SmallConvolution();
  const auto best = ConvolutionRecord(onnx, "winograd CONV 4\n");
  ASSERT_EQ(best.size(), 1u);
  std::string workload;
  for (const graph::Task& task : graph::ExtractTasks(PrepareModel(onnx, {}).value())) {
    if (best.count(task.key)) workload = task.workload;
  }
  const auto artifact =
      BuildCandidate(workload, ScheduleChoice::kTrace, *best.begin()->second.trace, Native());
  ASSERT_TRUE(artifact.ok()) << artifact.status();
  ASSERT_EQ(artifact->kernels.size(), 2u);
  EXPECT_EQ(artifact->numerics, (runtime::Numerics{.winograd = true, .sum_terms = 32 * 9}));
  Target exact = Native();
  exact.winograd = false;
  EXPECT_EQ(
      BuildCandidate(workload, ScheduleChoice::kTrace, *best.begin()->second.trace, exact).status(),
      absl::FailedPreconditionError("the target forbids Winograd's form (-winograd=off)"));
  EXPECT_EQ(artifact->kernels[0].symbol, "kernel");
  EXPECT_EQ(artifact->kernels[1].symbol, "kernel.prepack");
  // The prepack's one result is what the kernel takes by that name; the plain weights it does not.
  ASSERT_EQ(artifact->kernels[1].arguments.size(), 2u);
  const codegen::Argument& plain = artifact->kernels[1].arguments[0];
  const codegen::Argument& made = artifact->kernels[1].arguments[1];
  int takes = 0;
  for (const codegen::Argument& argument : artifact->kernels[0].arguments) {
    EXPECT_NE(argument.name, plain.name);
    if (argument.name != made.name) continue;
    ++takes;
    EXPECT_EQ(argument.bytes, made.bytes);
  }
  EXPECT_EQ(takes, 1);
  EXPECT_EQ(made.bytes, kWeightBytes / 9 * 36);
  const auto direct = BuildCandidate(workload, ScheduleChoice::kNaive, "", Native());
  ASSERT_TRUE(direct.ok()) << direct.status();
  EXPECT_EQ(direct->kernels.size(), 1u);
}

TEST(InterpretModelTest, ChecksItsInputs) {
  EXPECT_THAT(std::string(InterpretModel(Mlp(), {}, {}).status().message()), HasSubstr("inputs"));
  EXPECT_THAT(std::string(InterpretModel(Mlp(), {}, {"abc"}).status().message()),
              HasSubstr("3 are given"));
}

TEST(BuildCandidateTest, ErrorsAreTyped) {
  const std::string workload = PrepareModel(Mlp(), {})->groups[0].workload;
  const auto code = [&](std::string_view text, std::string_view trace) {
    return BuildCandidate(text, ScheduleChoice::kTrace, trace, Native()).status().code();
  };
  EXPECT_EQ(code(workload, ""), absl::StatusCode::kOk);
  EXPECT_EQ(code("program", ""), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code("", ""), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(workload, "frobnicate x"), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(workload, "vectorize nowhere.i0"), absl::StatusCode::kFailedPrecondition);
  Target unknown;
  unknown.cpu = "abacus";
  EXPECT_EQ(BuildCandidate(workload, ScheduleChoice::kNaive, "", unknown).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace heddle
