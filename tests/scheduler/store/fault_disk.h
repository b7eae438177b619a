// A disk in memory on which SQLite keeps its files, and which fails when it is told to: an I/O error
// at the n-th call, no space, or a power cut that loses what was not synced.
//
// It is SQLite's default VFS from its construction to its destruction. At a power cut a file keeps
// what was synced (xSync). Of what was written since, any subset of 512-byte sectors survives; other
// bytes of a sector are never touched (SQLITE_IOCAP_POWERSAFE_OVERWRITE, which SQLite's VFS for Unix
// promises as well). A new file, and the end of a deleted one, are sure only once the directory is
// synced, which SQLite does with the first sync of a journal or log that it has created. The shared
// memory of a log is lost. Thread-safe.
#pragma once

#include <sqlite3.h>

#include <cerrno>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace heddle::scheduler {

class FaultDisk {
 public:
  // Kinds of calls, to be combined.
  enum Call : unsigned {
    kOpen = 1,
    kRead = 2,
    kWrite = 4,
    kSync = 8,
    kTruncate = 16,
    kLock = 32,
    kShmMap = 64,
    kShmLock = 128,
    kDelete = 256,
    kSize = 512,
    kAll = 1023,
    kChanges = kWrite | kSync | kTruncate | kDelete,
  };
  static constexpr Call kEach[] = {kOpen, kRead,   kWrite,   kSync,   kTruncate,
                                   kLock, kShmMap, kShmLock, kDelete, kSize};
  static constexpr int64_t kForEver = std::numeric_limits<int64_t>::max();

  // Calls of these kinds fail, from the `first` to the `last` of them, counted from 1 since SetFault.
  // Half of what a failing write should write is written.
  struct Fault {
    unsigned calls = 0;
    int64_t first = 1, last = kForEver;
    int code = 0;            // SQLite's; 0: the I/O error of the call
    int error_number = EIO;  // errno
  };

  // What survives a power cut of what was not synced.
  enum class Survival { kAll, kNone, kSome };

  explicit FaultDisk(uint64_t seed = 1);
  ~FaultDisk();
  FaultDisk(const FaultDisk&) = delete;
  FaultDisk& operator=(const FaultDisk&) = delete;

  void SetFault(const Fault& fault);
  void Heal() { SetFault({}); }
  // How many calls of these kinds there were since SetFault or Heal.
  int64_t Calls(unsigned kinds) const;

  // The power fails during the n-th call of kChanges from now on; 0: at once. From then on every
  // call fails, until Reboot.
  void CutAt(int64_t n);
  bool dead() const;
  // Power comes back. Files that are open stay unusable.
  void Reboot(Survival survival);

  bool Exists(const std::string& name) const;

 private:
  struct Operation {
    int64_t offset = 0;  // of a truncation: the new size
    std::string bytes;
    bool truncation = false;
  };
  struct Open;
  // A file, or what was one.
  struct Content {
    std::string now, durable;
    std::vector<Operation> unsynced;  // what leads from `durable` to `now`
    std::set<Open*> opened;
    std::vector<std::unique_ptr<char[]>> shared_memory;
  };
  // An open file.
  struct Open {
    std::shared_ptr<Content> content;
    int64_t life = 0;              // reboots before it was opened
    bool syncs_directory = false;  // its next sync does
    int level = SQLITE_LOCK_NONE;
    bool mapped = false;
    unsigned shm_shared = 0, shm_exclusive = 0;  // locks, one bit each
  };
  struct File;  // as SQLite sees it
  using Directory = std::map<std::string, std::shared_ptr<Content>>;

  static FaultDisk* Of(sqlite3_vfs* vfs) { return static_cast<FaultDisk*>(vfs->pAppData); }
  template <typename F>
  static int On(sqlite3_file* file, F call);

  int OpenFile(const char* name, sqlite3_file* file, int flags, int* out_flags);
  int DeleteFile(const std::string& name, bool sync);
  int Read(Open* open, char* data, int size, int64_t offset) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int Write(Open* open, const char* data, int size, int64_t offset)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int Truncate(Open* open, int64_t size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int Sync(Open* open) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int Lock(Open* open, int level) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int ShmMap(Open* open, int region, int size, bool extend, void volatile** out)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int ShmLock(Open* open, int offset, int n, int flags) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ShmUnmap(Open* open) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Counts the call; an error code if it fails, SQLITE_OK if not.
  int Strike(Call call, int io_error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Survivor(const Content& content, Survival survival)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Coin(double p) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  static const sqlite3_io_methods kMethods;

  sqlite3_vfs* const real_;  // for the time
  sqlite3_vfs vfs_;
  mutable absl::Mutex mutex_;
  std::mt19937_64 random_ ABSL_GUARDED_BY(mutex_);
  Directory files_ ABSL_GUARDED_BY(mutex_);
  Directory durable_files_ ABSL_GUARDED_BY(mutex_);  // after a power cut
  Fault fault_ ABSL_GUARDED_BY(mutex_);
  std::map<unsigned, int64_t> calls_ ABSL_GUARDED_BY(mutex_);
  int64_t until_cut_ ABSL_GUARDED_BY(mutex_) = kForEver;  // changes
  bool dead_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t life_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace heddle::scheduler
