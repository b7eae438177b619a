// Sums over jobs, and which deadline has no time to wait, against what they are made of.
#include "scheduler/core/forecast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "scheduler/core/due_work.h"
#include "scheduler/core/policies/deadline_watch.h"
#include "scheduler/core/slot_index.h"

namespace heddle::scheduler {
namespace {

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  int Below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }

 private:
  std::mt19937_64 random_;
};

TEST(ForecastTest, LaneSecondsAreTheSumsOfTheLoads) {
  constexpr int kJobs = 12, kLanes = 3;
  const int slots[kLanes] = {3, 2, 4};
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Dice dice(seed);
    Forecast forecast;
    for (int lane = 0; lane < kLanes; ++lane)
      forecast.SetSlots(lane, slots[lane], lane == 1 ? 0.5 : 0);
    std::vector<Job> jobs(kJobs);
    for (int i = 0; i < kJobs; ++i) {
      Job& job = jobs[static_cast<size_t>(i)];
      job.id = JobId{i + 1};
      job.phase = Tuning{};
      job.tasks.resize(static_cast<size_t>(1 + dice.Below(3)));
      if (dice.Below(2)) job.params.deadline = absl::FromUnixSeconds(1000 + dice.Below(9));
    }
    for (int step = 0; step < 200; ++step) {
      Job& job = jobs[static_cast<size_t>(dice.Below(kJobs))];
      const TaskIndex task{dice.Below(static_cast<int>(job.tasks.size()))};
      job.tasks[static_cast<size_t>(task.value)].budget = dice.Below(100);
      job.paused.reset();
      if (dice.Below(5) == 0) job.paused.emplace();
      if (dice.Below(30) == 0) job.phase = Done{};
      LiveStage stage;
      stage.kind = v1::STAGE_PROFILE;
      stage.task = task;
      if (dice.Below(3) == 0) forecast.Observe(stage, job, absl::Seconds(1 + dice.Below(9)));
      forecast.Refresh(job, 1 + dice.Below(2), dice.Below(200),
                       dice.Below(2) ? std::optional(task) : std::nullopt);
      double sums[kLanes] = {}, deadlines = 0;
      for (const Job& one : jobs) {
        const Forecast::Load* load = forecast.Of(one.id);
        if (load == nullptr) continue;
        ASSERT_FALSE(one.paused || one.final());
        sums[0] += load->joint_s;
        sums[load->lane] += load->device_s;
        deadlines += load->deadline_s;
        EXPECT_EQ(load->deadline_s > 0, one.params.deadline != absl::InfiniteFuture() &&
                                            load->cpu_s + load->device_s > 0);
      }
      for (int lane = 0; lane < kLanes; ++lane)
        ASSERT_NEAR(forecast.LaneSeconds(lane), sums[lane] / slots[lane], 1e-6) << "seed " << seed;
      ASSERT_EQ(forecast.Horizon(), std::max({0.0, forecast.LaneSeconds(0), forecast.LaneSeconds(1),
                                              forecast.LaneSeconds(2)}));
      ASSERT_NEAR(forecast.DeadlineSeconds(), deadlines, 1e-6);
    }
  }
}

// By the plain definition: every job is looked at.
double PlainFinish(const Forecast& forecast, const std::vector<Job>& jobs, const Job& job,
                   bool earlier_deadlines_first, const int* slots, const double* displaced) {
  const Forecast::Load& own = *forecast.Of(job.id);
  double cpu = own.cpu_s, device = own.device_s;
  for (const Job& one : jobs) {
    const Forecast::Load* load = forecast.Of(one.id);
    if (load == nullptr || one.id == job.id) continue;
    if (earlier_deadlines_first && load->deadline >= own.deadline) continue;
    const auto part = [&](double theirs, double mine) {
      return earlier_deadlines_first ? theirs : std::min(theirs, mine);
    };
    cpu += part(load->cpu_s, own.cpu_s);
    if (load->lane == own.lane) device += part(load->device_s, own.device_s);
  }
  return std::max(
      {own.span_s, (cpu + displaced[own.lane] * device) / slots[0], device / slots[own.lane]});
}

TEST(ForecastTest, AJobIsDoneAfterThoseBeforeIt) {
  constexpr int kJobs = 400;  // several blocks of DueWork
  const int slots[] = {3, 2, 4};
  const double displaced[] = {0, 0.5, 0};
  const absl::Time now = absl::FromUnixSeconds(1000);
  Dice dice(1);
  Forecast forecast;
  for (int lane = 0; lane < 3; ++lane) forecast.SetSlots(lane, slots[lane], displaced[lane]);
  std::vector<Job> jobs(kJobs);
  for (int i = 0; i < kJobs; ++i) {
    Job& job = jobs[static_cast<size_t>(i)];
    job.id = JobId{i + 1};
    job.phase = Tuning{};
    job.tasks.resize(1);
    if (dice.Below(8)) job.params.deadline = now + absl::Seconds(dice.Below(200));
  }
  for (int step = 0; step < 4000; ++step) {
    Job& job = jobs[static_cast<size_t>(dice.Below(kJobs))];
    job.tasks[0].budget = dice.Below(100);
    job.paused.reset();
    if (dice.Below(9) == 0) job.paused.emplace();
    forecast.Refresh(job, 1 + static_cast<int>(job.id.value % 2), dice.Below(200), std::nullopt);
    const Job& asked = jobs[static_cast<size_t>(dice.Below(kJobs))];
    if (forecast.Of(asked.id) == nullptr) continue;
    for (const bool earlier_first : {true, false}) {
      const double plain = PlainFinish(forecast, jobs, asked, earlier_first, slots, displaced);
      ASSERT_NEAR(absl::ToDoubleSeconds(forecast.Finish(asked, earlier_first, now) - now), plain,
                  1e-6)
          << "step " << step;
    }
  }
}

// With as many jobs as most schedulers have, even the rounding is that of adding one after another.
TEST(DueWorkTest, SumsAreThoseOfTheJobsInOrder) {
  for (const int jobs : {100, 3000}) {
    Dice dice(static_cast<uint64_t>(jobs));
    DueWork work;
    std::map<DueWork::Due, DueWork::Work> plain;
    for (int step = 0; step < 5 * jobs; ++step) {
      const JobId job{dice.Below(jobs)};
      const DueWork::Due due{absl::FromUnixSeconds(job.value * 7919 % (jobs / 2)), job};
      const DueWork::Work one{dice.Below(3), dice.Below(1000) / 7.0, dice.Below(1000) / 11.0};
      if (dice.Below(3) == 0) {
        work.Erase(due);
        plain.erase(due);
      } else {
        work.Put(due, one);
        plain[due] = one;
      }
      if (jobs > 1000 && step % 50 != 0) continue;
      const absl::Time end = absl::FromUnixSeconds(dice.Below(jobs / 2 + 2));
      DueWork::Work sum{dice.Below(4), 0.3, 0.7};
      DueWork::Work expected = sum;
      for (const auto& [at, other] : plain) {
        if (at.first >= end) break;
        expected.cpu_s += other.cpu_s;
        if (other.lane == expected.lane) expected.device_s += other.device_s;
      }
      work.AddBefore(end, &sum);
      if (jobs <= 128) {
        ASSERT_EQ(sum.cpu_s, expected.cpu_s) << "step " << step;
        ASSERT_EQ(sum.device_s, expected.device_s) << "step " << step;
      }
      ASSERT_NEAR(sum.cpu_s, expected.cpu_s, 1e-6) << "step " << step;
      ASSERT_NEAR(sum.device_s, expected.device_s, 1e-6) << "step " << step;
    }
  }
}

class WatchTest : public ::testing::Test {
 protected:
  WatchTest() {
    SlotInfo cpu, device;
    cpu.id = {"w", "cpu0"};
    device.id = {"w", "p0"};
    device.device = true;
    device.target = "t";
    device.cores = {1};
    slots_ = {cpu, device};
    index_.Reset(slots_);
    JobParams needs;
    needs.target = "t";
    lane_ = index_.DeviceLane(needs);
    view_.slots = &index_;
  }
  // A job that has `left` seconds and takes `span` alone.
  void Put(int id, double left, double span, bool measured) {
    Forecast::Load& load = loads_[id];
    load.lane = lane_;
    load.span_s = load.joint_s = load.device_s = span;
    PlannedJob& job = jobs_[id];
    job.load = &load;
    job.measured = measured;
    due_[id] = {now_ + absl::Seconds(left), JobId{id}};
    watch_.Add(due_[id], &job);
  }
  int Tight() {
    watch_.Find(view_, now_, &stale_);
    return watch_.tight() ? static_cast<int>(watch_.tight()->second.value) : 0;
  }

  std::vector<SlotInfo> slots_;
  SlotIndex index_;
  int lane_ = 0;
  PolicyView view_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  std::map<int, Forecast::Load> loads_;
  std::map<int, PlannedJob> jobs_;
  std::map<int, DeadlineWatch::Due> due_;
  DeadlineWatch watch_;
  std::vector<JobId> stale_;
};

TEST_F(WatchTest, AMeasuredJobIsLostBelowFourFifthsOfItsTime) {
  Put(1, 100, 130, true);
  EXPECT_EQ(Tight(), 0);
  Put(2, 300, 230, true);
  EXPECT_EQ(Tight(), 2) << "what is lost takes nothing from those that are not";
  Put(1, 100, 120, true);
  EXPECT_EQ(Tight(), 1);
  now_ += absl::Seconds(5);
  EXPECT_EQ(Tight(), 2) << "95 s of 120 s are less than four fifths";
}

TEST_F(WatchTest, AJobThatWasNotMeasuredHasHopeForLonger) {
  Put(1, 100, 400, false);
  EXPECT_EQ(Tight(), 1);
  now_ += absl::Seconds(30);
  EXPECT_EQ(Tight(), 0);
}

// With thousands of deadlines, to rank all later ones anew would take longer than the time between two events.
TEST_F(WatchTest, AnotherTightJobConcernsNoOtherJobs) {
  for (int id = 2; id <= 60; ++id) Put(id, 1000 + id, 1, true);
  EXPECT_EQ(Tight(), 0);
  stale_.clear();
  Put(1, 100, 110, true);
  EXPECT_EQ(Tight(), 1);
  EXPECT_EQ(stale_, std::vector<JobId>{JobId{1}});
  stale_.clear();
  Put(2, 1002, 1000, true);
  watch_.Remove(due_[1]);
  EXPECT_EQ(Tight(), 2);
  EXPECT_EQ(stale_, (std::vector<JobId>{JobId{2}, JobId{1}}));
}

// Looked at anew only when something may have changed: the answers are those of looking always.
TEST_F(WatchTest, NothingIsMissedBetweenTheLooks) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    Dice dice(seed);
    jobs_.clear(), loads_.clear(), due_.clear();
    watch_ = DeadlineWatch();
    DeadlineWatch always;
    std::vector<JobId> ranked;
    for (int id = 1; id <= 6; ++id) {
      Put(id, 20 + dice.Below(400), 1 + dice.Below(200), dice.Below(2) > 0);
      always.Add(due_[id], &jobs_[id]);
    }
    for (int step = 0; step < 300; ++step) {
      now_ += absl::Milliseconds(dice.Below(3000));
      const int id = 1 + dice.Below(6);
      if (dice.Below(4) == 0) {
        Forecast::Load& load = loads_[id];
        load.span_s = load.joint_s = load.device_s = 1 + dice.Below(200);
        watch_.Look();
      }
      if (dice.Below(40) == 0) watch_.Remove(due_[id]), always.Remove(due_[id]);
      stale_.clear(), ranked.clear();
      always.Look();
      always.Find(view_, now_, &ranked);
      const int tight = Tight();
      ASSERT_EQ(tight, always.tight() ? static_cast<int>(always.tight()->second.value) : 0);
      ASSERT_EQ(stale_, ranked);
    }
  }
}

}  // namespace
}  // namespace heddle::scheduler
