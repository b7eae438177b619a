// How several schedulers divide machines and jobs: which pool a worker is in, which pool a new job
// goes to, and which scheduler leads a pool. Without pools there is one, and it has everything.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "scheduler/sim/scenario.h"

namespace heddle::sim {

class Pools {
 public:
  // The workers are dealt to the pools in turn, in the order of the scenario, which outlives this. So
  // each pool has its part of every kind.
  explicit Pools(const Scenario& scenario);

  int count() const { return static_cast<int>(slots_.size()); }
  // Indices of the pool's slots, in order.
  const std::vector<int>& SlotsOf(int pool) const { return slots_[static_cast<size_t>(pool)]; }
  int PoolOf(const std::string& worker) const { return pool_of_worker_.at(worker); }

  // Sends the job, an index of the scenario, to a pool that has devices for it: the one in which its
  // user has the fewest unfinished jobs for each of these devices, then the one with the fewest of all
  // users. A pool shares its slots fairly among users, but no pool knows of another.
  int Enter(int job);
  void Left(int job);
  // -1: it was not sent anywhere yet.
  int PoolOfJob(int job) const { return pool_of_job_[static_cast<size_t>(job)]; }

  int LeaderOf(int pool) const { return leaders_[static_cast<size_t>(pool)]; }
  // The scheduler with the smallest number dies, of those that lead a pool if there are any. Returns
  // what it has led.
  std::vector<int> FailOne();
  // Another one leads the pool from now on: of those that live, the one that leads the fewest.
  void TakeOver(int pool);

 private:
  struct Counts {
    std::map<std::string, int> by_user;
    int all = 0;
  };
  // Device slots that suit the job, by pool.
  const std::vector<int>& DevicesFor(const SimJob& job);

  const Scenario& scenario_;
  std::vector<std::vector<int>> slots_;
  std::map<std::string, int> pool_of_worker_;
  std::vector<int> pool_of_job_;
  std::vector<Counts> jobs_;  // unfinished, by pool
  std::map<std::tuple<std::string, std::string, int>, std::vector<int>> devices_;
  std::vector<int> leaders_;  // by pool
  std::vector<bool> dead_;    // by scheduler
};

}  // namespace heddle::sim
