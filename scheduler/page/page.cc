#include "scheduler/page/page.h"

#include <algorithm>
#include <optional>
#include <random>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/files/model_beginning.h"
#include "base/one_line.h"
#include "base/status_macros.h"
#include "base/vocabulary/target.h"
#include "proto/access/access_table.h"
#include "proto/job_states.h"
#include "scheduler/page/comparisons.h"
#include "scheduler/page/methods.h"
#include "views/forms.h"
#include "views/noise.h"
#include "views/pages.h"

namespace heddle::scheduler {
namespace {

constexpr size_t kJobsShown = 100;        // of a list; the others are on the next page
constexpr size_t kFinishedShown = 10;     // in the overview
constexpr size_t kFinishedSearched = 50;  // of the newest jobs, to find these
constexpr int64_t kTrialsShown = 1500;
constexpr int64_t kRecordsShown = 100;
constexpr int64_t kTasksFound = 100;
constexpr int64_t kBestShown = 200;
constexpr absl::Duration kHistory = absl::Hours(3);
constexpr size_t kMaxSearch = 200;
constexpr size_t kMaxReason = 500;
constexpr size_t kMaxAddress = 2000;
// At a time. Each holds a thread of the server until the database has it, and those that watch the
// daemon need threads, too (HttpServerOptions).
constexpr int kMaxActions = 2;
constexpr int kMaxUploads = 2;                                // likewise
constexpr absl::Duration kLongestUpload = absl::Minutes(30);  // of a model
constexpr size_t kMaxFields = 16, kMaxFieldBytes = 2000;      // of the form of a model
constexpr size_t kMaxJobName = 200;
constexpr char kModelField[] = "model";
constexpr char kSubmitTitle[] = "Submit a model";

// Null: there is no such action.
const JobActionRow* FindAction(const std::string& name) {
  for (const JobActionRow& row : kJobActions) {
    if (name == row.name) return &row;
  }
  return nullptr;
}

// Whether the action does something to a job in that state.
bool Applies(JobAction action, v1::JobState state) {
  if (IsFinal(state)) return false;
  switch (action) {
    case JobAction::kPause:
      return state != v1::JOB_PAUSED;
    case JobAction::kResume:
      return state == v1::JOB_PAUSED;
    case JobAction::kPrioritize:
    case JobAction::kCancel:
      return true;
  }
  return false;
}

std::string ValueOf(const std::map<std::string, std::string>& fields, const std::string& name) {
  const auto found = fields.find(name);
  return found == fields.end() ? "" : found->second;
}

int HttpStatus(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kInvalidArgument:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kFailedPrecondition:
      return 409;
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return 503;
    default:
      return 500;
  }
}

// Everything comes from this server, and nothing is written into the page that could run.
HttpResponse Guarded(HttpResponse response) {
  response.headers.emplace_back("Content-Security-Policy",
                                "default-src 'none'; style-src 'self'; script-src 'self'; img-src "
                                "'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
                                "frame-ancestors 'none'");
  response.headers.emplace_back("Referrer-Policy", "same-origin");
  response.headers.emplace_back("X-Frame-Options", "DENY");
  return response;
}

HttpResponse Fixed(std::string_view content, const char* type) {
  HttpResponse response{.content_type = type, .body = std::string(content)};
  response.headers.emplace_back("Cache-Control", "max-age=300");
  return Guarded(std::move(response));
}

// The path and the query of "/jobs?before=j3".
std::pair<std::string, std::map<std::string, std::string>> SplitAddress(
    const std::string& address) {
  const size_t mark = address.find('?');
  if (mark == std::string::npos) return {address, {}};
  return {address.substr(0, mark), ParseForm(std::string_view(address).substr(mark + 1))};
}

// The changes of the job or task that the page at the path is about; null: it is about all jobs.
LiveParts::Changes ChangesOf(PageSource* source, const std::string& path) {
  const std::vector<std::string> parts = absl::StrSplit(path, '/');
  int task = 0;  // by number from 1; 0: the page of the job
  const bool of_task =
      parts.size() == 5 && parts[3] == "tasks" && absl::SimpleAtoi(parts[4], &task);
  if ((parts.size() != 3 && !of_task) || parts[1] != "jobs") return nullptr;
  return [source, job = parts[2], task] { return source->ChangesOf(job, task); };
}

// A number in a field of a form. InvalidArgument names the field.
absl::StatusOr<int> NumberIn(const std::map<std::string, std::string>& fields, const char* name,
                             const char* title) {
  const std::string text = ValueOf(fields, name);
  int number = 0;
  if (absl::SimpleAtoi(text, &number)) return number;
  return absl::InvalidArgumentError(
      absl::StrCat(title, ": \"", OneLine(text.substr(0, 40)), "\" is no whole number"));
}

// A browser says which page a form is of. Forms of other sites, which a browser would send with the token
// as well, are refused.
absl::Status CheckOrigin(const HttpRequest& request) {
  const std::string origin = ValueOf(request.headers, "origin");
  if (!origin.empty() && origin == absl::StrCat("http://", ValueOf(request.headers, "host")))
    return absl::OkStatus();
  return absl::PermissionDeniedError(
      "this request does not come from a form of this page; a program uses `heddle` instead");
}

HttpResponse GoTo(const std::string& address) {
  HttpResponse response{.status = 303};
  response.headers.emplace_back("Location", address);
  return Guarded(std::move(response));
}

// Makes a submission of this form, sent again by mistake, the same one (JobService.Submit).
std::string RandomKey() {
  std::random_device random;
  std::string key;
  for (int i = 0; i < 4; ++i) absl::StrAppend(&key, absl::Hex(random(), absl::kZeroPad8));
  return key;
}

// The targets for which machines measure, as `submit --target` takes them.
std::vector<std::string> TargetsOf(const v1::ListWorkersResponse& machines) {
  std::set<std::string> targets;
  for (const v1::WorkerStatus& worker : machines.workers()) {
    for (const v1::SlotStatus& status : worker.slots()) {
      const v1::Slot& slot = status.slot();
      if (slot.kind() != v1::SLOT_DEVICE || slot.target().empty()) continue;
      const bool threads = KindOf(slot.target()) == KindName(kHostKind) && slot.cores_size() > 1;
      targets.insert(threads ? absl::StrCat(slot.target(), " -threads=", slot.cores_size())
                             : slot.target());
    }
  }
  return {targets.begin(), targets.end()};
}

// Why there are no machines to show.
std::string Missing(const absl::Status& status) {
  return absl::StrCat("The machines are not known now: ", status.message());
}

std::string CallerText(const Identity& caller) {
  return caller.role == Role::kLocal ? "" : ToText(caller);
}

std::vector<views::Trial> TrialsOf(const TrialSample& sample) {
  std::vector<views::Trial> trials;
  for (const TrialPoint& point : sample.points) {
    trials.push_back({point.number, point.created_unix_ns, point.median_ns, point.origin, point.job,
                      point.fastest_so_far});
  }
  return trials;
}

// Where not all stages were read, those shown cover the time from the first of them.
void CoverWhatWasRead(views::RecentStages* recent) {
  if (static_cast<int64_t>(recent->spans.size()) < PageSource::kLatestStages) return;
  recent->begin_unix_ns = std::max(recent->begin_unix_ns, recent->spans.front().start_unix_ns());
}

}  // namespace

Page::Page(PageOptions options, PageSource* source)
    : options_(std::move(options)),
      source_(source),
      live_(options_.live, [source] { return source->changes(); }) {}

HttpResponse Page::Handle(const HttpRequest& request) {
  if (request.path == "/style.css") return Fixed(views::Style(), "text/css; charset=utf-8");
  if (request.path == "/script.js") return Fixed(views::Script(), "text/javascript; charset=utf-8");
  if (request.path == "/icon.svg") return Fixed(views::Icon(), "image/svg+xml");
  std::variant<Identity, HttpResponse> admitted = Admit(request);
  if (auto* refusal = std::get_if<HttpResponse>(&admitted)) return std::move(*refusal);
  const Identity* caller = std::get_if<Identity>(&admitted);
  if (request.method == "POST") return Post(*caller, request);
  if (request.path == "/events") return Events(*caller, request);
  absl::StatusOr<views::Page> page = Render(*caller, request.path, request.query);
  if (!page.ok()) return Refuse(*caller, page.status());
  HttpResponse response{.body = views::Document(*page)};
  response.headers.emplace_back("Cache-Control", "no-store");
  return Guarded(std::move(response));
}

std::variant<Identity, HttpResponse> Page::Admit(const HttpRequest& request) const {
  absl::StatusOr<Identity> caller = Identify(request);
  if (caller.ok()) return *std::move(caller);
  if (options_.refused && request.headers.contains("authorization"))
    options_.refused(request.path, caller.status());
  HttpResponse response = Refuse(Identity{}, caller.status());
  response.headers.emplace_back("WWW-Authenticate", "Basic realm=\"Heddle\", charset=\"UTF-8\"");
  return response;
}

absl::StatusOr<Identity> Page::Identify(const HttpRequest& request) const {
  if (options_.tokens == nullptr) return Identity{Role::kLocal, "page", ""};
  const std::string shown = ValueOf(request.headers, "authorization");
  const size_t blank = std::min(shown.find(' '), shown.size());
  const std::string kind = shown.substr(0, blank);
  std::string token = shown.substr(std::min(blank + 1, shown.size()));
  if (absl::EqualsIgnoreCase(kind, "basic")) {
    std::string name_and_token;  // "NAME:TOKEN"
    const bool decoded = absl::Base64Unescape(token, &name_and_token);
    const size_t colon = name_and_token.find(':');
    token = decoded && colon != std::string::npos ? name_and_token.substr(colon + 1) : "";
  } else if (!absl::EqualsIgnoreCase(kind, "bearer")) {
    token.clear();
  }
  if (token.empty()) {
    return absl::UnauthenticatedError(
        "this page asks for a token: give it as the password, with any name (`heddle-ca token` "
        "makes "
        "one)");
  }
  HEDDLE_ASSIGN_OR_RETURN(const Identity caller, options_.tokens->Find(token, absl::Now()));
  if (options_.revoked != nullptr) HEDDLE_RETURN_IF_ERROR(options_.revoked->Check(caller));
  return caller;
}

absl::StatusOr<views::Page> Page::Render(const Identity& caller, const std::string& path,
                                         const Query& query) const {
  const std::vector<std::string> parts = absl::StrSplit(path, '/');  // the first is empty
  absl::StatusOr<views::Page> page = absl::NotFoundError(absl::StrCat("there is no page ", path));
  if (path == "/") {
    page = Overview(caller);
  } else if (path == "/jobs") {
    page = Jobs(caller, query);
  } else if (path == "/machines") {
    page = Machines(caller);
  } else if (path == "/records") {
    page = Records(caller, query);
  } else if (path == "/submit") {
    page = Submit(caller);
  } else if (path == "/machines/drain" || path == "/machines/resume") {
    page = ConfirmMachine(caller, parts[2], query);
  } else if (path == "/compare") {
    page = ComparePage(source_, caller, query);
  } else if (path == "/whatif") {
    page = WhatIfPage(source_, caller);
  } else if (parts.size() == 3 && parts[1] == "jobs") {
    page = Job(caller, parts[2]);
  } else if (parts.size() == 4 && parts[1] == "jobs" && FindAction(parts[3]) != nullptr) {
    page = Confirm(caller, parts[2], parts[3]);
  } else if (parts.size() == 5 && parts[1] == "jobs" && parts[3] == "tasks") {
    page = Task(caller, parts[2], parts[4]);
  }
  HEDDLE_RETURN_IF_ERROR(page.status());
  page->path = path;
  page->caller = CallerText(caller);
  return page;
}

absl::StatusOr<views::Page> Page::Overview(const Identity& caller) const {
  HEDDLE_RETURN_IF_ERROR(CheckMethod(caller, kListJobs));
  views::Overview overview;
  overview.recent.now_unix_ns = absl::GetCurrentTimeNanos();
  overview.recent.begin_unix_ns =
      overview.recent.now_unix_ns - absl::ToInt64Nanoseconds(absl::Hours(1));
  HEDDLE_ASSIGN_OR_RETURN(overview.recent.spans,
                          source_->LatestStages(caller, overview.recent.begin_unix_ns));
  CoverWhatWasRead(&overview.recent);
  views::Jobs unfinished = source_->Unfinished(caller);
  overview.counts = views::CountJobs(unfinished, overview.recent);
  const size_t all = unfinished.size();
  overview.part.all = static_cast<int64_t>(all);
  std::reverse(unfinished.begin(), unfinished.end());
  if (all > kJobsShown) {
    unfinished.resize(kJobsShown);
    overview.part.next = absl::StrCat("/jobs?before=", unfinished.back()->id());
  }
  overview.unfinished = std::move(unfinished);
  HEDDLE_ASSIGN_OR_RETURN(const PageSource::JobPart newest,
                          source_->ListJobs(caller, "", kFinishedSearched));
  for (const auto& job : newest.jobs) {
    if (IsFinal(job->state()) && overview.finished.size() < kFinishedShown)
      overview.finished.push_back(job);
  }
  if (CheckMethod(caller, kListDevices).ok()) {
    absl::StatusOr<v1::ListWorkersResponse> machines = source_->ListWorkers();
    if (machines.ok()) {
      overview.machines = *std::move(machines);
    } else {
      overview.machines_missing = Missing(machines.status());
    }
  }
  overview.policy = source_->policy();
  overview.may_submit = CheckMethod(caller, kSubmit).ok();
  return views::Page{
      .title = "Overview", .path = {}, .caller = {}, .content = views::OverviewPage(overview)};
}

absl::StatusOr<views::Page> Page::Jobs(const Identity& caller, const Query& query) const {
  HEDDLE_RETURN_IF_ERROR(CheckMethod(caller, kListJobs));
  HEDDLE_ASSIGN_OR_RETURN(const PageSource::JobPart found,
                          source_->ListJobs(caller, ValueOf(query, "before"), kJobsShown));
  views::Part part;
  if (found.more && !found.jobs.empty())
    part.next = absl::StrCat("/jobs?before=", found.jobs.back()->id());
  return views::Page{
      .title = "Jobs", .path = {}, .caller = {}, .content = views::JobsPage(found.jobs, part)};
}

absl::StatusOr<views::Page> Page::Job(const Identity& caller, const std::string& job) const {
  HEDDLE_RETURN_IF_ERROR(CheckMethod(caller, kGetJob));
  HEDDLE_ASSIGN_OR_RETURN(const std::shared_ptr<const v1::Job> found, source_->GetJob(caller, job));
  HEDDLE_ASSIGN_OR_RETURN(v1::Timeline timeline, source_->GetTimeline(caller, job));
  views::JobDetails details;
  details.job = *found;
  for (v1::StageSpan& span : *timeline.mutable_spans()) details.spans.push_back(std::move(span));
  for (const JobActionRow& row : kJobActions) {
    if (Applies(row.action, found->state()) && MayUse(caller, row.method, found->spec().user()))
      details.actions.push_back(row.name);
  }
  details.now_unix_ns = absl::GetCurrentTimeNanos();
  return views::Page{.title = absl::StrCat(job, " ", found->spec().name()),
                     .path = {},
                     .caller = {},
                     .content = views::JobPage(details)};
}

absl::StatusOr<views::Page> Page::Confirm(const Identity& caller, const std::string& job,
                                          const std::string& action) const {
  HEDDLE_RETURN_IF_ERROR(CheckMethod(caller, FindAction(action)->method));
  HEDDLE_ASSIGN_OR_RETURN(const std::shared_ptr<const v1::Job> found, source_->GetJob(caller, job));
  return views::Page{.title = absl::StrCat(action, " ", job),
                     .path = {},
                     .caller = {},
                     .content = FindAction(action)->action == JobAction::kPrioritize
                                    ? views::PriorityPage(*found)
                                    : views::ConfirmPage(*found, action)};
}

absl::StatusOr<views::Page> Page::Submit(const Identity& caller) const {
  HEDDLE_RETURN_IF_ERROR(CheckMethod(caller, kSubmit));
  return views::Page{.title = kSubmitTitle,
                     .path = {},
                     .caller = {},
                     .content = views::SubmitPage(FormFor(caller))};
}

views::SubmitForm Page::FormFor(const Identity& caller) const {
  views::SubmitForm form;
  if (CheckMethod(caller, kListDevices).ok()) {
    const absl::StatusOr<v1::ListWorkersResponse> machines = source_->ListWorkers();
    if (machines.ok()) form.targets = TargetsOf(*machines);
  }
  form.key = RandomKey();
  return form;
}

absl::StatusOr<views::Page> Page::ConfirmMachine(const Identity& caller, const std::string& action,
                                                 const Query& query) const {
  HEDDLE_RETURN_IF_ERROR(CheckMethod(caller, kAcquire));
  const std::string name = ValueOf(query, "machine");
  HEDDLE_ASSIGN_OR_RETURN(const v1::ListWorkersResponse machines, source_->ListWorkers());
  for (const v1::WorkerStatus& machine : machines.workers()) {
    if (machine.worker() != name) continue;
    return views::Page{.title = absl::StrCat(action, " ", name),
                       .path = {},
                       .caller = {},
                       .content = views::MachinePage(machine, action)};
  }
  return absl::NotFoundError(absl::StrCat("there is no machine ", name));
}

absl::StatusOr<std::vector<views::PredictedTrial>> Page::Predicted(const Identity& caller,
                                                                   const WorkloadId& id) const {
  v1::RecordQuery query;
  query.set_workload_key(id.key);
  query.set_target(id.target);
  query.set_device_key(id.device_key);
  HEDDLE_ASSIGN_OR_RETURN(
      const RecordPage latest,
      source_->QueryRecords(caller, query, std::nullopt, views::kMostPredicted));
  std::vector<views::PredictedTrial> predicted;
  for (auto record = latest.records.rbegin(); record != latest.records.rend(); ++record) {
    // Without its job, nobody knows which other predictions one is comparable with.
    if (!record->has_prediction() || record->job().empty() ||
        record->measurement().outcome() == v1::OUTCOME_LOST)
      continue;
    predicted.push_back({record->job(), record->prediction().samples(),
                         record->prediction().score(), record->median_ns()});
  }
  return predicted;
}

absl::StatusOr<views::Page> Page::Task(const Identity& caller, const std::string& job,
                                       const std::string& number) const {
  HEDDLE_RETURN_IF_ERROR(CheckMethod(caller, kExplainTask));
  HEDDLE_ASSIGN_OR_RETURN(const std::shared_ptr<const v1::Job> found, source_->GetJob(caller, job));
  int task = 0;
  if (!absl::SimpleAtoi(number, &task) || task < 1 || task > found->tasks_size())
    return absl::NotFoundError(absl::StrCat("job ", job, " has no task ", number));
  views::TaskDetails details;
  details.job = *found;
  details.task = task - 1;
  HEDDLE_ASSIGN_OR_RETURN(details.device_key, source_->DeviceOf(caller, job, task));
  const WorkloadId id{found->tasks(task - 1).info().key(), found->spec().target(),
                      details.device_key};
  HEDDLE_ASSIGN_OR_RETURN(const TrialSample sample,
                          source_->SampleTrials(caller, id, kTrialsShown));
  details.all_trials = sample.all;
  details.trials = TrialsOf(sample);
  const TrialPoint* best = nullptr;
  const TrialPoint* untuned = nullptr;
  for (const TrialPoint& point : sample.points) {
    if (point.fastest_so_far) best = &point;
    if (point.origin == "default" && point.median_ns > 0 &&
        (untuned == nullptr || point.median_ns < untuned->median_ns))
      untuned = &point;
  }
  const auto record_of = [&](const TrialPoint* point) -> absl::StatusOr<v1::Record> {
    if (point == nullptr) return v1::Record();
    v1::RecordQuery query;
    query.set_id(point->id);
    query.set_with_workload(true);
    HEDDLE_ASSIGN_OR_RETURN(RecordPage page, source_->QueryRecords(caller, query, std::nullopt, 1));
    return page.records.empty() ? v1::Record() : std::move(page.records.front());
  };
  HEDDLE_ASSIGN_OR_RETURN(const v1::Record best_record, record_of(best));
  HEDDLE_ASSIGN_OR_RETURN(const v1::Record default_record, record_of(untuned));
  details.best_trace = best_record.trace();
  details.default_trace = default_record.trace();
  details.best_loops = best_record.measurement().loops();
  details.default_loops = default_record.measurement().loops();
  details.workload = best_record.workload();
  const v1::Evidence& evidence = best_record.measurement().evidence();
  details.limits = {evidence.peak_gflops(), evidence.memory_gbps()};
  HEDDLE_ASSIGN_OR_RETURN(details.predicted, Predicted(caller, id));
  details.best_ns = best == nullptr ? 0 : best->median_ns;
  details.default_ns = untuned == nullptr ? 0 : untuned->median_ns;
  return views::Page{.title = absl::StrCat(job, " task ", task),
                     .path = {},
                     .caller = {},
                     .content = views::TaskPage(details)};
}

absl::StatusOr<views::Page> Page::Machines(const Identity& caller) const {
  HEDDLE_RETURN_IF_ERROR(CheckMethod(caller, kListDevices));
  views::Machines machines;
  absl::StatusOr<v1::ListWorkersResponse> workers = source_->ListWorkers();
  if (workers.ok()) {
    machines.machines = *std::move(workers);
  } else {
    machines.missing = Missing(workers.status());
  }
  machines.recent.now_unix_ns = absl::GetCurrentTimeNanos();
  machines.recent.begin_unix_ns = machines.recent.now_unix_ns - absl::ToInt64Nanoseconds(kHistory);
  HEDDLE_ASSIGN_OR_RETURN(machines.recent.spans,
                          source_->LatestStages(caller, machines.recent.begin_unix_ns));
  CoverWhatWasRead(&machines.recent);
  // Who may not read records sees the machines without their noise.
  if (CheckMethod(caller, kQueryRecords).ok()) {
    HEDDLE_ASSIGN_OR_RETURN(RecordPage latest, source_->QueryRecords(caller, v1::RecordQuery(),
                                                                     std::nullopt, kNoiseRecords));
    machines.noise_records = std::move(latest.records);
  }
  machines.may_drain = CheckMethod(caller, kAcquire).ok();
  return views::Page{
      .title = "Machines", .path = {}, .caller = {}, .content = views::MachinesPage(machines)};
}

absl::StatusOr<views::Page> Page::Records(const Identity& caller, const Query& query) const {
  HEDDLE_RETURN_IF_ERROR(CheckMethod(caller, kQueryRecords));
  views::RecordsView view;
  view.search = ValueOf(query, "search").substr(0, kMaxSearch);
  view.key = ValueOf(query, "key").substr(0, kMaxSearch);
  const std::string after = ValueOf(query, "after");
  if (view.key.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<WorkloadName> found,
                            source_->FindWorkloads(view.search, after, kTasksFound + 1));
    for (const WorkloadName& name : found) {
      if (static_cast<int64_t>(view.tasks.size()) == kTasksFound) {
        view.part.next = absl::StrCat("/records?search=", views::EncodeUrl(view.search),
                                      "&after=", views::EncodeUrl(view.tasks.back().key));
        break;
      }
      view.tasks.push_back({name.key, name.label, name.flops});
    }
  } else {
    v1::RecordQuery wanted;
    wanted.set_workload_key(view.key);
    std::optional<RecordPlace> place;
    if (!after.empty()) {
      const std::vector<std::string> words = absl::StrSplit(after, '.');
      place.emplace();
      if (words.size() != 2 || !absl::SimpleAtoi(words[0], &place->created_unix_ns) ||
          !absl::SimpleAtoi(words[1], &place->id))
        return absl::InvalidArgumentError("after: take the link to the next page");
    }
    wanted.set_best_only(true);
    HEDDLE_ASSIGN_OR_RETURN(RecordPage best,
                            source_->QueryRecords(caller, wanted, std::nullopt, kBestShown));
    view.best = std::move(best.records);
    view.target = ValueOf(query, "target");
    view.device_key = ValueOf(query, "device");
    if (view.device_key.empty() && !view.best.empty()) {
      view.target = view.best.front().target();
      view.device_key = view.best.front().device_key();
    }
    // In this order they are read without sorting all.
    wanted.set_best_only(false);
    wanted.set_retracted(true);
    wanted.set_target(view.target);
    wanted.set_device_key(view.device_key);
    HEDDLE_ASSIGN_OR_RETURN(RecordPage latest,
                            source_->QueryRecords(caller, wanted, place, kRecordsShown));
    if (latest.last) {
      view.part.next = absl::StrCat(views::RecordsAddress(view.key, view.target, view.device_key),
                                    "&after=", latest.last->created_unix_ns, ".", latest.last->id);
    }
    view.latest = std::move(latest.records);
    if (view.latest.empty() && place == std::nullopt)
      return absl::NotFoundError(absl::StrCat("no record is of the task ", view.key));
    if (!view.latest.empty()) {
      view.label = view.latest.front().label();
      view.flops = view.latest.front().flops();
    }
    HEDDLE_ASSIGN_OR_RETURN(
        const TrialSample sample,
        source_->SampleTrials(caller, {view.key, view.target, view.device_key}, kTrialsShown));
    view.trials = TrialsOf(sample);
  }
  return views::Page{
      .title = "Records", .path = {}, .caller = {}, .content = views::RecordsPage(view)};
}

HttpResponse Page::Post(const Identity& caller, const HttpRequest& request) {
  if (const absl::Status origin = CheckOrigin(request); !origin.ok()) return Refuse(caller, origin);
  const bool admitted = ++actions_ <= kMaxActions;
  const absl::StatusOr<std::string> next =
      admitted ? Perform(caller, request.path, ParseForm(request.body))
               : absl::ResourceExhaustedError(
                     "two actions wait for the database; try again in a moment");
  --actions_;
  return next.ok() ? GoTo(*next) : Refuse(caller, next.status());
}

absl::StatusOr<std::string> Page::Perform(const Identity& caller, const std::string& path,
                                          const Query& fields) {
  const std::vector<std::string> parts = absl::StrSplit(path, '/');
  const JobActionRow* action =
      parts.size() == 4 && parts[1] == "jobs" ? FindAction(parts[3]) : nullptr;
  if (action != nullptr) {
    PageSource::Order order{*action, OneLine(ValueOf(fields, "reason").substr(0, kMaxReason)),
                            /*priority=*/0};
    if (action->action == JobAction::kPrioritize) {
      HEDDLE_ASSIGN_OR_RETURN(order.priority, NumberIn(fields, "priority", "priority"));
    }
    HEDDLE_RETURN_IF_ERROR(source_->Act(caller, parts[2], order));
    return views::JobAddress(parts[2]);
  }
  const std::string machine = ValueOf(fields, "machine");
  if (path == "/machines/drain") {
    HEDDLE_ASSIGN_OR_RETURN(const int minutes, NumberIn(fields, "minutes", "minutes"));
    if (minutes < 1 || minutes > 60)
      return absl::InvalidArgumentError("a machine is held for 1 to 60 minutes");
    HEDDLE_RETURN_IF_ERROR(source_->Drain(caller, machine, absl::Minutes(minutes)));
    return "/machines";
  }
  if (path == "/machines/resume") {
    HEDDLE_RETURN_IF_ERROR(source_->Resume(caller, machine));
    return "/machines";
  }
  return absl::NotFoundError(absl::StrCat("there is no form ", path));
}

// Takes the form of /submit. Its fields come before the file, so the job is looked at before the file is
// taken.
class Page::ModelUpload final : public FormUpload {
 public:
  // One of kMaxUploads is counted in `page->uploads_`.
  ModelUpload(Page* page, Identity caller)
      : page_(page), caller_(std::move(caller)), give_up_(MonotonicNow() + kLongestUpload) {}
  ~ModelUpload() override { Leave(); }

  absl::Status Take(const std::string& field, const std::string& file,
                    std::string_view piece) override {
    const absl::Status taken = TakePiece(field, file, piece);
    if (!taken.ok()) Leave();
    return taken;
  }
  HttpResponse Finish(const absl::Status& taken) override {
    const absl::StatusOr<std::string> job = FinishWith(taken);
    Leave();
    return job.ok() ? GoTo(views::JobAddress(*job))
                    : page_->RefuseForm(caller_, fields_, job.status());
  }

 private:
  absl::Status TakePiece(const std::string& field, const std::string& file,
                         std::string_view piece) {
    if (MonotonicNow() > give_up_) {
      return absl::DeadlineExceededError(
          absl::StrCat("the model did not arrive within ", absl::FormatDuration(kLongestUpload)));
    }
    if (field == kModelField) {
      if (piece.empty()) return absl::OkStatus();  // no file was chosen, or it is empty
      if (submission_ == nullptr) {
        if (const absl::Status model = CheckModelBeginning(piece); !model.ok()) {
          return absl::InvalidArgumentError(
              absl::StrCat("\"", OneLine(file.substr(0, kMaxJobName)), "\": ", model.message()));
        }
        HEDDLE_ASSIGN_OR_RETURN(const v1::JobSpec spec, SpecFor(file));
        HEDDLE_ASSIGN_OR_RETURN(
            submission_, page_->source_->BeginSubmit(caller_, spec, ValueOf(fields_, "key")));
      }
      return submission_->Append(piece);
    }
    std::string& value = fields_[field.substr(0, kMaxFieldBytes)];
    if (fields_.size() > kMaxFields || value.size() + piece.size() > kMaxFieldBytes)
      return absl::InvalidArgumentError("a field of the form is too long, or there are too many");
    value += piece;
    return absl::OkStatus();
  }

  absl::StatusOr<v1::JobSpec> SpecFor(const std::string& file) const {
    v1::JobSpec spec;
    const size_t begin = file.find_last_of("/\\") + 1;  // npos + 1 is 0
    std::string name =
        file.substr(begin, file.rfind('.') > begin ? file.rfind('.') - begin : std::string::npos);
    name = OneLine(name.substr(0, kMaxJobName));
    spec.set_name(name.empty() ? "model" : name);
    HEDDLE_ASSIGN_OR_RETURN(const Target target, ParseTarget(ValueOf(fields_, "target")));
    spec.set_target(ToText(target));
    HEDDLE_ASSIGN_OR_RETURN(const int trials, NumberIn(fields_, "trials", "trials per task"));
    spec.set_trials_per_task(trials);
    HEDDLE_ASSIGN_OR_RETURN(const int priority, NumberIn(fields_, "priority", "priority"));
    spec.set_priority(priority);
    spec.set_user(caller_.name);  // kept only for a caller without identity
    return spec;
  }

  absl::StatusOr<std::string> FinishWith(const absl::Status& taken) {
    HEDDLE_RETURN_IF_ERROR(taken);
    if (submission_ == nullptr)
      return absl::InvalidArgumentError("choose a file that holds a model, and submit again");
    return submission_->Finish();
  }

  // Another upload may begin.
  void Leave() {
    submission_.reset();
    if (!std::exchange(left_, true)) --page_->uploads_;
  }

  Page* const page_;
  const Identity caller_;
  const absl::Time give_up_;
  std::map<std::string, std::string> fields_;
  std::unique_ptr<PageSource::Submission> submission_;  // null: the file has not begun
  bool left_ = false;
};

std::variant<std::unique_ptr<FormUpload>, HttpResponse> Page::BeginUpload(
    const HttpRequest& request) {
  std::variant<Identity, HttpResponse> admitted = Admit(request);
  if (auto* refusal = std::get_if<HttpResponse>(&admitted)) return std::move(*refusal);
  const Identity caller = std::move(std::get<Identity>(admitted));
  absl::Status may = CheckOrigin(request);
  if (may.ok() && request.path != "/submit")
    may = absl::NotFoundError(absl::StrCat("there is no form ", request.path));
  if (may.ok() && !CheckMethod(caller, kSubmit).ok())
    may = source_->BeginSubmit(caller, v1::JobSpec(), "").status();  // which notes the refusal
  if (!may.ok()) return Refuse(caller, may);
  if (++uploads_ > kMaxUploads) {
    --uploads_;
    return Refuse(caller, absl::ResourceExhaustedError(
                              "two models are being taken; try again when one of them is there"));
  }
  return std::make_unique<ModelUpload>(this, caller);
}

HttpResponse Page::Events(const Identity& caller, const HttpRequest& request) {
  const std::string address = ValueOf(request.query, "page");
  if (address.size() > kMaxAddress)
    return Refuse(caller, absl::InvalidArgumentError("the address of the page is too long"));
  const auto [path, query] = SplitAddress(address);
  const std::string key = absl::StrCat(ToText(caller), "\n", address);
  // What cannot be shown has no events either.
  if (!live_.Has(key)) {
    const absl::StatusOr<views::Page> page = Render(caller, path, query);
    if (!page.ok()) return Refuse(caller, page.status());
    if (!absl::StrContains(page->content.markup, " data-live"))
      return Refuse(caller, absl::InvalidArgumentError("this page has no parts that change"));
  }
  const auto render = [this, caller, path = path, query = query]() -> std::optional<std::string> {
    if (options_.revoked != nullptr && !options_.revoked->Check(caller).ok()) return std::nullopt;
    absl::StatusOr<views::Page> page = Render(caller, path, query);
    if (!page.ok()) return std::nullopt;
    return std::move(page->content.markup);
  };
  std::shared_ptr<EventStream> events =
      live_.Open(key, render, CallerText(caller), ChangesOf(source_, path));
  if (events == nullptr) {
    return Refuse(caller, absl::ResourceExhaustedError(
                              "too many pages are open; this one does not follow changes for now"));
  }
  HttpResponse response{.events = std::move(events)};
  response.headers.emplace_back("Cache-Control", "no-store");
  return Guarded(std::move(response));
}

HttpResponse Page::Refuse(const Identity& caller, const absl::Status& status) const {
  const int code = HttpStatus(status);
  const char* title = code == 404   ? "Not found"
                      : code == 401 ? "Who are you?"
                      : code == 403 ? "Not allowed"
                      : code < 500  ? "That does not work"
                                    : "Not now";
  return Refusal(status, {.title = title,
                          .path = "-",
                          .caller = CallerText(caller),
                          .content = views::ErrorPage(title, std::string(status.message()))});
}

HttpResponse Page::RefuseForm(const Identity& caller, const Query& entered,
                              const absl::Status& status) const {
  views::SubmitForm form = FormFor(caller);
  form.problem = std::string(status.message());
  for (const auto& [name, field] : {std::pair{"key", &form.key},
                                    {"target", &form.target},
                                    {"trials", &form.trials},
                                    {"priority", &form.priority}}) {
    if (const auto found = entered.find(name); found != entered.end()) *field = found->second;
  }
  return Refusal(status, {.title = kSubmitTitle,
                          .path = "/submit",
                          .caller = CallerText(caller),
                          .content = views::SubmitPage(form)});
}

HttpResponse Page::Refusal(const absl::Status& status, views::Page page) const {
  HttpResponse response{.status = HttpStatus(status), .body = views::Document(page)};
  response.headers.emplace_back("Cache-Control", "no-store");
  return Guarded(std::move(response));
}

}  // namespace heddle::scheduler
