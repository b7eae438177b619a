// The scheduler's process as the world runs it: a dispatcher and, in durable worlds, the ledger and
// the batches that are not durable yet.
//
// In durable worlds it treats events and orders as scheduler/service/scheduler_loop.cc does, by
// calling the same functions: FindKnown before the end of an import is decided on, Absorb after
// every step, MakeOrder right after that, FetchInputs later, when other batches may have become
// durable.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "scheduler/core/dispatcher.h"
#include "scheduler/ledger/job_ledger.h"
#include "scheduler/ledger/stage_order.h"
#include "scheduler/sim/chance.h"
#include "scheduler/sim/world/agenda.h"
#include "scheduler/sim/world/planted.h"
#include "scheduler/store/record_store.h"

namespace heddle::sim {

using namespace heddle::scheduler;  // NOLINT: the simulator is the scheduler's own

class SchedulerProcess {
 public:
  // Pointers and references outlive this. `store` is null in worlds that are not durable. `code_room`: see
  // Scenario.
  SchedulerProcess(std::string policy, AttemptId first_attempt, const Agenda& agenda,
                   RecordStore* store, Dice* dice, Plant* plant,
                   std::function<void(const std::string&)> violation, int code_room = 0);

  // ---- life and death ----
  // Begins a life, in which it leads, with those jobs of the store that are `mine`. `loaded` is called
  // for each of these.
  void Boot(const std::function<bool(JobId)>& mine,
            const std::function<void(const StoredJob&)>& loaded);
  // A crash: a random prefix of the batches that are not durable becomes durable, the rest is lost.
  void Crash();
  // Batches of a process that was stopped before it wrote them, and its epoch.
  struct Unwritten {
    int64_t epoch = 0;
    std::vector<Batch> batches;
  };
  // The process is stopped, and goes on only after another may have taken over (Boot): a random prefix of
  // the batches that are not durable becomes durable, and it may still try to write the rest.
  Unwritten Stop();
  // It goes on, and tries. Returns whether the store refused that, as it must once another has taken over.
  bool WriteLate(const Unwritten& late);

  // ---- one event ----
  // Adds what the database knows of the tasks if the event is the end of an import.
  void AddKnownRecords(Event* event) const;
  Decisions Step(const Event& event);
  // Takes event and changes into the ledger. Batches become durable at random moments.
  void Keep(const Event& event, const std::vector<Change>& changes);
  // Makes every batch durable, in this life's epoch.
  void Flush();
  // The time at which the dispatcher wants a Tick, or InfiniteFuture if it was asked for before.
  absl::Time NextWake();

  // ---- what decisions ask for ----
  RecordsFound Find(const FindRecords& find) const;
  // The two halves of an order. Other events may come between them.
  StageOrder BeginOrder(const StartStage& start) const;
  void CompleteOrder(StageOrder* order) const;
  v1::StageInput ProfileInput(const FeedProfile& feed) const;

  const Dispatcher& dispatcher() const { return *dispatcher_; }

 private:
  const std::string policy_;
  const std::string pool_;  // that it leads: its own
  const Agenda& agenda_;
  RecordStore* const store_;
  Dice* const dice_;
  Plant* const plant_;
  const std::function<void(const std::string&)> violation_;
  const int code_room_;
  std::unique_ptr<Dispatcher> dispatcher_;
  JobLedger ledger_;
  std::vector<Batch> pending_;  // not durable yet
  absl::Time wake_ = absl::InfinitePast();
  int64_t next_attempt_;  // survives a crash, as the store's history of attempts does
  int64_t epoch_ = 0;     // in which this life leads (scheduler/store/leader.h)
};

}  // namespace heddle::sim
