#include "scheduler/ledger/stage_order.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/vocabulary/default_schedule.h"
#include "scheduler/ledger/known_records.h"
#include "scheduler/ledger/why_waiting.h"

namespace heddle::scheduler {
namespace {

// Time limits of stages. They only end what hangs; each candidate has a much shorter limit of its
// own.
constexpr int64_t kImportMs = 10 * 60 * 1000;
constexpr int64_t kSearchMs = 5 * 60 * 1000;
constexpr int64_t kLearnFromAllMs = 20 * 60 * 1000;  // a search that learns from all tasks
constexpr int64_t kCompileMs = 30 * 60 * 1000;
constexpr int64_t kPlanMs = 15 * 60 * 1000;
constexpr int64_t kCompareMs = 10 * 60 * 1000;
constexpr int64_t kCandidateMs = 30 * 1000;  // one build, or one measurement
constexpr int64_t kStageOverheadMs = 60 * 1000;
constexpr int64_t kLongestStageMs =
    int64_t{23} * 60 * 60 * 1000;  // a worker takes no more than a day
// Size of the results that one update is sent, the newest first. A gRPC message holds 4 MiB.
constexpr size_t kMaxUpdateBytes = 3 << 20;

// Tasks whose transfer samples a search is sent. With 128 samples each that is all it can use
// (cost_model/transfer/transfer.h).
constexpr int64_t kMaxOthers = 32;
constexpr size_t kMaxOthersBytes = 768 << 10;    // see SearchSpec
constexpr size_t kMaxExperienceBytes = 1 << 20;  // of the device, and of others; see PlanSpec

// The transfer samples that are related to a search of the workload, the nearest first: those of
// the store, and recent ones that are not on disk yet.
std::vector<TransferSamples> Join(std::vector<TransferSamples> recent,
                                  const std::vector<TransferSamples>& stored,
                                  const WorkloadId& search) {
  for (const TransferSamples& transfer_samples : stored) {
    const auto known = std::find_if(
        recent.begin(), recent.end(),
        [&](const TransferSamples& other) { return other.workload == transfer_samples.workload; });
    if (known == recent.end()) {
      recent.push_back(transfer_samples);
    } else if (!Replaces(known->learned, transfer_samples.learned)) {
      known->learned = transfer_samples.learned;
    }
  }
  std::stable_sort(recent.begin(), recent.end(),
                   [&](const TransferSamples& a, const TransferSamples& b) {
                     return Nearer(a.workload, b.workload, search);
                   });
  if (recent.size() > static_cast<size_t>(kMaxOthers)) recent.resize(kMaxOthers);
  return recent;
}

// Whether the search has done nothing yet but propose the default schedule for a survey, which it is about to learn.
bool HasOnlySurveyed(const Job& job, const Task& task) {
  return job.surveys > 0 && task.trials == 1 && task.open.empty() && task.known.total == 0;
}

// A new search learns from other tasks unless the job says otherwise (no_transfer). A survey begins the searches of all
// tasks before any has learned, so the first update after it begins them anew: what it learns keeps the search from
// proposing the default schedule again.
void PlanSearch(const JobLedger& ledger, const JobLedger::JobData& job,
                const JobLedger::TaskData& task, const Job& state, const Task& tuned,
                StageOrder* order, v1::SearchSpec* search) {
  const v1::JobSpec& spec = job.row.job.spec();
  const JobParams& params = state.params;
  search->set_workload(task.row.info.workload());
  search->set_strategy(params.strategy);
  search->set_seed(spec.seed());
  const bool anew = order->start.kind() == v1::STAGE_UPDATE && !spec.no_transfer() &&
                    HasOnlySurveyed(state, tuned);
  if (!anew) order->search_state = task.search_state;
  if (spec.no_transfer() || !order->search_state.empty()) return;
  TransferPlan& plan = order->transfer.emplace();
  plan.search = {task.row.info.key(), spec.target(), params.device_key};
  plan.label = task.row.info.label();
  plan.hurried =
      params.time_limit != absl::InfiniteDuration() || params.deadline != absl::InfiniteFuture();
  plan.recent = ledger.transfer_samples().Of(plan.search);
  plan.made.id = {plan.search.target, plan.search.device_key, params.strategy};
  plan.made.model.set_since(ledger.transfer_models().counted(plan.search.device_key));
  if (const auto* kept = ledger.transfer_models().Find(plan.made.id)) plan.kept = *kept;
  order->reads.related = plan.search;
}

// Sends the search the kept transfer model if that is fresh and suits, and transfer samples from
// which it can fit one. In an update's message there is no room for both, so the model goes alone.
// A model that the stage fits is kept if it suits others; not where a fresh one is kept already,
// unless the worker could not use that. If there are more tasks than the message holds, a propose
// stage fits a model to all of them. From then on only such a model replaces it, and searches of
// workloads that were measured before fit one for themselves alone.
void FillTransfer(TransferPlan plan, const OrderInputs& inputs, StageOrder* order,
                  v1::SearchSpec* search) {
  const WorkloadId& id = plan.search;
  const absl::StatusOr<std::vector<TransferSamples>>& stored = inputs.related;
  if (!stored.ok()) {
    order->warnings.push_back(absl::StrCat(
        "task ", plan.label,
        " begins without what other tasks learned before: ", stored.status().message()));
  }
  std::vector<TransferSamples> others =
      Join(std::move(plan.recent), stored.ok() ? *stored : std::vector<TransferSamples>(), id);
  // A job without a device may get the very one on which its workload was measured. It learns those
  // records then, so it must not learn them as another task's now.
  if (id.device_key.empty()) {
    std::erase_if(others, [&](const TransferSamples& e) { return e.workload.key == id.key; });
  }
  const bool replaced_soon = inputs.fit_under_way && plan.kept && LearnedFromAll(*plan.kept);
  const bool fresh = plan.kept && (!IsStale(*plan.kept) || replaced_soon);
  if (fresh &&
      MayStartFrom(*plan.kept, id, inputs.measured, others.empty() ? nullptr : &others[0])) {
    search->set_transfer_model(plan.kept->model());
    if (order->start.kind() == v1::STAGE_UPDATE) return;
  }
  size_t bytes = 0;
  int own = 0;
  for (const TransferSamples& transfer_samples : others) {
    const std::string& samples = transfer_samples.learned.samples();
    bytes += samples.size();
    if (bytes > kMaxOthersBytes) break;
    v1::RelatedSamples& told = *search->add_others();
    told.set_samples(samples);
    told.set_weight(WeightOf(RelatednessOf(transfer_samples.workload, id)));
    v1::TransferModel::Teacher& teacher = *plan.made.model.add_teachers();
    teacher.set_workload_key(transfer_samples.workload.key);
    teacher.set_target(transfer_samples.workload.target);
    teacher.set_device_key(transfer_samples.workload.device_key);
    teacher.set_measured(transfer_samples.learned.measured());
    own += transfer_samples.workload.key == id.key;
  }
  // The fitted model does not suit others if it learned mostly from this task's workload elsewhere,
  // or if the kept one has this task itself as a teacher, which the fitted one lacks.
  const bool for_others =
      (!plan.kept || !Taught(*plan.kept, id)) && 2 * own <= plan.made.model.teachers_size();
  const bool asked = !fresh || !search->transfer_model().empty();
  const bool many = stored.ok() && stored->size() >= static_cast<size_t>(kMaxOthers);
  const bool from_all = many && !fresh && !inputs.measured && !inputs.fit_under_way && for_others &&
                        !id.device_key.empty() && !plan.hurried &&
                        order->start.kind() == v1::STAGE_PROPOSE;
  if (from_all) {
    order->learns_from_all = id;
    order->start.set_time_limit_ms(kLearnFromAllMs);
  }
  const bool keeps = from_all || !plan.kept || !LearnedFromAll(*plan.kept);
  if (asked && for_others && keeps && !id.device_key.empty())
    order->transfer_model = std::move(plan.made);
}

// Adds one result to an update; false: the message is full.
bool AddResult(const std::string& trace, v1::Outcome outcome, double median_ns, size_t* bytes,
               v1::UpdateSpec* update) {
  if (outcome == v1::OUTCOME_LOST) return true;  // never train on infrastructure faults
  constexpr size_t kRest = 32;                   // bytes of a result besides its trace, at most
  *bytes += trace.size() + kRest;
  if (*bytes > kMaxUpdateBytes) return false;
  v1::SearchResult& result = *update->add_results();
  result.set_trace(trace);
  result.set_valid(outcome == v1::OUTCOME_OK);
  result.set_median_ns(median_ns);
  return true;
}

// The first update of a task learns every known record. Later ones learn the results that no update
// has learned.
void PlanUpdate(const Dispatcher& dispatcher, const JobLedger::JobData& job,
                const StartStage& start, StageOrder* order) {
  const Job& state = *dispatcher.FindJob(start.job);
  const auto index = static_cast<size_t>(start.task->value);
  if (state.tasks[index].unlearned.known) {
    v1::RecordQuery& query = order->reads.warm.emplace();
    query.set_workload_key(job.tasks[index].row.info.key());
    query.set_target(job.row.job.spec().target());
    query.set_device_key(state.params.device_key);
    query.set_limit(kMaxWarmRecords);
    return;
  }
  v1::UpdateSpec* update = order->start.mutable_update();
  const std::vector<CandidateId> results = ResultsToLearn(job, *start.task, start.before);
  size_t bytes = 0;
  for (auto id = results.rbegin(); id != results.rend();
       ++id) {  // the newest go first, in case not all fit
    const CandidateRow& candidate = job.candidates.at(*id);
    if (!AddResult(candidate.trace, *candidate.outcome, candidate.median_ns, &bytes, update)) break;
  }
  std::reverse(update->mutable_results()->pointer_begin(),
               update->mutable_results()->pointer_end());
}

void FillWarm(const std::vector<v1::Record>& records, v1::UpdateSpec* update) {
  size_t bytes = 0;
  for (const v1::Record& record : records) {
    if (!AddResult(record.trace(), record.measurement().outcome(), record.median_ns(), &bytes,
                   update))
      break;
  }
}

// Takes the trace if it is faster than `best`. Returns whether it did.
bool Consider(const std::string& trace, double median_ns, v1::BestTrace* best) {
  if (median_ns <= 0 || (best->median_ns() > 0 && best->median_ns() <= median_ns)) return false;
  best->set_trace(trace);
  best->set_median_ns(median_ns);
  return true;
}

// Begins with the job's own best of each task, which may not be on disk yet. Behind them stand the tasks that keep the default schedule,
// with its time, so that a module with blocks of rows knows what each of its kernels takes.
void PlanCompile(const Dispatcher& dispatcher, const JobLedger::JobData& job,
                 const StartStage& start, v1::ScheduleChoice choice, StageOrder* order) {
  const v1::JobSpec& spec = job.row.job.spec();
  v1::CompileSpec& compile = *order->start.mutable_compile();
  *compile.mutable_options() = spec.options();
  compile.set_model_name(spec.name());
  compile.set_plan(job.row.job.plan());
  compile.set_choice(choice);
  if (choice != v1::SCHEDULE_BEST) return;
  const Job& state = *dispatcher.FindJob(start.job);
  if (!start.fetch && state.params.compare) {
    compile.set_with_default(state.compared == 0);
    compile.set_other_plan(job.row.job.estimated_plan());
  }
  std::vector<int> places(job.tasks.size(), -1);  // in `best`
  std::vector<v1::BestTrace> kept;
  for (size_t i = 0; i < job.tasks.size(); ++i) {
    const JobLedger::TaskData& task = job.tasks[i];
    if (state.tasks[i].keep_default) {
      const double ns = Faster(task.untuned_ns, task.row.known.untuned_ns);
      if (ns <= 0) continue;
      v1::BestTrace& plain = kept.emplace_back();
      plain.set_workload_key(task.row.info.key());
      plain.set_trace(std::string(kDefaultSchedule));
      plain.set_median_ns(ns);
      continue;
    }
    places[i] = compile.best_size();
    compile.add_best()->set_workload_key(task.row.info.key());
    order->reads.best.push_back({{task.row.info.key(), spec.target(), state.params.device_key},
                                 /*measured_here=*/!state.TrustsImports(state.tasks[i])});
  }
  for (const auto& [id, candidate] : job.candidates) {
    const int place = places[static_cast<size_t>(candidate.task)];
    if (place >= 0) Consider(candidate.trace, candidate.median_ns, compile.mutable_best(place));
  }
  for (v1::BestTrace& plain : kept) *compile.add_best() = std::move(plain);
}

// `records`: of the first tasks of `best`. Those behind them keep the default schedule.
void FillBest(const std::vector<std::vector<v1::Record>>& records, StageOrder* order) {
  v1::CompileSpec& compile = *order->start.mutable_compile();
  const auto own = compile.best();
  compile.clear_best();
  for (int i = 0; i < own.size(); ++i) {
    v1::BestTrace best;
    best.set_workload_key(own[i].workload_key());
    Consider(own[i].trace(), own[i].median_ns(), &best);
    const v1::Record* chosen = nullptr;  // null: the job's own trial
    if (static_cast<size_t>(i) < records.size()) {
      for (const v1::Record& record : records[static_cast<size_t>(i)]) {
        if (Consider(record.trace(), record.median_ns(), &best)) chosen = &record;
      }
    }
    if (best.median_ns() <= 0) continue;
    *compile.add_best() = best;
    order->chosen_ns[best.workload_key()] = best.median_ns();
    if (chosen == nullptr || chosen->imported_by().empty()) continue;
    v1::Claim& claim = order->claims.emplace_back();
    claim.set_workload_key(best.workload_key());
    claim.set_record(chosen->id());
    claim.set_ns(best.median_ns());
    claim.set_imported_by(chosen->imported_by());
  }
}

// The kernels that the job's modules have by imported records. A task of another plan than the job's has
// the uses that it has there.
std::vector<ClaimedKernel> ClaimedKernels(const JobLedger::JobData& job, const Job& state) {
  std::vector<ClaimedKernel> kernels;
  for (const v1::Claim& claim : job.row.job.claims()) {
    for (size_t i = 0; i < job.tasks.size(); ++i) {
      const JobLedger::TaskData& task = job.tasks[i];
      if (task.row.info.key() != claim.workload_key()) continue;
      const Task& found = state.tasks[i];
      kernels.push_back({claim, found.weight > 0 ? found.weight : found.estimated_weight,
                         Faster(task.untuned_ns, task.row.known.untuned_ns)});
    }
  }
  return kernels;
}

// The times that plans are judged by. A survey compares default schedules, so that all kernels have had
// the same chance.
void FillPlan(const JobLedger::JobData& job, const Job& state, v1::PlanSpec* plan) {
  const v1::JobSpec& spec = job.row.job.spec();
  *plan->mutable_options() = spec.options();
  plan->set_mode(spec.plan_search().empty() ? "joint" : spec.plan_search());
  plan->set_plan(job.row.job.plan());
  plan->set_last(state.settled || !state.stop.empty());
  for (size_t i = 0; i < job.tasks.size(); ++i) {
    const JobLedger::TaskData& task = job.tasks[i];
    // A kernel of which only tuned schedules are known is predicted, so that all times are made alike.
    const double ns = plan->last() ? Faster(task.best_ns, state.tasks[i].known.best_ns)
                                   : Faster(task.untuned_ns, task.row.known.untuned_ns);
    if (ns <= 0) continue;
    v1::PlanSpec::KernelTime& time = *plan->add_times();
    time.set_workload_key(task.row.info.key());
    time.set_ns(ns);
  }
}

// What other jobs found about costs. It is of default schedules, so it says nothing of tuned ones.
void PlanExperience(const JobLedger::JobData& job, const JobParams& params, StageOrder* order) {
  if (order->start.plan().last() || job.row.job.spec().no_transfer() || params.device_key.empty())
    return;
  order->reads.experience = {job.row.job.spec().target(), params.device_key};
}

void FillExperience(const absl::StatusOr<Experience>& found, StageOrder* order) {
  if (!found.ok()) {
    order->warnings.push_back(absl::StrCat("the plan is chosen without what earlier jobs found: ",
                                           found.status().message()));
    return;
  }
  const auto fill = [](const std::vector<v1::KernelFactor>& factors, auto* out) {
    constexpr size_t kRest = 8;  // bytes of a factor besides its own message, at most
    size_t bytes = 0;
    for (const v1::KernelFactor& factor : factors) {
      bytes += factor.ByteSizeLong() + kRest;
      if (bytes > kMaxExperienceBytes) return;
      *out->Add() = factor;
    }
  };
  v1::PlanSpec& plan = *order->start.mutable_plan();
  fill(found->device, plan.mutable_experience());
  fill(found->others, plan.mutable_other_experience());
}

// `candidates`: the most that a profile stage may be fed.
int64_t TimeLimitMs(const StartStage& start, int candidates) {
  switch (start.kind) {
    case v1::STAGE_IMPORT:
      return kImportMs;
    case v1::STAGE_PLAN:
      return kPlanMs;
    case v1::STAGE_COMPILE:
      return kCompileMs;
    case v1::STAGE_COMPARE:
      return kCompareMs;
    case v1::STAGE_BUILD:
      return kStageOverheadMs + kCandidateMs * static_cast<int64_t>(start.candidates.size());
    // It waits for builds between measurements.
    case v1::STAGE_PROFILE:
      return kStageOverheadMs + 2 * kCandidateMs * candidates;
    default:
      return kSearchMs;
  }
}

}  // namespace

double WeightOf(Relatedness relatedness) {
  return relatedness == Relatedness::kSame ? 1 : relatedness == Relatedness::kDevice ? 0.5 : 0.25;
}

std::vector<CandidateId> ResultsToLearn(const JobLedger::JobData& job, TaskIndex task,
                                        CandidateId before) {
  std::vector<CandidateId> results;
  for (const auto& [id, candidate] : job.candidates) {
    if (id >= before) break;
    if (candidate.task == task.value && !candidate.learned && candidate.outcome)
      results.push_back(id);
  }
  return results;
}

v1::StageInput MakeProfileInput(const JobLedger& ledger, JobId job, CandidateId id) {
  const JobLedger::JobData& data = ledger.data(job);
  const CandidateRow& candidate = data.candidates.at(id);
  v1::StageInput input;
  v1::ProfileItem& item = *input.mutable_profile();
  item.mutable_candidate()->set_id(id.value);
  item.mutable_candidate()->set_trace(candidate.trace);
  item.mutable_candidate()->set_origin(candidate.origin);
  if (const v1::Artifact* artifact = data.ArtifactOf(id)) *item.mutable_artifact() = *artifact;
  return input;
}

StageOrder MakeOrder(const Dispatcher& dispatcher, const JobLedger& ledger, const StartStage& start,
                     v1::ScheduleChoice choice) {
  const JobLedger::JobData& job = ledger.data(start.job);
  const Job& state = *dispatcher.FindJob(start.job);
  const JobParams& params = state.params;
  const v1::JobSpec& spec = job.row.job.spec();
  StageOrder order;
  order.attempt = start.attempt;
  order.slot = start.slot;
  order.purpose = absl::StrCat(JobName(start.job.value), " ", StageName(start.kind));
  v1::StageStart& out = order.start;
  out.set_job(JobName(start.job.value));
  out.set_job_created_unix_ns(job.row.job.created_unix_ns());
  out.set_attempt_id(start.attempt.value);
  out.set_kind(start.kind);
  out.set_slot(start.slot.slot);
  const int fed = params.batch * std::max(1, params.pipeline_depth);
  out.set_time_limit_ms(std::min(kLongestStageMs, TimeLimitMs(start, fed)));
  out.set_candidate_time_limit_ms(kCandidateMs);
  out.set_target(spec.target());
  // An import fixes the job's machine. Whatever else is measured meanwhile, the job keeps that one.
  out.set_machine(start.kind == v1::STAGE_IMPORT
                      ? ledger.MachineOf(DeviceKeyFor(dispatcher, start.job).value_or(""))
                      : job.row.job.machine());
  const JobLedger::TaskData* task =
      start.task ? &job.tasks[static_cast<size_t>(start.task->value)] : nullptr;
  switch (start.kind) {
    case v1::STAGE_IMPORT:
      *out.mutable_import()->mutable_options() = spec.options();
      out.mutable_import()->set_survey(params.plan);
      out.mutable_import()->set_survey_trees(spec.plan_search().empty());
      order.model_digest = job.row.job.model_digest();
      order.parts_digest = job.row.job.parts_digest();
      break;
    case v1::STAGE_PLAN:
      FillPlan(job, state, out.mutable_plan());
      PlanExperience(job, params, &order);
      order.model_digest = job.row.job.model_digest();
      order.parts_digest = job.row.job.parts_digest();
      break;
    case v1::STAGE_COMPILE:
      PlanCompile(dispatcher, job, start, choice, &order);
      order.model_digest = job.row.job.model_digest();
      order.parts_digest = job.row.job.parts_digest();
      break;
    case v1::STAGE_COMPARE: {
      v1::CompareSpec& compare = *out.mutable_compare();
      compare.set_module(job.row.job.module_digest());
      compare.set_default_module(job.row.job.default_digest());
      compare.set_threads(std::max(1, params.threads));
      order.modules = {compare.module(), compare.default_module()};
      order.claimed = ClaimedKernels(job, state);
      if (job.row.job.other_digest().empty()) break;
      compare.set_other_module(job.row.job.other_digest());
      compare.set_other_default(job.row.job.other_default_digest());
      order.modules.push_back(compare.other_module());
      order.modules.push_back(compare.other_default());
      break;
    }
    case v1::STAGE_PROPOSE:
      PlanSearch(ledger, job, *task, state, state.tasks[static_cast<size_t>(start.task->value)],
                 &order, out.mutable_propose()->mutable_search());
      out.mutable_propose()->set_count(start.count);
      break;
    case v1::STAGE_UPDATE:
      PlanSearch(ledger, job, *task, state, state.tasks[static_cast<size_t>(start.task->value)],
                 &order, out.mutable_update()->mutable_search());
      PlanUpdate(dispatcher, job, start, &order);
      break;
    case v1::STAGE_BUILD:
      out.mutable_build()->set_workload(task->row.info.workload());
      for (CandidateId id : start.candidates) {
        v1::StageInput input = MakeProfileInput(ledger, start.job, id);
        v1::Candidate candidate = input.profile().candidate();
        *input.mutable_build()->mutable_candidate() = std::move(candidate);
        order.inputs.push_back(std::move(input));
      }
      break;
    default:
      out.mutable_profile()->set_workload(task->row.info.workload());
      out.mutable_profile()->set_repeats(spec.repeats());
      out.mutable_profile()->set_min_repeat_us(spec.min_repeat_us());
      out.mutable_profile()->set_threads(std::max(1, params.threads));
      for (CandidateId id : start.candidates)
        order.inputs.push_back(MakeProfileInput(ledger, start.job, id));
      order.input_open = true;
      break;
  }
  return order;
}

OrderInputs FetchInputs(RecordStore* store, const OrderReads& reads) {
  const auto query = [&](const v1::RecordQuery& wanted) {
    absl::StatusOr<std::vector<v1::Record>> records = store->Query(wanted);
    return records.ok() ? *std::move(records) : std::vector<v1::Record>();
  };
  OrderInputs inputs;
  if (reads.related) {
    inputs.related = store->FindRelatedSamples(*reads.related, kMaxOthers);
    const absl::StatusOr<KnownRecords> known = store->Known(*reads.related);
    inputs.measured = known.ok() && known->total > 0;
  }
  if (reads.experience) {
    inputs.experience = store->FindExperience(reads.experience->target,
                                              reads.experience->device_key, kMaxExperience);
  }
  if (reads.warm) inputs.warm = query(*reads.warm);
  for (const OrderReads::Best& best : reads.best) {
    if (best.measured_here) {
      const auto found = store->BestMeasured(best.workload);
      const bool any = found.ok() && found->has_value();
      inputs.best.push_back(any ? std::vector<v1::Record>{**found} : std::vector<v1::Record>());
      continue;
    }
    v1::RecordQuery wanted;
    wanted.set_workload_key(best.workload.key);
    wanted.set_target(best.workload.target);
    wanted.set_device_key(best.workload.device_key);
    wanted.set_best_only(true);
    wanted.set_valid_only(true);
    inputs.best.push_back(query(wanted));
  }
  return inputs;
}

void CompleteOrder(const OrderInputs& inputs, StageOrder* order) {
  v1::StageStart& start = order->start;
  if (order->transfer) {
    v1::SearchSpec* search = start.kind() == v1::STAGE_UPDATE
                                 ? start.mutable_update()->mutable_search()
                                 : start.mutable_propose()->mutable_search();
    FillTransfer(*std::move(order->transfer), inputs, order, search);
    order->transfer.reset();
  }
  if (order->reads.experience) FillExperience(inputs.experience, order);
  if (order->reads.warm) FillWarm(inputs.warm, start.mutable_update());
  if (!order->reads.best.empty()) FillBest(inputs.best, order);
  order->reads = {};
}

}  // namespace heddle::scheduler
