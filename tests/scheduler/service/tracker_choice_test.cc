// Which of several trackers serves: thousands of random histories of schedulers that lead one after the other, trackers that are
// restarted or do not run for a while, and messages that are lost or wait for as long as they like. The trackers' side is the real
// one (tracker/appointment.h).
#include "scheduler/service/stages/tracker_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tracker/appointment.h"

namespace heddle::scheduler {
namespace {

using tracker::AppointCall;
using tracker::Appointment;

constexpr absl::Duration kCallLimit = absl::Milliseconds(1500);
constexpr absl::Duration kCallEvery = absl::Seconds(1);
const absl::Time kBegin = absl::UnixEpoch() + absl::Seconds(1000);

class World {
 public:
  explicit World(int seed) : random_(static_cast<unsigned>(seed)) {
    const size_t count = 2 + random_() % 2;
    for (size_t i = 0; i < count; ++i) {
      trackers_.push_back(std::make_unique<Tracker>());
      trackers_.back()->clock_offset = absl::Milliseconds(random_() % 1'000'000);
      Restart(i);
    }
  }

  // Runs for `length`, of which the last `calm` has no faults. What was wrong; empty: nothing.
  std::string Run(absl::Duration length, absl::Duration calm) {
    calm_from_ = kBegin + length - calm;
    At(kBegin, [this] { NewLeader(); });
    for (size_t i = 0; i < trackers_.size(); ++i)
      At(kBegin + Some(20'000), [this, i] { Disturb(i); });
    while (problem_.empty() && !events_.empty() && events_.begin()->first <= kBegin + length) {
      const auto next = events_.begin();
      now_ = next->first;
      const std::function<void()> happen = std::move(next->second);
      events_.erase(next);
      happen();
    }
    if (problem_.empty()) {
      size_t serving = 0;
      for (size_t i = 0; i < trackers_.size(); ++i) serving += Serves(i);
      if (serving != 1) problem_ = absl::StrCat(serving, " trackers serve in the end");
    }
    return problem_;
  }

  int64_t begun = 0;  // how often a tracker began to serve

 private:
  struct Tracker {
    absl::Duration clock_offset;
    std::unique_ptr<Appointment> appointment;
    absl::Time runs_from = absl::InfinitePast();  // messages that come before wait until then
    bool cut = false;                             // all messages are lost
    int served = 0;  // number of the last period in which it served; 0: none since its start
  };
  struct Leader {
    int64_t epoch = 0;
    absl::Time until = absl::InfiniteFuture();
    std::unique_ptr<TrackerChoice> choice;
  };

  void At(absl::Time time, std::function<void()> happen) {
    events_.emplace(std::max(time, now_), std::move(happen));
  }
  absl::Duration Some(int most_ms) { return absl::Milliseconds(random_() % most_ms); }
  bool Calm() const { return now_ >= calm_from_; }
  absl::Time ClockOf(size_t i) const { return now_ + trackers_[i]->clock_offset; }
  bool Serves(size_t i) const { return trackers_[i]->appointment->Serves(ClockOf(i)); }

  void Restart(size_t i) {
    trackers_[i]->appointment = std::make_unique<Appointment>(ClockOf(i));
    trackers_[i]->served = 0;
  }

  void Disturb(size_t i) {
    if (Calm()) {
      trackers_[i]->cut = false;
      return;
    }
    switch (random_() % 3) {
      case 0:
        Restart(i);
        break;
      case 1:
        trackers_[i]->runs_from = now_ + Some(15'000);
        break;
      case 2:
        trackers_[i]->cut = true;
        At(now_ + Some(15'000), [this, i] { trackers_[i]->cut = false; });
        break;
    }
    At(std::min(calm_from_, now_ + Some(25'000)), [this, i] { Disturb(i); });
  }

  // A scheduler leads from now on; the one before has stopped to, and does not begin calls any more.
  void NewLeader() {
    auto leader = std::make_shared<Leader>();
    leader->epoch = ++epoch_;
    leader->choice = std::make_unique<TrackerChoice>(trackers_.size(), now_);
    for (size_t i = 0; i < trackers_.size(); ++i) Call(leader, i);
    if (Calm() || random_() % 4 == 0) return;  // it leads for ever
    // Half of them lead so briefly that their calls may arrive while the next one leads.
    leader->until = now_ + Some(random_() % 2 ? 3'000 : 30'000);
    if (leader->until >= calm_from_) leader->until = calm_from_;
    // Nobody leads for a while.
    At(leader->until + Some(random_() % 2 ? 500 : 10'000), [this] { NewLeader(); });
  }

  // How long a message takes; nullopt: it is lost.
  std::optional<absl::Duration> Way(size_t i) {
    if (Calm()) return Some(20);
    if (trackers_[i]->cut || random_() % 50 == 0) return std::nullopt;
    return random_() % 20 == 0 ? Some(20'000) : Some(50);
  }

  void Call(const std::shared_ptr<Leader>& leader, size_t i) {
    if (now_ >= leader->until) return;
    const TrackerChoice::Call call = leader->choice->CallTo(i, now_);
    const absl::Time give_up = now_ + kCallLimit;
    const auto answered = std::make_shared<bool>(false);
    if (const auto way = Way(i)) {
      At(now_ + *way, [this, leader, i, call, give_up, answered] {
        Deliver(leader, i, call, give_up, answered);
      });
    }
    At(give_up, [this, leader, i, answered] {
      if (!*answered) Call(leader, i);
    });
  }

  void Deliver(const std::shared_ptr<Leader>& leader, size_t i, const TrackerChoice::Call& call,
               absl::Time give_up, const std::shared_ptr<bool>& answered) {
    Tracker& tracker = *trackers_[i];
    if (now_ < tracker.runs_from) {
      At(tracker.runs_from, [this, leader, i, call, give_up, answered] {
        Deliver(leader, i, call, give_up, answered);
      });
      return;
    }
    AppointCall appoint{.holder = "service",
                        .epoch = leader->epoch,
                        .duration = TrackerChoice::Options().appointed_for};
    if (call.echo_ns != 0) appoint.echo = absl::FromUnixNanos(call.echo_ns);
    const auto begins = tracker.appointment->Take(appoint, ClockOf(i));
    if (begins.ok() && *begins) Begins(i, call.forget);
    if (Serves(i)) {
      for (size_t j = 0; j < trackers_.size(); ++j) {
        if (j != i && Serves(j))
          problem_ = absl::StrCat("trackers ", i, " and ", j, " serve at ",
                                  absl::FormatDuration(now_ - kBegin));
      }
    }
    if (!begins.ok()) return;
    const TrackerChoice::Answer answer{.clock_ns = absl::ToUnixNanos(ClockOf(i)),
                                       .remaining = tracker.appointment->Remaining(ClockOf(i)),
                                       .idle = tracker.appointment->Idle(ClockOf(i))};
    const auto back = Way(i);
    if (!back || now_ + *back >= give_up) return;
    At(now_ + *back, [this, leader, i, answer, answered] {
      *answered = true;
      leader->choice->TakeAnswer(i, answer, now_);
      At(now_ + kCallEvery, [this, leader, i] { Call(leader, i); });
    });
  }

  void Begins(size_t i, bool forget) {
    ++begun;
    Tracker& tracker = *trackers_[i];
    // It may go on with its leases only if no other has given any away meanwhile. One that has served meanwhile and was restarted
    // since cannot tell; then the leases that the tracker remembers are held by nobody, and run out.
    bool others = false;
    for (size_t j = 0; j < trackers_.size(); ++j)
      others |= j != i && trackers_[j]->served > tracker.served;
    if (tracker.served > 0 && others && !forget)
      problem_ = absl::StrCat("tracker ", i, " goes on with leases of before another served");
    tracker.served = ++periods_;
  }

  std::mt19937 random_;
  std::vector<std::unique_ptr<Tracker>> trackers_;
  std::multimap<absl::Time, std::function<void()>> events_;
  absl::Time now_ = kBegin, calm_from_;
  int64_t epoch_ = 0;
  int periods_ = 0;
  std::string problem_;
};

TEST(TrackerChoice, NeverTwoServeAndInTheEndOneDoes) {
  int64_t begun = 0;
  for (int seed = 0; seed < 6000; ++seed) {
    World world(seed);
    const std::string problem = world.Run(absl::Seconds(120), absl::Seconds(30));
    ASSERT_EQ(problem, "") << "seed " << seed;
    begun += world.begun;
  }
  EXPECT_GT(begun, 3 * 6000);  // the histories have fail-overs
}

// A scheduler with two trackers that answer at once, which the test can silence.
class TwoTrackers {
 public:
  TwoTrackers() : choice_(2, now_) {}

  // Calls both, as often as the scheduler does, for so long.
  void Go(absl::Duration time) {
    for (const absl::Time end = now_ + time; now_ < end; now_ += absl::Seconds(1)) {
      for (size_t i = 0; i < 2; ++i) {
        const TrackerChoice::Call call = choice_.CallTo(i, now_);
        if (silent_.count(i) > 0) continue;
        AppointCall appoint{.holder = "service", .epoch = 1, .duration = absl::Seconds(6)};
        if (call.echo_ns != 0) appoint.echo = absl::FromUnixNanos(call.echo_ns);
        ASSERT_TRUE(trackers_[i].Take(appoint, now_).ok());
        choice_.TakeAnswer(i,
                           {.clock_ns = absl::ToUnixNanos(now_),
                            .remaining = trackers_[i].Remaining(now_),
                            .idle = trackers_[i].Idle(now_)},
                           now_);
      }
    }
  }
  void Silence(size_t i) { silent_.insert(i); }
  void Hear(size_t i) { silent_.erase(i); }
  bool Serves(size_t i) const { return trackers_[i].Serves(now_); }

 private:
  absl::Time now_ = kBegin;
  Appointment trackers_[2] = {Appointment(kBegin), Appointment(kBegin)};
  TrackerChoice choice_;
  std::set<size_t> silent_;
};

TEST(TrackerChoice, BeginsAtOnceWithTheFirstIfAllAnswer) {
  TwoTrackers two;
  two.Go(absl::Seconds(3));
  EXPECT_TRUE(two.Serves(0));
  EXPECT_FALSE(two.Serves(1));
}

TEST(TrackerChoice, BeginsWithTheOneThatAnswers) {
  TwoTrackers two;
  two.Silence(0);
  two.Go(absl::Seconds(5));
  EXPECT_FALSE(two.Serves(1)) << "the other may have been appointed by a scheduler that led before";
  two.Go(absl::Seconds(3));
  EXPECT_TRUE(two.Serves(1));
}

TEST(TrackerChoice, ChangesWithinSecondsAndNotBack) {
  TwoTrackers two;
  two.Go(absl::Seconds(60));
  two.Silence(0);
  two.Go(absl::Seconds(9));
  EXPECT_TRUE(two.Serves(1));
  EXPECT_FALSE(two.Serves(0));
  two.Hear(0);
  two.Go(absl::Seconds(60));
  EXPECT_TRUE(two.Serves(1));
  EXPECT_FALSE(two.Serves(0));
}

TEST(TrackerChoice, KeepsOneThatAnswersAgainInTime) {
  TwoTrackers two;
  two.Go(absl::Seconds(60));
  for (int i = 0; i < 5; ++i) {
    two.Silence(0);
    two.Go(absl::Seconds(4));
    two.Hear(0);
    two.Go(absl::Seconds(2));
    EXPECT_TRUE(two.Serves(0));
    EXPECT_FALSE(two.Serves(1));
  }
}

}  // namespace
}  // namespace heddle::scheduler
