#include "views/pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/vocabulary/choose_trials.h"
#include "proto/job_states.h"
#include "views/align.h"
#include "views/charts.h"
#include "views/compare.h"
#include "views/figures.h"
#include "views/format.h"
#include "views/forms.h"
#include "views/inputs.h"
#include "views/noise.h"
#include "views/parts.h"
#include "views/task_charts.h"

namespace heddle::views {
namespace {

// A job has few hundred tasks; more than this are shown by the command line.
constexpr int kMostTasks = 500;
constexpr size_t kMostSlots = 500;
// Of the steps to the best trial, the last are shown as a table.
constexpr size_t kMostSteps = 20;
constexpr size_t kMostOtherDevices = 5;  // that a task's records lead to comparisons with

std::string Eta(const v1::Job& job) {
  return job.eta_ms() > 0 ? HumanDuration(absl::Milliseconds(job.eta_ms())) : "";
}

Html JobTable(const Jobs& jobs, const std::string& caption, const std::string& none) {
  HtmlTable table(caption, {{"job"},
                            {"name"},
                            {"state"},
                            {"what it does, or why it ended"},
                            {"trials"},
                            {"time left", true},
                            {"model", true},
                            {"created"}});
  for (const auto& job : jobs) {
    const std::string eta = Eta(*job);
    table.Add({JobLink(job->id()), Text(Cut(job->spec().name())), State(*job),
               Class("wide", Text(Cut(Reason(*job), 240))), TrialsOf(*job),
               Text(eta.empty() ? "-" : eta), Text(ModelTime(*job)), Time(job->created_unix_ns())});
  }
  Html html = table.ToHtml(none);
  if (std::any_of(jobs.begin(), jobs.end(), [](const auto& job) { return IsSum(*job); }))
    html += Faint(kSumMeans);
  return html;
}

int64_t EndOf(const v1::StageSpan& span, int64_t now_unix_ns) {
  return span.end_unix_ns() != 0 ? span.end_unix_ns() : std::max(now_unix_ns, span.start_unix_ns());
}

std::string SlotName(const std::string& worker, const std::string& slot) {
  return absl::StrCat(worker, "/", slot);
}

std::string Percent(double share) { return fmt::format("{:.0f} %", 100 * std::min(1.0, share)); }

// How busy slots were since the first stage that is known: a service that began ten minutes ago was
// not idle for hours before.
struct BusySlots {
  std::map<std::string, double> shares;  // by slot: the part of that time that stages held it
  std::string column;                    // names that time: "busy in the last 10m00s"
};
BusySlots BusyOf(const RecentStages& recent) {
  const int64_t now = recent.now_unix_ns;
  int64_t since = recent.spans.empty() ? recent.begin_unix_ns : now;
  for (const v1::StageSpan& span : recent.spans) since = std::min(since, span.start_unix_ns());
  since = std::max(since, recent.begin_unix_ns);
  BusySlots busy;
  busy.column = absl::StrCat("busy in the last ", HumanDuration(absl::Nanoseconds(now - since)));
  if (now <= since) return busy;
  for (const v1::StageSpan& span : recent.spans) {
    const int64_t begin = std::max(span.start_unix_ns(), since);
    const int64_t end = std::min(EndOf(span, now), now);
    if (end > begin) {
      busy.shares[SlotName(span.worker(), span.slot())] +=
          static_cast<double>(end - begin) / static_cast<double>(now - since);
    }
  }
  return busy;
}

// Rows by slot, spans by kind of stage.
Html StageChart(const std::string& title, const std::vector<v1::StageSpan>& spans, int64_t begin,
                int64_t end, int64_t now) {
  std::map<std::string, ChartRow> rows;
  std::vector<const v1::StageSpan*> sorted;
  for (const v1::StageSpan& span : spans) sorted.push_back(&span);
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) {
    return a->start_unix_ns() < b->start_unix_ns();
  });
  for (const v1::StageSpan* span : sorted) {
    const std::string slot = SlotName(span->worker(), span->slot());
    ChartRow& row = rows[slot];
    row.name = slot;
    const std::string kind = StageWord(span->kind());
    const int64_t last = EndOf(*span, now);
    row.spans.push_back(
        {span->start_unix_ns(), last, kind,
         fmt::format("{} {}, {}", span->job(), kind,
                     HumanDuration(absl::Nanoseconds(last - span->start_unix_ns())))});
  }
  std::vector<ChartRow> list;
  for (auto& [name, row] : rows) list.push_back(std::move(row));
  if (list.empty() || end <= begin) return {};
  return Element("figure", Html{TimelineChart(title, list, begin, end, SvgUse::kPage)});
}

std::string SlotKindWord(v1::SlotKind kind) {
  return kind == v1::SLOT_DEVICE ? "device" : kind == v1::SLOT_CPU ? "cpu" : "?";
}

// The table; without rows, what to do about that. `missing`: why no machines are known, which the
// page has said; empty: there are none.
Html MachineTable(const HtmlTable& table, const std::string& missing) {
  if (table.empty() && !missing.empty()) return {};
  return table.ToHtml(
      "no machine has reported; start heddle-worker, or the scheduler with --embedded");
}

// Per worker and kind of slot.
Html FleetTable(const v1::ListWorkersResponse& machines, const std::string& missing,
                const RecentStages& recent) {
  const BusySlots busy = BusyOf(recent);
  HtmlTable table("Slots of each machine", {{"machine"},
                                            {"slots"},
                                            {"held", true},
                                            {"free", true},
                                            {"not usable", true},
                                            {busy.column, true}});
  for (const v1::WorkerStatus& worker : machines.workers()) {
    for (const v1::SlotKind kind : {v1::SLOT_CPU, v1::SLOT_DEVICE}) {
      int all = 0, held = 0, free = 0;
      double share = 0;
      for (const v1::SlotStatus& slot : worker.slots()) {
        if (slot.slot().kind() != kind) continue;
        ++all;
        held += slot.state() == v1::SLOT_HELD;
        free += slot.state() == v1::SLOT_FREE;
        const auto found = busy.shares.find(SlotName(worker.worker(), slot.slot().name()));
        if (found != busy.shares.end()) share += found->second;
      }
      if (all == 0) continue;
      table.Add({Text(worker.worker()), Text(fmt::format("{} {}", all, SlotKindWord(kind))),
                 Text(absl::StrCat(held)), Text(absl::StrCat(free)),
                 Text(absl::StrCat(all - held - free)), Text(Percent(share / all))});
    }
  }
  return MachineTable(table, missing);
}

Html Tile(int64_t number, const char* what) {
  return Element("li", Element("b", Text(absl::StrCat(number))) + Text(what));
}

Html TaskTableOf(const JobDetails& details) {
  const v1::Job& job = details.job;
  HtmlTable table("Tasks, each tuned by itself and weighted by its uses in the model",
                  {{"no.", true},
                   {"task"},
                   {"uses", true},
                   {"trials", true},
                   {"failed", true},
                   {"best", true},
                   {"GFLOP/s", true},
                   {"gain", true},
                   {"what it does"}});
  int shown = 0, others = 0;
  for (int i = 0; i < job.tasks_size(); ++i) {
    const v1::TaskStatus& task = job.tasks(i);
    if (task.info().weight() == 0) {
      ++others;
      continue;
    }
    if (++shown > kMostTasks) continue;
    const std::string label = Cut(task.info().label());
    const std::string doing = task.keeps_default() ? "keeps the default kernel" : task.doing();
    table.Add({Text(absl::StrCat(i + 1)),
               details.links ? Link(TaskAddress(job.id(), i + 1), Text(label))
                             : Element("a", Text(label), {{"href", absl::StrCat("#task", i + 1)}}),
               Text(absl::StrCat(task.info().weight())),
               Text(fmt::format("{} of {}", task.trials(), task.budget())),
               Text(absl::StrCat(task.failed())), Text(FormatNs(KernelNs(task))),
               Text(FormatGflops(task.info().flops(), KernelNs(task))),
               Text(FormatRatio(TaskGain(task))), Text(Cut(doing, 120))});
  }
  Html html = table.ToHtml("the model is not imported yet");
  if (shown > kMostTasks) {
    html += Element("p", Text(fmt::format("showing {} of {} tasks; `heddle show {}` lists all",
                                          kMostTasks, shown, job.id())));
  }
  if (const std::string why = WhyTimesDiffer(job); !why.empty()) html += Faint(why);
  if (others > 0)
    html += Faint(fmt::format("{} more of other plans, measured to choose the plan", others));
  return html;
}

// Whether the first stages are left out. Import is the first of all.
bool StagesCut(const JobDetails& details) {
  return !details.spans.empty() &&
         std::none_of(details.spans.begin(), details.spans.end(),
                      [](const v1::StageSpan& span) { return span.kind() == v1::STAGE_IMPORT; });
}

Html HeldTable(const JobDetails& details) {
  const std::map<v1::StageKind, double> held = HeldNs(details.spans, details.now_unix_ns);
  std::map<v1::StageKind, int> count;
  double all = 0;
  for (const v1::StageSpan& span : details.spans) ++count[span.kind()];
  for (const auto& [kind, ns] : held) all += ns;
  HtmlTable table(StagesCut(details)
                      ? fmt::format("Time that its latest {} stages held slots; it had more",
                                    details.spans.size())
                      : "Time that its stages held slots",
                  {{"stage"}, {"slot"}, {"times", true}, {"held", true}, {"share", true}});
  for (const v1::StageKind kind :
       {v1::STAGE_IMPORT, v1::STAGE_PLAN, v1::STAGE_PROPOSE, v1::STAGE_BUILD, v1::STAGE_PROFILE,
        v1::STAGE_UPDATE, v1::STAGE_COMPILE, v1::STAGE_COMPARE}) {
    const auto found = held.find(kind);
    if (found == held.end()) continue;
    const bool device = kind == v1::STAGE_PROFILE || kind == v1::STAGE_COMPARE;
    table.Add({Text(StageWord(kind)), Text(device ? "device" : "cpu"),
               Text(absl::StrCat(count[kind])),
               Text(HumanDuration(absl::Nanoseconds(found->second))),
               Text(all > 0 ? Percent(found->second / all) : "-")});
  }
  return table.ToHtml("no stage has run");
}

std::string DeviceSeconds(const JobDetails& details) {
  const std::map<v1::StageKind, double> held = HeldNs(details.spans, details.now_unix_ns);
  double ns = 0;
  for (const v1::StageKind kind : {v1::STAGE_PROFILE, v1::STAGE_COMPARE}) {
    if (const auto found = held.find(kind); found != held.end()) ns += found->second;
  }
  if (ns <= 0) return "";
  return fmt::format("{:.1f} s", ns / 1e9) +
         (StagesCut(details) ? fmt::format(" in the latest {} stages", details.spans.size()) : "");
}

Html Actions(const JobDetails& details) {
  Html buttons;
  for (const std::string& action : details.actions) {
    buttons += ButtonLink(absl::StrCat(JobAddress(details.job.id()), "/", action), action);
  }
  return buttons.markup.empty() ? buttons : Element("div", buttons, {{"class", "actions"}});
}

// How fast a run of `ns` is that does `flops`; of a task without arithmetic, by its runs.
double SpeedOf(double flops, double ns) { return ns <= 0 ? 0 : flops > 0 ? flops / ns : 1e9 / ns; }
const char* SpeedUnit(double flops) { return flops > 0 ? "GFLOP/s" : "runs/s"; }

// `flops`: of the task that the trials are of. Empty if there are none.
Html BestOverTime(const std::vector<Trial>& trials, double flops) {
  if (trials.empty()) return {};
  int64_t first_ns = INT64_MAX, last_ns = 0;
  for (const Trial& trial : trials) {
    first_ns = std::min(first_ns, trial.created_unix_ns);
    last_ns = std::max(last_ns, trial.created_unix_ns);
  }
  const auto seconds = [first_ns](int64_t at_ns) {
    return static_cast<double>(at_ns - first_ns) / 1e9;
  };
  std::vector<PlotPoint> line;
  for (const Trial& trial : trials) {
    if (trial.fastest_so_far)
      line.push_back({seconds(trial.created_unix_ns), SpeedOf(flops, trial.median_ns)});
  }
  if (!line.empty()) line.push_back({seconds(last_ns), line.back().y});
  return Element("figure",
                 Html{ScatterPlot("The best so far over time", "seconds since the first trial",
                                  SpeedUnit(flops), {}, line, SvgUse::kPage)});
}

// The two texts in rows side by side; what they are of, and their times, stand above.
Html SideBySide(const char* what, const TaskDetails& details, const std::string& left,
                const std::string& right) {
  Html rows;
  for (const AlignedRow& row : AlignLines(left, right)) {
    Attributes attributes;
    if (row.mark != ' ') attributes.emplace_back("class", "differs");
    // The mark tells what the shade tells, for those who do not see it.
    const char* mark = row.mark == '|' ? "~" : row.mark == '<' ? "-" : row.mark == '>' ? "+" : "";
    rows += Element(
        "tr",
        Element("td", Text(mark)) + Element("td", Text(row.left)) + Element("td", Text(row.right)),
        attributes);
    rows.markup += '\n';
  }
  const auto head = [](const std::string& text) {
    return Element("th", Text(text), {{"scope", "col"}});
  };
  const Html table =
      Element("caption",
              Text(absl::StrCat(what,
                                " of both. Shaded where they differ: ~ changed, - only in "
                                "the default, + only in the best"))) +
      Element(
          "thead",
          Element("tr",
                  head("mark") + head(absl::StrCat("default, ", FormatNs(details.default_ns))) +
                      head(absl::StrCat("best, ", FormatNs(details.best_ns), ", ",
                                        FormatRatio(details.default_ns > 0 && details.best_ns > 0
                                                        ? details.default_ns / details.best_ns
                                                        : 0))))) +
      Element("tbody", rows);
  return Element("div", Element("table", table, {{"class", "trace"}}),
                 {{"class", "scroll"},
                  {"tabindex", "0"},
                  {"role", "region"},
                  {"aria-label", absl::StrCat(what, " side by side")}});
}

// What the schedules made of the task's loops. Where the page does not know that, it names the command that
// works it out.
Html ScheduledLoops(const TaskDetails& details) {
  if (details.default_loops.empty() || details.best_loops.empty()) {
    if (!details.links) return {};
    return Element(
        "p", Element("code", Text(fmt::format("heddle report {} -o FILE", details.job.id()))) +
                 Text(" shows the loops that both schedules make, side by side."));
  }
  const Html loops = SideBySide("Loops", details, details.default_loops, details.best_loops);
  // The file has all tasks; in the page, what is replaced would fold.
  if (details.links) return loops;
  return Element("details", Element("summary", Text("The loops that both schedules make")) + loops);
}

Html Traces(const TaskDetails& details) {
  if (details.best_trace.empty()) return {};
  Html html = Element("h2", Text("The schedule that won"));
  if (details.default_trace.empty() || details.default_trace == details.best_trace) {
    html +=
        Element("p", Text(details.default_trace.empty() ? "The default schedule was not measured."
                                                        : "The default schedule is the best one."));
    return html + Element("pre", Text(details.best_trace), {{"tabindex", "0"}});
  }
  return html + SideBySide("Steps", details, details.default_trace, details.best_trace) +
         ScheduledLoops(details);
}

}  // namespace

std::string JobAddress(const std::string& job) { return absl::StrCat("/jobs/", job); }
std::string TaskAddress(const std::string& job, int number) {
  return absl::StrCat("/jobs/", job, "/tasks/", number);
}

std::string RecordsAddress(const std::string& key, const std::string& target,
                           const std::string& device_key) {
  return absl::StrCat("/records?key=", EncodeUrl(key), "&target=", EncodeUrl(target),
                      "&device=", EncodeUrl(device_key));
}

JobCounts CountJobs(const Jobs& unfinished, const RecentStages& recent) {
  std::set<std::string> with_stages;
  for (const v1::StageSpan& span : recent.spans) {
    if (span.end_unix_ns() == 0) with_stages.insert(span.job());
  }
  JobCounts counts;
  for (const auto& job : unfinished) {
    if (job->state() == v1::JOB_PAUSED) {
      ++counts.paused;
    } else if (with_stages.contains(job->id())) {
      ++counts.running;
    } else {
      ++counts.waiting;
    }
  }
  return counts;
}

Html OverviewPage(const Overview& overview) {
  const JobCounts& counts = overview.counts;
  Html tiles = Tile(counts.running, "running") + Tile(counts.waiting, "waiting") +
               Tile(counts.paused, "paused") + Tile(overview.machines.workers_size(), "machines");
  Html page = Element("h1", Text("Overview"));
  page += Live("tiles", Element("ul", tiles, {{"class", "tiles"}}));
  if (overview.may_submit) page += SubmitLink();
  page += Element("h2", Text("Jobs that go on"));
  page += Live("jobs", JobTable(overview.unfinished, "Unfinished jobs, the newest first",
                                "no unfinished job; `heddle submit MODEL` makes one") +
                           PartLine(overview.part, overview.unfinished.size(), "unfinished jobs"));
  page += Element("h2", Text("Machines"));
  Html machines;
  if (!overview.machines_missing.empty()) machines += Warning(overview.machines_missing);
  page += Live("machines", machines + FleetTable(overview.machines, overview.machines_missing,
                                                 overview.recent));
  page += Element("h2", Text("Jobs that ended"));
  page += Live("ended", JobTable(overview.finished, "The latest that ended",
                                 "none of the newest jobs has ended"));
  page += Element("p", Link("/jobs", Text("all jobs")) + Text(", ") +
                           Link("/whatif", Text("what one more slot or another policy would do")));
  if (!overview.policy.empty()) {
    page += Faint(absl::StrCat("The policy \"", overview.policy, "\" decides whose turn it is."));
  }
  return page;
}

Html JobsPage(const Jobs& jobs, const Part& part) {
  return Element("h1", Text("Jobs")) +
         Element("p", Link("/compare", Text("compare two jobs or devices"))) +
         Live("jobs", JobTable(jobs, "Jobs, the newest first", "no job has been submitted") +
                          PartLine(part, jobs.size(), "jobs"));
}

Html JobPage(const JobDetails& details) {
  const v1::Job& job = details.job;
  Html page = Element("h1", Text(absl::StrCat("Job ", job.id(), ": ", job.spec().name())));
  Html facts = Facts({
      {"state", StateAndReason(job)},
      {"trials", TrialsOf(job)},
      {"time left", Text(Eta(job))},
      {"gain", Text(ModelGain(job))},
      {"not compared", Text(job.comparison().missing())},
      {"tuning ended early", Text(job.stop())},
      {"target", Text(job.spec().target())},
      {"device", Text(job.spec().device_key())},
      {"of", Text(job.spec().user())},
      {"priority", Text(job.spec().priority() == 0 ? "" : absl::StrCat(job.spec().priority()))},
      {"deadline",
       job.spec().deadline_unix_ns() == 0 ? Html{} : Time(job.spec().deadline_unix_ns())},
      {"created", Time(job.created_unix_ns())},
      {"finished", job.finished_unix_ns() == 0 ? Html{} : Time(job.finished_unix_ns())},
      {"stages ran for",
       Text(job.running_ms() > 0 ? HumanDuration(absl::Milliseconds(job.running_ms())) : "")},
      {"device time", Text(DeviceSeconds(details))},
  });
  if (!job.fault().message().empty() && job.fault().message() != job.reason())
    facts += Element("p", Text(job.fault().message()), {{"class", "bad"}});
  for (const std::string& warning : job.warnings()) facts += Warning(warning);
  for (const v1::TaskStatus& task : job.tasks()) {
    if (task.first_error().empty() || task.failed() < task.trials()) continue;
    facts += Element(
        "p", Text(fmt::format("first error of {}: {}", task.info().label(), task.first_error())),
        {{"class", "bad"}});
  }
  page += Live("facts", facts + Actions(details));
  if (details.links) {
    page += Element("p", Link(absl::StrCat("/compare?a=", EncodeUrl(job.id())),
                              Text("compare with another job")));
  }
  page += Element("h2", Text("Tasks"));
  page += Live("tasks", TaskTableOf(details));
  page += Element("h2", Text("Stages"));
  int64_t begin = INT64_MAX, end = 0;
  for (const v1::StageSpan& span : details.spans) {
    begin = std::min(begin, span.start_unix_ns());
    end = std::max(end, EndOf(span, details.now_unix_ns));
  }
  page += Live("stages", StageChart("Stages of the job by slot", details.spans, begin, end,
                                    details.now_unix_ns) +
                             HeldTable(details));
  return page;
}

Html TaskPage(const TaskDetails& details) {
  const v1::Job& job = details.job;
  const v1::TaskStatus& task = job.tasks(details.task);
  const v1::TaskInfo& info = task.info();
  const int number = details.task + 1;
  Html page;
  if (details.links) {
    page += Element("h1", Text(fmt::format("Task {} of ", number)) + JobLink(job.id()) +
                              Text(absl::StrCat(": ", info.label())));
  } else {
    page += Element("h2", Text(fmt::format("Task {}: {}", number, info.label())),
                    {{"id", absl::StrCat("task", number)}});
  }
  const char* unit = SpeedUnit(info.flops());
  const auto speed = [&](double ns) { return SpeedOf(info.flops(), ns); };
  Html facts = Facts({
      {"doing", Text(task.doing())},
      {"trials",
       Text(fmt::format("{} of {} by this job, {} failed; {}{} by all jobs on this device",
                        task.trials(), task.budget(), task.failed(),
                        details.older_left_out ? "at least " : "", details.all_trials))},
      {"best", Text(FormatNs(task.best_ns()))},
      {"default schedule", Text(FormatNs(task.untuned_ns()))},
      {"gain", Text(task.keeps_default() ? "none: the module keeps the default kernel"
                                         : FormatRatio(TaskGain(task)))},
      {"uses in the model", Text(absl::StrCat(info.weight()))},
      {"work", Text(info.flops() > 0 ? fmt::format("{:.1f} MFLOP", info.flops() / 1e6) : "")},
      {"target", Text(job.spec().target())},
      {"device", Text(details.device_key)},
      {"key", details.links ? Link(absl::StrCat("/records?key=", info.key()), Text(info.key()))
                            : Text(info.key())},
  });
  if (!task.first_error().empty()) {
    facts +=
        Element("p", Text(absl::StrCat("first error: ", task.first_error())), {{"class", "bad"}});
  }
  const auto live = [&](const char* id, const Html& content) {
    return details.links ? Live(id, content) : content;
  };
  page += live("facts", facts);

  std::vector<PlotPoint> points, best;
  HtmlTable steps(
      "The trials that were the fastest so far, the latest first",
      {{"trial", true}, {"time"}, {unit, true}, {"latency", true}, {"found by"}, {"job"}});
  std::vector<const Trial*> fastest;
  for (const Trial& trial : details.trials) {
    const double y = speed(trial.median_ns);
    const auto x = static_cast<double>(trial.number);
    points.push_back({x, y, trial.origin.empty() ? "imported" : trial.origin, ""});
    if (!trial.fastest_so_far) continue;
    fastest.push_back(&trial);
    best.push_back({x, y});
  }
  if (!fastest.empty()) best.push_back({static_cast<double>(details.all_trials), best.back().y});
  for (size_t i = fastest.size(); i-- > 0 && fastest.size() - i <= kMostSteps;) {
    const Trial& trial = *fastest[i];
    steps.Add({Text(absl::StrCat(trial.number)), Time(trial.created_unix_ns),
               Text(fmt::format("{:.1f}", speed(trial.median_ns))), Text(FormatNs(trial.median_ns)),
               Text(trial.origin.empty() ? "import" : trial.origin),
               JobLink(trial.job, details.links)});
  }
  Html charts;
  if (!points.empty()) {
    charts = Element(
        "div",
        Element("figure", Html{ScatterPlot("Speed of the trials; the line is the best so far",
                                           "trial", unit, points, best, SvgUse::kPage)}) +
            BestOverTime(details.trials, info.flops()),
        {{"class", "charts"}});
    if (details.all_trials > static_cast<int64_t>(details.trials.size())) {
      charts +=
          Faint(fmt::format("showing {} of {}{} trials: those that were the fastest so "
                            "far, {} of them at most, and others evenly spread",
                            details.trials.size(), details.older_left_out ? "the newest " : "",
                            details.all_trials, kMostFastest));
    }
  }
  const char* heading = details.links ? "h2" : "h3";
  page += Element(heading, Text("Trials"));
  page += live("trials", charts + steps.ToHtml("nothing valid was measured yet"));
  page += Element(heading, Text("Predicted against measured"));
  page += live("predictions", PredictionPart(details));
  page += Element(heading, Text("Against the limits of the machine"));
  page += live("roofline", RooflinePart(details));
  page += live("schedules", Traces(details));
  page += KernelPart(details);
  page += LoopsPart(details);
  return page;
}

Html MachinesPage(const Machines& machines) {
  const BusySlots busy = BusyOf(machines.recent);
  const auto noises = NoiseOf(machines.noise_records);
  HtmlTable table("Slots", {{"slot"},
                            {"kind"},
                            {"cores"},
                            {"device"},
                            {"state"},
                            {"why"},
                            {busy.column, true},
                            {"noise", true},
                            {"load of its host", true}});
  size_t slots = 0;
  for (const v1::WorkerStatus& worker : machines.machines.workers()) {
    for (const v1::SlotStatus& status : worker.slots()) {
      if (++slots > kMostSlots) continue;
      const v1::Slot& slot = status.slot();
      std::vector<std::string> cores;
      for (const int core : slot.cores()) cores.push_back(absl::StrCat(core));
      std::string list;
      for (size_t i = 0; i < cores.size() && i < 8; ++i)
        absl::StrAppend(&list, i == 0 ? "" : ",", cores[i]);
      if (cores.size() > 8) absl::StrAppend(&list, ",.. (", cores.size(), ")");
      const bool bad = status.state() == v1::SLOT_QUARANTINED;
      const Html word = Text(SlotStateWord(status.state()));
      const auto found = busy.shares.find(SlotName(worker.worker(), slot.name()));
      const auto noise = noises.find({worker.worker(), slot.name()});
      std::string why = status.reason();
      // The tracker gives the note as the reason where it knows no other.
      if (!slot.note().empty() && slot.note() != why)
        absl::StrAppend(&why, why.empty() ? "" : "; ", slot.note());
      table.Add({Class("nowrap", Text(SlotName(worker.worker(), slot.name()))),
                 Text(SlotKindWord(slot.kind())), Text(list), Text(slot.device_key()),
                 bad ? Class("bad", word) : word, Text(Cut(why, 240)),
                 Text(found == busy.shares.end() ? "0 %" : Percent(found->second)),
                 Text(noise == noises.end() ? "-" : NoiseText(noise->second)),
                 Text(fmt::format("{:.1f}", worker.load_average()))});
    }
  }
  Html page = Element("h1", Text("Machines"));
  Html list;
  if (!machines.missing.empty()) list += Warning(machines.missing);
  list += MachineTable(table, machines.missing);
  if (!table.empty() && !noises.empty()) {
    list +=
        Faint(fmt::format("Noise: how far repeated times of a kernel lie apart, and trials that "
                          "were disturbed and so "
                          "measured again, of the last {} records.",
                          machines.noise_records.size()));
  }
  if (slots > kMostSlots)
    list += Element("p", Text(fmt::format("showing {} of {} slots", kMostSlots, slots)));
  page += Live("slots", list);
  if (machines.may_drain) page += Live("drains", MachineActions(machines.machines));
  page += Element("h2", Text("The last hours"));
  // Of a service that began an hour ago, only that hour is shown.
  constexpr int64_t kShortestNs = int64_t{600} * 1'000'000'000;
  int64_t begin = machines.recent.now_unix_ns - kShortestNs;
  for (const v1::StageSpan& span : machines.recent.spans)
    begin = std::min(begin, span.start_unix_ns());
  page += Live("timeline", StageChart("Stages by slot", machines.recent.spans,
                                      std::max(begin, machines.recent.begin_unix_ns),
                                      machines.recent.now_unix_ns, machines.recent.now_unix_ns));
  return page;
}

Html RecordsPage(const RecordsView& view) {
  Html page = Element("h1", Text("Records"));
  page += GetForm("/records",
                  Field("search", "Part of a label, or the beginning of a key",
                        {{"size", "40"}, {"maxlength", "200"}, {"value", view.search}}) +
                      SendButton("search"),
                  {{"role", "search"}});
  if (view.key.empty()) {
    HtmlTable table(view.search.empty()
                        ? "Tasks that have records"
                        : absl::StrCat("Tasks that match \"", Cut(view.search), "\""),
                    {{"task"}, {"MFLOP", true}, {"key"}});
    for (const TaskName& task : view.tasks) {
      table.Add({Link(absl::StrCat("/records?key=", task.key),
                      Text(task.label.empty() ? task.key : Cut(task.label))),
                 Text(task.flops > 0 ? fmt::format("{:.1f}", task.flops / 1e6) : "-"),
                 Text(task.key)});
    }
    return page + table.ToHtml("no task matches") + PartLine(view.part, view.tasks.size(), "tasks");
  }
  page += Element("h2", Text(view.label.empty() ? view.key : view.label));
  HtmlTable best(
      "The fastest for each target and device",
      {{"device"}, {"target"}, {"latency", true}, {"GFLOP/s", true}, {"found by"}, {"made"}});
  for (const v1::Record& record : view.best) {
    best.Add({Link(RecordsAddress(view.key, record.target(), record.device_key()),
                   Text(record.device_key())),
              Text(record.target()), Text(FormatNs(record.median_ns())),
              Text(FormatGflops(record.flops(), record.median_ns())),
              Text(record.origin().empty() ? "import" : record.origin()),
              Time(record.created_unix_ns())});
  }
  page += best.ToHtml("nothing valid was measured yet");
  std::set<std::string> others;
  for (const v1::Record& record : view.best) {
    if (record.device_key() == view.device_key || others.size() == kMostOtherDevices ||
        !others.insert(record.device_key()).second)
      continue;
    page += Element("p", Link(CompareDevicesAddress(view.device_key, record.device_key()),
                              Text(absl::StrCat("compare ", view.device_key, " with ",
                                                record.device_key(), " over all tasks"))));
  }
  const bool one_place = !view.device_key.empty();
  page += Element("h2", Text(one_place ? absl::StrCat("On ", view.device_key) : "On all devices"));
  page += BestOverTime(view.trials, view.flops);
  HtmlTable latest(one_place ? absl::StrCat("Records for ", view.target, ", the newest first")
                             : "Records, the newest first",
                   {{"id", true}, {"made"}, {"latency", true}, {"found by"}, {"job"}, {"outcome"}});
  for (const v1::Record& record : view.latest) {
    const bool valid = record.measurement().outcome() == v1::OUTCOME_OK;
    std::string outcome = valid ? "ok" : record.measurement().message();
    if (record.has_retraction())
      outcome = absl::StrCat("retracted: ", record.retraction().reason());
    latest.Add({Text(absl::StrCat(record.id())), Time(record.created_unix_ns()),
                Text(FormatNs(record.median_ns())),
                Text(record.origin().empty() ? "import" : record.origin()),
                record.imported_by().empty() ? JobLink(record.job()) : Text(MadeFor(record)),
                Text(Cut(outcome, 120))});
  }
  return page + latest.ToHtml("no records") + PartLine(view.part, view.latest.size(), "records");
}

Html ErrorPage(const std::string& title, const std::string& message) {
  return Element("h1", Text(title)) + Element("p", Text(message)) +
         Element("p", Link("/", Text("to the overview")));
}

}  // namespace heddle::views
