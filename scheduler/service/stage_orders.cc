#include "scheduler/service/stage_orders.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/ledger/why_waiting.h"

namespace heddle::scheduler {
namespace {

// Limits of the stages. Generous: they are for what hangs; a candidate has its own, much shorter
// one.
constexpr int64_t kImportMs = 10 * 60 * 1000;
constexpr int64_t kSearchMs = 5 * 60 * 1000;
constexpr int64_t kCompileMs = 30 * 60 * 1000;
constexpr int64_t kCandidateMs = 30 * 1000;  // one build, or one measurement
constexpr int64_t kStageOverheadMs = 60 * 1000;
constexpr int64_t kMaxWarmRecords = 4096;  // the newest; a model learns little from more
// Of the results of one update, the newest first: under the 4 MiB that gRPC takes as one message.
constexpr size_t kMaxUpdateBytes = 3 << 20;

// Tasks whose experience a search is told of: 128 samples each are as many as it takes
// (cost_model/transfer/transfer.h).
constexpr int64_t kMaxOthers = 32;
constexpr size_t kMaxOthersBytes = 768 << 10;  // see SearchSpec

// Of a sample. What was learned elsewhere is told where nearer tasks leave room, and counts less.
double WeightOf(Kinship kinship) {
  return kinship == Kinship::kSame ? 1 : kinship == Kinship::kDevice ? 0.5 : 0.25;
}

// Experience that is kin to a search of the workload, the nearest first: of the store, and what is
// not on disk yet. `stored` is whether the store could be asked.
std::vector<Experience> OthersOf(const JobLedger& book, RecordStore* store, const WorkloadId& id,
                                 int64_t limit, absl::Status* stored) {
  std::vector<Experience> others = book.experience().Of(id);
  absl::StatusOr<std::vector<Experience>> found = store->OthersExperience(id, limit);
  *stored = found.status();
  for (Experience& experience : found.ok() ? *found : std::vector<Experience>()) {
    const auto known = std::find_if(others.begin(), others.end(), [&](const Experience& other) {
      return other.workload == experience.workload;
    });
    if (known == others.end()) {
      others.push_back(std::move(experience));
    } else if (!Replaces(known->learned, experience.learned)) {
      known->learned = std::move(experience.learned);
    }
  }
  std::stable_sort(others.begin(), others.end(), [&](const Experience& a, const Experience& b) {
    return Nearer(a.workload, b.workload, id);
  });
  if (others.size() > static_cast<size_t>(limit)) others.resize(static_cast<size_t>(limit));
  return others;
}

// A search that begins learns from what the database holds, if the job wants that: from the model
// that is kept, or, where that is old or would be the wrong one, from the experience itself; then
// it hands on the model it fits, unless it would be the wrong one for others. A worker that cannot
// use the model falls back to the experience; beside an update's results there is no room for both.
void FillSearch(const JobLedger& book, const JobLedger::JobData& job,
                const JobLedger::TaskData& task, const JobParams& params, RecordStore* store,
                StageOrder* order, v1::SearchSpec* search) {
  search->set_workload(task.info.workload());
  search->set_strategy(params.strategy);
  search->set_seed(job.row.job.spec().seed());
  if (job.row.job.spec().no_transfer() || !task.search_state.empty()) return;
  const WorkloadId id{task.info.key(), job.row.job.spec().target(), params.device_key};
  absl::Status stored;
  std::vector<Experience> others = OthersOf(book, store, id, kMaxOthers, &stored);
  // A job that has no device yet may get the very one that its workload taught on: it learns from
  // those records once it has.
  if (id.device_key.empty()) {
    std::erase_if(others, [&](const Experience& e) { return e.workload.key == id.key; });
  }
  if (!stored.ok()) {
    order->warnings.push_back(
        absl::StrCat("task ", task.info.label(),
                     " begins without what other tasks learned before: ", stored.message()));
  }
  PutOthersModel made{{id.target, id.device_key, params.strategy}, {}};
  made.model.set_since(book.others_models().counted(id.device_key));
  const v1::OthersModel* kept = book.others_models().Find(made.id);
  const bool fresh = kept != nullptr && !IsStale(*kept);
  if (fresh && Suits(*kept, id, others.empty() ? nullptr : &others[0])) {
    search->set_others_model(kept->model());
    if (order->start.kind() == v1::STAGE_UPDATE) return;
  }
  size_t bytes = 0;
  int own = 0;
  for (const Experience& experience : others) {
    const std::string& samples = experience.learned.samples();
    bytes += samples.size();
    if (bytes > kMaxOthersBytes) break;
    v1::OtherExperience& told = *search->add_others();
    told.set_samples(samples);
    told.set_weight(WeightOf(KinshipOf(experience.workload, id)));
    v1::OthersModel::Teacher& teacher = *made.model.add_teachers();
    teacher.set_workload_key(experience.workload.key);
    teacher.set_target(experience.workload.target);
    teacher.set_device_key(experience.workload.device_key);
    teacher.set_measured(experience.learned.measured());
    own += experience.workload.key == id.key;
  }
  // Others get none that lacks one of its teachers for being this task's own, or that is mostly of
  // this task's workload elsewhere.
  const bool for_others =
      (kept == nullptr || !Taught(*kept, id)) && 2 * own <= made.model.teachers_size();
  const bool asked = !fresh || !search->others_model().empty();
  if (asked && for_others && !id.device_key.empty()) order->others_model = std::move(made);
}

// False when the message is full.
bool AddResult(const std::string& trace, v1::Outcome outcome, double median_ns, size_t* bytes,
               v1::UpdateSpec* update) {
  if (outcome == v1::OUTCOME_LOST) return true;  // never train on infrastructure faults
  constexpr size_t kRest = 32;                   // of a result beside its trace, at most
  *bytes += trace.size() + kRest;
  if (*bytes > kMaxUpdateBytes) return false;
  v1::SearchResult& result = *update->add_results();
  result.set_trace(trace);
  result.set_valid(outcome == v1::OUTCOME_OK);
  result.set_median_ns(median_ns);
  return true;
}

void FillUpdate(const Dispatcher& dispatcher, const JobLedger::JobData& job, RecordStore* store,
                const StartStage& start, v1::UpdateSpec* update) {
  const Job& state = *dispatcher.FindJob(start.job);
  const JobLedger::TaskData& task = job.tasks[static_cast<size_t>(start.task->value)];
  size_t bytes = 0;
  if (state.tasks[static_cast<size_t>(start.task->value)].unlearned.known) {
    v1::RecordQuery query;
    query.set_workload_key(task.info.key());
    query.set_target(job.row.job.spec().target());
    query.set_device_key(state.params.device_key);
    query.set_limit(kMaxWarmRecords);
    absl::StatusOr<std::vector<v1::Record>> records = store->Query(query);
    if (records.ok()) {
      for (const v1::Record& record : *records) {
        if (!AddResult(record.trace(), record.measurement().outcome(), record.median_ns(), &bytes,
                       update))
          break;
      }
    }
    return;
  }
  for (auto it = job.candidates.rbegin(); it != job.candidates.rend(); ++it) {
    const JobLedger::CandidateData& candidate = it->second;
    if (it->first >= start.before || candidate.task != start.task->value || candidate.learned ||
        !candidate.outcome)
      continue;
    if (!AddResult(candidate.trace, *candidate.outcome, candidate.median_ns, &bytes, update)) break;
  }
  std::reverse(update->mutable_results()->pointer_begin(),
               update->mutable_results()->pointer_end());
}

void FillCompile(const Dispatcher& dispatcher, const JobLedger::JobData& job, RecordStore* store,
                 const StartStage& start, v1::ScheduleChoice choice, v1::CompileSpec* compile) {
  const v1::JobSpec& spec = job.row.job.spec();
  *compile->mutable_options() = spec.options();
  compile->set_model_name(spec.name());
  compile->set_choice(choice);
  if (choice != v1::SCHEDULE_BEST) return;
  for (size_t i = 0; i < job.tasks.size(); ++i) {
    v1::BestTrace best;
    best.set_workload_key(job.tasks[i].info.key());
    auto consider = [&](const std::string& trace, double median_ns) {
      if (median_ns <= 0 || (best.median_ns() > 0 && best.median_ns() <= median_ns)) return;
      best.set_trace(trace);
      best.set_median_ns(median_ns);
    };
    v1::RecordQuery query;
    query.set_workload_key(best.workload_key());
    query.set_target(spec.target());
    query.set_device_key(dispatcher.FindJob(start.job)->params.device_key);
    query.set_best_only(true);
    query.set_valid_only(true);
    absl::StatusOr<std::vector<v1::Record>> records = store->Query(query);
    if (records.ok()) {
      for (const v1::Record& record : *records) consider(record.trace(), record.median_ns());
    }
    // The newest results may not be on disk yet.
    for (const auto& [id, candidate] : job.candidates) {
      if (candidate.task == static_cast<int>(i)) consider(candidate.trace, candidate.median_ns);
    }
    if (best.median_ns() > 0) *compile->add_best() = best;
  }
}

// `candidates`: the most a profile stage may take.
int64_t TimeLimitMs(const StartStage& start, int candidates) {
  switch (start.kind) {
    case v1::STAGE_IMPORT:
      return kImportMs;
    case v1::STAGE_COMPILE:
      return kCompileMs;
    case v1::STAGE_BUILD:
      return kStageOverheadMs + kCandidateMs * static_cast<int64_t>(start.candidates.size());
    // Waits for builds between measurements.
    case v1::STAGE_PROFILE:
      return kStageOverheadMs + 2 * kCandidateMs * candidates;
    default:
      return kSearchMs;
  }
}

}  // namespace

v1::StageInput MakeProfileInput(const JobLedger& book, JobId job, CandidateId id) {
  const JobLedger::CandidateData& candidate = book.data(job).candidates.at(id);
  v1::StageInput input;
  v1::ProfileItem& item = *input.mutable_profile();
  item.mutable_candidate()->set_id(id.value);
  item.mutable_candidate()->set_trace(candidate.trace);
  item.mutable_candidate()->set_origin(candidate.origin);
  if (candidate.artifact != nullptr) *item.mutable_artifact() = *candidate.artifact;
  return input;
}

StageOrder MakeOrder(const Dispatcher& dispatcher, const JobLedger& book, RecordStore* store,
                     const StartStage& start, v1::ScheduleChoice choice) {
  const JobLedger::JobData& job = book.data(start.job);
  const JobParams& params = dispatcher.FindJob(start.job)->params;
  const v1::JobSpec& spec = job.row.job.spec();
  StageOrder order;
  order.attempt = start.attempt;
  order.slot = start.slot;
  order.purpose = absl::StrCat(JobName(start.job.value), " ", StageName(start.kind));
  v1::StageStart& out = order.start;
  out.set_job(JobName(start.job.value));
  out.set_attempt_id(start.attempt.value);
  out.set_kind(start.kind);
  out.set_slot(start.slot.slot);
  out.set_time_limit_ms(TimeLimitMs(start, params.batch * std::max(1, params.pipeline_depth)));
  out.set_candidate_time_limit_ms(kCandidateMs);
  out.set_target(spec.target());
  const JobLedger::TaskData* task =
      start.task ? &job.tasks[static_cast<size_t>(start.task->value)] : nullptr;
  switch (start.kind) {
    case v1::STAGE_IMPORT:
      *out.mutable_import()->mutable_options() = spec.options();
      order.model_digest = job.row.job.model_digest();
      break;
    case v1::STAGE_COMPILE:
      FillCompile(dispatcher, job, store, start, choice, out.mutable_compile());
      order.model_digest = job.row.job.model_digest();
      break;
    case v1::STAGE_PROPOSE:
      FillSearch(book, job, *task, params, store, &order, out.mutable_propose()->mutable_search());
      out.mutable_propose()->set_count(start.count);
      order.search_state = task->search_state;
      break;
    case v1::STAGE_UPDATE:
      FillSearch(book, job, *task, params, store, &order, out.mutable_update()->mutable_search());
      FillUpdate(dispatcher, job, store, start, out.mutable_update());
      order.search_state = task->search_state;
      break;
    case v1::STAGE_BUILD:
      out.mutable_build()->set_workload(task->info.workload());
      for (CandidateId id : start.candidates) {
        v1::StageInput input = MakeProfileInput(book, start.job, id);
        v1::Candidate candidate = input.profile().candidate();
        *input.mutable_build()->mutable_candidate() = std::move(candidate);
        order.inputs.push_back(std::move(input));
      }
      break;
    default:
      out.mutable_profile()->set_workload(task->info.workload());
      out.mutable_profile()->set_repeats(spec.repeats());
      out.mutable_profile()->set_min_repeat_us(spec.min_repeat_us());
      out.mutable_profile()->set_threads(std::max(1, params.threads));
      for (CandidateId id : start.candidates)
        order.inputs.push_back(MakeProfileInput(book, start.job, id));
      order.input_open = true;
      break;
  }
  return order;
}

}  // namespace heddle::scheduler
