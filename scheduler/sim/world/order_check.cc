#include "scheduler/sim/world/order_check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/vocabulary/default_schedule.h"
#include "scheduler/sim/world/stage_work.h"

namespace heddle::sim {
namespace {

// The fastest valid record that the read could give; of several alike, the latest.
v1::BestTrace BestOf(RecordStore* store, const OrderReads::Best& read) {
  v1::RecordQuery query;
  query.set_workload_key(read.workload.key);
  query.set_target(read.workload.target);
  query.set_device_key(read.workload.device_key);
  query.set_valid_only(true);
  query.set_limit(kMaxQueryLimit);
  v1::BestTrace best;
  const auto records = store->Query(query);
  for (const v1::Record& record : *records) {
    if (read.measured_here && !record.imported_by().empty()) continue;
    const double faster = Faster(best.median_ns(), record.median_ns());
    if (faster == best.median_ns()) continue;
    best.set_median_ns(faster);
    best.set_trace(record.trace());
  }
  return best;
}

const v1::SearchSpec& SearchOf(const v1::StageStart& start) {
  return start.has_update() ? start.update().search() : start.propose().search();
}

}  // namespace

// ---- what happens ----

void OrderCheck::Loaded(const StoredJob& job) {
  Candidates& candidates = seen_[JobId{job.row.id}];
  for (const CandidateRow& row : job.candidates) {
    candidates[CandidateId{row.id}] = {TaskIndex{row.task}, row.trace, row.outcome, row.median_ns,
                                       row.learned};
  }
}

void OrderCheck::AfterStep(const Event& event, const std::vector<Change>& changes) {
  const auto* end = std::get_if<StageFinished>(&event);
  const auto* proposed = end == nullptr ? nullptr : std::get_if<Proposed>(&end->result);
  const auto* updated = end == nullptr ? nullptr : std::get_if<Updated>(&end->result);
  if (updated != nullptr) taught_->samples.insert(updated->transfer_samples.samples());
  if (updated != nullptr && updated->fitted) taught_->models.insert(updated->fitted->model.model());
  if (proposed != nullptr && proposed->fitted)
    taught_->models.insert(proposed->fitted->model.model());
  for (const Change& change : changes) {
    if (const auto* add = std::get_if<AddCandidates>(&change)) {
      for (int i = 0; i < add->count; ++i) {
        seen_[add->job][CandidateId{add->first.value + i}] = {
            add->task, proposed->candidates[static_cast<size_t>(i)].trace(), std::nullopt};
      }
    } else if (const auto* done = std::get_if<FinishCandidate>(&change)) {
      Seen& seen = seen_[done->job][done->candidate];
      seen.outcome = done->outcome;
      const auto* profiled = std::get_if<CandidateProfiled>(&event);
      if (done->outcome == v1::OUTCOME_OK && profiled != nullptr)
        seen.median_ns = profiled->median_ns;
    } else if (const auto* learned = std::get_if<MarkLearned>(&change)) {
      for (auto& [id, seen] : seen_[learned->job]) {
        if (id >= learned->before) break;
        if (seen.task == learned->task && seen.outcome) seen.learned = true;
      }
    }
  }
}

const OrderCheck::Candidates& OrderCheck::Of(JobId job) const {
  static const Candidates none;
  const auto found = seen_.find(job);
  return found == seen_.end() ? none : found->second;
}

int OrderCheck::Learnable(const Job& job, TaskIndex index) const {
  const Task& task = job.tasks[static_cast<size_t>(index.value)];
  int count = 0;
  for (const auto& [id, seen] : Of(job.id)) {
    if (seen.task != index || !seen.measured()) continue;
    count += std::none_of(task.rounds.begin(), task.rounds.end(),
                          [&](const Round& round) { return round.first <= id && id < round.end; });
  }
  return count;
}

// ---- what must hold ----

std::string OrderCheck::BadCandidate(JobId job, CandidateId id,
                                     const v1::Candidate& candidate) const {
  const auto seen = Of(job).find(id);
  if (candidate.id() == id.value && seen != Of(job).end() &&
      seen->second.trace == candidate.trace())
    return "";
  return absl::StrCat("candidate ", id.value, " of j", job.value, " is sent as candidate ",
                      candidate.id(), " with trace '", candidate.trace(), "'");
}

std::string OrderCheck::Fed(JobId job, CandidateId id, const v1::StageInput& input) const {
  const v1::ProfileItem& item = input.profile();
  if (std::string bad = BadCandidate(job, id, item.candidate()); !bad.empty()) return bad;
  if (item.artifact().shared_object() == CodeOf(item.candidate().trace())) return "";
  return absl::StrCat("candidate ", id.value, " of j", job.value,
                      " is profiled without the artifact that was built of it");
}

std::string OrderCheck::BadUpdate(const Job& job, const StartStage& start,
                                  const StageOrder& order) const {
  const auto& results = order.start.update().results();
  const std::string who = absl::StrCat("an update of j", job.id.value, " task ", start.task->value);
  const bool known = job.tasks[static_cast<size_t>(start.task->value)].unlearned.known;
  if (known != order.reads.warm.has_value())
    return absl::StrCat(who, known ? " learns no" : " learns", " known records");
  auto result = results.begin();
  for (const auto& [id, seen] : Of(job.id)) {
    if (known || id >= start.before) break;
    if (seen.task != *start.task || seen.learned || !seen.measured()) continue;
    if (result == results.end()) return absl::StrCat(who, " does not learn candidate ", id.value);
    if (result->trace() != seen.trace || result->median_ns() != seen.median_ns ||
        result->valid() != (seen.outcome == v1::OUTCOME_OK))
      return absl::StrCat(who, " learns '", result->trace(), "' in place of candidate ", id.value);
    ++result;
  }
  if (result != results.end())
    return absl::StrCat(who, " learns '", result->trace(), "', which it must not");
  return "";
}

// The job's own best of each task, and behind them the times of tasks that keep the default schedule. A job that has ended knows only
// what the store does.
std::string OrderCheck::BadCompile(const Job& job, const v1::CompileSpec& compile) const {
  std::vector<double> best(job.tasks.size());
  for (const auto& [id, seen] : Of(job.id)) {
    double& of_task = best[static_cast<size_t>(seen.task.value)];
    if (!job.final()) of_task = Faster(of_task, seen.median_ns);
  }
  int place = 0;
  for (size_t i = 0; i < best.size(); ++i) {
    if (job.tasks[i].keep_default) continue;
    const double sent = compile.best_size() > place ? compile.best(place).median_ns() : 0;
    ++place;
    if (sent != best[i])
      return absl::StrCat("j", job.id.value, " is compiled with ", sent, " ns of task ", i,
                          ", its own best is ", best[i]);
  }
  for (; place < compile.best_size(); ++place) {
    const v1::BestTrace& kept = compile.best(place);
    const bool taken_back = std::any_of(job.tasks.begin(), job.tasks.end(), [&](const Task& task) {
      return task.keep_default && task.key == kept.workload_key();
    });
    if (!taken_back || kept.trace() != kDefaultSchedule)
      return absl::StrCat("j", job.id.value, " is compiled with records of kernels taken back");
    if (kept.median_ns() <= 0)
      return absl::StrCat("j", job.id.value, " is compiled with a default schedule of no time");
  }
  return "";
}

std::string OrderCheck::Made(const Dispatcher& dispatcher, const StartStage& start,
                             const StageOrder& order) const {
  const Job& job = *dispatcher.FindJob(start.job);
  const bool build = start.kind == v1::STAGE_BUILD;
  if (build || start.kind == v1::STAGE_PROFILE) {
    if (order.inputs.size() != start.candidates.size())
      return absl::StrCat("a stage of j", job.id.value, " is sent ", order.inputs.size(), " of ",
                          start.candidates.size(), " candidates");
    for (size_t i = 0; i < order.inputs.size(); ++i) {
      const CandidateId id = start.candidates[i];
      std::string bad = build ? BadCandidate(job.id, id, order.inputs[i].build().candidate())
                              : Fed(job.id, id, order.inputs[i]);
      if (!bad.empty()) return bad;
    }
  }
  if (start.kind == v1::STAGE_UPDATE) return BadUpdate(job, start, order);
  if (start.kind == v1::STAGE_COMPILE) return BadCompile(job, order.start.compile());
  if (start.kind == v1::STAGE_COMPARE &&
      (order.start.compare().module().empty() || order.start.compare().default_module().empty()))
    return absl::StrCat("j", job.id.value, " is to compare a module that it does not have");
  return "";
}

std::string OrderCheck::BadTransfer(const StageOrder& order) const {
  const v1::SearchSpec& search = SearchOf(order.start);
  if (search.others().empty() && search.transfer_model().empty()) return "";
  if (!order.search_state.empty()) return "a search that goes on is told of other tasks again";
  for (const v1::RelatedSamples& other : search.others()) {
    if (!taught_->samples.count(other.samples()))
      return "a search is told of samples that nobody made";
    if (other.weight() <= 0 || other.weight() > 1) return "samples have no weight";
  }
  if (!search.transfer_model().empty() && !taught_->models.count(search.transfer_model()))
    return "a search is told of a model that nobody made";
  return "";
}

std::string OrderCheck::Completed(const StageOrder& made, const StageOrder& completed,
                                  RecordStore* store) const {
  if (made.reads.warm) {
    const v1::RecordQuery& query = *made.reads.warm;
    const auto known = store->Known({query.workload_key(), query.target(), query.device_key()});
    const auto& results = completed.start.update().results();
    const auto valid = std::count_if(results.begin(), results.end(),
                                     [](const v1::SearchResult& result) { return result.valid(); });
    if (results.size() != known->total || valid != known->valid)
      return absl::StrCat("an update learns ", results.size(), " known records, ", valid,
                          " of them valid; there are ", known->total, " and ", known->valid);
  }
  const v1::CompileSpec& compile = completed.start.compile();
  int next = 0;
  const int asked =
      static_cast<int>(made.reads.best.size());  // the rest keeps the default schedule
  for (int i = 0; i < made.start.compile().best_size(); ++i) {
    const v1::BestTrace& own = made.start.compile().best(i);
    const v1::BestTrace stored =
        i < asked ? BestOf(store, made.reads.best[static_cast<size_t>(i)]) : v1::BestTrace();
    const double best = Faster(own.median_ns(), stored.median_ns());
    if (best == 0) continue;
    const v1::BestTrace none;
    const v1::BestTrace& sent = next < compile.best_size() ? compile.best(next++) : none;
    const std::string& trace = own.median_ns() == best ? own.trace() : stored.trace();
    if (sent.workload_key() != own.workload_key() || sent.median_ns() != best ||
        sent.trace() != trace)
      return absl::StrCat("a module is compiled with '", sent.trace(), "' of ", sent.workload_key(),
                          ", ", sent.median_ns(), " ns; the best known is '", trace, "' of ",
                          own.workload_key(), ", ", best, " ns");
  }
  if (next != compile.best_size()) return "a module is compiled with traces of no task";
  return BadTransfer(completed);
}

}  // namespace heddle::sim
