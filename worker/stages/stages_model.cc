// import, plan and compile: the stages that see the model.
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/files/blob_store.h"
#include "base/files/mapped_file.h"
#include "base/one_line.h"
#include "base/status_macros.h"
#include "base/vocabulary/default_schedule.h"
#include "compiler/driver/choose_plan.h"
#include "compiler/driver/compile.h"
#include "compiler/graph/core/graph.h"
#include "compiler/graph/fusion/fuse.h"
#include "compiler/onnx/parts.h"
#include "worker/frame.h"
#include "worker/slots.h"
#include "worker/stages/chunks.h"
#include "worker/stages/machine_of.h"
#include "worker/stages/stages.h"

namespace heddle::worker {
namespace {

// Weights of large models that passes rearrange lie in files of the stage's private folder.
void PrepareForParts(const v1::StageStart& start) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  if (!start.blob_folder().empty() && !error) KeepLargeBytesIn(folder.string());
}

// Maps the model's parts, which the supervisor has stored.
graph::ExternalLoader PartLoader(const v1::StageStart& start) {
  std::map<std::string, SharedBytes> mapped;
  for (const v1::BlobRef& blob : start.blobs()) mapped[blob.sha256()] = nullptr;
  return [mapped, folder = start.blob_folder()](
             const onnx::TensorPlace& place) mutable -> absl::StatusOr<SharedBytes> {
    const auto part = mapped.find(onnx::PartDigest(place.location));
    if (part == mapped.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor '", place.tensor, "' is stored in the file '", place.location,
                       "', which was not submitted; `heddle submit` sends such files, too"));
    }
    if (part->second == nullptr) {
      HEDDLE_ASSIGN_OR_RETURN(part->second, MapFile(BlobPath(folder, part->first)));
    }
    return part->second;
  };
}

ModelOptions FromProto(const v1::ModelOptions& options, const v1::StageStart& start, StageIo& io) {
  ModelOptions result;
  result.machine = MachineOf(start, io);
  result.import.external = PartLoader(start);
  for (const v1::ModelOptions::Shape& shape : options.shapes()) {
    result.import.shapes[shape.input()].assign(shape.extents().begin(), shape.extents().end());
  }
  for (const v1::ModelOptions::InputValue& value : options.input_values())
    result.import.input_values[value.input()] = value.value();
  for (const std::string& pass : options.disabled_passes()) result.passes.disabled.insert(pass);
  return result;
}

absl::StatusOr<std::string> ReadModel(StageIo& io) {
  HEDDLE_ASSIGN_OR_RETURN(std::optional<std::string> model, ReadChunks(io, "model"));
  if (!model.has_value()) return absl::InvalidArgumentError("the stage came without a model");
  return *std::move(model);
}

std::string Signature(const graph::Graph& graph, graph::ValueId id) {
  const graph::Value& value = graph.values[id];
  return OneLine(absl::StrCat(value.name, ": ", graph::ToText(value.type)));
}

void Report(StageIo& io, int done, int total, const std::string& message) {
  v1::StageEvent event;
  event.mutable_progress()->set_done(done);
  event.mutable_progress()->set_total(total);
  event.mutable_progress()->set_message(message);
  io.Write(event);
}

// `weight`: uses in the plan.
void AddTask(const graph::Task& task, int weight, bool with_workload,
             google::protobuf::RepeatedPtrField<v1::TaskInfo>* tasks) {
  v1::TaskInfo& info = *tasks->Add();
  info.set_key(task.key);
  if (with_workload) info.set_workload(task.workload);
  info.set_label(task.label);
  info.set_flops(task.flops);
  info.set_weight(weight);
}

// A search for graphs takes seconds, or a minute for the largest models. Beyond this, what it has must do.
constexpr absl::Duration kPlanSearchLimit = absl::Minutes(3);
// A survey has at most so many tasks for each one of the estimated plan, and so many more.
constexpr int kSurveyFactor = 5, kSurveyMore = 64;
// A second survey has at most this share of the tasks of the first one.
constexpr int kFurtherShare = 2;
// A contender whose predicted cost is this many standard deviations too high is not measured further.
constexpr double kHopeful = 1;

// The most tasks of a PlanResult, and bytes of its plans.
constexpr size_t kMaxPlanned = 8192, kMaxPlanText = 2 << 20;

bool HasTrees(const plan::Plan& plan) { return !plan.forests.empty(); }

// Puts the plan and its tasks into the result, and then the runner-up's plan and tasks. Without a runner-up, the tasks of the estimated plan
// take that place. Returns false if the result is larger than a stage may answer.
bool SetTasks(const PlansToTune& tuned, const std::map<std::string, double>& times,
              v1::PlanResult* result) {
  result->set_plan(plan::ToText(tuned.plan->plan));
  result->clear_tasks();
  std::map<std::string, int> places;
  const auto add = [&](const graph::Task& task, int weight) {
    const auto [place, added] = places.try_emplace(task.key, result->tasks_size());
    if (added) AddTask(task, weight, !times.contains(task.key), result->mutable_tasks());
    return result->mutable_tasks(place->second);
  };
  for (const graph::Task& task : tuned.plan->tasks) add(task, task.weight);
  if (tuned.runner_up != nullptr)
    result->mutable_plan()->append(plan::ToText(tuned.runner_up->plan));
  if (const Contender* other = tuned.runner_up != nullptr ? tuned.runner_up : tuned.estimated) {
    for (const graph::Task& task : other->tasks) add(task, 0)->set_rival_weight(task.weight);
  }
  return static_cast<size_t>(result->tasks_size()) <= kMaxPlanned &&
         result->plan().size() <= kMaxPlanText && result->ByteSizeLong() <= kMaxFrameBytes / 2;
}

// What an inference may need. A module that needs more could not be timed by a stage with the limit of this one. A GPU has
// memory of its own.
int64_t MemoryOf(const v1::StageStart& start, const Target& target) {
  const bool limited = target.kind == kHostKind && start.memory_limit_bytes() > 0;
  return limited ? start.memory_limit_bytes() : graph::kAnyBytes;
}

// The tasks of plans without which the given plan cannot be judged.
absl::Status AddSurvey(const std::string& model, const ModelOptions& options, const Target& target,
                       int64_t memory_bytes, v1::ImportResult* result) {
  PlanSearch search;
  search.memory_bytes = memory_bytes;
  search.graphs = 0;
  HEDDLE_ASSIGN_OR_RETURN(const PlanChoice choice, ChoosePlan(model, options, target, {}, search));
  std::set<std::string> seen;
  for (const v1::TaskInfo& info : result->tasks()) seen.insert(info.key());
  const size_t most = seen.size() * kSurveyFactor + kSurveyMore;
  size_t bytes = result->ByteSizeLong();
  for (const Contender& contender : choice.contenders) {
    for (const graph::Task& task : contender.tasks) {
      bytes += task.workload.size() + task.label.size() + task.key.size();
      if (seen.size() >= most || bytes > kMaxFrameBytes / 2) return absl::OkStatus();
      if (seen.insert(task.key).second) AddTask(task, 0, true, result->mutable_tasks());
    }
  }
  return absl::OkStatus();
}

plan::KernelFactor FromProto(const v1::KernelFactor& factor) {
  return {factor.workload_key(), factor.op(), factor.layout(), factor.window(),
          factor.log_factor()};
}

// Factors of another version are left out.
plan::Experience ExperienceOf(const v1::PlanSpec& spec) {
  plan::Experience experience;
  for (const v1::KernelFactor& factor : spec.experience())
    if (factor.version() == plan::kFactorVersion) experience.device.push_back(FromProto(factor));
  for (const v1::KernelFactor& factor : spec.other_experience())
    if (factor.version() == plan::kFactorVersion) experience.others.push_back(FromProto(factor));
  return experience;
}

void AddExperience(const std::vector<plan::KernelFactor>& learned, v1::PlanResult* result) {
  for (const plan::KernelFactor& factor : learned) {
    v1::KernelFactor& out = *result->add_experience();
    out.set_workload_key(factor.key);
    out.set_op(factor.op);
    out.set_layout(factor.layout);
    out.set_window(factor.window);
    out.set_log_factor(factor.log_factor);
    out.set_version(plan::kFactorVersion);
  }
}

v1::PlanReport ReportOf(const PlanChoice& choice, bool tuned) {
  v1::PlanReport report;
  for (size_t i = 0; i < choice.contenders.size(); ++i) {
    const Contender& contender = choice.contenders[i];
    v1::PlanReport::Contender& out = *report.add_contenders();
    out.set_name(contender.name);
    out.set_ns(contender.cost.ns);
    out.set_spread_ns(SpreadNs(contender.cost));
    out.set_calls(contender.cost.calls);
    out.set_measured(contender.cost.measured);
    out.set_substitutions(static_cast<int>(contender.plan.substitutions.size()));
    out.set_chosen(i == choice.chosen);
  }
  report.set_error_kernels(choice.error.kernels);
  report.set_error(choice.error.median);
  report.set_experience_kernels(choice.experience.kernels);
  report.set_experience_error(choice.experience.median);
  report.set_tuned(tuned);
  return report;
}

}  // namespace

absl::Status RunImport(const v1::StageStart& start, StageIo& io) {
  PrepareForParts(start);
  HEDDLE_ASSIGN_OR_RETURN(const std::string model, ReadModel(io));
  HEDDLE_ASSIGN_OR_RETURN(const Target target, ParseTarget(start.target()));
  plan::Plan plan;
  ModelOptions options = FromProto(start.import().options(), start, io);
  std::vector<std::string> warnings;
  options.import.warnings = &warnings;
  HEDDLE_ASSIGN_OR_RETURN(const graph::FusedGraph fused,
                          PrepareModel(model, options, target, {}, &plan));
  options.import.warnings = nullptr;  // a survey would warn again
  for (const std::string& warning : warnings) io.Warn(warning);
  v1::StageEvent event;
  v1::ImportResult* result = event.mutable_import();
  if (options.machine) result->set_machine(start.machine());
  result->set_plan(plan::ToText(plan));
  for (const graph::Task& task : graph::ExtractTasks(fused))
    AddTask(task, task.weight, true, result->mutable_tasks());
  // Of several blocks of rows, the largest one stands for all.
  const graph::Graph& graph = fused.graph;
  const size_t blocks = std::max<size_t>(graph.tables.blocks.size(), 1);
  for (size_t i = 0; i < graph.inputs.size() / blocks; ++i)
    result->add_inputs(Signature(graph, graph.inputs[i]));
  for (size_t i = 0; i < static_cast<size_t>(graph.NumResults()) / blocks; ++i)
    result->add_outputs(Signature(graph, graph.outputs[i]));
  result->set_kernels(static_cast<int>(fused.groups.size()));
  if (event.ByteSizeLong() > kMaxFrameBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the model has ", result->tasks_size(),
                                                   " tasks, whose text is over ",
                                                   kMaxFrameBytes >> 20, " MiB: split the model"));
  }
  if (start.import().survey() && (!start.import().survey_trees() || HasTrees(plan))) {
    HEDDLE_RETURN_IF_ERROR(AddSurvey(model, options, target, MemoryOf(start, target), result));
    result->set_surveyed(true);
  }
  io.Write(event);
  return absl::OkStatus();
}

absl::Status RunPlan(const v1::StageStart& start, StageIo& io) {
  PrepareForParts(start);
  const v1::PlanSpec& spec = start.plan();
  HEDDLE_ASSIGN_OR_RETURN(const std::string model, ReadModel(io));
  HEDDLE_ASSIGN_OR_RETURN(const Target target, ParseTarget(start.target()));
  std::map<std::string, double> times;
  for (const v1::PlanSpec::KernelTime& time : spec.times()) times[time.workload_key()] = time.ns();
  PlanSearch search;
  search.mode =
      spec.mode() == "sequential" ? PlanSearch::Mode::kSequential : PlanSearch::Mode::kJoint;
  search.time_limit = kPlanSearchLimit;
  search.memory_bytes = MemoryOf(start, target);
  if (spec.last() && !spec.plan().empty()) {
    HEDDLE_ASSIGN_OR_RETURN(std::vector<plan::Plan> plans, plan::ParsePlans(spec.plan()));
    search.tuned = std::move(plans.front());
    search.runners_up.assign(std::make_move_iterator(plans.begin() + 1),
                             std::make_move_iterator(plans.end()));
  }
  search.threads = static_cast<int>(std::max<size_t>(1, UsableCores().size()));  // the slot's
  search.progress = [&](int graph, double) { Report(io, graph, 2 * search.graphs, "graphs"); };
  HEDDLE_ASSIGN_OR_RETURN(const PlanChoice choice,
                          ChoosePlan(model, FromProto(spec.options(), start, io), target, times,
                                     search, ExperienceOf(spec)));
  for (const std::string& why : choice.refused)
    io.Warn(absl::StrCat("a plan is no contender: ", why));
  if (const std::string warning = TimedOutText(choice, search); !warning.empty()) io.Warn(warning);
  v1::StageEvent event;
  v1::PlanResult& result = *event.mutable_planned();
  *result.mutable_report() = ReportOf(choice, spec.last());
  AddExperience(choice.learned, &result);
  PlansToTune tuned = spec.last() ? PlansToTune{&choice.best()} : WhatToTune(choice);
  bool fits = SetTasks(tuned, times, &result);
  if (!fits && tuned.runner_up != nullptr) {
    tuned.runner_up = nullptr;
    fits = SetTasks(tuned, times, &result);
  }
  // Without the estimated plan, nobody would know whether the plan is the faster one once tuned.
  if (!fits && tuned.estimated != nullptr) (void)SetTasks({tuned.estimated}, times, &result);
  std::set<std::string> seen;
  for (const v1::TaskInfo& task : result.tasks()) seen.insert(task.key());
  // What the chosen plan and those that may yet beat it have and nobody has measured.
  const PlanCost& best = choice.best().cost;
  const size_t most = seen.size() + std::max<size_t>(16, times.size() / kFurtherShare);
  for (const Contender& contender : choice.contenders) {
    const bool chosen = &contender == &choice.best();
    if (spec.last() ||
        (!chosen && contender.cost.ns - kHopeful * SpreadNs(contender.cost, best) > best.ns))
      continue;
    for (const graph::Task& task : contender.tasks) {
      if (times.contains(task.key)) continue;
      result.set_survey(true);
      if (seen.size() < most && seen.insert(task.key).second)
        AddTask(task, 0, true, result.mutable_tasks());
    }
  }
  if (event.ByteSizeLong() > kMaxFrameBytes)
    return absl::InvalidArgumentError("the plan's tasks are too large for one message");
  io.Write(event);
  return absl::OkStatus();
}

absl::Status RunCompile(const v1::StageStart& start, StageIo& io) {
  PrepareForParts(start);
  const v1::CompileSpec& spec = start.compile();
  HEDDLE_ASSIGN_OR_RETURN(const std::string model, ReadModel(io));
  HEDDLE_ASSIGN_OR_RETURN(const Target target, ParseTarget(start.target()));
  CompileOptions options;
  options.model_name = spec.model_name();
  if (!spec.plan().empty()) {
    HEDDLE_ASSIGN_OR_RETURN(options.plan, plan::ParsePlan(spec.plan()));
  }
  options.progress = [&io](int done, int total, const std::string& label) {
    Report(io, done, total, label);
  };
  switch (spec.choice()) {
    case v1::SCHEDULE_DEFAULT:
      options.choice = ScheduleChoice::kDefault;
      break;
    case v1::SCHEDULE_NAIVE:
      options.choice = ScheduleChoice::kNaive;
      break;
    default:
      options.choice = ScheduleChoice::kTrace;
  }
  std::map<std::string, BestRecord> best;
  for (const v1::BestTrace& known : spec.best()) {
    BestRecord& record = best[known.workload_key()];
    record.median_ns = known.median_ns();
    if (known.trace() != kDefaultSchedule) record.trace = known.trace();
  }
  std::vector<std::string> warnings;
  const ModelOptions model_options = FromProto(spec.options(), start, io);
  const auto send = [&](const char* name) -> absl::Status {
    ChunkWriter module(io, name);
    const auto write = [&module](std::string_view bytes) {
      module.Append(bytes);
      return absl::OkStatus();
    };
    HEDDLE_RETURN_IF_ERROR(
        WriteCompiledModel(model, model_options, target, best, options, write, &warnings));
    module.End();
    return absl::OkStatus();
  };
  const ScheduleChoice choice = options.choice;
  HEDDLE_RETURN_IF_ERROR(send("module"));
  if (spec.with_default()) {
    options.choice = ScheduleChoice::kDefault;
    HEDDLE_RETURN_IF_ERROR(send("default"));
  }
  if (!spec.other_plan().empty()) {
    HEDDLE_ASSIGN_OR_RETURN(options.plan, plan::ParsePlan(spec.other_plan()));
    options.choice = choice;
    HEDDLE_RETURN_IF_ERROR(send("other"));
    if (spec.with_default()) {
      options.choice = ScheduleChoice::kDefault;
      HEDDLE_RETURN_IF_ERROR(send("other default"));
    }
  }
  for (const std::string& warning : warnings) io.Warn(warning);
  return absl::OkStatus();
}

}  // namespace heddle::worker
