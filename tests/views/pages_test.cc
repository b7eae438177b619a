#include "views/pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/views/well_formed.h"
#include "views/forms.h"

namespace heddle::views {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kNow = 1'800'000'000 * kSecond;

v1::Job MakeJob(int id, v1::JobState state, const std::string& reason) {
  v1::Job job;
  job.set_id(absl::StrCat("j", id));
  job.mutable_spec()->set_name(kHostile);
  job.mutable_spec()->set_target(kHostile);
  job.mutable_spec()->set_user(kHostile);
  job.set_state(state);
  job.set_reason(reason);
  job.set_created_unix_ns(kNow);
  job.set_trials(5);
  job.set_trials_budget(20);
  job.set_eta_ms(90'000);
  job.add_warnings(kHostile);
  for (int i = 0; i < 2; ++i) {
    v1::TaskStatus& task = *job.add_tasks();
    task.mutable_info()->set_key("0123456789abcdef");
    task.mutable_info()->set_label(absl::StrCat(kHostile, i));
    task.mutable_info()->set_weight(2);
    task.mutable_info()->set_flops(2e6);
    task.set_trials(5);
    task.set_budget(10);
    task.set_best_ns(1000);
    task.set_untuned_ns(4000);
    task.set_doing(kHostile);
    task.set_first_error(kHostile);
  }
  return job;
}

Jobs Many(int count, v1::JobState state = v1::JOB_TUNING) {
  Jobs jobs;
  for (int i = count; i > 0; --i)
    jobs.push_back(std::make_shared<const v1::Job>(MakeJob(i, state, "waiting for a cpu slot")));
  return jobs;
}

v1::ListWorkersResponse Workers() {
  v1::ListWorkersResponse list;
  v1::WorkerStatus& worker = *list.add_workers();
  worker.set_worker(kHostile);
  for (const v1::SlotState state : {v1::SLOT_HELD, v1::SLOT_FREE, v1::SLOT_QUARANTINED}) {
    v1::SlotStatus& slot = *worker.add_slots();
    slot.mutable_slot()->set_name(absl::StrCat("s", worker.slots_size()));
    slot.mutable_slot()->set_kind(v1::SLOT_DEVICE);
    slot.mutable_slot()->set_device_key(kHostile);
    for (int core = 0; core < 20; ++core) slot.mutable_slot()->add_cores(core);
    slot.set_state(state);
    slot.set_reason(kHostile);
  }
  return list;
}

RecentStages Recent() {
  RecentStages recent;
  recent.begin_unix_ns = kNow;
  recent.now_unix_ns = kNow + 3600 * kSecond;
  v1::StageSpan& span = recent.spans.emplace_back();
  span.set_job(kHostile);
  span.set_kind(v1::STAGE_PROFILE);
  span.set_worker(kHostile);
  span.set_slot("s1");
  span.set_start_unix_ns(kNow + 1800 * kSecond);  // still running: half of the hour
  return recent;
}

TaskDetails Details(int trials) {
  TaskDetails details;
  details.job = MakeJob(1, v1::JOB_TUNING, "");
  details.device_key = kHostile;
  details.all_trials = 100'000;
  for (int i = 0; i < trials; ++i) {
    details.trials.push_back(
        {i + 1, kNow + i * kSecond, i % 5 == 0 ? 0 : 9000.0 - i, kHostile, kHostile, i % 5 != 0});
  }
  details.default_trace = "split a\nsplit b\n";
  details.best_trace = absl::StrCat("split a\n", kHostile, "\n");
  details.default_ns = 4000;
  details.best_ns = 1000;
  for (int i = 0; i < trials; ++i)
    details.predicted.push_back({kHostile, 16 * (i / 16), 1.0 * i, i % 5 == 0 ? 0 : 9000.0 - i});
  details.workload = absl::StrCat("program p(x: f32[1000]) -> (y: f32[]) {\n  ", kHostile, "\n}\n");
  details.limits = {.gflops = 100, .gbps = 10};
  return details;
}

void ExpectSound(const Html& page) {
  EXPECT_EQ(Malformed(page.markup), "");
  EXPECT_THAT(page.markup, Not(HasSubstr("<script")));
  EXPECT_THAT(page.markup, Not(HasSubstr(" style=")));
}

TEST(Pages, NoNameBecomesMarkup) {
  Overview overview;
  overview.unfinished = Many(3);
  overview.finished = Many(2, v1::JOB_FAILED);
  overview.machines = Workers();
  overview.machines_missing = kHostile;
  overview.recent = Recent();
  overview.policy = kHostile;
  ExpectSound(OverviewPage(overview));
  ExpectSound(JobsPage(Many(3), {.all = 10, .next = "/jobs?before=j1"}));
  JobDetails job;
  job.job = MakeJob(1, v1::JOB_FAILED, kHostile);
  job.job.mutable_fault()->set_message(kHostile);
  job.job.mutable_tasks(0)->set_failed(5);
  job.spans = Recent().spans;
  job.now_unix_ns = kNow + 3600 * kSecond;
  job.actions = {"cancel", "pause"};
  ExpectSound(JobPage(job));
  ExpectSound(ConfirmPage(job.job, "cancel"));
  ExpectSound(TaskPage(Details(100)));
  TaskDetails with_loops = Details(100);
  with_loops.default_loops = kHostile;
  with_loops.best_loops = absl::StrCat(kHostile, kHostile);
  ExpectSound(TaskPage(with_loops));
  with_loops.links = false;  // in a file
  ExpectSound(TaskPage(with_loops));
  ExpectSound(MachinesPage({.machines = Workers(), .missing = kHostile, .recent = Recent()}));
  RecordsView records;
  records.search = kHostile;
  records.tasks = {{kHostile, kHostile, 1e6}};
  ExpectSound(RecordsPage(records));
  records.key = kHostile;
  v1::Record& record = records.latest.emplace_back();
  record.set_device_key(kHostile);
  record.set_job(kHostile);
  record.mutable_measurement()->set_message(kHostile);
  record.mutable_retraction()->set_reason(kHostile);
  records.best = records.latest;
  ExpectSound(RecordsPage(records));
  ExpectSound(ErrorPage(kHostile, kHostile));
}

TEST(Pages, AreWholeWithoutAnything) {
  for (const Html& page :
       {OverviewPage({}), JobsPage({}, {}), JobPage({}), MachinesPage({}), RecordsPage({})}) {
    EXPECT_EQ(Malformed(page.markup), "");
    EXPECT_THAT(page.markup, HasSubstr("<h1>"));
  }
  TaskDetails task;
  task.job.add_tasks();
  EXPECT_EQ(Malformed(TaskPage(task).markup), "");
}

TEST(Pages, AJobThatNothingCanRunWaits) {
  JobDetails details;
  details.job = MakeJob(1, v1::JOB_TUNING, "no device with target llvm -mcpu=atom, 1 thread");
  const Jobs jobs = {std::make_shared<const v1::Job>(details.job)};
  for (const Html& page : {JobsPage(jobs, {}), JobPage(details)}) {
    EXPECT_THAT(page.markup, HasSubstr("waiting"));
    EXPECT_THAT(page.markup, Not(HasSubstr("tuning<")));
    EXPECT_THAT(page.markup, Not(HasSubstr("tuning:")));
  }
}

TEST(Pages, TimesThatDoNotAgreeAreExplained) {
  JobDetails details;
  details.job = MakeJob(1, v1::JOB_DONE, "done");
  const auto listed = [&details] {
    return JobsPage({std::make_shared<const v1::Job>(details.job)}, {}).markup;
  };
  EXPECT_THAT(listed(), HasSubstr("4.0 us (sum)"));
  details.job.mutable_comparison()->mutable_result()->set_ns(1500);
  EXPECT_THAT(JobPage(details).markup, HasSubstr("the whole model took 1.5 us"));
  EXPECT_THAT(listed(), Not(HasSubstr("(sum)")));
}

TEST(Pages, TheJobOfAnImportedRecordIsOfAnotherService) {
  RecordsView records;
  records.key = "0123456789abcdef";
  v1::Record& record = records.latest.emplace_back();
  record.set_job("j7");
  EXPECT_THAT(RecordsPage(records).markup, HasSubstr("/jobs/j7"));
  record.set_imported_by("ann");
  EXPECT_THAT(RecordsPage(records).markup, Not(HasSubstr("/jobs/j7")));
  EXPECT_THAT(RecordsPage(records).markup, HasSubstr("imported, j7 there"));
}

TEST(Pages, CountsTellWhoRunsAndWhoWaits) {
  Jobs jobs = Many(2);
  jobs.push_back(std::make_shared<const v1::Job>(MakeJob(9, v1::JOB_PAUSED, "paused")));
  jobs.push_back(std::make_shared<const v1::Job>(MakeJob(8, v1::JOB_TUNING, "profile 3/16")));
  RecentStages recent = Recent();
  recent.spans[0].set_job("j8");
  v1::StageSpan& over = recent.spans.emplace_back();
  over.set_job("j1");
  over.set_start_unix_ns(kNow);
  over.set_end_unix_ns(kNow + kSecond);
  const JobCounts counts = CountJobs(jobs, recent);
  EXPECT_EQ(counts.waiting, 2);
  EXPECT_EQ(counts.paused, 1);
  EXPECT_EQ(counts.running, 1);
}

TEST(Pages, FormsTakeAnyName) {
  v1::ListWorkersResponse machines;
  v1::WorkerStatus* machine = machines.add_workers();
  machine->set_worker(kHostile);
  machine->add_slots()->set_holder("person:ann@host");
  machine->add_slots()->set_holder("scheduler");
  SubmitForm form;
  form.targets = {kHostile};
  form.key = kHostile;
  for (const Html& page :
       {MachineActions(machines), MachinePage(*machine, "drain"), MachinePage(*machine, "resume"),
        SubmitPage(form), SubmitPage({}), PriorityPage(MakeJob(1, v1::JOB_TUNING, ""))}) {
    EXPECT_EQ(Malformed("<div>" + page.markup + "</div>"), "");
    EXPECT_THAT(page.markup, Not(HasSubstr("<script")));
  }
  EXPECT_THAT(SubmitPage({}).markup, HasSubstr("XGBoost or LightGBM")) << "it takes these";
  EXPECT_THAT(MachineActions(machines).markup,
              HasSubstr("<td class=\"number\">2</td><td class=\"number\">1</td>"))
      << "what a scheduler holds is no person's";
  EXPECT_EQ(MachineActions({}).markup, "");
}

TEST(Pages, SayWhatIsLeftOut) {
  const std::string jobs = JobsPage(Many(3), {.all = 10, .next = "/jobs?before=j1"}).markup;
  EXPECT_THAT(jobs, HasSubstr("showing 3 of 10 jobs"));
  EXPECT_THAT(jobs, HasSubstr("href=\"/jobs?before=j1\""));
  const std::string task = TaskPage(Details(100)).markup;
  EXPECT_THAT(task, HasSubstr("showing 100 of 100000 trials"));
  TaskDetails newest = Details(100);
  newest.older_left_out = true;
  const std::string report = TaskPage(newest).markup;
  EXPECT_THAT(report, HasSubstr("showing 100 of the newest 100000 trials"));
  EXPECT_THAT(report, HasSubstr("at least 100000 by all jobs"));
  JobDetails many;
  for (int i = 0; i < 600; ++i) {
    many.job.add_tasks()->mutable_info()->set_weight(1);
    many.job.mutable_tasks(i)->mutable_info()->set_label(absl::StrCat("label", i));
  }
  const std::string job = JobPage(many).markup;
  EXPECT_THAT(job, HasSubstr("showing 500 of 600 tasks"));
  EXPECT_THAT(job, HasSubstr("label499"));
  EXPECT_THAT(job, Not(HasSubstr("label500")));
}

TEST(Pages, TellWhatAJobDoesAndWon) {
  JobDetails details;
  details.job = MakeJob(7, v1::JOB_TUNING, "waiting for a device slot: w1/profile0 is held");
  v1::StageSpan& profile = details.spans.emplace_back();
  profile.set_kind(v1::STAGE_PROFILE);
  profile.set_worker("w1");
  profile.set_slot("profile0");
  profile.set_start_unix_ns(kNow);
  profile.set_end_unix_ns(kNow + 4 * kSecond);
  v1::StageSpan build = profile;
  build.set_kind(v1::STAGE_BUILD);
  details.spans.push_back(build);
  EXPECT_THAT(JobPage(details).markup,
              AllOf(HasSubstr("<dt>device time</dt><dd>4.0 s in the latest 2 stages</dd>"),
                    HasSubstr("Time that its latest 2 stages held slots; it had more")))
      << "a job begins with its import";
  build.set_kind(v1::STAGE_IMPORT);
  details.spans.push_back(build);
  details.actions = {"pause", "cancel"};
  const std::string page = JobPage(details).markup;
  EXPECT_THAT(page, HasSubstr("waiting for a device slot: w1/profile0 is held"));
  EXPECT_THAT(page, HasSubstr("<dt>time left</dt><dd>1m30s</dd>"));
  EXPECT_THAT(page, HasSubstr("<dt>device time</dt><dd>4.0 s</dd>")) << "builds take no device";
  EXPECT_THAT(page, HasSubstr("4.00x"));
  EXPECT_THAT(page, HasSubstr("href=\"/jobs/j7/pause\""));
  EXPECT_THAT(page, HasSubstr("href=\"/jobs/j7/tasks/2\""));
  details.links = false;
  details.actions.clear();
  const std::string file = JobPage(details).markup;
  EXPECT_THAT(file, Not(HasSubstr("href=\"/")));
  EXPECT_THAT(file, HasSubstr("href=\"#task2\""));
  TaskDetails task = Details(20);
  task.task = 1;
  task.links = false;
  EXPECT_THAT(TaskPage(task).markup, HasSubstr("id=\"task2\""));
  EXPECT_THAT(TaskPage(task).markup, Not(HasSubstr("href=\"/")));
}

TEST(Pages, ATaskIsHeldToItsPredictionsAndItsMachine) {
  TaskDetails details = Details(40);
  const std::string page = TaskPage(details).markup;
  EXPECT_THAT(page,
              HasSubstr("Predicted against measured place in the batch; rank correlation 0."));
  EXPECT_THAT(page, HasSubstr("The latest 40 trials that a model chose."));
  // 2 MFLOP over 4004 bytes; 1000 ns are 2000 GFLOP/s, 20 times the peak.
  EXPECT_THAT(page, HasSubstr("the task does 500 FLOP per byte"));
  EXPECT_THAT(
      page, HasSubstr("best: 1.0 us, 2000.0 GFLOP/s, 4.0 GB/s; 2000 % of what arithmetic allows"));
  EXPECT_THAT(page, HasSubstr("<summary>The loops that every schedule begins from</summary>"));
  EXPECT_THAT(page, HasSubstr("<td>~</td>")) << "the shade is not all that tells what changed";
  details.limits = {};
  EXPECT_THAT(TaskPage(details).markup, HasSubstr("The limits of the slot were not measured"));
  details.limits = {.gflops = 100, .gbps = 10};
  details.workload = "no loops";
  EXPECT_THAT(TaskPage(details).markup, HasSubstr("data is not known, so it has no roofline"));
  details.predicted.clear();
  EXPECT_THAT(TaskPage(details).markup, HasSubstr("No model has predicted"));
}

TEST(Pages, MachinesShowHowBusyTheyAreAndWhy) {
  v1::ListWorkersResponse workers = Workers();
  workers.mutable_workers(0)->set_worker("w1");
  RecentStages recent = Recent();
  recent.spans[0].set_worker("w1");
  workers.mutable_workers(0)->mutable_slots(2)->set_reason("three disturbed measurements");
  const auto shown = [&] {
    return MachinesPage({.machines = workers, .missing = {}, .recent = recent}).markup;
  };
  EXPECT_THAT(shown(), HasSubstr("<span class=\"bad\">quarantined</span>"));
  EXPECT_THAT(shown(), HasSubstr("three disturbed measurements"));
  EXPECT_THAT(shown(), HasSubstr("<svg"));
  // The stage runs since half an hour, and no other is known.
  EXPECT_THAT(shown(), AllOf(HasSubstr(">busy in the last 30m00s<"), HasSubstr(">100 %<")));
  Overview overview;
  overview.machines = workers;
  overview.recent = recent;
  EXPECT_THAT(OverviewPage(overview).markup,
              AllOf(HasSubstr(">busy in the last 30m00s<"), HasSubstr(">33 %<")))
      << "one of three slots";
  // Since another one began an hour ago, an hour counts, and never more than the time that was read.
  v1::StageSpan& first = recent.spans.emplace_back(recent.spans[0]);
  first.set_slot("s2");
  first.set_start_unix_ns(kNow - 1800 * kSecond);
  first.set_end_unix_ns(kNow + 360 * kSecond);
  EXPECT_THAT(shown(), AllOf(HasSubstr(">busy in the last 1h00m<"), HasSubstr(">50 %<"),
                             HasSubstr(">10 %<")));
}

TEST(Pages, ANoteOfASlotIsReadOnce) {
  v1::ListWorkersResponse workers = Workers();
  v1::SlotStatus& slot = *workers.mutable_workers(0)->mutable_slots(1);
  slot.mutable_slot()->set_note("the daemons run here, too");
  slot.set_reason("the daemons run here, too");  // as the tracker says of a free slot
  const auto shown = [&] {
    return MachinesPage({.machines = workers, .missing = {}, .recent = {}}).markup;
  };
  EXPECT_THAT(shown(), HasSubstr("<td>the daemons run here, too</td>"));
  slot.set_reason("held by ann");
  EXPECT_THAT(shown(), HasSubstr("<td>held by ann; the daemons run here, too</td>"));
}

TEST(Pages, MachinesTellTheirNoise) {
  Machines machines;
  machines.machines = Workers();
  machines.machines.mutable_workers(0)->set_worker("w1");
  EXPECT_THAT(MachinesPage(machines).markup, Not(HasSubstr("Noise:")));
  v1::Record& record = machines.noise_records.emplace_back();
  record.set_median_ns(100);
  for (const double ns : {98.0, 100.0, 102.0}) record.mutable_measurement()->add_samples_ns(ns);
  record.mutable_measurement()->mutable_evidence()->set_worker("w1");
  record.mutable_measurement()->mutable_evidence()->set_slot("s2");
  record.mutable_measurement()->mutable_evidence()->set_times_measured(2);
  EXPECT_THAT(MachinesPage(machines).markup,
              AllOf(HasSubstr(">4.0 %, 100 % repeated<"), HasSubstr("of the last 1 records")));
}

TEST(Pages, WithoutATrackerNobodyIsToldToStartAWorker) {
  Overview overview;
  EXPECT_THAT(OverviewPage(overview).markup, HasSubstr("start heddle-worker"));
  EXPECT_THAT(MachinesPage({}).markup, HasSubstr("start heddle-worker"));
  overview.machines_missing = "no tracker";
  for (const Html& page : {OverviewPage(overview),
                           MachinesPage({.machines = {}, .missing = "no tracker", .recent = {}})}) {
    EXPECT_THAT(page.markup, HasSubstr("no tracker"));
    EXPECT_THAT(page.markup, Not(HasSubstr("start heddle-worker")));
  }
}

TEST(Pages, AModuleOfDefaultKernelsHasNoGain) {
  JobDetails details;
  details.job = MakeJob(1, v1::JOB_DONE, "done");
  v1::CompareResult& result = *details.job.mutable_comparison()->mutable_result();
  result.set_ns(31911);
  result.set_default_ns(31911);
  result.mutable_gain()->set_ratio(1);
  details.job.mutable_tasks(0)->set_keeps_default(true);
  const std::string page = JobPage(details).markup;
  EXPECT_THAT(page,
              HasSubstr("model 31.9 us with the default kernels; no tuned one was surely faster"));
  EXPECT_THAT(page, Not(HasSubstr("rounds in turns")));
  // The first task's row has the time of the kernel that stays, the second one's that of the best.
  EXPECT_THAT(page, AllOf(HasSubstr("<td class=\"number\">4.0 us</td>"),
                          HasSubstr("<td class=\"number\">1.00x</td>"),
                          HasSubstr("<td class=\"number\">1.0 us</td>"),
                          HasSubstr("<td class=\"number\">4.00x</td>")));
  TaskDetails task = Details(20);
  task.job = details.job;
  EXPECT_THAT(TaskPage(task).markup, HasSubstr("none: the module keeps the default kernel"));
  // A measured gain has an interval.
  result.mutable_gain()->set_low(0.9);
  result.mutable_gain()->set_high(1.1);
  EXPECT_THAT(JobPage(details).markup, HasSubstr("rounds in turns"));
}

TEST(Pages, RecordsAreDrawnOverTime) {
  RecordsView view;
  view.key = "0123456789abcdef";
  view.device_key = "a device";
  EXPECT_THAT(RecordsPage(view).markup, Not(HasSubstr("<svg")));
  view.trials = Details(20).trials;
  view.flops = 2e6;
  const std::string page = RecordsPage(view).markup;
  EXPECT_EQ(Malformed(page), "");
  EXPECT_THAT(page, AllOf(HasSubstr("The best so far over time"), HasSubstr("GFLOP/s")));
}

TEST(Pages, LoopsThatChangedStandSideBySide) {
  TaskDetails details = Details(20);
  details.default_loops = "for i in 64 {\n}\n";
  details.best_loops = "for i in 8 {\n}\n";
  for (const bool links : {true, false}) {
    details.links = links;
    const std::string page = TaskPage(details).markup;
    EXPECT_THAT(
        page,
        HasSubstr("<tr class=\"differs\"><td>~</td><td>for i in 64 {</td><td>for i in 8 {</td>"));
    EXPECT_THAT(page, HasSubstr("<caption>Loops of both."));
    EXPECT_THAT(page, Not(HasSubstr("heddle report j1")));
  }
  details.default_loops = "";
  EXPECT_THAT(TaskPage(details).markup, Not(HasSubstr("Loops of both")));
  // The page names the command that works them out.
  details.links = true;
  EXPECT_THAT(TaskPage(details).markup, AllOf(HasSubstr("<code>heddle report j1 -o FILE</code>"),
                                              Not(HasSubstr("Loops of both"))));
}

}  // namespace
}  // namespace heddle::views
