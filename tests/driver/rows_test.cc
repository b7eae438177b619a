// Models of decision trees as modules for any number of rows, against the interpreter.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <iterator>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "compiler/classical/import_forest.h"
#include "compiler/driver/choose_plan.h"
#include "compiler/driver/compile.h"
#include "compiler/graph/fusion/row_blocks.h"
#include "compiler/measure/in_turns.h"
#include "tests/driver/forest_text.h"
#include "tests/driver/run_model.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kFeatures = 5;

ModelOptions WithRows(const std::vector<int64_t>& rows) {
  ModelOptions options;
  if (!rows.empty()) options.import.shapes["rows"] = rows;
  return options;
}

absl::StatusOr<runtime::Module> Compile(const std::string& model, const ModelOptions& options,
                                        const plan::Plan& plan = {}) {
  CompileOptions compile;
  compile.choice = ScheduleChoice::kDefault;
  compile.plan = plan;
  HEDDLE_ASSIGN_OR_RETURN(const std::string bytes, CompileModel(model, options, {}, {}, compile));
  return runtime::ParseModule(bytes);
}

std::vector<int64_t> BlocksOf(const runtime::Manifest& manifest) {
  std::vector<int64_t> rows;
  for (size_t b = 0; b < manifest.NumBlocks(); ++b) rows.push_back(manifest.RowsOf(b));
  return rows;
}

// The outputs for the first `rows` rows of x.
std::vector<std::string> RunRows(runtime::Executor& executor, int64_t rows, const std::string& x) {
  std::vector<std::string> outputs;
  std::vector<void*> to;
  for (const runtime::TensorSpec& spec : executor.manifest().outputs)
    outputs.emplace_back(static_cast<size_t>(spec.SizeBytes() / spec.shape[0] * rows), '\xff');
  for (std::string& output : outputs) to.push_back(output.data());
  const void* from[] = {x.data()};
  EXPECT_TRUE(executor.RunRows(rows, from, to.data()).ok());
  return outputs;
}

// The first rows of each output of `all`.
std::vector<std::string> First(const std::vector<std::string>& all, int64_t rows, int64_t of) {
  std::vector<std::string> first;
  for (const std::string& output : all)
    first.push_back(
        output.substr(0, output.size() / static_cast<size_t>(of) * static_cast<size_t>(rows)));
  return first;
}

struct RowsCase {
  int classes;
  std::optional<graph::ForestForm> form;  // nullopt: as estimated for each block
};

class AnyNumberOfRows : public ::testing::TestWithParam<RowsCase> {};

TEST_P(AnyNumberOfRows, IsWhatTheInterpreterGives) {
  constexpr int64_t kMost = 4097;
  const std::string model = RaggedForestText(7, 4, kFeatures, GetParam().classes);
  // Rows of every block and tail have missing and infinite values.
  std::string x = RandomFloats(kMost * kFeatures * 4, 3);
  constexpr float kOdd[] = {NAN, INFINITY, -INFINITY, -0.0F};
  for (size_t i = 0; i < x.size() / 4; i += 7)
    std::memcpy(x.data() + 4 * i, &kOdd[i / 7 % std::size(kOdd)], sizeof kOdd[0]);
  const auto expected = InterpretModel(model, {}, {x});
  ASSERT_TRUE(expected.ok()) << expected.status();
  ModelOptions options;
  options.passes.forests.all = GetParam().form;
  auto module = Compile(model, options);
  ASSERT_TRUE(module.ok()) << module.status();
  const auto plan = plan::ParsePlan(module->manifest.plan);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->forests.size(), 4u);
  for (const auto& [forest, form] : plan->forests)
    EXPECT_EQ(form, GetParam().form.value_or(form)) << forest;
  EXPECT_THAT(BlocksOf(module->manifest), ElementsAre(2048, 128, 16, 1));
  auto executor = runtime::Executor::Create(*std::move(module));
  ASSERT_TRUE(executor.ok()) << executor.status();
  std::set<int64_t> counts = {2047, 2048, 4096, kMost};
  // All tails in turn; of a form that is asked for, those around the ends of vectors and blocks.
  const bool estimated = !GetParam().form.has_value();
  for (int64_t rows = 1; rows <= 600; ++rows) {
    if (estimated || rows <= 36 || rows % 64 <= 1 || rows % 256 == 15) counts.insert(rows);
  }
  for (const int64_t rows : counts) {
    const std::vector<std::string> found = RunRows(**executor, rows, x);
    const std::vector<std::string> wanted = First(*expected, rows, kMost);
    ASSERT_EQ(found.size(), wanted.size());
    ASSERT_LT(RelativeError(found[0], wanted[0]), 1e-5) << rows << " rows";
    if (found.size() > 1) {
      ASSERT_EQ(found[1], wanted[1]) << "labels of " << rows << " rows";
    }
  }
}

std::vector<RowsCase> RowsCases() {
  std::vector<RowsCase> cases = {{1, {}}, {2, {}}, {3, {}}};
  for (const graph::ForestForm form : graph::kForestForms) {
    cases.push_back({1, form});
    cases.push_back({3, form});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Classes, AnyNumberOfRows, ::testing::ValuesIn(RowsCases()),
                         [](const ::testing::TestParamInfo<RowsCase>& info) {
                           const std::optional<graph::ForestForm> form = info.param.form;
                           return absl::StrCat(
                               info.param.classes, "_",
                               form ? std::string(graph::ForestFormName(*form)) : "estimated");
                         });

TEST(Rows, TheUserChoosesTheBlocks) {
  const std::string model = ForestText(3, 3, kFeatures);
  const auto several = Compile(model, WithRows({5, 40, 5, 2}));
  ASSERT_TRUE(several.ok()) << several.status();
  EXPECT_THAT(BlocksOf(several->manifest), ElementsAre(40, 5, 2)) << "each once, largest first";
  EXPECT_EQ(several->manifest.inputs.size(), 1u);
  EXPECT_EQ(several->manifest.inputs[0].name, "x");
  const auto one = Compile(model, WithRows({7}));
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_THAT(BlocksOf(one->manifest), ElementsAre(7));
  // A fixed shape is run as before.
  const std::string x = RandomFloats(7 * kFeatures * 4, 3);
  const auto found = RunModule(*one, {x});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_LT(RelativeError((*found)[0], InterpretModel(model, {}, {x}).value()[0]), 1e-5);
  const auto error = [&](const std::vector<int64_t>& rows) {
    return std::string(Compile(model, WithRows(rows)).status().message());
  };
  for (const auto& bad : {error({0}), error({16, -1}), error({1, 2, 3, 4, 5, 6, 7, 8, 9})})
    EXPECT_THAT(bad, HasSubstr("up to 8 of them, each at least 1; give them as --shape rows=1,16"));
}

// The blocks are compared by times of kernels. In a model of trees, all were measured warm, those around the trees too.
TEST(Rows, TimesInAModelOfTreesAreMarkedAsWarm) {
  const std::string model = RaggedForestText(7, 4, kFeatures, 2);
  ModelOptions options = WithRows({16, 1});
  options.passes.forests.all = graph::ForestForm::kWalk;
  const auto unmeasured = Compile(model, options);
  ASSERT_TRUE(unmeasured.ok()) << unmeasured.status();
  std::map<std::string, BestRecord> best;
  for (const runtime::KernelSpec& kernel : unmeasured->manifest.kernels) {
    EXPECT_FALSE(kernel.warm) << kernel.label;
    best[kernel.task] = {std::nullopt, 2e6};
  }
  CompileOptions compile;
  compile.choice = ScheduleChoice::kDefault;
  const auto bytes = CompileModel(model, options, {}, best, compile);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  const auto module = runtime::ParseModule(*bytes);
  ASSERT_TRUE(module.ok()) << module.status();
  int trees = 0;
  for (const runtime::KernelSpec& kernel : module->manifest.kernels) {
    const bool of_trees = kernel.label.find("forest_walk") != std::string::npos;
    EXPECT_EQ(kernel.record_ms, 2) << kernel.label;
    EXPECT_TRUE(kernel.warm) << kernel.label;
    trees += of_trees;
  }
  EXPECT_GT(trees, 0);
  EXPECT_LT(trees, std::ssize(module->manifest.kernels)) << "the columns are made before";
}

// The trees are stored once for each order that blocks need, whatever the number of blocks.
TEST(Rows, BlocksShareTheTables) {
  const std::string model = ForestText(40, 5, kFeatures);
  for (const graph::ForestForm form : graph::kForestForms) {
    ModelOptions one = WithRows({16}), all;
    one.passes.forests.all = all.passes.forests.all = form;
    const size_t alone = Compile(model, one)->params->size();
    EXPECT_GT(alone, 40 * 31 * 4u);
    // The trees of a single record stand in another order, but for walks.
    const size_t copies = form == graph::ForestForm::kWalk ? 1 : 2;
    EXPECT_LT(Compile(model, all)->params->size(), copies * alone + alone / 4)
        << graph::ForestFormName(form);
  }
}

TEST(Rows, ThePlanMayGiveEachBlockItsOwnForm) {
  const std::string model = ForestText(5, 3, kFeatures);
  plan::Plan plan;
  const auto fused = PrepareModel(model, {}, {}, {}, &plan);
  ASSERT_TRUE(fused.ok()) << fused.status();
  ASSERT_EQ(plan.forests.size(), 4u);
  plan.forests["forest@1"] = graph::ForestForm::kWalk;
  plan.forests["forest@16"] = graph::ForestForm::kSelect;
  const auto module = Compile(model, {}, plan);
  ASSERT_TRUE(module.ok()) << module.status();
  EXPECT_EQ(module->manifest.plan, plan::ToText(plan));
  const std::string x = RandomFloats(17 * kFeatures * 4, 3);
  auto executor = runtime::Executor::Create(*module).value();
  EXPECT_LT(RelativeError(RunRows(*executor, 17, x)[0], InterpretModel(model, {}, {x}).value()[0]),
            1e-5);
}

// The trees of one row look up its columns in registers, of which one holds 16, 32 or 64 bytes. Beyond 64 columns, records stand in
// the lanes.
TEST(Rows, OneRowLooksItsColumnsUpInSeveralRegisters) {
  for (const int features : {16, 17, 31, 32, 33, 48, 49, 63, 64, 65}) {
    const std::string model = ForestText(70, 4, features);
    ModelOptions options = WithRows({1});
    options.passes.forests.all = graph::ForestForm::kRanks;
    const auto module = Compile(model, options);
    ASSERT_TRUE(module.ok()) << module.status();
    EXPECT_THAT(module->manifest.plan, HasSubstr("ranks"));
    for (int seed = 0; seed < 8; ++seed) {
      const std::string x = RandomFloats(features * 4, static_cast<uint32_t>(seed));
      const auto found = RunModule(*module, {x});
      ASSERT_TRUE(found.ok()) << found.status();
      EXPECT_LT(RelativeError((*found)[0], InterpretModel(model, {}, {x}).value()[0]), 1e-5)
          << features << " columns";
    }
  }
}

// One row is fast in one form, many are in the other.
void ExpectEachBlockGetsTheFormThatCostsItLess(const Target& target,
                                               const std::vector<graph::ForestForm>& all) {
  const std::string model = ForestText(5, 3, kFeatures);
  std::map<std::string, double> times;
  for (const graph::ForestForm form : all) {
    ModelOptions options;
    options.passes.forests.all = form;
    const auto fused = PrepareModel(model, options, target);
    ASSERT_TRUE(fused.ok()) << fused.status();
    const std::vector<graph::BlockGroups> blocks = graph::GroupsByBlock(*fused);
    for (size_t b = 0; b < blocks.size(); ++b) {
      const bool fast = (form == graph::ForestForm::kWalk) == (b + 1 == blocks.size());
      for (const int g : blocks[b].groups)
        times[fused->groups[static_cast<size_t>(g)].key] = fast ? 1e3 : 1e5;
    }
  }
  // As in a survey, every kernel has a time in the end.
  absl::StatusOr<PlanChoice> choice = absl::UnknownError("none");
  for (bool measured = false; !measured;) {
    choice = ChoosePlan(model, {}, target, times);
    ASSERT_TRUE(choice.ok()) << choice.status();
    measured = true;
    for (const Contender& contender : choice->contenders) {
      for (const graph::Task& task : contender.tasks)
        measured &= !times.emplace(task.key, 1e6).second;
    }
  }
  const graph::ForestForms& forms = choice->best().plan.forests;
  EXPECT_EQ(forms.at("forest@1"), graph::ForestForm::kWalk) << choice->best().name;
  for (const char* other : {"forest", "forest@16", "forest@128"})
    EXPECT_EQ(forms.at(other), graph::ForestForm::kSelect) << choice->best().name;
}

TEST(Rows, EachBlockGetsTheFormThatCostsItLess) {
  ExpectEachBlockGetsTheFormThatCostsItLess(
      {}, {std::begin(graph::kForestForms), std::end(graph::kForestForms)});
}

// There, estimates always take walks, so the form is chosen by what a job measures.
TEST(Rows, SoItDoesOnAGpu) {
  ExpectEachBlockGetsTheFormThatCostsItLess(ParseTarget("cuda -arch=sm_90").value(),
                                            {graph::ForestForm::kWalk, graph::ForestForm::kSelect});
}

TEST(Rows, BlocksAreTimedForAsManyRowsEach) {
  const auto module = Compile(ForestText(3, 3, kFeatures), WithRows({1, 4}));
  ASSERT_TRUE(module.ok()) << module.status();
  const size_t calls[] = {module->manifest.CallsOf(0).size(), module->manifest.CallsOf(1).size()};
  Contestant contestant{&*module, {}, {}};
  const auto uses = [&]() -> absl::StatusOr<std::vector<size_t>> {
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<ModuleTiming> timings,
                            TimeInTurns({contestant}, {.rounds = 1}));
    EXPECT_GT(timings[0].Median(), 0);
    size_t sum = 0;
    double ns = 0;
    for (const TaskTiming& task : TimeByTask({contestant}, timings)) {
      sum += static_cast<size_t>(task.uses[0]);
      ns += task.Ns(0) * task.uses[0];
    }
    EXPECT_GT(ns, 0);
    return std::vector<size_t>{timings[0].calls_ns.size(), sum};
  };
  EXPECT_THAT(uses().value(), ElementsAre(calls[0] + calls[1], calls[0] + 4 * calls[1]));
  contestant.rows = 4;
  EXPECT_THAT(uses().value(), ElementsAre(calls[0], calls[0]));
  contestant.rows = 1;
  EXPECT_THAT(uses().value(), ElementsAre(calls[1], calls[1]));
  contestant.rows = 3;
  EXPECT_THAT(std::string(uses().status().message()),
              HasSubstr("no block of 3 rows, which is needed to time it; give 4 or 1 rows"));
  // An older module has one block, and does not say that its rows are independent.
  runtime::Module older = *module;
  older.manifest.independent_rows = false;
  older.manifest.smaller_blocks.clear();
  contestant.module = &older;
  EXPECT_THAT(std::string(uses().status().message()), HasSubstr("its rows are fixed at 4"));
  contestant.rows = 4;
  EXPECT_THAT(uses().value(), ElementsAre(calls[0], calls[0]));
}

TEST(Rows, TheInterpreterTakesTheRowsThatItIsGiven) {
  const std::string model = ForestText(3, 3, kFeatures);
  const auto one = InterpretModel(model, {}, {RandomFloats(kFeatures * 4, 3)});
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ((*one)[0].size(), 4u);
  EXPECT_THAT(std::string(InterpretModel(model, {}, {std::string(7, '\0')}).status().message()),
              HasSubstr("input 'x' is f32[1,5] of 20 bytes, 7 are given"));
}

}  // namespace
}  // namespace heddle
