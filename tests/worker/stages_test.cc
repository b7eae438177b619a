// The real stages in this process, with the pipes left out: messages in, messages out.
#include "worker/stages/stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <set>

#include "absl/strings/str_replace.h"
#include "base/files/blob_store.h"
#include "base/quantiles.h"
#include "base/vocabulary/default_schedule.h"
#include "base/vocabulary/target.h"
#include "client/zoo/zoo.h"
#include "compiler/codegen/backend.h"
#include "compiler/ir/text.h"
#include "compiler/plan/plan.h"
#include "compiler/runtime/module.h"
#include "compiler/schedule/trace.h"
#include "cost_model/search.h"
#include "tests/driver/forest_text.h"
#include "tests/worker/fake_io.h"
#include "worker/stages/candidates.h"

namespace heddle::worker {
namespace {

using ::testing::AllOf;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;

std::string NativeTarget() { return ToText(codegen::ResolveTarget(Target{}).value()); }

v1::StageStart Base(v1::StageKind kind) {
  v1::StageStart start;
  start.set_kind(kind);
  start.set_target(NativeTarget());
  return start;
}

const std::string& Mlp() {
  static const std::string* const model = new std::string(zoo::MakeZooModel("mlp", 1).value());
  return *model;
}

v1::ImportResult Import() {
  v1::StageStart start = Base(v1::STAGE_IMPORT);
  start.mutable_import();
  FakeIo io;
  io.Feed("model", Mlp());
  EXPECT_TRUE(RunStage(start, io).ok());
  return io.events.empty() ? v1::ImportResult() : io.events.back().import();
}

std::string LoopsAfter(const std::string& workload, const std::string& trace) {
  return ir::Print(*schedule::Replay(*ir::Parse(workload), *schedule::ParseTrace(trace)));
}

TEST(ShownLoops, AreThoseOfTheDefaultAndOfTheFastestSoFar) {
  const std::string workload = Import().tasks(0).workload();
  ShownLoops loops(workload);
  const auto told = [&](const std::string& origin, double ns, const std::string& trace) {
    v1::Candidate candidate;
    candidate.set_origin(origin);
    candidate.set_trace(trace);
    v1::Measurement measurement;
    measurement.set_outcome(ns > 0 ? v1::OUTCOME_OK : v1::OUTCOME_RUN_CRASH);
    if (ns > 0) measurement.add_samples_ns(ns);
    loops.Add(candidate, &measurement);
    return measurement.loops();
  };
  EXPECT_EQ(told("random", 0, ""), "") << "it crashed";
  EXPECT_EQ(told("random", 90, ""), LoopsAfter(workload, ""));
  EXPECT_EQ(told("random", 95, ""), "");
  EXPECT_EQ(told("default", 99, ""), LoopsAfter(workload, ""));
  EXPECT_EQ(told("random", 80, "split nothing 3"), "") << "it does not replay";
  EXPECT_EQ(told("random", 70, "nonsense"), "");
  EXPECT_EQ(told("random", 75, ""), "");
  ShownLoops broken("no program");
  v1::Measurement measurement;
  measurement.set_outcome(v1::OUTCOME_OK);
  measurement.add_samples_ns(1);
  broken.Add({}, &measurement);
  EXPECT_EQ(measurement.loops(), "");
  // Longer than a record holds.
  const auto copy = [](const std::string& index) {
    return absl::StrReplaceAll(
        "program p(x: f32[8]) -> (y: f32[8]) {\n  for N in 8 { y[N] = x[N] }\n}\n", {{"N", index}});
  };
  ShownLoops(copy(std::string(20'000, 'n'))).Add({}, &measurement);
  EXPECT_EQ(measurement.loops(), "");
  ShownLoops(copy("n")).Add({}, &measurement);
  EXPECT_EQ(measurement.loops(), LoopsAfter(copy("n"), ""));
}

TEST(Artifacts, CarryWhatTheirKernelsPromise) {
  for (const runtime::Numerics& promised :
       {runtime::Numerics{.winograd = true, .sum_terms = 7}, runtime::Numerics{.tf32 = true},
        runtime::Numerics{.tensor_cores = true}}) {
    codegen::Artifact artifact;
    artifact.numerics = promised;
    EXPECT_EQ(ArtifactFromProto(ArtifactToProto(artifact)).numerics, promised);
  }
}

TEST(Chunks, AreTheWholeInput) {
  FakeIo io;
  io.Feed("state", "bytes");
  EXPECT_EQ(ReadChunks(io, "state").value(), "bytes");
  FakeIo none;
  EXPECT_EQ(ReadChunks(none, "state").value(), std::nullopt);
  FakeIo other;
  other.Feed("model", "x");
  EXPECT_EQ(ReadChunks(other, "state").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Stages, ImportTellsTasksAndSignature) {
  const v1::ImportResult result = Import();
  ASSERT_GT(result.tasks_size(), 0);
  EXPECT_EQ(result.tasks(0).key().size(), 16u);
  EXPECT_FALSE(result.tasks(0).workload().empty());
  EXPECT_GT(result.tasks(0).flops(), 0);
  ASSERT_EQ(result.inputs_size(), 1);
  EXPECT_THAT(result.inputs(0), HasSubstr(": f32["));
  EXPECT_GT(result.kernels(), 0);
}

TEST(Stages, ABadModelIsTheUsersFault) {
  v1::StageStart start = Base(v1::STAGE_IMPORT);
  start.mutable_import();
  FakeIo io;
  io.Feed("model", Mlp().substr(0, Mlp().size() / 2));
  EXPECT_EQ(ToFault(RunStage(start, io)).kind(), v1::FAULT_USER);
  FakeIo empty;
  EXPECT_EQ(ToFault(RunStage(start, empty)).kind(), v1::FAULT_USER);
}

TEST(Stages, AnUnknownStrategyIsAUsersFault) {
  v1::StageStart start = Base(v1::STAGE_PROPOSE);
  start.mutable_propose()->mutable_search()->set_workload(Import().tasks(0).workload());
  start.mutable_propose()->mutable_search()->set_strategy("magic");
  start.mutable_propose()->set_count(4);
  FakeIo io;
  const v1::Fault fault = ToFault(RunStage(start, io));
  EXPECT_EQ(fault.kind(), v1::FAULT_USER);
  EXPECT_THAT(fault.message(), HasSubstr("'magic'; it must be annealing, "));
}

TEST(Stages, ProposeBuildProfileUpdateHandOn) {
  const std::string workload = Import().tasks(0).workload();

  v1::StageStart propose = Base(v1::STAGE_PROPOSE);
  propose.mutable_propose()->mutable_search()->set_workload(workload);
  propose.mutable_propose()->mutable_search()->set_strategy("annealing");
  propose.mutable_propose()->set_count(10);
  FakeIo proposed;
  ASSERT_EQ(RunStage(propose, proposed), absl::OkStatus());
  ASSERT_TRUE(proposed.events[0].has_candidates());
  const v1::CandidateList& list = proposed.events[0].candidates();
  ASSERT_GT(list.candidates_size(), 0);
  EXPECT_EQ(list.candidates(0).origin(), "default");

  v1::StageStart build = Base(v1::STAGE_BUILD);
  build.mutable_build()->set_workload(workload);
  FakeIo building;
  for (int k = 0; k < list.candidates_size(); ++k) {
    v1::StageInput input;
    *input.mutable_build()->mutable_candidate() = list.candidates(k);
    input.mutable_build()->mutable_candidate()->set_id(k + 1);
    building.inputs.push_back(input);
  }
  v1::StageInput bad;
  bad.mutable_build()->mutable_candidate()->set_id(99);
  bad.mutable_build()->mutable_candidate()->set_trace("split nothing 3");
  building.inputs.push_back(bad);
  ASSERT_EQ(RunStage(build, building), absl::OkStatus());

  v1::StageStart profile = Base(v1::STAGE_PROFILE);
  profile.mutable_profile()->set_workload(workload);
  profile.mutable_profile()->set_repeats(3);
  profile.mutable_profile()->set_min_repeat_us(100);
  FakeIo profiling;
  v1::Artifact last;
  for (const v1::StageEvent& event : building.events) {
    if (!event.has_built()) continue;
    if (event.built().candidate() == 99) {
      EXPECT_EQ(event.built().failure().outcome(), v1::OUTCOME_BUILD_ERROR);
      EXPECT_THAT(event.built().failure().message(), HasSubstr("split nothing 3"));
      continue;
    }
    ASSERT_TRUE(event.built().has_artifact()) << event.built().failure().message();
    EXPECT_GT(event.built().build_ns(), 0);
    v1::StageInput input;
    v1::Candidate& candidate = *input.mutable_profile()->mutable_candidate();
    candidate = list.candidates(static_cast<int>(event.built().candidate()) - 1);
    candidate.set_id(event.built().candidate());
    *input.mutable_profile()->mutable_artifact() = last = event.built().artifact();
    profiling.inputs.push_back(input);
  }
  v1::StageInput garbage;
  garbage.mutable_profile()->mutable_candidate()->set_id(98);
  *garbage.mutable_profile()->mutable_artifact() = last;
  garbage.mutable_profile()->mutable_artifact()->set_shared_object("not machine code");
  profiling.inputs.push_back(garbage);
  ASSERT_EQ(RunStage(profile, profiling), absl::OkStatus());

  v1::StageStart update = Base(v1::STAGE_UPDATE);
  *update.mutable_update()->mutable_search() = propose.propose().search();
  bool no_rival = true;
  double best_ns = 0;  // so far
  for (const v1::StageEvent& event : profiling.events) {
    if (!event.has_profiled()) continue;
    const v1::Measurement& measurement = event.profiled().measurement();
    EXPECT_THAT(measurement.evidence().toolchain(), HasSubstr("LLVM 19"));
    if (event.profiled().candidate() == 98) {
      EXPECT_EQ(measurement.outcome(), v1::OUTCOME_BUILD_ERROR) << measurement.message();
      continue;
    }
    ASSERT_EQ(measurement.outcome(), v1::OUTCOME_OK) << measurement.message();
    // One that is surely slower than a candidate before it gets fewer than the 3 samples.
    EXPECT_THAT(measurement.samples_ns_size(), AllOf(Ge(1), Le(3)));
    if (no_rival) {
      EXPECT_EQ(measurement.samples_ns_size(), 3);
    }
    no_rival = false;
    EXPECT_GT(measurement.profile_ns(), 0);
    EXPECT_LT(measurement.evidence().max_error(), 1e-3);
    EXPECT_GT(measurement.evidence().peak_gflops(), 0);
    EXPECT_GT(measurement.evidence().memory_gbps(), 0);
    // The default schedule comes first, and is the fastest so far.
    const auto& samples = measurement.samples_ns();
    const double ns = Median({samples.begin(), samples.end()});
    const bool fastest = best_ns == 0 || ns < best_ns;
    if (fastest) best_ns = ns;
    const std::string& trace =
        list.candidates(static_cast<int>(event.profiled().candidate()) - 1).trace();
    EXPECT_EQ(measurement.loops(), fastest ? LoopsAfter(workload, trace) : "");
    v1::SearchResult* result = update.mutable_update()->add_results();
    result->set_trace(list.candidates(static_cast<int>(event.profiled().candidate()) - 1).trace());
    result->set_valid(true);
    result->set_median_ns(measurement.samples_ns(0));
  }
  EXPECT_EQ(update.update().results_size(), list.candidates_size());
  FakeIo updating;
  updating.Feed("state", proposed.Received("state"));
  ASSERT_EQ(RunStage(update, updating), absl::OkStatus());
  EXPECT_TRUE(updating.warnings.empty());
  v1::SearchReport report;
  std::string transfer_samples;
  for (const v1::StageEvent& event : updating.events) {
    if (event.has_report()) report = event.report();
    if (event.has_transfer_samples()) transfer_samples = event.transfer_samples().samples();
  }
  EXPECT_EQ(report.samples(), list.candidates_size());
  EXPECT_GT(report.features_size(), 0);
  EXPECT_EQ(report.other_tasks(), 0);
  EXPECT_NE(transfer_samples, "");

  // A search that begins with another's transfer samples has a model for its first batch, and hands it
  // on.
  v1::StageStart begin = propose;
  v1::RelatedSamples* other = begin.mutable_propose()->mutable_search()->add_others();
  other->set_samples(transfer_samples);
  other->set_weight(0.5);
  FakeIo began;
  ASSERT_EQ(RunStage(begin, began), absl::OkStatus());
  const v1::TransferModel& made = began.events[0].transfer_model();
  EXPECT_NE(made.model(), "");
  EXPECT_LT(made.model().size(), 512u << 10);
  EXPECT_EQ(made.tasks(), 1);
  EXPECT_EQ(made.samples(), list.candidates_size());
  EXPECT_GT(made.version(), 0);
  const v1::CandidateList& first = began.events[1].candidates();
  ASSERT_GT(first.candidates_size(), 1);
  for (const v1::Candidate& candidate : first.candidates()) {
    EXPECT_TRUE(candidate.has_prediction());
    EXPECT_EQ(candidate.prediction().samples(), 0);
  }

  // So has one whose state is refused.
  FakeIo damaged;
  damaged.Feed("state", "no state at all");
  ASSERT_EQ(RunStage(begin, damaged), absl::OkStatus());
  EXPECT_THAT(damaged.warnings, ::testing::ElementsAre(HasSubstr("starts afresh")));
  EXPECT_TRUE(damaged.events[1].candidates().candidates(1).has_prediction());

  // The next one begins with that model and proposes as if it had fitted it itself.
  v1::StageStart given = propose;
  given.mutable_propose()->mutable_search()->set_transfer_model(made.model());
  FakeIo next;
  ASSERT_EQ(RunStage(given, next), absl::OkStatus());
  ASSERT_TRUE(next.events[0].has_candidates()) << "it fitted nothing";
  EXPECT_EQ(next.events[0].candidates().SerializeAsString(), first.SerializeAsString());
  // Where it cannot be used, the transfer samples beside it serve, and give one that can be.
  given.mutable_propose()->mutable_search()->set_transfer_model("no model at all");
  FakeIo without;
  ASSERT_EQ(RunStage(given, without), absl::OkStatus());
  EXPECT_THAT(without.warnings, ::testing::ElementsAre(HasSubstr("is not used")));
  ASSERT_TRUE(without.events[0].has_candidates());
  EXPECT_FALSE(without.events[0].candidates().candidates(1).has_prediction());
  *given.mutable_propose()->mutable_search()->mutable_others() = begin.propose().search().others();
  FakeIo fallen_back;
  ASSERT_EQ(RunStage(given, fallen_back), absl::OkStatus());
  EXPECT_EQ(fallen_back.events[0].transfer_model().model(), made.model());
  EXPECT_EQ(fallen_back.events[1].candidates().SerializeAsString(), first.SerializeAsString());

  // One that is sent pages learns from these, not from the others in its message.
  const std::string blobs = ::testing::TempDir() + "/stages_pages";
  std::filesystem::remove_all(blobs);
  const auto store = *BlobStore::Open(blobs);
  v1::StageStart paged = begin;
  paged.set_blob_folder(blobs);
  for (int i = 0; i < 2; ++i) {
    v1::SamplePage page;
    for (int task = 0; task <= i; ++task) page.add_samples(transfer_samples);
    page.add_samples("damaged");
    const auto writer = *store->NewWriter();
    ASSERT_EQ(writer->Append(page.SerializeAsString()), absl::OkStatus());
    v1::SamplePageRef* ref = paged.mutable_propose()->mutable_search()->add_pages();
    ref->set_sha256(*writer->Commit(""));
    ref->set_weight(1);
  }
  FakeIo learned;
  ASSERT_EQ(RunStage(paged, learned), absl::OkStatus());
  EXPECT_TRUE(learned.warnings.empty()) << learned.warnings[0];
  EXPECT_EQ(learned.events[0].transfer_model().tasks(), 3);
  EXPECT_EQ(learned.events[0].transfer_model().samples(), 3 * list.candidates_size());
  EXPECT_TRUE(learned.events[1].candidates().candidates(1).has_prediction());
  // Where they cannot be used, the others serve.
  paged.mutable_propose()->mutable_search()->mutable_pages(0)->set_sha256(std::string(64, '0'));
  FakeIo unlearned;
  ASSERT_EQ(RunStage(paged, unlearned), absl::OkStatus());
  EXPECT_THAT(unlearned.warnings,
              ::testing::ElementsAre(HasSubstr("does not learn from all tasks")));
  EXPECT_EQ(unlearned.events[0].transfer_model().model(), made.model());
  paged.mutable_propose()->mutable_search()->set_strategy("regression");
  FakeIo regression;
  ASSERT_EQ(RunStage(paged, regression), absl::OkStatus());
  EXPECT_EQ(regression.events[0].transfer_model().tasks(), 1);

  for (const v1::Candidate& candidate : list.candidates())
    EXPECT_FALSE(candidate.has_prediction()) << "nothing was known when it was proposed";

  // The next proposal goes on where this one ended: nothing is proposed twice.
  FakeIo again;
  again.Feed("state", updating.Received("state"));
  ASSERT_EQ(RunStage(propose, again), absl::OkStatus());
  for (const v1::Candidate& candidate : again.events[0].candidates().candidates()) {
    for (const v1::Candidate& earlier : list.candidates())
      EXPECT_NE(candidate.trace(), earlier.trace());
  }
}

TEST(Stages, ADamagedStateCostsAWarning) {
  v1::StageStart propose = Base(v1::STAGE_PROPOSE);
  propose.mutable_propose()->mutable_search()->set_workload(Import().tasks(0).workload());
  propose.mutable_propose()->mutable_search()->set_strategy("random");
  propose.mutable_propose()->set_count(2);
  FakeIo io;
  io.Feed("state", "no state at all");
  ASSERT_EQ(RunStage(propose, io), absl::OkStatus());
  ASSERT_EQ(io.warnings.size(), 1u);
  EXPECT_THAT(io.warnings[0], HasSubstr("starts afresh"));
}

TEST(Stages, CompileGivesAModule) {
  for (const v1::ScheduleChoice choice : {v1::SCHEDULE_BEST, v1::SCHEDULE_NAIVE}) {
    v1::StageStart start = Base(v1::STAGE_COMPILE);
    start.mutable_compile()->set_model_name("mlp");
    start.mutable_compile()->set_choice(choice);
    FakeIo io;
    io.Feed("model", Mlp());
    ASSERT_EQ(RunStage(start, io), absl::OkStatus());
    const auto module = runtime::ParseModule(io.Received("module"));
    ASSERT_TRUE(module.ok()) << module.status();
    EXPECT_EQ(module->manifest.model, "mlp");
    EXPECT_TRUE(io.events.front().has_progress());
  }
}

TEST(Stages, CompileIsToldWhatDefaultSchedulesTook) {
  v1::StageStart start = Base(v1::STAGE_COMPILE);
  const v1::ImportResult imported = Import();
  for (const v1::TaskInfo& task : imported.tasks()) {
    v1::BestTrace& kept = *start.mutable_compile()->add_best();
    kept.set_workload_key(task.key());
    kept.set_trace(std::string(kDefaultSchedule));
    kept.set_median_ns(5e6);
  }
  FakeIo io;
  io.Feed("model", Mlp());
  ASSERT_EQ(RunStage(start, io), absl::OkStatus());
  EXPECT_TRUE(io.warnings.empty());
  const auto module = runtime::ParseModule(io.Received("module"));
  ASSERT_TRUE(module.ok()) << module.status();
  for (const runtime::KernelSpec& kernel : module->manifest.kernels) {
    EXPECT_EQ(kernel.schedule, "default") << kernel.label;
    EXPECT_EQ(kernel.record_ms, 5) << kernel.label;
  }
}

// Both modules of a compile stage, compared as a worker would.
TEST(Stages, CompareTimesTheModuleAgainstTheDefaultOne) {
  v1::StageStart start = Base(v1::STAGE_COMPILE);
  v1::CompileSpec& spec = *start.mutable_compile();
  spec.set_with_default(true);
  const v1::ImportResult imported = Import();
  for (const v1::TaskInfo& task : imported.tasks()) {
    v1::BestTrace& best = *spec.add_best();  // an empty trace: plain loops
    best.set_workload_key(task.key());
    best.set_median_ns(1);
  }
  FakeIo compiled;
  compiled.Feed("model", Mlp());
  ASSERT_EQ(RunStage(start, compiled), absl::OkStatus());
  const std::string folder = ::testing::TempDir() + "/compare";
  std::filesystem::remove_all(folder);
  const auto blobs = BlobStore::Open(folder).value();
  v1::StageStart compare = Base(v1::STAGE_COMPARE);
  compare.set_blob_folder(folder);
  compare.mutable_compare()->set_threads(1);
  for (const char* name : {"module", "default"}) {
    const auto writer = blobs->NewWriter().value();
    ASSERT_TRUE(writer->Append(compiled.Received(name)).ok());
    const std::string digest = writer->Commit("").value();
    (name[0] == 'm' ? compare.mutable_compare()->mutable_module()
                    : compare.mutable_compare()->mutable_default_module())
        ->assign(digest);
  }
  FakeIo io;
  ASSERT_EQ(RunStage(compare, io), absl::OkStatus());
  ASSERT_EQ(io.events.size(), 1u);
  const v1::CompareResult& result = io.events[0].compared();
  EXPECT_GT(result.ns(), 0);
  EXPECT_GE(result.gain().rounds(), 7);
  EXPECT_LT(result.gain().high(), 1) << "plain loops are no match for the default schedules";
  ASSERT_GT(result.tasks_size(), 0);
  for (const v1::CompareResult::Task& task : result.tasks()) {
    EXPECT_GT(task.ns(), 0);
    EXPECT_GT(task.default_ns(), 0);
    EXPECT_LE(task.gain().low(), task.gain().ratio());
    EXPECT_LE(task.gain().ratio(), task.gain().high());
  }
  compare.mutable_compare()->set_module("../../etc/passwd");
  FakeIo refused;
  EXPECT_EQ(RunStage(compare, refused).code(), absl::StatusCode::kInvalidArgument);
}

// The module has exactly the tasks of the plan, and names it.
TEST(Stages, CompileFollowsThePlanOfTheImport) {
  v1::StageStart import = Base(v1::STAGE_IMPORT);
  import.mutable_import();
  const std::string model = zoo::MakeZooModel("squeezenet", 1).value();
  FakeIo imported;
  imported.Feed("model", model);
  ASSERT_EQ(RunStage(import, imported), absl::OkStatus());
  const v1::ImportResult& result = imported.events.back().import();
  const absl::StatusOr<plan::Plan> plan = plan::ParsePlan(result.plan());
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_TRUE(plan->layouts.has_value());
  ASSERT_FALSE(plan->layouts->of.empty());
  std::set<std::string> imports;
  for (const v1::TaskInfo& task : result.tasks()) imports.insert(task.key());

  const auto compiled = [&](const plan::Plan& followed) -> absl::StatusOr<runtime::Manifest> {
    v1::StageStart start = Base(v1::STAGE_COMPILE);
    start.mutable_compile()->set_choice(v1::SCHEDULE_NAIVE);
    start.mutable_compile()->set_plan(plan::ToText(followed));
    FakeIo io;
    io.Feed("model", model);
    if (const absl::Status status = RunStage(start, io); !status.ok()) return status;
    absl::StatusOr<runtime::Module> module = runtime::ParseModule(io.Received("module"));
    if (!module.ok()) return module.status();
    return module->manifest;
  };
  plan::Plan first = *plan;  // all channels first, so the tasks are others
  first.layouts = graph::FixedLayouts();
  for (const plan::Plan& followed : {*plan, first}) {
    const auto manifest = compiled(followed);
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    EXPECT_EQ(manifest->plan, plan::ToText(followed));
    std::set<std::string> tasks;
    for (const runtime::KernelSpec& kernel : manifest->kernels) tasks.insert(kernel.task);
    EXPECT_EQ(tasks == imports, followed == *plan);
  }
  first.layouts->of["no node"] = graph::Layout::kChannelsLast;
  EXPECT_EQ(compiled(first).status().code(), absl::StatusCode::kInvalidArgument);
}

// Each plan of a contest is a contender after it, though no search finds it again.
TEST(Stages, PlansThatContendedAreContendersAgain) {
  const v1::ImportResult imported = Import();
  v1::StageStart start = Base(v1::STAGE_PLAN);
  v1::PlanSpec& spec = *start.mutable_plan();
  spec.set_mode("sequential");
  spec.set_last(true);
  absl::StatusOr<plan::Plan> plan = plan::ParsePlan(imported.plan());
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const char* value : {"no such value", "no other value"}) {
    plan->separate = {value};
    spec.mutable_plan()->append(plan::ToText(*plan));
  }
  for (const v1::TaskInfo& task : imported.tasks()) {
    v1::PlanSpec::KernelTime& time = *spec.add_times();
    time.set_workload_key(task.key());
    time.set_ns(1e5);
  }
  FakeIo io;
  io.Feed("model", Mlp());
  ASSERT_EQ(RunStage(start, io), absl::OkStatus());
  const v1::PlanResult& result = io.events.back().planned();
  std::set<std::string> names;
  for (const v1::PlanReport::Contender& one : result.report().contenders())
    names.insert(one.name());
  EXPECT_TRUE(names.contains("the job's until now"));
  EXPECT_TRUE(names.contains("the runner-up until now"));
  const auto plans = plan::ParsePlans(result.plan());
  ASSERT_TRUE(plans.ok()) << plans.status();
  EXPECT_EQ(plans->size(), 1u) << "the contest is over";
}

// What could not be timed by a stage with this limit is not chosen.
TEST(Stages, APlanHasTheMemoryOfItsStage) {
  const v1::ImportResult imported = Import();
  for (const int64_t bytes : {int64_t{0}, int64_t{4} << 30, int64_t{1}}) {
    v1::StageStart start = Base(v1::STAGE_PLAN);
    start.set_memory_limit_bytes(bytes);
    v1::PlanSpec& spec = *start.mutable_plan();
    spec.set_mode("sequential");
    for (const v1::TaskInfo& task : imported.tasks()) {
      v1::PlanSpec::KernelTime& time = *spec.add_times();
      time.set_workload_key(task.key());
      time.set_ns(1e5);
    }
    FakeIo io;
    io.Feed("model", Mlp());
    ASSERT_EQ(RunStage(start, io), absl::OkStatus());
    const v1::PlanReport& report = io.events.back().planned().report();
    if (bytes == 1) {
      EXPECT_EQ(report.contenders_size(), 1);
      EXPECT_THAT(io.warnings, ::testing::Contains(HasSubstr("unfused needs")));
    } else {
      EXPECT_GT(report.contenders_size(), 1);
      EXPECT_TRUE(io.warnings.empty());
    }
  }
}

// One job for several blocks of rows: the tasks of all, each block with the same share of the work, and one module.
TEST(Stages, BlocksOfRowsAreOneJob) {
  v1::StageStart import = Base(v1::STAGE_IMPORT);
  v1::ModelOptions::Shape& rows = *import.mutable_import()->mutable_options()->add_shapes();
  rows.set_input("rows");
  for (const int64_t count : {1, 8, 64}) rows.add_extents(count);
  const std::string model = ForestText(3, 3, 4);
  FakeIo imported;
  imported.Feed("model", model);
  ASSERT_EQ(RunStage(import, imported), absl::OkStatus());
  const v1::ImportResult& result = imported.events.back().import();
  ASSERT_EQ(result.inputs_size(), 1);
  EXPECT_EQ(result.inputs(0), "x: f32[64,4]");
  EXPECT_EQ(result.outputs_size(), 1);
  std::set<int> weights;
  for (const v1::TaskInfo& task : result.tasks()) weights.insert(task.weight());
  EXPECT_EQ(weights, (std::set<int>{1, 8, 64}));

  v1::StageStart compile = Base(v1::STAGE_COMPILE);
  *compile.mutable_compile()->mutable_options() = import.import().options();
  compile.mutable_compile()->set_choice(v1::SCHEDULE_DEFAULT);
  compile.mutable_compile()->set_plan(result.plan());
  FakeIo io;
  io.Feed("model", model);
  ASSERT_EQ(RunStage(compile, io), absl::OkStatus());
  const auto module = runtime::ParseModule(io.Received("module"));
  ASSERT_TRUE(module.ok()) << module.status();
  EXPECT_EQ(module->manifest.NumBlocks(), 3u);
  std::set<std::string> tasks, tuned;
  for (const runtime::KernelSpec& kernel : module->manifest.kernels) tasks.insert(kernel.task);
  for (const v1::TaskInfo& task : result.tasks()) tuned.insert(task.key());
  EXPECT_EQ(tasks, tuned);
}

TEST(Stages, NamesThatAreLeftOutAreWarnedOf) {
  FakeIo io;
  io.Feed("model",
          absl::StrReplaceAll(ForestText(3, 3, 4), {{"Column_0", std::string(2000, 'n')}}));
  ASSERT_EQ(RunStage(Base(v1::STAGE_IMPORT), io), absl::OkStatus());
  EXPECT_THAT(io.warnings, ::testing::ElementsAre(HasSubstr("columns of 'x'")));
}

constexpr char kMachine[] =
    "machine 1\ncores 1\nl1_bytes 32768\nl2_bytes 1048576\nl3_bytes 0\nclock_ghz 3\ngflops 96\n"
    "multiply_add_ns 1.3\nl1_gbps 190\nl2_gbps 90\nl3_gbps 30\nmemory_gbps 30\nstore_gbps 90\n"
    "gathered_per_ns 3\ncall_ns 8\nall_gflops 96\nall_l3_gbps 30\nall_memory_gbps 30\nwake_ns 5\n";

// The import says whether it used the machine, and the module names it.
TEST(Stages, WorkForTheMachineThatTheyAreSent) {
  for (const bool readable : {true, false}) {
    const std::string machine = readable ? kMachine : "machine of the future";
    v1::StageStart import = Base(v1::STAGE_IMPORT);
    import.mutable_import();
    import.set_machine(machine);
    FakeIo imported;
    imported.Feed("model", Mlp());
    ASSERT_EQ(RunStage(import, imported), absl::OkStatus());
    const v1::ImportResult& result = imported.events.back().import();
    EXPECT_EQ(result.machine(), readable ? machine : "");
    EXPECT_EQ(imported.warnings.size(), readable ? 0u : 1u);

    v1::StageStart start = Base(v1::STAGE_COMPILE);
    start.set_machine(machine);
    start.mutable_compile()->set_choice(v1::SCHEDULE_DEFAULT);
    start.mutable_compile()->set_plan(result.plan());
    FakeIo compiled;
    compiled.Feed("model", Mlp());
    ASSERT_EQ(RunStage(start, compiled), absl::OkStatus());
    const auto module = runtime::ParseModule(compiled.Received("module"));
    ASSERT_TRUE(module.ok()) << module.status();
    EXPECT_EQ(module->manifest.machine, readable ? kMachine : "");

    v1::StageStart propose = Base(v1::STAGE_PROPOSE);
    propose.set_machine(machine);
    propose.mutable_propose()->mutable_search()->set_workload(result.tasks(0).workload());
    propose.mutable_propose()->mutable_search()->set_strategy("random");
    propose.mutable_propose()->set_count(2);
    FakeIo proposed;
    ASSERT_EQ(RunStage(propose, proposed), absl::OkStatus());
    EXPECT_EQ(proposed.warnings.empty(), readable);
  }
}

TEST(Stages, SlotsTooSmallForAKernelAreRefused) {
  v1::StageStart start = Base(v1::STAGE_PROFILE);
  start.mutable_profile()->set_workload(Import().tasks(0).workload());
  start.mutable_profile()->set_threads(200);
  FakeIo io;
  EXPECT_EQ(RunStage(start, io).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace heddle::worker
