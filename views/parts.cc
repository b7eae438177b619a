#include "views/parts.h"

#include <fmt/format.h>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "views/figures.h"
#include "views/format.h"
#include "views/pages.h"

namespace heddle::views {

std::string Cut(const std::string& text, size_t most) {
  if (text.size() <= most) return text;
  size_t end = most - 3;
  while (end > 0 && (text[end] & 0xC0) == 0x80) --end;  // not inside a character
  return text.substr(0, end) + "...";
}

Html Class(const char* name, const Html& content) {
  return Element("span", content, {{"class", name}});
}

Html Time(int64_t unix_ns) {
  if (unix_ns == 0) return Text("-");
  const std::string machine =
      absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixNanos(unix_ns), absl::UTCTimeZone());
  return Element("time", Text(FormatWallTime(unix_ns)),
                 {{"datetime", machine}, {"class", "nowrap"}});
}

Html State(const v1::Job& job) {
  const std::string word = ShownState(job);
  switch (job.state()) {
    case v1::JOB_DONE:
      return Class("good", Text(word));
    case v1::JOB_FAILED:
      return Class("bad", Text(word));
    case v1::JOB_CANCELLED:
    case v1::JOB_PAUSED:
      return Class("warn", Text(word));
    default:
      return Text(word);
  }
}

std::string Reason(const v1::Job& job) { return ReasonBeyondState(job); }

Html StateAndReason(const v1::Job& job) {
  const std::string reason = Reason(job);
  return State(job) + Text(reason.empty() ? "" : absl::StrCat(": ", reason));
}

Html JobLink(const std::string& job, bool links) {
  return links && !job.empty() ? Link(JobAddress(job), Text(job)) : Text(job);
}

Html PartLine(const Part& part, size_t shown, const char* what) {
  Html line;
  if (part.all > static_cast<int64_t>(shown))
    line += Text(fmt::format("showing {} of {} {} ", shown, part.all, what));
  if (!part.next.empty())
    line += Element("a", Text("next page"), {{"href", part.next}, {"rel", "next"}});
  return line.markup.empty() ? line : Element("p", line);
}

Html Warning(const std::string& text) { return Element("p", Text(text), {{"class", "warn"}}); }

Html Faint(const std::string& text) { return Element("p", Text(text), {{"class", "faint"}}); }

Html TrialsOf(const v1::Job& job) {
  const std::string words = fmt::format("{} of {}", job.trials(), job.trials_budget());
  return Class("nowrap",
               Progress(job.trials(), job.trials_budget(), absl::StrCat(words, " trials")) +
                   Text(" ") + Text(words));
}

}  // namespace heddle::views
