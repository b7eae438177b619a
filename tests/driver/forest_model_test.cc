// Forests end to end in each form, for many records and for one: import, passes, fusion, default schedule, machine code,
// module, executor; against the interpreter.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/driver/compile.h"
#include "tests/driver/forest_text.h"
#include "tests/driver/run_model.h"

namespace heddle {
namespace {

constexpr int kFeatures = 5;

TEST(ForestModel, EveryFormComputesWhatTheInterpreterDoes) {
  for (const int depth : {3, 8}) {
    const std::string text = RaggedForestText(70, depth, kFeatures);
    for (const int64_t rows : {300, 1}) {
      for (const graph::ForestForm form : graph::kForestForms) {
        // Seven levels and 128 leaves are the most.
        if (depth == 8 &&
            (form == graph::ForestForm::kSelect || form == graph::ForestForm::kLeaves))
          continue;
        const std::string what = absl::StrCat("depth ", depth, ", ", rows, " rows, ",
                                              std::string(graph::ForestFormName(form)));
        ModelOptions options;
        options.import.shapes["rows"] = {rows};
        CompileOptions compile;
        compile.plan.forests["forest"] = form;
        const auto bytes = CompileModel(text, options, {}, {}, compile);
        ASSERT_TRUE(bytes.ok()) << what << ": " << bytes.status();
        const auto module = runtime::ParseModule(*bytes);
        ASSERT_TRUE(module.ok()) << module.status();
        const auto plan = plan::ParsePlan(module->manifest.plan);
        ASSERT_TRUE(plan.ok()) << plan.status();
        EXPECT_EQ(plan->forests, (graph::ForestForms{{"forest", form}})) << what;
        // Thresholds are multiples of 1/20 from -1 on, and there are 40 of them.
        const auto& samples = module->manifest.inputs[0].samples;
        ASSERT_EQ(samples.size(), static_cast<size_t>(kFeatures)) << what;
        for (const std::vector<float>& values : samples) EXPECT_GT(values.size(), 10u) << what;
        std::vector<std::string> inputs = RandomInputs(module->manifest, 11);
        const float missing = NAN;
        for (size_t i = 0; i < inputs[0].size(); i += 4 * 7)
          std::memcpy(inputs[0].data() + i, &missing, 4);
        const auto outputs = RunModule(*module, inputs, /*runs=*/2);
        ASSERT_TRUE(outputs.ok()) << what << ": " << outputs.status();
        const auto expected = InterpretModel(text, options, inputs);
        ASSERT_TRUE(expected.ok()) << expected.status();
        EXPECT_LE(RelativeError((*outputs)[0], (*expected)[0]), 1e-5) << what;
      }
    }
  }
}

}  // namespace
}  // namespace heddle
