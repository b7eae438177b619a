// Small parts that several pages have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "proto/jobs.pb.h"
#include "views/html.h"

namespace heddle::views {

inline constexpr size_t kNameChars = 80;  // of labels in tables; the page of a task shows it whole

// A piece of a long list.
struct Part {
  int64_t all = -1;  // how many there are in the whole list; -1: not known
  std::string next;  // address of the part after this one; empty: this is the last
};

// The text, cut between two characters to at most `most` bytes with "..." at its end.
std::string Cut(const std::string& text, size_t most = kNameChars);
// <span class="NAME">content</span>
Html Class(const char* name, const Html& content);
// The time as people read it, and for programs in UTC; "-" for 0.
Html Time(int64_t unix_ns);
// The word for the state, in its colour.
Html State(const v1::Job& job);
// What a job does, or why it ended; empty if its state says it all.
std::string Reason(const v1::Job& job);
Html StateAndReason(const v1::Job& job);
// The job's name, which leads to its page; without `links` it leads nowhere.
Html JobLink(const std::string& job, bool links = true);
// "showing 100 of 345 jobs", with a link to the others; empty if these are all.
Html PartLine(const Part& part, size_t shown, const char* what);
Html Warning(const std::string& text);
// A remark that matters less than what stands around it.
Html Faint(const std::string& text);
// "12 of 64", with a bar.
Html TrialsOf(const v1::Job& job);

}  // namespace heddle::views
