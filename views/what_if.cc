#include "views/what_if.h"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>

#include "absl/time/time.h"
#include "views/charts.h"
#include "views/format.h"
#include "views/parts.h"

namespace heddle::views {
namespace {

std::string Duration(double seconds) { return HumanDuration(absl::Seconds(seconds)); }

// "12m05s (-3m10s)": the time, and what the change saves or costs.
std::string WithChange(double seconds, double now) {
  const double change = seconds - now;
  // Less than a hundredth is the simulation's own rounding.
  if (std::abs(change) < 0.01 * now) return Duration(seconds);
  return fmt::format("{} ({}{})", Duration(seconds), change < 0 ? "-" : "+",
                     Duration(std::abs(change)));
}

Html Answer(const WhatIf& what_if) {
  if (!what_if.missing.empty()) return Warning(what_if.missing);
  std::vector<ChartBar> all, mean;
  HtmlTable worlds("The whole queue",
                   {{"if"}, {"last job ends in", true}, {"a job ends in, on average", true}});
  for (const WhatIf::World& world : what_if.worlds) {
    const WhatIf::World& now = what_if.worlds.front();
    all.push_back({world.name, world.all_s, WithChange(world.all_s, now.all_s)});
    mean.push_back({world.name, world.mean_s, WithChange(world.mean_s, now.mean_s)});
    worlds.Add({Text(world.name), Text(all.back().words), Text(mean.back().words)});
  }
  Html html = Element(
      "div",
      Element("figure", Html{BarChart("Time until the last job ends", all, SvgUse::kPage)}) +
          Element("figure",
                  Html{BarChart("Time until a job ends, on average", mean, SvgUse::kPage)}),
      {{"class", "charts"}});
  html += worlds.ToHtml("");
  std::vector<HtmlTable::Column> columns = {{"job"}, {"name"}, {"estimate of the scheduler", true}};
  for (const WhatIf::World& world : what_if.worlds) columns.push_back({world.name, true});
  HtmlTable jobs("Time until each job ends", columns);
  for (const WhatIf::Job& job : what_if.jobs) {
    std::vector<Html> cells = {JobLink(job.id), Text(Cut(job.name)),
                               Text(job.eta_s > 0 ? Duration(job.eta_s) : "-")};
    for (const double end_s : job.end_s)
      cells.push_back(Text(WithChange(end_s, job.end_s.front())));
    jobs.Add(cells);
  }
  html += jobs.ToHtml("none of the simulated jobs is yours");
  if (static_cast<int64_t>(what_if.jobs.size()) < what_if.simulated) {
    html +=
        Element("p", Text(fmt::format("showing {} of {} simulated jobs; the others are not yours",
                                      what_if.jobs.size(), what_if.simulated)));
  }
  for (const std::string& reason : what_if.left_out)
    html += Element("p", Text("Left out: " + reason + "."));
  if (what_if.trials_as_one > 1) {
    html += Faint(fmt::format("The queue is long: {} trials of a task are simulated as one.",
                              what_if.trials_as_one));
  }
  return html +
         Element("p",
                 Text("Queue of ") + Time(what_if.made_unix_ns) +
                     Text(fmt::format("; the simulation took {}.", Duration(what_if.took_s))),
                 {{"class", "faint"}});
}

}  // namespace

Html WhatIfPage(const WhatIf* what_if) {
  Html page = Element("h1", Text("What if"));
  page +=
      Element("p", Text("What one more slot or another policy would do to the jobs that wait and "
                        "run now."));
  page +=
      Live("whatif", what_if == nullptr ? Element("p", Text("The queue is being simulated; this "
                                                            "page shows it in a moment."))
                                        : Answer(*what_if));
  page += Faint(
      "Each line is a run of the scheduler's own decisions over a copy of the queue. Stages take "
      "as "
      "long as the latest of their kind took. Rounds that are under way begin anew, jobs that "
      "share a "
      "task do not help each other, and no job ends early by a plateau.");
  return page;
}

}  // namespace heddle::views
