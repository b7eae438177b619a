// Which stage runs on which slot under which lease: the worker's side of the tracker's promises.
//
// A stage may run only while its lease is among the tracker's latest grants, and no longer than
// until its expiry by the local clock. Two stages never run on a shared core: a stage without a
// valid lease is first stopped and waited for. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "worker/slots.h"
#include "worker/supervisor/stage_session.h"
#include "worker/supervisor/stage_times.h"

namespace heddle::worker {

// A lease as the tracker reports it.
struct Grant {
  std::string lease_id;
  std::string slot;
  uint64_t fencing_token = 0;
  absl::Time expires;  // monotonic, unless renewed
};

class StageTable {
 public:
  explicit StageTable(std::vector<SlotConfig> slots) : slots_(std::move(slots)) {}

  const std::vector<SlotConfig>& slots() const { return slots_; }
  const SlotConfig* FindSlot(const std::string& name) const;

  // Replaces all grants and stops every stage whose lease is no longer valid.
  void SetGrants(std::vector<Grant> grants, absl::Time now);
  // Stops the stages whose lease has expired by the local clock.
  void StopExpired(absl::Time now);
  // Whether the tracker granted exactly this.
  bool Granted(const std::string& lease_id, const std::string& slot, uint64_t fencing_token,
               absl::Time now) const;

  // Takes the slot for a stage until Leave. FailedPrecondition: the lease is not valid, or the
  // token is older than one seen for this slot. ResourceExhausted: a stage on these cores still
  // runs after `patience`. Unavailable: the table is closed. InvalidArgument: no such slot.
  absl::Status Enter(const v1::StageStart& start, StageSession* session, absl::Duration patience);
  void Leave(const std::string& slot);

  // Refuses all further stages.
  void Close();
  void StopAll(const std::string& reason);
  // Stops the stages that will hardly end within `left`, as far as earlier ones tell.
  void StopLate(absl::Duration left, absl::Time now, const std::string& reason);
  // True once no stage runs.
  bool WaitEmpty(absl::Duration patience) const;
  std::vector<std::string> RunningLeases() const;
  // The cores of the slot on which no stage runs.
  std::vector<int> IdleCores(const SlotConfig& slot) const;

 private:
  struct Stage {
    std::string lease_id;
    uint64_t fencing_token = 0;
    StageSession* session = nullptr;
    v1::StageKind kind = v1::STAGE_UNSPECIFIED;
    absl::Time began;
  };
  bool Valid(const std::string& lease_id, const std::string& slot, uint64_t token,
             absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StopInvalid(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool CoresIdle(const SlotConfig& slot) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::vector<SlotConfig> slots_;
  mutable absl::Mutex mutex_;
  std::map<std::string, Grant> grants_ ABSL_GUARDED_BY(mutex_);            // by lease id
  std::map<std::string, Stage> running_ ABSL_GUARDED_BY(mutex_);           // by slot
  std::map<std::string, uint64_t> highest_token_ ABSL_GUARDED_BY(mutex_);  // by slot
  StageTimes times_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace heddle::worker
