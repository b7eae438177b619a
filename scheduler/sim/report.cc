#include "scheduler/sim/report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace heddle::sim {
namespace {

// The time during which at least one of the intervals runs.
double Union(std::vector<std::pair<double, double>> intervals) {
  std::sort(intervals.begin(), intervals.end());
  double sum = 0, reached = 0;
  for (const auto& [begin, end] : intervals) {
    sum += std::max(0.0, end - std::max(begin, reached));
    reached = std::max(reached, end);
  }
  return sum;
}

double Fairness(const Scenario& scenario, const WorldResult& result) {
  std::map<std::string, double> service;
  std::map<std::string, std::vector<std::pair<double, double>>> present;
  std::set<std::string> users;
  for (const SimJob& job : scenario.jobs) users.insert(job.user);
  for (size_t i = 0; i < scenario.jobs.size(); ++i) {
    const JobOutcome& job = result.jobs[i];
    const std::string who = users.size() > 1 ? scenario.jobs[i].user : absl::StrCat(i);
    service[who] += job.service;
    if (job.end > job.arrival) present[who].push_back({job.arrival, job.end});
  }
  double sum = 0, squares = 0, count = 0;
  for (const auto& [who, intervals] : present) {
    const double rate = service[who] / Union(intervals);
    sum += rate;
    squares += rate * rate;
    ++count;
  }
  return squares > 0 ? sum * sum / (count * squares) : 1;
}

}  // namespace

std::string HumanSeconds(double seconds, double like) {
  like = std::max(seconds, like);
  if (seconds == 0) return "0";
  if (like < 0.0995) return absl::StrFormat("%.1f ms", seconds * 1e3);
  if (like < 99.95) return absl::StrFormat("%.1f s", seconds);
  if (like < 5940) return absl::StrFormat("%.1f min", seconds / 60);
  return absl::StrFormat("%.2f h", seconds / 3600);
}

namespace {

// From microseconds on: "41.2 us".
std::string ShortSeconds(double seconds) {
  return seconds > 0 && seconds < 1e-3 ? absl::StrFormat("%.1f us", seconds * 1e6)
                                       : HumanSeconds(seconds);
}

nlohmann::json SpreadJson(const Spread& spread) {
  return {{"count", spread.count()},
          {"p50_s", spread.Quantile(0.5)},
          {"p99_s", spread.Quantile(0.99)},
          {"p999_s", spread.Quantile(0.999)},
          {"longest_s", spread.longest()}};
}

}  // namespace

Report MakeReport(const Scenario& scenario, const std::string& policy, const WorldResult& result) {
  Report report;
  report.policy = policy;
  double first = result.seconds;
  std::vector<double> completion;
  for (size_t i = 0; i < result.jobs.size(); ++i) {
    const JobOutcome& job = result.jobs[i];
    first = std::min(first, job.arrival);
    completion.push_back(job.end - job.arrival);
    if (scenario.jobs[i].deadline > 0) {
      ++report.deadlines;
      report.deadlines_met += job.done && completion.back() <= scenario.jobs[i].deadline;
    }
  }
  report.makespan = result.seconds - first;
  std::sort(completion.begin(), completion.end());
  for (double seconds : completion)
    report.mean_completion += seconds / static_cast<double>(completion.size());
  if (!completion.empty()) {
    const double rank = std::ceil(0.95 * static_cast<double>(completion.size()));
    report.p95_completion = completion[static_cast<size_t>(rank) - 1];
  }
  double cpus = 0, devices = 0;
  const std::vector<bool> useful = scenario.Useful();
  for (size_t i = 0; i < scenario.slots.size(); ++i) {
    const double busy = report.makespan > 0 ? result.busy[i] / report.makespan : 0;
    const double held = report.makespan > 0 ? result.held[i] / report.makespan : 0;
    report.busy.push_back(busy);
    if (!useful[i]) continue;
    const bool device = scenario.slots[i].info.device;
    (device ? report.device_busy : report.cpu_busy) += busy;
    (device ? report.device_held : report.cpu_held) += held;
    (device ? devices : cpus) += 1;
  }
  report.cpu_busy /= std::max(1.0, cpus);
  report.cpu_held /= std::max(1.0, cpus);
  report.device_busy /= std::max(1.0, devices);
  report.device_held /= std::max(1.0, devices);
  report.fairness = Fairness(scenario, result);
  report.trials = result.trials;
  report.waiting = result.waiting;
  report.fail_overs = result.fail_overs;
  report.preemptions = result.preemptions;
  report.batch_starts = result.batch_starts;
  report.node_hours = result.node_seconds / 3600;
  report.queued = result.queued;
  report.decisions = result.decisions;
  report.take_overs = result.take_overs;
  if (!result.deciding.empty() && report.makespan > 0)
    report.busiest =
        *std::max_element(result.deciding.begin(), result.deciding.end()) / report.makespan;
  if (result.measurements > 0)
    report.disturbed =
        static_cast<double>(result.disturbed) / static_cast<double>(result.measurements);
  return report;
}

std::string ReportTable(const Scenario& scenario, const std::vector<Report>& reports) {
  std::vector<std::vector<std::string>> rows;
  auto row = [&](const std::string& name, auto value) {
    rows.push_back({name});
    for (const Report& report : reports) rows.back().push_back(value(report));
  };
  // All values of a row use the unit of the largest one.
  auto times = [&](const std::string& name, auto value) {
    double most = 0;
    for (const Report& report : reports) most = std::max(most, value(report));
    row(name, [&](const Report& r) { return HumanSeconds(value(r), most); });
  };
  auto percent = [](double share) { return absl::StrFormat("%.1f %%", 100 * share); };
  row("policy", [](const Report& r) { return r.policy; });
  times("makespan", [](const Report& r) { return r.makespan; });
  if (reports.size() > 1) {
    row("  against the first", [&](const Report& r) {
      return absl::StrFormat("%.2fx", reports.front().makespan / r.makespan);
    });
  }
  times("mean completion", [](const Report& r) { return r.mean_completion; });
  times("p95 completion", [](const Report& r) { return r.p95_completion; });
  row("trials", [](const Report& r) { return absl::StrCat(r.trials); });
  row("CPU slots busy", [&](const Report& r) { return percent(r.cpu_busy); });
  row("device slots busy", [&](const Report& r) { return percent(r.device_busy); });
  // Without coordination there are no leases.
  row("device slots leased",
      [&](const Report& r) { return r.policy == kUncoordinated ? "-" : percent(r.device_held); });
  if (scenario.slots.size() <= 8) {
    const std::vector<bool> useful = scenario.Useful();
    for (size_t i = 0; i < scenario.slots.size(); ++i) {
      if (!useful[i]) continue;
      const SlotId& id = scenario.slots[i].info.id;
      row(absl::StrCat("  ", id.worker, "/", id.slot),
          [&](const Report& r) { return percent(r.busy[i]); });
    }
  }
  auto any = [&](auto value) {
    return std::any_of(reports.begin(), reports.end(),
                       [&](const Report& r) { return value(r) > 0; });
  };
  const bool clocked = any([](const Report& r) { return r.decisions.count(); });
  if (!clocked) {
    times("waiting for CPU", [](const Report& r) { return r.waiting.cpu; });
    times("waiting for device", [](const Report& r) { return r.waiting.device; });
    times("held back by faults", [](const Report& r) { return r.waiting.backoff; });
    times("held back by depth", [](const Report& r) { return r.waiting.depth; });
  }
  row("fairness (Jain)", [](const Report& r) { return absl::StrFormat("%.3f", r.fairness); });
  const bool disturbed =
      std::any_of(reports.begin(), reports.end(), [](const Report& r) { return r.disturbed > 0; });
  if (disturbed)
    row("measurements disturbed", [&](const Report& r) { return percent(r.disturbed); });
  if (!reports.empty() && reports.front().deadlines > 0) {
    row("deadlines met",
        [](const Report& r) { return absl::StrFormat("%d of %d", r.deadlines_met, r.deadlines); });
  }
  auto count = [&](const std::string& name, auto value) {
    if (any(value)) row(name, [&](const Report& r) { return absl::StrCat(value(r)); });
  };
  count("fail-overs", [](const Report& r) { return r.fail_overs; });
  count("preemptions", [](const Report& r) { return r.preemptions; });
  count("workers started", [](const Report& r) { return r.batch_starts; });
  if (any([](const Report& r) { return r.node_hours; }))
    row("node hours", [](const Report& r) { return absl::StrFormat("%.2f", r.node_hours); });
  auto spread = [&](const std::string& name, auto of) {
    if (!any([&](const Report& r) { return of(r).count(); })) return;
    for (const auto& [label, share] : {std::pair("p50", 0.5), std::pair("p99", 0.99)})
      row(absl::StrCat(name, ", ", label),
          [&](const Report& r) { return ShortSeconds(of(r).Quantile(share)); });
    row(name + ", longest", [&](const Report& r) { return ShortSeconds(of(r).longest()); });
  };
  spread("event to decision", [](const Report& r) -> const Spread& { return r.queued; });
  spread("decision (clock)", [](const Report& r) -> const Spread& { return r.decisions; });
  spread("take-over (clock)", [](const Report& r) -> const Spread& { return r.take_overs; });
  if (clocked) {
    row("decisions", [](const Report& r) { return absl::StrCat(r.decisions.count()); });
    row("busiest scheduler (clock)",
        [](const Report& r) { return absl::StrFormat("%.2f cores", r.busiest); });
  }
  std::vector<size_t> width(reports.size() + 1);
  for (const auto& cells : rows) {
    for (size_t c = 0; c < cells.size(); ++c) width[c] = std::max(width[c], cells[c].size());
  }
  std::string text;
  for (const auto& cells : rows) {
    absl::StrAppendFormat(&text, "%-*s", static_cast<int>(width[0]), cells[0]);
    for (size_t c = 1; c < cells.size(); ++c)
      absl::StrAppendFormat(&text, "  %*s", static_cast<int>(width[c]), cells[c]);
    text += "\n";
  }
  return text;
}

nlohmann::json ReportJson(const Scenario& scenario, const Report& report,
                          const WorldResult& result) {
  nlohmann::json json = {{"schema_version", 1},
                         {"scenario", scenario.name},
                         {"seed", scenario.seed},
                         {"policy", report.policy},
                         {"makespan_s", report.makespan},
                         {"mean_completion_s", report.mean_completion},
                         {"p95_completion_s", report.p95_completion},
                         {"trials", report.trials},
                         {"cpu_busy", report.cpu_busy},
                         {"device_busy", report.device_busy},
                         {"cpu_leased", report.cpu_held},
                         {"device_leased", report.device_held},
                         {"fairness", report.fairness},
                         {"disturbed", report.disturbed},
                         {"deadlines", report.deadlines},
                         {"deadlines_met", report.deadlines_met},
                         {"waiting_s",
                          {{"cpu", report.waiting.cpu},
                           {"device", report.waiting.device},
                           {"backoff", report.waiting.backoff},
                           {"depth", report.waiting.depth}}},
                         {"fail_overs", report.fail_overs},
                         {"preemptions", report.preemptions},
                         {"batch_starts", report.batch_starts},
                         {"node_hours", report.node_hours}};
  if (report.queued.count() > 0) json["event_to_decision"] = SpreadJson(report.queued);
  if (report.decisions.count() > 0) {
    json["decision_clock"] = SpreadJson(report.decisions);
    json["take_over_clock"] = SpreadJson(report.take_overs);
    json["busiest_scheduler_cores"] = report.busiest;
  }
  for (size_t i = 0; i < scenario.slots.size(); ++i) {
    const SlotId& id = scenario.slots[i].info.id;
    json["slots"].push_back(
        {{"slot", absl::StrCat(id.worker, "/", id.slot)}, {"busy", report.busy[i]}});
  }
  for (size_t i = 0; i < scenario.jobs.size(); ++i) {
    json["jobs"].push_back({{"name", scenario.jobs[i].name},
                            {"arrival_s", result.jobs[i].arrival},
                            {"end_s", result.jobs[i].end},
                            {"done", result.jobs[i].done},
                            {"trials", result.jobs[i].trials}});
  }
  return json;
}

}  // namespace heddle::sim
