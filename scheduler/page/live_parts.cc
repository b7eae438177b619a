#include "scheduler/page/live_parts.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace heddle::scheduler {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(100);
constexpr absl::Duration kMostPause = absl::Seconds(2);

}  // namespace

LiveParts::LiveParts(Options options, Changes changes)
    : options_(options), changes_(std::move(changes)), thread_([this] { Run(); }) {}

LiveParts::~LiveParts() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  thread_.join();
  absl::MutexLock lock(&mutex_);
  for (auto& [key, page] : pages_) {
    for (const Stream& stream : page.streams) stream.events->Close();
  }
}

bool LiveParts::HasRoom(const std::string& caller, bool new_page) const {
  if (streams_ >= options_.most_streams || (new_page && pages_.size() >= options_.most_pages))
    return false;
  if (caller.empty()) return true;
  size_t pages = 0, streams = 0;  // of the caller
  for (const auto& [key, page] : pages_) {
    if (page.caller != caller) continue;
    ++pages;
    streams += page.streams.size();
  }
  const auto within = [this](size_t count, size_t most) {
    return static_cast<double>(count) < options_.caller_share * static_cast<double>(most);
  };
  return within(streams, options_.most_streams) &&
         (!new_page || within(pages, options_.most_pages));
}

std::shared_ptr<EventStream> LiveParts::Open(const std::string& key, Render render,
                                             const std::string& caller, Changes own) {
  absl::MutexLock lock(&mutex_);
  auto found = pages_.find(key);
  if (stop_ || !HasRoom(caller, found == pages_.end())) return nullptr;
  if (found == pages_.end()) {
    found =
        pages_.emplace(key, OpenPage{std::move(render), caller, std::move(own), options_.refresh})
            .first;
  }
  auto events = std::make_shared<EventStream>();
  // The page may have changed between its own request and this one.
  if (found->second.latest != nullptr) events->Send(found->second.latest);
  found->second.streams.push_back({events, MonotonicNow()});
  ++streams_;
  return events;
}

bool LiveParts::Has(const std::string& key) {
  absl::MutexLock lock(&mutex_);
  return pages_.contains(key);
}

void LiveParts::Run() {
  absl::Time beat = MonotonicNow();
  // The time that rendering may take now. Below zero: it has to wait.
  absl::Duration budget = options_.most_saved;
  absl::Time counted = beat;  // until when the share is in the budget
  while (true) {
    absl::Duration pause = kTick;
    const absl::Time now = MonotonicNow();
    const int64_t changes = changes_();
    std::optional<Turn> next;
    {
      absl::MutexLock lock(&mutex_);
      next = Next(now, changes);
    }
    if (next) {
      Update(*next);
      const absl::Time end = MonotonicNow();
      budget = std::min(options_.most_saved, budget + (now - counted) * options_.share);
      budget -= (end - now) * (1 - options_.share);
      counted = end;
      // A page that takes very long holds the next one up for kMostPause, and no longer.
      budget = std::max(budget, -kMostPause * options_.share);
      pause = std::max(absl::ZeroDuration(), -budget / options_.share);
    }
    if (now - beat >= options_.beat) {
      Sweep(now);
      beat = now;
    }
    absl::MutexLock lock(&mutex_);
    if (mutex_.AwaitWithTimeout(absl::Condition(&stop_), pause)) return;
  }
}

std::optional<LiveParts::Turn> LiveParts::Next(absl::Time now, int64_t changes) {
  std::optional<Turn> next;
  bool next_changed = false;
  absl::Time oldest;
  for (const auto& [key, page] : pages_) {
    const absl::Duration age = now - page.rendered;
    if (age < options_.interval) continue;
    const int64_t its_changes = page.own == nullptr ? changes : page.own();
    // One that waits for long goes before those that change all the time.
    const bool changed = page.changes != its_changes || age >= options_.most_refresh;
    if (!changed && (next_changed || age < page.refresh)) continue;
    if (next && changed == next_changed && page.rendered >= oldest) continue;
    oldest = page.rendered;
    next_changed = changed;
    next = Turn{key, its_changes};
  }
  return next;
}

void LiveParts::Update(const Turn& turn) {
  Render render;
  {
    absl::MutexLock lock(&mutex_);
    render = pages_.at(turn.key).render;  // only this thread removes pages
  }
  const std::optional<std::string> content = render();
  std::shared_ptr<const std::string> event;
  std::vector<std::shared_ptr<EventStream>> streams;
  {
    absl::MutexLock lock(&mutex_);
    OpenPage& page = pages_.at(turn.key);
    page.rendered = MonotonicNow();
    const bool refreshed = page.changes == turn.changes;
    page.changes = turn.changes;
    if (!content) return;
    auto text = std::make_shared<const std::string>(EventText("parts", *content));
    const bool same = page.latest != nullptr && *page.latest == *text;
    page.refresh = same && refreshed && page.own != nullptr
                       ? std::min(2 * page.refresh, options_.most_refresh)
                       : options_.refresh;
    if (same) return;
    page.latest = event = std::move(text);
    for (const Stream& stream : page.streams) streams.push_back(stream.events);
  }
  for (const auto& stream : streams) stream->Send(event);
}

void LiveParts::Sweep(absl::Time now) {
  const auto beat = std::make_shared<const std::string>(kEventBeat);
  absl::MutexLock lock(&mutex_);
  for (auto page = pages_.begin(); page != pages_.end();) {
    std::vector<Stream>& streams = page->second.streams;
    streams_ -= std::erase_if(streams, [&](const Stream& stream) {
      if (now - stream.opened >= options_.most_age) stream.events->Close();
      return !stream.events->Send(beat);
    });
    page = streams.empty() ? pages_.erase(page) : std::next(page);
  }
}

}  // namespace heddle::scheduler
