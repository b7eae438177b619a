#include "client/views/progress_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <vector>

namespace heddle::client {
namespace {

// Without a terminal, a line is printed at most this often, and when the state changes.
constexpr absl::Duration kLineInterval = absl::Seconds(5);
constexpr absl::Duration kFrameInterval = absl::Milliseconds(200);

std::string ProgressBar(double share, int width) {
  const int full = static_cast<int>(std::clamp(share, 0.0, 1.0) * width);
  std::string bar;
  for (int i = 0; i < width; ++i) bar += i < full ? "█" : "░";
  return bar;
}

std::string DoingOf(const v1::TaskStatus& task) {
  return task.keeps_default() ? "keeps the default kernel" : task.doing();
}

// How interesting a task is to who watches: first what runs, then what waits, then what is done.
int Order(const v1::TaskStatus& task) {
  const std::string& doing = task.doing();
  if (task.done()) return 2;
  const bool waits = doing.empty() || doing.starts_with("wait") || doing.starts_with("no ") ||
                     doing.starts_with("paused") || doing.starts_with("trying again");
  return waits ? 1 : 0;
}

// The tasks of a job that are part of its plan, and how many others there are.
struct Shown {
  std::vector<int> tasks;  // their numbers, from 0
  int others = 0;
};

Shown TasksOf(const v1::Job& job) {
  Shown shown;
  for (int i = 0; i < job.tasks_size(); ++i) {
    if (job.tasks(i).info().weight() == 0)
      ++shown.others;
    else
      shown.tasks.push_back(i);
  }
  return shown;
}

std::string OthersText(int others) {
  if (others == 0) return "";
  return fmt::format("and {} of other plans, measured to choose the plan\n",
                     others == 1 ? "1 task" : fmt::format("{} tasks", others));
}

}  // namespace

std::string TaskTable(const v1::Job& job, bool plain) {
  Table table({"#", "task", "uses", "trials", "failed", "best", "GFLOP/s", "gain", "doing"});
  const Shown shown = TasksOf(job);
  for (const int i : shown.tasks) {
    const v1::TaskStatus& task = job.tasks(i);
    table.Add({fmt::format("{}", i + 1), Clip(task.info().label(), 60),
               fmt::format("{}", task.info().weight()),
               fmt::format("{}/{}", task.trials(), task.budget()), fmt::format("{}", task.failed()),
               FormatNs(KernelNs(task)), FormatGflops(task.info().flops(), KernelNs(task)),
               FormatRatio(TaskGain(task)), Clip(DoingOf(task), 40)});
  }
  std::string text = table.ToText(plain) + OthersText(shown.others);
  if (const std::string why = WhyTimesDiffer(job); !plain && !why.empty()) text += why + "\n";
  return text;
}

std::string LiveTaskTable(const v1::Job& job, int width, int rows) {
  Shown shown = TasksOf(job);
  std::stable_sort(shown.tasks.begin(), shown.tasks.end(),
                   [&job](int a, int b) { return Order(job.tasks(a)) < Order(job.tasks(b)); });
  const size_t all = shown.tasks.size();
  // One line each for the header, and for what is left out.
  const auto room = static_cast<size_t>(std::max(1, rows - 1));
  if (all > room) shown.tasks.resize(std::max<size_t>(1, room - 1));
  const bool wide = width >= 120;
  std::vector<std::string> header = {"#", "task", "trials", "best", "gain", "doing"};
  if (wide) header = {"#", "task", "uses", "trials", "failed", "best", "GFLOP/s", "gain", "doing"};
  std::vector<std::vector<std::string>> lines;
  for (const int i : shown.tasks) {
    const v1::TaskStatus& task = job.tasks(i);
    std::vector<std::string> row = {fmt::format("{}", i + 1),
                                    task.info().label(),
                                    fmt::format("{}/{}", task.trials(), task.budget()),
                                    FormatNs(KernelNs(task)),
                                    FormatRatio(TaskGain(task)),
                                    DoingOf(task)};
    if (wide) {
      row.insert(row.begin() + 2, fmt::format("{}", task.info().weight()));
      row.insert(row.begin() + 4, fmt::format("{}", task.failed()));
      row.insert(row.begin() + 6, FormatGflops(task.info().flops(), KernelNs(task)));
    }
    lines.push_back(std::move(row));
  }
  // Task and what it does share what the numbers leave, with two blanks between columns.
  constexpr size_t kTask = 1;
  const size_t doing = header.size() - 1;
  std::vector<size_t> widths;
  for (const std::string& cell : header) widths.push_back(cell.size());
  for (const std::vector<std::string>& line : lines) {
    for (size_t c = 0; c < line.size(); ++c) widths[c] = std::max(widths[c], line[c].size());
  }
  size_t taken = 2 * doing;
  for (size_t c = 0; c < widths.size(); ++c) taken += c == kTask || c == doing ? 0 : widths[c];
  const auto columns = static_cast<size_t>(std::max(0, width - 1));
  const size_t rest = columns > taken + 24 ? columns - taken : 24;
  const size_t spare = rest > widths[kTask] ? rest - widths[kTask] : 0;
  const size_t doing_width = std::min(widths[doing], std::max(rest * 3 / 7, spare));
  Table table(header);
  for (std::vector<std::string>& line : lines) {
    // Tasks of a model differ in their shapes, which stand at the end.
    line[kTask] = ClipMiddle(line[kTask], rest - doing_width);
    line[doing] = Clip(line[doing], doing_width);
    table.Add(line);
  }
  std::string text = table.ToText();
  if (all > shown.tasks.size())
    text += fmt::format(".. and {} more tasks\n", all - shown.tasks.size());
  return text;
}

ProgressView::ProgressView(const OutputOptions& options)
    : options_(options), animate_(CanAnimate(options)) {}

std::string ProgressView::Picture(const v1::Job& job, absl::Time now) const {
  // The target may be long, so it comes last.
  std::string text =
      fmt::format("{}  {}  {}  {}  [{}]\n", job.id(), Printable(job.spec().name()), ShownState(job),
                  HumanDuration(now - absl::FromUnixNanos(job.created_unix_ns())),
                  Printable(job.spec().target()));
  if (job.trials_budget() > 0) {
    const double share = static_cast<double>(job.trials()) / job.trials_budget();
    text += fmt::format("{} {:3.0f}%  {}/{} trials", ProgressBar(share, 30), share * 100,
                        job.trials(), job.trials_budget());
    if (job.eta_ms() > 0)
      text += fmt::format("  {} left", HumanDuration(absl::Milliseconds(job.eta_ms())));
    if (const std::string gain = ModelGain(job); !gain.empty()) text += "  " + gain;
    text += "\n";
  }
  if (job.state() != v1::JOB_FAILED) text += Printable(job.reason()) + "\n";
  if (job.tasks_size() > 0) {
    // Above are three lines, and the cursor takes one below.
    text += LiveTaskTable(job, TerminalWidth(), std::max(3, TerminalHeight() - 5));
  }
  return text;
}

std::string ProgressView::Line(const v1::Job& job) const {
  std::string text = fmt::format("{} {}", job.id(), ShownState(job));
  if (job.trials_budget() > 0)
    text += fmt::format(" {}/{} trials", job.trials(), job.trials_budget());
  if (const std::string gain = ModelGain(job); !gain.empty()) text += ", " + gain;
  if (job.eta_ms() > 0)
    text += fmt::format(", {} left", HumanDuration(absl::Milliseconds(job.eta_ms())));
  // Who follows a job that fails prints the error itself.
  const std::string reason = ReasonBeyondState(job);
  if (!reason.empty() && job.state() != v1::JOB_FAILED) text += ": " + reason;
  return text;
}

void ProgressView::Show(const v1::Job& job, absl::Time now) {
  if (options_.json) return;
  const bool changed = job.state() != last_state_;
  if (animate_) {
    if (!changed && now - last_shown_ < kFrameInterval) return;
    const std::string picture = Picture(job, now);
    std::string frame;
    if (drawn_lines_ > 0)
      frame += fmt::format("\x1b[{}F", drawn_lines_);  // move up to the first line drawn
    const size_t width = static_cast<size_t>(TerminalWidth());
    int lines = 0;
    for (size_t start = 0; start < picture.size(); ++lines) {
      const size_t end = picture.find('\n', start);
      std::string line = picture.substr(start, end - start);
      // Block characters take three bytes and one column: clip by columns, at the start of a code
      // point.
      size_t columns = 0, cut = 0;
      while (cut < line.size() && (columns < width - 1 || (line[cut] & 0xC0) == 0x80)) {
        columns += (line[cut] & 0xC0) != 0x80;
        ++cut;
      }
      frame += line.substr(0, cut) + "\x1b[K\n";
      start = end + 1;
    }
    frame += "\x1b[J";
    drawn_lines_ = lines;
    std::fputs(frame.c_str(), stderr);
    std::fflush(stderr);
  } else {
    const bool progressed = job.trials() != last_trials_ || Line(job) != last_line_;
    if (!changed && !(progressed && now - last_shown_ >= kLineInterval)) return;
    last_line_ = Line(job);
    fmt::print(stderr, "{}\n", last_line_);
  }
  last_shown_ = now;
  last_state_ = job.state();
  last_trials_ = job.trials();
}

void ProgressView::Finish() { drawn_lines_ = 0; }

}  // namespace heddle::client
