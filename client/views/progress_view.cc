#include "client/views/progress_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

namespace heddle::client {
namespace {

// Without a terminal, a line is printed at most this often, and when the state changes.
constexpr absl::Duration kLineInterval = absl::Seconds(5);
constexpr absl::Duration kFrameInterval = absl::Milliseconds(200);

std::string Bar(double share, int width) {
  const int full = static_cast<int>(std::clamp(share, 0.0, 1.0) * width);
  std::string bar;
  for (int i = 0; i < width; ++i) bar += i < full ? "█" : "░";
  return bar;
}

std::string Clip(const std::string& text, size_t width) {
  return text.size() <= width ? text : text.substr(0, width - 1) + "~";
}

}  // namespace

std::string TaskTable(const v1::Job& job, bool plain, int max_rows) {
  Table table({"task", "uses", "trials", "failed", "best", "GFLOP/s", "gain", "doing"});
  int rows = 0, more = 0, others = 0;
  for (const v1::TaskStatus& task : job.tasks()) {
    if (task.info().weight() == 0) {
      ++others;
      continue;
    }
    if (rows >= max_rows) {
      ++more;
      continue;
    }
    ++rows;
    const std::string doing = task.keeps_default() ? "keeps the default kernel" : task.doing();
    table.Add({Clip(task.info().label(), 44), fmt::format("{}", task.info().weight()),
               fmt::format("{}/{}", task.trials(), task.budget()), fmt::format("{}", task.failed()),
               FormatNs(task.best_ns()), FormatGflops(task.info().flops(), task.best_ns()),
               FormatRatio(TaskGain(task)), Clip(doing, 40)});
  }
  std::string text = table.ToText(plain);
  if (more > 0) text += fmt::format(".. and {} more tasks\n", more);
  if (others > 0) {
    text += fmt::format("and {} of other plans, measured to choose the plan\n",
                        others == 1 ? "1 task" : fmt::format("{} tasks", others));
  }
  return text;
}

ProgressView::ProgressView(const OutputOptions& options)
    : options_(options), animate_(CanAnimate(options)) {}

std::string ProgressView::Picture(const v1::Job& job, absl::Time now) const {
  std::string text = fmt::format("{}  {}  {}  [{}]  {}\n", job.id(), Printable(job.spec().name()),
                                 StateWord(job.state()), Printable(job.spec().target()),
                                 HumanDuration(now - absl::FromUnixNanos(job.created_unix_ns())));
  if (job.trials_budget() > 0) {
    const double share = static_cast<double>(job.trials()) / job.trials_budget();
    text += fmt::format("{} {:3.0f}%  {}/{} trials", Bar(share, 30), share * 100, job.trials(),
                        job.trials_budget());
    if (job.eta_ms() > 0)
      text += fmt::format("  {} left", HumanDuration(absl::Milliseconds(job.eta_ms())));
    if (const std::string gain = ModelGain(job); !gain.empty()) text += "  " + gain;
    text += "\n";
  }
  if (job.state() != v1::JOB_FAILED) text += Printable(job.reason()) + "\n";
  if (job.tasks_size() > 0) text += TaskTable(job, false, std::max(3, TerminalHeight() - 6));
  return text;
}

std::string ProgressView::Line(const v1::Job& job) const {
  std::string text = fmt::format("{} {}", job.id(), StateWord(job.state()));
  if (job.trials_budget() > 0)
    text += fmt::format(" {}/{} trials", job.trials(), job.trials_budget());
  if (const std::string gain = ModelGain(job); !gain.empty()) text += ", " + gain;
  if (job.eta_ms() > 0)
    text += fmt::format(", {} left", HumanDuration(absl::Milliseconds(job.eta_ms())));
  // Who follows a job that fails prints the error itself.
  if (!job.reason().empty() && job.state() != v1::JOB_FAILED) text += ": " + job.reason();
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
