// The page over a scheduler with jobs, as requests find it: contents, limits, identities, actions.
#include "scheduler/page/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>
#include <variant>

#include "absl/strings/escaping.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "scheduler/service/reads/page_data.h"
#include "scheduler/whatif/simulate_queue.h"
#include "tests/access/lab.h"
#include "tests/scheduler/service/service_fixture.h"
#include "tests/views/well_formed.h"
#include "views/format.h"

namespace heddle::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

// The first bytes of an ONNX file; the cluster only pretends to read it.
const std::string kModel = "\x08\x08m";

class PageTest : public ServiceTest {
 protected:
  void SetUp() override {
    ServiceTest::SetUp();
    audit_ = AuditLog::Open(directory_ + "/audit").value();
    drains_ = std::make_unique<MachineDrains>(
        loop_->tracker(), MachineDrains::Options{.poll = absl::Milliseconds(5)});
    data_ = std::make_unique<PageData>(loop_.get(), store_.get(),
                                       PageData::Actions{.intake = jobs_service_->intake(),
                                                         .blobs = blobs_.get(),
                                                         .drains = drains_.get(),
                                                         .audit = audit_.get()},
                                       SimulateQueue);
    page_ = std::make_unique<Page>(PageOptions{}, data_.get());
  }
  void TearDown() override {
    page_.reset();
    data_.reset();
    drains_.reset();
    ServiceTest::TearDown();
  }

  static HttpRequest Request(const std::string& method, const std::string& address,
                             const std::string& token = "") {
    HttpRequest request;
    request.method = method;
    const size_t mark = address.find('?');
    request.path = address.substr(0, mark);
    if (mark != std::string::npos) request.query = ParseForm(address.substr(mark + 1));
    request.headers["host"] = "127.0.0.1:8080";
    if (!token.empty()) request.headers["authorization"] = absl::StrCat("Bearer ", token);
    return request;
  }
  std::string See(const std::string& address, int status = 200, const std::string& token = "") {
    const HttpResponse response = page_->Handle(Request("GET", address, token));
    EXPECT_EQ(response.status, status) << address << ": " << response.body.substr(0, 3000);
    if (response.content_type.starts_with("text/html")) {
      EXPECT_EQ(views::Malformed(response.body), "") << address;
      EXPECT_THAT(response.headers,
                  Contains(Pair("Content-Security-Policy", HasSubstr("default-src 'none'"))));
    }
    return response.body;
  }
  HttpResponse Post(const std::string& address, const std::string& body = "reason=because",
                    const std::string& origin = "http://127.0.0.1:8080",
                    const std::string& token = "") {
    HttpRequest request = Request("POST", address, token);
    request.body = body;
    if (!origin.empty()) request.headers["origin"] = origin;
    return page_->Handle(request);
  }
  // Sends the form of /submit as a browser does, the file in pieces.
  HttpResponse Submit(std::map<std::string, std::string> fields, const std::string& model,
                      const std::string& token = "", const std::string& path = "/submit",
                      const std::string& origin = "http://127.0.0.1:8080") {
    HttpRequest request = Request("POST", path, token);
    if (!origin.empty()) request.headers["origin"] = origin;
    auto begun = page_->BeginUpload(request);
    if (auto* refusal = std::get_if<HttpResponse>(&begun)) return *refusal;
    FormUpload* form = std::get<std::unique_ptr<FormUpload>>(begun).get();
    absl::Status taken;
    fields.emplace("trials", "6");
    fields.emplace("priority", "0");
    fields.emplace("target", "llvm  -mcpu=x");
    for (const auto& [name, value] : fields) {
      if (taken.ok()) taken = form->Take(name, "", value);
    }
    for (size_t at = 0; taken.ok() && at < model.size(); at += 50'000)
      taken = form->Take("model", "C:\\models\\my net.onnx", model.substr(at, 50'000));
    return form->Finish(taken);
  }
  std::string AuditLines() const {
    std::ifstream file(directory_ + "/audit/calls.jsonl");
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  static std::string JobOf(const HttpResponse& response) {
    for (const auto& [name, value] : response.headers) {
      if (name == "Location") return value.substr(value.rfind('/') + 1);
    }
    return "";
  }

  // A page that asks for tokens.
  void AskForTokens() {
    tokens_ = std::make_unique<TokenFile>(directory_ + "/tokens");
    PageOptions options;
    options.tokens = tokens_.get();
    options.revoked = revoked_.get();
    options.refused = [this](const std::string& path, const absl::Status&) {
      refused_.push_back(path);
    };
    page_ = std::make_unique<Page>(options, data_.get());
  }
  std::string TokenOf(const std::string& role, const std::string& name) const {
    std::vector<std::string> words = {"token", directory_ + "/tokens", "--role", role, "--name",
                                      name};
    if (role == "user") words.insert(words.end(), {"--tenant", name + "s"});
    return Lab::Run(words);
  }

  std::unique_ptr<AuditLog> audit_;
  std::unique_ptr<MachineDrains> drains_;
  std::unique_ptr<PageData> data_;
  std::unique_ptr<TokenFile> tokens_;
  std::unique_ptr<RevokedList> revoked_;
  std::vector<std::string> refused_;
  std::unique_ptr<Page> page_;
};

TEST_F(PageTest, EveryPageIsThereWithoutAJob) {
  EXPECT_THAT(See("/"), HasSubstr("no unfinished job"));
  EXPECT_THAT(See("/jobs"), HasSubstr("no job has been submitted"));
  EXPECT_THAT(See("/machines"), HasSubstr("cpu"));
  EXPECT_THAT(See("/records"), HasSubstr("no task matches"));
  EXPECT_THAT(See("/compare"), HasSubstr("name=\"device_a\""));
  EXPECT_THAT(See("/whatif"), HasSubstr("simulated"));
  EXPECT_THAT(See("/style.css"), HasSubstr("prefers-color-scheme"));
  EXPECT_THAT(See("/script.js"), HasSubstr("EventSource"));
  EXPECT_EQ(views::Malformed(See("/icon.svg")), "");
  for (const char* none : {"/none", "/jobs/j1", "/jobs/x", "/jobs/j1/tasks/1", "/jobs/j1/cancel",
                           "/jobs/", "/records?key=0000000000000000", "/jobs/j1/tasks/", "//", "",
                           "/compare?a=j1", "/compare?a=j1&b=j2"})
    See(none, 404);
  See("/jobs?before=x", 400);
  See("/records?key=0&after=x", 400);
  See("/events?page=/jobs", 200);
  See("/events?page=/records", 400);  // nothing there changes
}

TEST_F(PageTest, ShowsAJobAndWhatItWon) {
  const std::string job = MustSubmit(Spec());
  WaitFinal(job);
  EXPECT_THAT(See("/"), HasSubstr("href=\"/jobs/" + job + "\""));
  EXPECT_THAT(See("/jobs"), HasSubstr(">done<"));
  const std::string page = See("/jobs/" + job);
  EXPECT_THAT(page, HasSubstr("Job " + job + ": model"));
  EXPECT_THAT(page, HasSubstr("<dt>device time</dt>"));
  EXPECT_THAT(page, HasSubstr("<svg"));
  EXPECT_THAT(page, Not(HasSubstr("/cancel"))) << "it is over";
  const std::string task = See("/jobs/" + job + "/tasks/1");
  EXPECT_THAT(task, HasSubstr("The schedule that won"));
  EXPECT_THAT(task, HasSubstr("<circle"));
  EXPECT_THAT(task, HasSubstr("best so far over time"));
  See("/jobs/" + job + "/tasks/99", 404);
  EXPECT_THAT(See("/machines"), AllOf(HasSubstr("profile"), HasSubstr("Noise:")));
  // The task leads to its records.
  const v1::Job now = Get(job);
  const std::string key = now.tasks(0).info().key();
  EXPECT_THAT(task, HasSubstr("/records?key=" + key));
  EXPECT_THAT(See("/records"), HasSubstr(key));
  EXPECT_THAT(See("/records?search=" + key.substr(0, 6)), HasSubstr(key));
  EXPECT_THAT(See("/records?search=no%20such%20task"), Not(HasSubstr(key)));
  const std::string records = See("/records?key=" + key);
  EXPECT_THAT(records, HasSubstr("The fastest for each target and device"));
  EXPECT_THAT(records, HasSubstr("The best so far over time"));
  EXPECT_THAT(records, HasSubstr("href=\"/jobs/" + job + "\""));
}

TEST_F(PageTest, ListsArePaged) {
  cluster_.behaviour.candidate_ms = 1000;  // so that they stay
  for (int i = 0; i < 130; ++i) MustSubmit(Spec(100));
  const std::string overview = See("/");
  EXPECT_THAT(overview, HasSubstr("showing 100 of 130 unfinished jobs"));
  EXPECT_THAT(overview, HasSubstr("href=\"/jobs/j130\""));
  EXPECT_THAT(overview, Not(HasSubstr("href=\"/jobs/j30\"")));
  EXPECT_THAT(overview, HasSubstr("href=\"/jobs?before=j31\""));
  const std::string next = See("/jobs?before=j31");
  EXPECT_THAT(next, HasSubstr("href=\"/jobs/j30\""));
  EXPECT_THAT(next, HasSubstr("href=\"/jobs/j1\""));
  EXPECT_THAT(next, Not(HasSubstr("next page")));
}

TEST_F(PageTest, ActionsAreAskedAndThenDone) {
  cluster_.behaviour.candidate_ms = 50;
  const std::string job = MustSubmit(Spec(1000));
  EXPECT_THAT(See("/jobs/" + job), HasSubstr("href=\"/jobs/" + job + "/pause\""));
  EXPECT_THAT(See("/jobs/" + job + "/pause"), HasSubstr("method=\"post\""));
  EXPECT_EQ(Get(job).state() == v1::JOB_PAUSED, false) << "asking does nothing";
  const HttpResponse paused = Post("/jobs/" + job + "/pause");
  EXPECT_EQ(paused.status, 303) << paused.body;
  EXPECT_THAT(paused.headers, Contains(Pair("Location", "/jobs/" + job)));
  EXPECT_EQ(Get(job).state(), v1::JOB_PAUSED);
  EXPECT_THAT(See("/jobs/" + job), HasSubstr("/resume"));
  EXPECT_EQ(Post("/jobs/" + job + "/resume").status, 303);
  EXPECT_NE(Get(job).state(), v1::JOB_PAUSED);
  EXPECT_EQ(Post("/jobs/" + job + "/cancel").status, 303);
  EXPECT_EQ(WaitFinal(job).state(), v1::JOB_CANCELLED);
  EXPECT_EQ(Post("/jobs/" + job + "/pause").status, 409) << "it is over";
  EXPECT_EQ(Post("/jobs/j99/cancel").status, 404);
  EXPECT_EQ(Post("/jobs").status, 404);
  std::ifstream file(directory_ + "/audit/calls.jsonl");
  const std::string calls((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_THAT(calls, HasSubstr("JobService/PauseJob"));
  EXPECT_THAT(calls, HasSubstr("JobService/CancelJob"));
}

TEST_F(PageTest, AModelIsSubmittedByAForm) {
  const std::string form = See("/submit");
  EXPECT_THAT(form, HasSubstr("enctype=\"multipart/form-data\""));
  EXPECT_THAT(form, HasSubstr("value=\"llvm -mcpu=x\"")) << "the target of the machine there is";
  EXPECT_THAT(See("/"), HasSubstr("href=\"/submit\""));
  const std::string model = kModel + std::string(300'000, 'm');
  const HttpResponse done = Submit({{"key", "k1"}, {"priority", "3"}}, model);
  ASSERT_EQ(done.status, 303) << done.body;
  const std::string job = JobOf(done);
  const v1::Job now = WaitFinal(job);
  EXPECT_EQ(now.state(), v1::JOB_DONE) << now.reason();
  EXPECT_EQ(now.spec().name(), "my net");
  EXPECT_EQ(now.spec().target(), "llvm -mcpu=x") << "in its canonical form";
  EXPECT_EQ(now.spec().trials_per_task(), 6);
  EXPECT_EQ(now.spec().priority(), 3);
  EXPECT_TRUE(blobs_->Has(now.model_digest(), static_cast<int64_t>(model.size())));
  // The same form again is the same job, and a new form a new one.
  EXPECT_EQ(JobOf(Submit({{"key", "k1"}, {"priority", "3"}}, model)), job);
  EXPECT_NE(JobOf(Submit({{"key", "k2"}, {"priority", "3"}}, model)), job);
  EXPECT_THAT(AuditLines(), HasSubstr("JobService/Submit\",\"job\":\"" + job));
}

// A tenant may upload 16 MiB a day here (ServiceTest::Limits).
TEST_F(PageTest, AModelThatIsKnownCountsForNoDay) {
  const std::string model = kModel + std::string(3 << 19, 'm');
  for (int i = 0; i < 14; ++i) {
    const HttpResponse done = Submit({{"key", "again"}}, model);
    ASSERT_EQ(done.status, 303) << i << ": " << done.body.substr(0, 3000);
  }
}

TEST_F(PageTest, FormsOfModelsAreChecked) {
  const auto refused = [&](const HttpResponse& response, int status, const char* words) {
    EXPECT_EQ(response.status, status) << words;
    EXPECT_THAT(response.body, HasSubstr(words));
    EXPECT_EQ(views::Malformed(response.body), "");
  };
  refused(Submit({}, ""), 400, "choose a file");
  refused(Submit({{"trials", "many"}}, kModel), 400, "trials per task");
  refused(Submit({{"trials", "0"}}, kModel), 400, "trials_per_task");
  refused(Submit({{"priority", "11"}}, kModel), 400, "priority");
  refused(Submit({{"target", "x86"}}, kModel), 400, "x86");
  refused(Submit({{"target", "llvm"}}, kModel), 400, "native");
  refused(Submit({{"more", std::string(3000, 'x')}}, kModel), 400, "too long");
  refused(Submit({}, kModel + std::string(3 << 20, 'm')), 503, "over this service");
  refused(Submit({}, kModel, "", "/submit", "http://evil.example"), 403, "form of this page");
  refused(Submit({}, kModel, "", "/submit", ""), 403, "form of this page");
  refused(Submit({}, kModel, "", "/jobs"), 404, "no form");
  // What is no model is not even taken.
  refused(Submit({}, "HEDDLE02 and so on"), 400, "it is a module");
  refused(Submit({}, "Dear diary,\ntoday I tuned nothing."), 400, "it is a text file");
  EXPECT_TRUE(blobs_->List().empty()) << "nothing is left";
  EXPECT_TRUE(loop_->jobs().Unfinished().empty());
  // Two at a time; one that breaks off makes room.
  HttpRequest request = Request("POST", "/submit");
  request.headers["origin"] = "http://127.0.0.1:8080";
  std::vector<std::variant<std::unique_ptr<FormUpload>, HttpResponse>> open;
  for (int i = 0; i < 2; ++i) open.push_back(page_->BeginUpload(request));
  refused(Submit({}, kModel), 503, "two models are being taken");
  ASSERT_TRUE(std::get<0>(open[0])->Take("target", "", "llvm -mcpu=x").ok());
  ASSERT_TRUE(std::get<0>(open[0])->Take("trials", "", "6").ok());
  ASSERT_TRUE(std::get<0>(open[0])->Take("priority", "", "0").ok());
  ASSERT_TRUE(std::get<0>(open[0])->Take("model", "m.onnx", kModel + "half of it").ok());
  open.clear();
  EXPECT_THAT(AuditLines(), HasSubstr("the form ended early"));
  EXPECT_EQ(Submit({}, kModel).status, 303);
}

TEST_F(PageTest, ARefusedFormKeepsWhatWasEntered) {
  const HttpResponse refused = Submit(
      {{"key", "k7"}, {"target", "llvm -mcpu=y"}, {"trials", "77"}, {"priority", "11"}}, kModel);
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(views::Malformed(refused.body), "");
  EXPECT_THAT(refused.body, HasSubstr("role=\"alert\""));
  for (const char* entered : {"k7", "llvm -mcpu=y", "77", "11"})
    EXPECT_THAT(refused.body, HasSubstr(absl::StrCat("value=\"", entered, "\"")));
  // What was not sent yet is as in a new form.
  const HttpResponse early = Submit({{"target", "x86"}}, kModel);
  EXPECT_THAT(early.body, HasSubstr("value=\"x86\""));
  EXPECT_THAT(See("/submit"), Not(HasSubstr("role=\"alert\"")));
}

TEST_F(PageTest, APriorityIsChanged) {
  cluster_.behaviour.candidate_ms = 50;
  const std::string job = MustSubmit(Spec(1000));
  EXPECT_THAT(See("/jobs/" + job), HasSubstr("/priority\""));
  EXPECT_THAT(See("/jobs/" + job + "/priority"), HasSubstr("name=\"priority\""));
  const HttpResponse done = Post("/jobs/" + job + "/priority", "priority=-4");
  EXPECT_EQ(done.status, 303) << done.body;
  EXPECT_EQ(Get(job).spec().priority(), -4);
  EXPECT_THAT(See("/jobs/" + job), HasSubstr("<dt>priority</dt><dd>-4</dd>"));
  EXPECT_EQ(Post("/jobs/" + job + "/priority", "priority=11").status, 400);
  EXPECT_EQ(Post("/jobs/" + job + "/priority", "priority=high").status, 400);
  EXPECT_EQ(Post("/jobs/j99/priority", "priority=1").status, 404);
  EXPECT_EQ(Get(job).spec().priority(), -4);
  EXPECT_THAT(AuditLines(), HasSubstr("\"job\":\"" + job + "\",\"detail\":\"priority -4\""));
  // It is kept over a restart.
  page_.reset();
  data_.reset();
  drains_.reset();
  Stop();
  Start();
  EXPECT_EQ(Get(job).spec().priority(), -4);
  drains_ = std::make_unique<MachineDrains>(loop_->tracker(), MachineDrains::Options());
  EXPECT_EQ(loop_->SetPriority(job, 2).status(), absl::OkStatus());
  EXPECT_TRUE(loop_->Act(SchedulerLoop::Action::kCancel, job, "").ok());
  EXPECT_EQ(WaitFinal(job).spec().priority(), 2);
  EXPECT_TRUE(absl::IsFailedPrecondition(loop_->SetPriority(job, 3).status()));
}

TEST_F(PageTest, AMachineIsDrainedAndResumed) {
  cluster_.behaviour.candidate_ms = 5;
  const std::string machine = "w1";
  const std::string job = MustSubmit(Spec(10'000));
  Wait(job, [](const v1::Job& now) { return now.trials() > 0; });
  const std::string query = "?machine=" + machine;
  EXPECT_THAT(See("/machines"), HasSubstr("href=\"/machines/drain" + query));
  EXPECT_THAT(See("/machines/drain" + query), HasSubstr("name=\"minutes\""));
  See("/machines/drain?machine=nobody", 404);
  EXPECT_EQ(Post("/machines/drain", "machine=" + machine + "&minutes=0").status, 400);
  EXPECT_EQ(Post("/machines/drain", "machine=nobody&minutes=1").status, 404);
  EXPECT_EQ(Post("/machines/resume", "machine=" + machine).status, 409) << "nobody holds it";
  const HttpResponse done = Post("/machines/drain", "machine=" + machine + "&minutes=10");
  EXPECT_EQ(done.status, 303) << done.body;
  // Its slots follow as their stages end.
  ASSERT_EQ(loop_->Act(SchedulerLoop::Action::kPause, job, "").status(), absl::OkStatus());
  const absl::Time limit = absl::Now() + kServiceLimit;
  const std::string all = "<td class=\"number\">2</td><td class=\"number\">2</td>";
  while (See("/machines").find(all) == std::string::npos && absl::Now() < limit)
    absl::SleepFor(absl::Milliseconds(10));
  EXPECT_THAT(See("/machines"), HasSubstr(all)) << "both of two slots are held";
  EXPECT_THAT(See("/machines/resume" + query), HasSubstr("<dt>held by people</dt><dd>2</dd>"));
  EXPECT_EQ(Post("/machines/resume", "machine=" + machine).status, 303);
  EXPECT_FALSE(cluster_.tracker.Held("cpu0"));
  EXPECT_THAT(AuditLines(), HasSubstr("\"detail\":\"" + machine + " for 10m\""));
  EXPECT_THAT(AuditLines(), HasSubstr("TrackerService/Release"));
}

// A database that takes as long as the test wants.
class SlowSource : public PageSource {
 public:
  int64_t changes() override { return 0; }
  int64_t ChangesOf(const std::string&, int) override { return 0; }
  std::string policy() override { return ""; }
  JobList Unfinished(const Identity&) override { return {}; }
  absl::StatusOr<JobPart> ListJobs(const Identity&, const std::string&, size_t) override {
    return JobPart{};
  }
  absl::StatusOr<std::shared_ptr<const v1::Job>> GetJob(const Identity&,
                                                        const std::string&) override {
    return absl::NotFoundError("");
  }
  absl::StatusOr<v1::Timeline> GetTimeline(const Identity&, const std::string&) override {
    return v1::Timeline();
  }
  absl::StatusOr<std::string> DeviceOf(const Identity&, const std::string&, int) override {
    return "";
  }
  absl::StatusOr<TrialSample> SampleTrials(const Identity&, const WorkloadId&, int64_t) override {
    return TrialSample{};
  }
  absl::StatusOr<std::vector<v1::StageSpan>> LatestStages(const Identity&, int64_t) override {
    return spans;
  }
  absl::StatusOr<RecordPage> QueryRecords(const Identity&, const v1::RecordQuery&,
                                          const std::optional<RecordPlace>&, int64_t) override {
    return RecordPage{};
  }
  absl::StatusOr<std::vector<WorkloadName>> FindWorkloads(const std::string&, const std::string&,
                                                          int64_t) override {
    return std::vector<WorkloadName>();
  }
  absl::StatusOr<std::shared_ptr<const DeviceTable>> CompareDevices(const Identity&,
                                                                    const std::string&,
                                                                    const std::string&) override {
    return std::make_shared<const DeviceTable>();
  }
  absl::StatusOr<std::shared_ptr<const views::WhatIf>> WhatIf(const Identity&) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<v1::ListWorkersResponse> ListWorkers() override {
    v1::ListWorkersResponse response;
    v1::WorkerStatus* worker = response.add_workers();
    worker->set_worker("w1");
    worker->add_slots()->mutable_slot()->set_kind(v1::SLOT_CPU);
    return response;
  }
  absl::Status Act(const Identity&, const std::string&, const Order&) override {
    ++waiting;
    go_on.WaitForNotification();
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<Submission>> BeginSubmit(const Identity&, const v1::JobSpec&,
                                                          const std::string&) override {
    return absl::UnimplementedError("");
  }
  absl::Status Drain(const Identity&, const std::string&, absl::Duration) override {
    return absl::OkStatus();
  }
  absl::Status Resume(const Identity&, const std::string&) override { return absl::OkStatus(); }

  std::vector<v1::StageSpan> spans;
  std::atomic<int> waiting = 0;
  absl::Notification go_on;
};

// A job with one task, whose default schedule and best one were measured.
class MeasuredSource final : public SlowSource {
 public:
  absl::StatusOr<std::shared_ptr<const v1::Job>> GetJob(const Identity&,
                                                        const std::string& name) override {
    auto job = std::make_shared<v1::Job>();
    job->set_id(name);
    job->add_tasks()->mutable_info()->set_key("0123456789abcdef");
    return job;
  }
  absl::StatusOr<TrialSample> SampleTrials(const Identity&, const WorkloadId&, int64_t) override {
    return TrialSample{
        2, {{1, 11, 1, 100, "default", "j1", true}, {2, 12, 2, 50, "annealing", "j1", true}}};
  }
  absl::StatusOr<RecordPage> QueryRecords(const Identity&, const v1::RecordQuery& query,
                                          const std::optional<RecordPlace>&, int64_t) override {
    RecordPage page;
    if (query.id() == 0) return page;
    v1::Record& record = page.records.emplace_back();
    record.set_trace(query.id() == 11 ? "vectorize y.0" : "split y.0 8");
    if (query.id() == 12 && best_loops.empty()) return page;
    record.mutable_measurement()->set_loops(query.id() == 11 ? "for y.0 in 64\n" : best_loops);
    return page;
  }

  std::string best_loops = "for y.0.0 in 8\n";
};

TEST_F(PageTest, ATaskShowsTheLoopsOfBothSchedules) {
  MeasuredSource source;
  page_ = std::make_unique<Page>(PageOptions{}, &source);
  EXPECT_THAT(See("/jobs/j1/tasks/1"),
              HasSubstr("<td>~</td><td>for y.0 in 64</td><td>for y.0.0 in 8</td>"));
  source.best_loops = "";
  EXPECT_THAT(See("/jobs/j1/tasks/1"), HasSubstr("heddle report j1"));
  page_.reset();
}

TEST_F(PageTest, ActionsLeaveThreadsToTheOthers) {
  SlowSource source;
  page_ = std::make_unique<Page>(PageOptions{}, &source);
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([this] { EXPECT_EQ(Post("/jobs/j1/pause").status, 303); });
  const absl::Time limit = absl::Now() + absl::Seconds(20);
  while (source.waiting < 2 && absl::Now() < limit) absl::SleepFor(absl::Milliseconds(5));
  if (source.waiting == 2) {
    const HttpResponse third = Post("/jobs/j1/pause");
    EXPECT_EQ(third.status, 503);
    EXPECT_THAT(third.body, HasSubstr("two actions wait for the database; try again in a moment"));
  }
  EXPECT_EQ(source.waiting, 2);
  source.go_on.Notify();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Post("/jobs/j1/pause").status, 303);
  page_.reset();
}

TEST_F(PageTest, BusySlotsAreOfTheTimeThatWasRead) {
  SlowSource source;
  page_ = std::make_unique<Page>(PageOptions{}, &source);
  v1::StageSpan span;
  const auto begin = [&span](absl::Duration ago) {
    span.set_start_unix_ns(absl::GetCurrentTimeNanos() - absl::ToInt64Nanoseconds(ago));
  };
  begin(absl::Minutes(90));  // and it ended later
  source.spans.assign(5999, span);
  EXPECT_THAT(See("/"), HasSubstr("busy in the last 1h00m"));
  begin(absl::Minutes(20));
  source.spans.assign(6000, span);
  EXPECT_THAT(See("/"), HasSubstr("busy in the last 20m"));
  EXPECT_THAT(See("/machines"), HasSubstr("busy in the last 20m"));
  page_.reset();
}

TEST_F(PageTest, FormsOfOtherSitesDoNothing) {
  cluster_.behaviour.candidate_ms = 50;
  const std::string job = MustSubmit(Spec(1000));
  for (const char* origin :
       {"", "http://evil.example", "null", "https://127.0.0.1:8080", "http://127.0.0.1:8081"})
    EXPECT_EQ(Post("/jobs/" + job + "/cancel", "", origin).status, 403) << origin;
  EXPECT_EQ(Get(job).finished_unix_ns(), 0);
}

TEST_F(PageTest, TokensSayWhoLooks) {
  AskForTokens();
  EXPECT_THAT(See("/", 401), HasSubstr("token"));
  EXPECT_EQ(refused_.size(), 0u) << "a browser shows no token until it is asked";
  EXPECT_THAT(See("/", 401, "wrong"), HasSubstr("token"));
  EXPECT_EQ(refused_.size(), 1u);
  HttpRequest request = Request("GET", "/");
  EXPECT_THAT(page_->Handle(request).headers,
              Contains(Pair("WWW-Authenticate", HasSubstr("Basic"))));
  See("/style.css");  // holds no secret
  const std::string token = TokenOf("user", "ann");
  AskForTokens();  // so that the file is read at once
  EXPECT_THAT(See("/", 200, token), HasSubstr("user/ann of anns"));
  request.headers["authorization"] = "Basic " + absl::Base64Escape("anybody:" + token);
  EXPECT_EQ(page_->Handle(request).status, 200);
  for (const std::string& bad :
       {"Basic " + absl::Base64Escape(token), std::string("Basic !"), "Digest " + token,
        std::string("Basic"), token, std::string(" ")}) {
    request.headers["authorization"] = bad;
    EXPECT_EQ(page_->Handle(request).status, 401) << bad;
  }
}

TEST_F(PageTest, RevokedPeopleSeeNothing) {
  const std::string ann = TokenOf("user", "ann"), bob = TokenOf("user", "bob");
  AskForTokens();
  See("/", 200, ann);
  std::ofstream(directory_ + "/revoked") << "user/ann\n";
  std::filesystem::permissions(directory_ + "/revoked", std::filesystem::perms(0600));
  revoked_ = std::make_unique<RevokedList>(directory_ + "/revoked");
  AskForTokens();
  See("/", 401, ann);
  See("/events?page=/", 401, ann);
  See("/", 200, bob);
  EXPECT_EQ(refused_.size(), 2u);
}

TEST_F(PageTest, PeopleSeeWhatTheyMaySee) {
  cluster_.behaviour.candidate_ms = 5;
  AskForTokens();
  v1::JobSpec spec = Spec(3);
  spec.set_user("anns");
  const std::string finished = MustSubmit(spec);
  WaitFinal(finished);
  spec.set_trials_per_task(10'000);
  const std::string running = MustSubmit(spec);
  const std::string ann = TokenOf("user", "ann"), bob = TokenOf("user", "bob"),
                    eve = TokenOf("read-only", "eve"), boss = TokenOf("operator", "boss");
  for (const std::string& job : {finished, running}) {
    for (const std::string& sees : {ann, eve, boss}) {
      EXPECT_THAT(See("/jobs", 200, sees), HasSubstr("/jobs/" + job + "\""));
      See("/jobs/" + job, 200, sees);
      if (job == finished) See("/jobs/" + job + "/tasks/1", 200, sees);
    }
    EXPECT_THAT(See("/jobs", 200, bob), Not(HasSubstr("/jobs/" + job + "\"")));
    See("/compare?a=" + job, 404, bob);
    See("/compare?a=" + finished + "&b=" + running, 404, bob);
    See("/compare?a=" + finished + "&b=" + running, 200, ann);
    EXPECT_THAT(See("/whatif", 200, bob), Not(HasSubstr("/jobs/" + job + "\"")));
    EXPECT_THAT(See("/", 200, bob), Not(HasSubstr(job + "\"")));
    See("/jobs/" + job, 404, bob);
    See("/jobs/" + job + "/tasks/1", 404, bob);
    EXPECT_EQ(page_->Handle(Request("GET", "/events?page=/jobs/" + job, bob)).status, 404);
    // That a machine was busy he sees, but not with what.
    EXPECT_THAT(See("/machines", 200, bob), Not(HasSubstr(job + " profile")));
    EXPECT_THAT(See("/machines", 200, ann), HasSubstr(finished + " profile"));
  }
  EXPECT_THAT(See("/jobs/" + running, 200, eve), Not(HasSubstr("/cancel\""))) << "she only reads";
  EXPECT_THAT(See("/jobs/" + running, 200, ann), HasSubstr("/cancel\""));
  const std::string origin = "http://127.0.0.1:8080";
  EXPECT_EQ(Post("/jobs/" + running + "/cancel", "", origin, "").status, 401);
  EXPECT_EQ(Post("/jobs/" + running + "/cancel", "", origin, eve).status, 403);
  EXPECT_EQ(Post("/jobs/" + running + "/cancel", "", origin, bob).status, 404);
  EXPECT_EQ(loop_->jobs().Get(running)->job->finished_unix_ns(), 0);
  // Each role has its actions, and the form of none is shown to the others.
  for (const std::string& nobody : {eve, bob}) {
    const int status = nobody == eve ? 403 : 404;
    EXPECT_EQ(Post("/jobs/" + running + "/priority", "priority=1", origin, nobody).status, status);
    EXPECT_EQ(Post("/machines/drain", "machine=w&minutes=1", origin, nobody).status, 403);
    EXPECT_EQ(Post("/machines/resume", "machine=w", origin, nobody).status, 403);
    EXPECT_THAT(See("/machines", 200, nobody), Not(HasSubstr("/machines/drain")));
    See("/machines/drain?machine=w", 403, nobody);
  }
  EXPECT_THAT(See("/machines", 200, boss), HasSubstr("/machines/drain"));
  EXPECT_EQ(Submit({}, kModel, eve).status, 403);
  See("/submit", 403, eve);
  EXPECT_THAT(See("/", 200, eve), Not(HasSubstr("/submit")));
  const HttpResponse hers = Submit({}, kModel, ann);
  EXPECT_EQ(hers.status, 303) << hers.body;
  EXPECT_EQ(loop_->jobs().Get(JobOf(hers))->job->spec().user(), "anns");
  See("/jobs/" + JobOf(hers), 404, bob);
  EXPECT_EQ(Post("/jobs/" + running + "/priority", "priority=1", origin, ann).status, 303);
  std::ifstream refusals(directory_ + "/audit/refused.jsonl");
  const std::string told((std::istreambuf_iterator<char>(refusals)),
                         std::istreambuf_iterator<char>());
  for (const char* method :
       {"JobService/PrioritizeJob", "TrackerService/Acquire", "JobService/Submit"})
    EXPECT_THAT(told, HasSubstr(method));
  EXPECT_EQ(Post("/jobs/" + running + "/cancel", "", origin, boss).status, 303);
  EXPECT_EQ(WaitFinal(running).state(), v1::JOB_CANCELLED);
  std::ifstream file(directory_ + "/audit/calls.jsonl");
  const std::string calls((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_THAT(calls, HasSubstr("\"name\":\"boss\""));
}

TEST_F(PageTest, ComparedJobsHaveTheNumbersOfTheApi) {
  const std::string one = MustSubmit(Spec());
  WaitFinal(one);
  v1::JobSpec more = Spec(9);
  more.set_force(true);
  const std::string two = MustSubmit(more);
  WaitFinal(two);
  const v1::Job a = Get(one), b = Get(two);
  const std::string page = See("/compare?a=" + one + "&b=" + two);
  EXPECT_THAT(page, HasSubstr("<th scope=\"row\">trials_per_task</th><td>6</td><td>9</td>"));
  EXPECT_THAT(page, HasSubstr("<th scope=\"row\">force</th>"));
  EXPECT_THAT(page, Not(HasSubstr("<th scope=\"row\">batch</th>"))) << "it is the same";
  ASSERT_EQ(a.tasks_size(), b.tasks_size());
  for (int i = 0; i < a.tasks_size(); ++i) {
    const double left = a.tasks(i).best_ns(), right = b.tasks(i).best_ns();
    ASSERT_GT(left, 0);
    EXPECT_THAT(page, HasSubstr(absl::StrCat(
                          "<td class=\"number\">", FormatNs(left), "</td><td class=\"number\">",
                          FormatNs(right), "</td><td class=\"number\">", FormatRatio(left / right),
                          "</td><td class=\"number\">", a.tasks(i).trials(),
                          "</td><td class=\"number\">", b.tasks(i).trials(), "</td>")));
  }
  // Both lead here, and the second knows jobs of the same model.
  EXPECT_THAT(See("/jobs/" + one), HasSubstr("href=\"/compare?a=" + one + "\""));
  EXPECT_THAT(See("/compare?a=" + one),
              HasSubstr("href=\"/compare?a=" + one + "&amp;b=" + two + "\""));
  See("/compare?a=" + one + "&b=j99", 404);
}

TEST_F(PageTest, ComparedDevicesHaveTheNumbersOfTheApi) {
  const std::string job = MustSubmit(Spec());
  WaitFinal(job);
  v1::RecordQuery query;
  query.set_best_only(true);
  const std::vector<v1::Record> best = Query(query);
  ASSERT_FALSE(best.empty());
  const std::string here = best.front().device_key();
  EXPECT_THAT(See("/compare"), HasSubstr(here)) << "it can be chosen";
  EXPECT_THAT(See("/compare?device_a=" + here + "&device_b=elsewhere"),
              AllOf(HasSubstr("there is no task of which both have valid records"),
                    HasSubstr("has the device key &quot;elsewhere&quot;; there are: "),
                    Not(HasSubstr("has the device key &quot;" + here))));
  // The same tasks, twice as fast on another device.
  for (const v1::Record& record : best) {
    InsertRecord insert;
    insert.record = record;
    insert.record.set_device_key("elsewhere");
    insert.record.mutable_measurement()->clear_samples_ns();
    for (int i = 0; i < 3; ++i)
      insert.record.mutable_measurement()->add_samples_ns(record.median_ns() / 2);
    insert.imported = true;
    insert.record.set_imported_by("user/ann of vision");
    ASSERT_TRUE(store_->Apply({Batch{insert}})->front().ok());
  }
  const std::string page = See("/compare?device_a=" + here + "&device_b=elsewhere");
  EXPECT_THAT(page, HasSubstr(absl::StrCat("Both have records of ", best.size(), " tasks")));
  EXPECT_THAT(page, HasSubstr("elsewhere is 2.00x as fast as"));
  for (const v1::Record& record : best) {
    EXPECT_THAT(page,
                HasSubstr(absl::StrCat(FormatNs(record.median_ns()), "</td><td class=\"number\">",
                                       FormatNs(record.median_ns() / 2),
                                       "</td><td class=\"number\">2.00x</td>")));
  }
  // The records lead here.
  EXPECT_THAT(See("/records?key=" + best.front().workload_key()), HasSubstr("over all tasks"));
}

TEST_F(PageTest, TheQueueIsSimulated) {
  cluster_.behaviour.candidate_ms = 40;
  const std::string job = MustSubmit(Spec(200));
  Wait(job, [](const v1::Job& now) { return now.trials() >= 3; });
  EXPECT_EQ(page_->Handle(Request("GET", "/events?page=/whatif")).status, 200);
  std::string page = See("/whatif");
  const absl::Time limit = absl::Now() + kServiceLimit;
  while (page.find("<svg") == std::string::npos && absl::Now() < limit) {
    absl::SleepFor(absl::Milliseconds(50));
    page = See("/whatif");
  }
  EXPECT_THAT(page, HasSubstr(">as it is<"));
  EXPECT_THAT(page, HasSubstr("one more device slot"));
  EXPECT_THAT(page, HasSubstr("one more CPU slot"));
  EXPECT_THAT(page, HasSubstr("policy round_robin"));
  EXPECT_THAT(page, HasSubstr("href=\"/jobs/" + job + "\""));
  EXPECT_EQ(Post("/jobs/" + job + "/cancel").status, 303);
}

TEST_F(PageTest, NoMachinesIsSaidAndTheRestIsThere) {
  v1::ListWorkersResponse none;
  cluster_.tracker.SetWorkers(none);
  EXPECT_THAT(See("/machines"), HasSubstr("no machine has reported"));
}

}  // namespace
}  // namespace heddle::scheduler
