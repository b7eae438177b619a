#include "client/timeline_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "client/terminal.h"

namespace heddle::client {
namespace {

std::string StageWord(v1::StageKind kind) {
  switch (kind) {
    case v1::STAGE_IMPORT:
      return "import";
    case v1::STAGE_PROPOSE:
      return "propose";
    case v1::STAGE_BUILD:
      return "build";
    case v1::STAGE_PROFILE:
      return "profile";
    case v1::STAGE_UPDATE:
      return "update";
    case v1::STAGE_COMPILE:
      return "compile";
    default:
      return "?";
  }
}

struct Range {
  int64_t begin = std::numeric_limits<int64_t>::max();
  int64_t end = 0;
};

int64_t EndOf(const v1::StageSpan& span) {
  return span.end_unix_ns() != 0 ? span.end_unix_ns() : absl::ToUnixNanos(absl::Now());
}

Range Extent(const std::vector<v1::StageSpan>& spans) {
  Range range;
  for (const v1::StageSpan& span : spans) {
    range.begin = std::min(range.begin, span.start_unix_ns());
    range.end = std::max(range.end, EndOf(span));
  }
  return range;
}

}  // namespace

std::string DrawTimeline(const std::vector<v1::StageSpan>& spans, int width) {
  if (spans.empty()) return "no stage has run yet\n";
  const Range range = Extent(spans);
  const double cell = std::max(1.0, static_cast<double>(range.end - range.begin) / width);
  std::map<std::string, char> letters;
  // slot -> cell -> job letter -> nanoseconds held
  std::map<std::string, std::vector<std::map<char, double>>> rows;
  std::map<std::string, double> busy;
  std::map<std::string, std::pair<int, double>> stages;
  for (const v1::StageSpan& span : spans) {
    const auto [letter, fresh] = letters.try_emplace(
        span.job(), static_cast<char>(letters.size() < 26 ? 'A' + letters.size() : '*'));
    const std::string slot = span.worker() + "/" + span.slot();
    auto& row = rows.try_emplace(slot, width).first->second;
    const double begin = static_cast<double>(span.start_unix_ns() - range.begin);
    const double end = static_cast<double>(EndOf(span) - range.begin);
    busy[slot] += end - begin;
    auto& [count, sum] = stages[StageWord(span.kind())];
    ++count;
    sum += end - begin;
    for (int c = static_cast<int>(begin / cell); c < width && c * cell < end; ++c) {
      row[c][letter->second] += std::min(end, (c + 1) * cell) - std::max(begin, c * cell);
    }
  }
  size_t name_width = 0;
  for (const auto& [slot, row] : rows) name_width = std::max(name_width, slot.size());
  const double total = static_cast<double>(range.end - range.begin);
  std::string text;
  for (const auto& [slot, row] : rows) {
    text += fmt::format("{:<{}} |", slot, name_width);
    for (const auto& held : row) {
      char best = '.';
      double most = 0, sum = 0;
      for (const auto& [letter, ns] : held) {
        sum += ns;
        if (ns > most) most = ns, best = letter;
      }
      text += sum * 2 >= cell ? best : '.';
    }
    text += fmt::format("| {:3.0f}% busy\n", 100 * busy[slot] / total);
  }
  text += fmt::format("{:<{}}  0{:>{}}\n", "", name_width, HumanDuration(absl::Nanoseconds(total)),
                      width - 1);
  for (const auto& [job, letter] : letters) text += fmt::format("{} = {}  ", letter, job);
  text += "\n";
  for (const auto& [stage, use] : stages) {
    text +=
        fmt::format("{} {} ({})  ", use.first, stage, HumanDuration(absl::Nanoseconds(use.second)));
  }
  return text + "\n";
}

std::string ListTimeline(const std::vector<v1::StageSpan>& spans, bool plain) {
  std::vector<v1::StageSpan> sorted = spans;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const v1::StageSpan& a, const v1::StageSpan& b) {
                     return a.start_unix_ns() < b.start_unix_ns();
                   });
  const Range range = Extent(spans);
  Table table({"at", "for", "job", "stage", "task", "slot", "candidates", "outcome"});
  for (const v1::StageSpan& span : sorted) {
    std::string outcome = span.end_unix_ns() == 0 ? "running" : "ok";
    if (span.fault().kind() != v1::FAULT_NONE) outcome = span.fault().message();
    table.Add({HumanDuration(absl::Nanoseconds(span.start_unix_ns() - range.begin)),
               HumanDuration(absl::Nanoseconds(EndOf(span) - span.start_unix_ns())), span.job(),
               StageWord(span.kind()), span.task().empty() ? "-" : span.task(),
               span.worker() + "/" + span.slot(), fmt::format("{}", span.candidates()), outcome});
  }
  return table.ToText(plain);
}

}  // namespace heddle::client
