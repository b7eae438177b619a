#include "client/views/timeline_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "client/views/terminal.h"
#include "views/figures.h"

namespace heddle::client {
namespace {

bool OfARound(v1::StageKind kind) {
  return kind == v1::STAGE_PROPOSE || kind == v1::STAGE_BUILD || kind == v1::STAGE_PROFILE ||
         kind == v1::STAGE_UPDATE;
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
  for (const v1::StageSpan& span : spans) {
    const auto [letter, fresh] = letters.try_emplace(
        span.job(), static_cast<char>(letters.size() < 26 ? 'A' + letters.size() : '*'));
    const std::string slot = span.worker() + "/" + span.slot();
    auto& row = rows.try_emplace(slot, width).first->second;
    const double begin = static_cast<double>(span.start_unix_ns() - range.begin);
    const double end = static_cast<double>(EndOf(span) - range.begin);
    busy[slot] += end - begin;
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
  return text + "\n";
}

std::string StageTimes(const std::vector<v1::StageSpan>& spans, bool plain) {
  struct Use {
    int count = 0;
    double ns = 0;
  };
  std::map<v1::StageKind, Use> uses;
  double all = 0;
  for (const v1::StageSpan& span : spans) {
    if (span.end_unix_ns() == 0) continue;
    const auto ns = static_cast<double>(span.end_unix_ns() - span.start_unix_ns());
    ++uses[span.kind()].count;
    uses[span.kind()].ns += ns;
    all += ns;
  }
  if (uses.empty()) return "";
  const double profile = uses.contains(v1::STAGE_PROFILE) ? uses[v1::STAGE_PROFILE].ns : 0;
  Table table({"stage", "times", "held a slot", "share", "beside profile"});
  for (const v1::StageKind kind :
       {v1::STAGE_IMPORT, v1::STAGE_PLAN, v1::STAGE_PROPOSE, v1::STAGE_BUILD, v1::STAGE_PROFILE,
        v1::STAGE_UPDATE, v1::STAGE_COMPILE, v1::STAGE_COMPARE}) {
    if (!uses.contains(kind)) continue;
    const Use& use = uses[kind];
    const bool of_a_round = OfARound(kind);
    table.Add({StageWord(kind), fmt::format("{}", use.count),
               HumanDuration(absl::Nanoseconds(use.ns)),
               all > 0 ? fmt::format("{:.1f} %", 100 * use.ns / all) : "-",
               of_a_round && profile > 0 ? fmt::format("{:.1f} %", 100 * use.ns / profile) : "-"});
  }
  return table.ToText(plain);
}

std::string Throughput(const std::vector<v1::StageSpan>& spans) {
  Range rounds;
  int candidates = 0;
  for (const v1::StageSpan& span : spans) {
    if (span.end_unix_ns() == 0 || !OfARound(span.kind())) continue;
    rounds.begin = std::min(rounds.begin, span.start_unix_ns());
    rounds.end = std::max(rounds.end, span.end_unix_ns());
    if (span.kind() == v1::STAGE_PROFILE) candidates += span.candidates();
  }
  const auto wall = static_cast<double>(rounds.end - rounds.begin);
  if (candidates == 0 || wall <= 0) return "";
  return fmt::format("{} candidates profiled in {}, {:.1f} a second\n", candidates,
                     HumanDuration(absl::Nanoseconds(wall)), candidates / (wall / 1e9));
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
