// Models of the zoo end to end: import, passes, fusion, default schedule, machine code, module,
// executor; against the interpreter.
#include <gtest/gtest.h>

#include "client/zoo/zoo.h"
#include "compiler/codegen/backend.h"
#include "compiler/driver/compile.h"
#include "compiler/measure/compare.h"
#include "tests/driver/run_model.h"

namespace heddle {
namespace {

class ModelTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ModelTest, TheModuleComputesWhatTheInterpreterDoes) {
  const auto onnx = zoo::MakeZooModel(GetParam(), 0);
  ASSERT_TRUE(onnx.ok()) << onnx.status();
  std::vector<std::string> warnings;
  Target target;
  target.threads = 2;
  const auto bytes = CompileModel(*onnx, {}, target, {}, {}, &warnings);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  for (const std::string& warning : warnings) ADD_FAILURE() << warning;
  const auto module = runtime::ParseModule(*bytes);
  ASSERT_TRUE(module.ok()) << module.status();
  const std::vector<std::string> inputs = RandomInputs(module->manifest, 11);
  // Twice: nothing may survive from one run to the next.
  const auto outputs = RunModule(*module, inputs, /*runs=*/2);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  const auto expected = InterpretModel(*onnx, {}, inputs);
  ASSERT_TRUE(expected.ok()) << expected.status();
  ASSERT_EQ(outputs->size(), expected->size());
  for (size_t i = 0; i < expected->size(); ++i) {
    const double error = RelativeError((*outputs)[i], (*expected)[i]);
    EXPECT_LE(error, runtime::kDirectTolerance.relative);
    RecordProperty("relative_error", std::to_string(error));
  }
}

INSTANTIATE_TEST_SUITE_P(Zoo, ModelTest,
                         ::testing::Values("mlp", "resnet18", "mobilenet_v1", "mobilenet_v2"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace heddle
