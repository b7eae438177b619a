#include "tests/scheduler/store/fault_disk.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace heddle::scheduler {
namespace {

constexpr int64_t kSector = 512;
constexpr int kMaxName = 512;

void Apply(int64_t offset, const char* data, size_t size, std::string* bytes) {
  const auto end = static_cast<size_t>(offset) + size;
  if (bytes->size() < end) bytes->resize(end);
  std::memcpy(bytes->data() + offset, data, size);
}

// Holds the disk's lock, and keeps errno as it was. The store reads errno to learn why a call failed. By then SQLite has
// made further calls, which take this lock, too, and a thread that sleeps for a lock finds errno changed to EAGAIN.
class ABSL_SCOPED_LOCKABLE DiskLock {
 public:
  explicit DiskLock(absl::Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    const int before = errno;
    mutex_->Lock();
    errno = before;
  }
  ~DiskLock() ABSL_UNLOCK_FUNCTION() {
    const int before = errno;
    mutex_->Unlock();
    errno = before;
  }
  DiskLock(const DiskLock&) = delete;
  DiskLock& operator=(const DiskLock&) = delete;

 private:
  absl::Mutex* const mutex_;
};

}  // namespace

struct FaultDisk::File {
  sqlite3_file base;
  FaultDisk* disk;
  FaultDisk::Open* open;
};

// Runs `call(disk, open)` under the disk's lock.
template <typename F>
int FaultDisk::On(sqlite3_file* file, F call) {
  File* const mine = reinterpret_cast<File*>(file);
  DiskLock lock(&mine->disk->mutex_);
  if (mine->open->life != mine->disk->life_) return SQLITE_IOERR;
  return call(mine->disk, mine->open);
}

const sqlite3_io_methods FaultDisk::kMethods = {
    .iVersion = 2,
    .xClose =
        [](sqlite3_file* file) {
          File* const mine = reinterpret_cast<File*>(file);
          DiskLock lock(&mine->disk->mutex_);
          mine->disk->ShmUnmap(mine->open);
          mine->open->content->opened.erase(mine->open);
          delete mine->open;
          return SQLITE_OK;
        },
    .xRead =
        [](sqlite3_file* file, void* data, int size, sqlite3_int64 offset) {
          return On(file, [&](FaultDisk* disk, Open* open) ABSL_NO_THREAD_SAFETY_ANALYSIS {
            return disk->Read(open, static_cast<char*>(data), size, offset);
          });
        },
    .xWrite =
        [](sqlite3_file* file, const void* data, int size, sqlite3_int64 offset) {
          return On(file, [&](FaultDisk* disk, Open* open) ABSL_NO_THREAD_SAFETY_ANALYSIS {
            return disk->Write(open, static_cast<const char*>(data), size, offset);
          });
        },
    .xTruncate =
        [](sqlite3_file* file, sqlite3_int64 size) {
          return On(file, [&](FaultDisk* disk, Open* open) ABSL_NO_THREAD_SAFETY_ANALYSIS {
            return disk->Truncate(open, size);
          });
        },
    .xSync =
        [](sqlite3_file* file, int) {
          return On(file, [](FaultDisk* disk, Open* open)
                              ABSL_NO_THREAD_SAFETY_ANALYSIS { return disk->Sync(open); });
        },
    .xFileSize =
        [](sqlite3_file* file, sqlite3_int64* size) {
          return On(file, [&](FaultDisk* disk, Open* open) ABSL_NO_THREAD_SAFETY_ANALYSIS {
            *size = static_cast<sqlite3_int64>(open->content->now.size());
            return disk->Strike(kSize, SQLITE_IOERR_FSTAT);
          });
        },
    .xLock =
        [](sqlite3_file* file, int level) {
          return On(file, [&](FaultDisk* disk, Open* open) ABSL_NO_THREAD_SAFETY_ANALYSIS {
            const int code = disk->Strike(kLock, SQLITE_IOERR_LOCK);
            return code != SQLITE_OK ? code : disk->Lock(open, level);
          });
        },
    .xUnlock =
        [](sqlite3_file* file, int level) {
          return On(file, [&](FaultDisk* disk, Open* open) ABSL_NO_THREAD_SAFETY_ANALYSIS {
            const int code = disk->Strike(kLock, SQLITE_IOERR_UNLOCK);
            if (code == SQLITE_OK) open->level = std::min(open->level, level);
            return code;
          });
        },
    .xCheckReservedLock =
        [](sqlite3_file* file, int* reserved) {
          return On(file, [&](FaultDisk* disk, Open* open) ABSL_NO_THREAD_SAFETY_ANALYSIS {
            *reserved = 0;
            for (const Open* other : open->content->opened)
              *reserved |= other->level >= SQLITE_LOCK_RESERVED;
            return disk->Strike(kLock, SQLITE_IOERR_CHECKRESERVEDLOCK);
          });
        },
    .xFileControl = [](sqlite3_file*, int, void*) { return SQLITE_NOTFOUND; },
    .xSectorSize = [](sqlite3_file*) { return 4096; },  // as SQLite's VFS for Unix says
    .xDeviceCharacteristics = [](sqlite3_file*) { return SQLITE_IOCAP_POWERSAFE_OVERWRITE; },
    .xShmMap =
        [](sqlite3_file* file, int region, int size, int extend, void volatile** out) {
          return On(file, [&](FaultDisk* disk, Open* open) ABSL_NO_THREAD_SAFETY_ANALYSIS {
            return disk->ShmMap(open, region, size, extend != 0, out);
          });
        },
    .xShmLock =
        [](sqlite3_file* file, int offset, int n, int flags) {
          return On(file, [&](FaultDisk* disk, Open* open) ABSL_NO_THREAD_SAFETY_ANALYSIS {
            return disk->ShmLock(open, offset, n, flags);
          });
        },
    .xShmBarrier = [](sqlite3_file*) { std::atomic_thread_fence(std::memory_order_seq_cst); },
    .xShmUnmap =
        [](sqlite3_file* file, int) {
          return On(file, [](FaultDisk* disk, Open* open) ABSL_NO_THREAD_SAFETY_ANALYSIS {
            disk->ShmUnmap(open);
            return SQLITE_OK;
          });
        },
};

FaultDisk::FaultDisk(uint64_t seed)
    : real_((sqlite3_initialize(), sqlite3_vfs_find("unix"))), vfs_(), random_(seed) {
  vfs_.iVersion = 2;
  vfs_.szOsFile = sizeof(File);
  vfs_.mxPathname = kMaxName;
  vfs_.zName = "fault_disk";
  vfs_.pAppData = this;
  vfs_.xOpen = [](sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags, int* out) {
    return Of(vfs)->OpenFile(name, file, flags, out);
  };
  vfs_.xDelete = [](sqlite3_vfs* vfs, const char* name, int sync) {
    return Of(vfs)->DeleteFile(name, sync != 0);
  };
  vfs_.xAccess = [](sqlite3_vfs* vfs, const char* name, int, int* there) {
    DiskLock lock(&Of(vfs)->mutex_);
    const auto found = Of(vfs)->files_.find(name);
    *there = found != Of(vfs)->files_.end() && !found->second->now.empty();
    return Of(vfs)->dead_ ? SQLITE_IOERR_ACCESS : SQLITE_OK;
  };
  vfs_.xFullPathname = [](sqlite3_vfs*, const char* name, int size, char* out) {
    sqlite3_snprintf(size, out, "%s", name);
    return SQLITE_OK;
  };
  vfs_.xRandomness = [](sqlite3_vfs* vfs, int size, char* out) {
    DiskLock lock(&Of(vfs)->mutex_);
    for (int i = 0; i < size; ++i) out[i] = static_cast<char>(Of(vfs)->random_());
    return size;
  };
  vfs_.xSleep = [](sqlite3_vfs*, int microseconds) {
    absl::SleepFor(absl::Microseconds(std::min(microseconds, 1000)));
    return microseconds;
  };
  vfs_.xCurrentTime = [](sqlite3_vfs* vfs, double* out) {
    return Of(vfs)->real_->xCurrentTime(Of(vfs)->real_, out);
  };
  vfs_.xCurrentTimeInt64 = [](sqlite3_vfs* vfs, sqlite3_int64* out) {
    return Of(vfs)->real_->xCurrentTimeInt64(Of(vfs)->real_, out);
  };
  vfs_.xGetLastError = [](sqlite3_vfs*, int, char*) { return errno; };
  sqlite3_vfs_register(&vfs_, /*makeDflt=*/1);
}

FaultDisk::~FaultDisk() {
  sqlite3_vfs_unregister(&vfs_);
  sqlite3_vfs_register(real_, 1);
}

void FaultDisk::SetFault(const Fault& fault) {
  DiskLock lock(&mutex_);
  fault_ = fault;
  calls_.clear();
}

int64_t FaultDisk::Calls(unsigned kinds) const {
  DiskLock lock(&mutex_);
  int64_t sum = 0;
  for (const auto& [call, count] : calls_) sum += (call & kinds) != 0 ? count : 0;
  return sum;
}

void FaultDisk::CutAt(int64_t n) {
  DiskLock lock(&mutex_);
  until_cut_ = n;
  dead_ = n == 0;
}

bool FaultDisk::dead() const {
  DiskLock lock(&mutex_);
  return dead_;
}

bool FaultDisk::Exists(const std::string& name) const {
  DiskLock lock(&mutex_);
  return files_.count(name) > 0;
}

int FaultDisk::Strike(Call call, int io_error) {
  if (dead_) return io_error;
  ++calls_[call];
  if ((call & kChanges) != 0 && --until_cut_ == 0) {
    dead_ = true;
    return io_error;
  }
  if ((call & fault_.calls) == 0) return SQLITE_OK;
  int64_t number = 0;
  for (const auto& [kind, count] : calls_) number += (kind & fault_.calls) != 0 ? count : 0;
  if (number < fault_.first || number > fault_.last) return SQLITE_OK;
  errno = fault_.error_number;
  return fault_.code != 0 ? fault_.code : io_error;
}

// ---- files ----

int FaultDisk::OpenFile(const char* name, sqlite3_file* file, int flags, int* out_flags) {
  DiskLock lock(&mutex_);
  file->pMethods = nullptr;
  if (const int code = Strike(kOpen, SQLITE_CANTOPEN); code != SQLITE_OK) return code;
  std::shared_ptr<Content> content;
  bool created = false;
  if (name == nullptr) {  // a temporary file, which is in no directory
    content = std::make_shared<Content>();
  } else {
    const auto found = files_.find(name);
    created = found == files_.end();
    if (created && (flags & SQLITE_OPEN_CREATE) == 0) return SQLITE_CANTOPEN;
    content = created ? std::make_shared<Content>() : found->second;
    files_[name] = content;
  }
  constexpr int kLogs = SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_SUPER_JOURNAL | SQLITE_OPEN_WAL;
  Open* const open = new Open{content, life_, created && (flags & kLogs) != 0};
  content->opened.insert(open);
  File* const mine = reinterpret_cast<File*>(file);
  mine->base.pMethods = &kMethods;
  mine->disk = this;
  mine->open = open;
  if (out_flags != nullptr) *out_flags = flags;
  return SQLITE_OK;
}

int FaultDisk::DeleteFile(const std::string& name, bool sync) {
  DiskLock lock(&mutex_);
  const bool was_dead = dead_;
  const int code = Strike(kDelete, SQLITE_IOERR_DELETE);
  if (code != SQLITE_OK && (was_dead || !dead_)) return code;
  if (files_.erase(name) == 0) return SQLITE_IOERR_DELETE_NOENT;
  if (code == SQLITE_OK && sync) durable_files_ = files_;
  return code;
}

int FaultDisk::Read(Open* open, char* data, int size, int64_t offset) {
  if (const int code = Strike(kRead, SQLITE_IOERR_READ); code != SQLITE_OK) return code;
  const std::string& bytes = open->content->now;
  const auto length = static_cast<int64_t>(bytes.size());
  const auto got = static_cast<size_t>(std::clamp<int64_t>(length - offset, 0, size));
  if (got > 0) std::memcpy(data, bytes.data() + offset, got);
  if (got == static_cast<size_t>(size)) return SQLITE_OK;
  std::memset(data + got, 0, static_cast<size_t>(size) - got);
  return SQLITE_IOERR_SHORT_READ;
}

int FaultDisk::Write(Open* open, const char* data, int size, int64_t offset) {
  const bool was_dead = dead_;
  const int code = Strike(kWrite, SQLITE_IOERR_WRITE);
  if (was_dead) return code;
  // At a power cut all of it is on its way; an error strikes in the middle.
  const auto length = static_cast<size_t>(code == SQLITE_OK || dead_ ? size : size / 2);
  Content& content = *open->content;
  Apply(offset, data, length, &content.now);
  content.unsynced.push_back({offset, std::string(data, length), false});
  return code;
}

int FaultDisk::Truncate(Open* open, int64_t size) {
  const bool was_dead = dead_;
  const int code = Strike(kTruncate, SQLITE_IOERR_TRUNCATE);
  if (code != SQLITE_OK && (was_dead || !dead_)) return code;
  open->content->now.resize(static_cast<size_t>(size));
  open->content->unsynced.push_back({size, "", true});
  return code;
}

int FaultDisk::Sync(Open* open) {
  if (const int code = Strike(kSync, SQLITE_IOERR_FSYNC); code != SQLITE_OK) return code;
  Content& content = *open->content;
  for (const Operation& operation : content.unsynced) {
    if (operation.truncation) {
      content.durable.resize(static_cast<size_t>(operation.offset));
    } else {
      Apply(operation.offset, operation.bytes.data(), operation.bytes.size(), &content.durable);
    }
  }
  content.unsynced.clear();
  if (std::exchange(open->syncs_directory, false)) durable_files_ = files_;
  return SQLITE_OK;
}

// ---- locks and shared memory ----

int FaultDisk::Lock(Open* open, int level) {
  if (open->level >= level) return SQLITE_OK;
  const auto others = [&](auto conflicts) {
    return std::any_of(open->content->opened.begin(), open->content->opened.end(),
                       [&](const Open* other) { return other != open && conflicts(other->level); });
  };
  if (others([&](int held) {
        return held >= SQLITE_LOCK_PENDING ||
               (level > SQLITE_LOCK_SHARED && held > SQLITE_LOCK_SHARED);
      }))
    return SQLITE_BUSY;
  if (level == SQLITE_LOCK_EXCLUSIVE) {
    open->level = SQLITE_LOCK_PENDING;
    if (others([](int held) { return held >= SQLITE_LOCK_SHARED; })) return SQLITE_BUSY;
  }
  open->level = level;
  return SQLITE_OK;
}

int FaultDisk::ShmMap(Open* open, int region, int size, bool extend, void volatile** out) {
  *out = nullptr;
  if (const int code = Strike(kShmMap, SQLITE_IOERR_SHMMAP); code != SQLITE_OK) return code;
  open->mapped = true;
  auto& regions = open->content->shared_memory;
  const auto index = static_cast<size_t>(region);
  while (extend && regions.size() <= index)
    regions.push_back(std::make_unique<char[]>(static_cast<size_t>(size)));
  if (index < regions.size()) *out = regions[index].get();
  return SQLITE_OK;
}

int FaultDisk::ShmLock(Open* open, int offset, int n, int flags) {
  const unsigned mask = ((1U << n) - 1) << offset;
  if ((flags & SQLITE_SHM_UNLOCK) != 0) {
    open->shm_shared &= ~mask;
    open->shm_exclusive &= ~mask;
    return SQLITE_OK;
  }
  if (const int code = Strike(kShmLock, SQLITE_IOERR_SHMLOCK); code != SQLITE_OK) return code;
  const bool exclusive = (flags & SQLITE_SHM_EXCLUSIVE) != 0;
  for (const Open* other : open->content->opened) {
    if (other == open) continue;
    if ((other->shm_exclusive & mask) != 0 || (exclusive && (other->shm_shared & mask) != 0))
      return SQLITE_BUSY;
  }
  (exclusive ? open->shm_exclusive : open->shm_shared) |= mask;
  return SQLITE_OK;
}

void FaultDisk::ShmUnmap(Open* open) {
  open->mapped = false;
  open->shm_shared = open->shm_exclusive = 0;
  const auto& opened = open->content->opened;
  if (std::none_of(opened.begin(), opened.end(), [](const Open* one) { return one->mapped; }))
    open->content->shared_memory.clear();
}

// ---- power ----

bool FaultDisk::Coin(double p) { return std::uniform_real_distribution<double>(0, 1)(random_) < p; }

std::string FaultDisk::Survivor(const Content& content, Survival survival) {
  if (survival == Survival::kAll) return content.now;
  std::string bytes = content.durable;
  if (survival == Survival::kNone) return bytes;
  const double p = std::uniform_real_distribution<double>(0.05, 0.95)(random_);
  for (const Operation& operation : content.unsynced) {
    if (operation.truncation) {
      if (Coin(p)) bytes.resize(static_cast<size_t>(operation.offset));
      continue;
    }
    const auto size = static_cast<int64_t>(operation.bytes.size());
    const auto end = static_cast<size_t>(operation.offset + size);
    // The new size of a file may be there before its bytes are, and old bytes of the disk show.
    if (bytes.size() < end && Coin(0.5)) bytes.resize(end, Coin(0.5) ? '\0' : '\x5a');
    for (int64_t at = 0; at < size;) {
      const int64_t length = std::min(size - at, kSector - (operation.offset + at) % kSector);
      if (Coin(p)) {
        Apply(operation.offset + at, operation.bytes.data() + at, static_cast<size_t>(length),
              &bytes);
      }
      at += length;
    }
  }
  return bytes;
}

void FaultDisk::Reboot(Survival survival) {
  DiskLock lock(&mutex_);
  ++life_;
  dead_ = false;
  until_cut_ = kForEver;
  fault_ = {};
  calls_.clear();
  Directory names = durable_files_;
  names.insert(files_.begin(), files_.end());
  Directory after;
  for (const auto& entry : names) {
    const std::string& name = entry.first;
    const auto now = files_.find(name), sure = durable_files_.find(name);
    const bool both = now != files_.end() && sure != durable_files_.end();
    const bool latest = survival == Survival::kAll || (survival == Survival::kSome && Coin(0.5)) ||
                        (both && now->second == sure->second);
    const auto chosen = latest ? now : sure;
    if (chosen == (latest ? files_.end() : durable_files_.end())) continue;
    auto content = std::make_shared<Content>();
    content->now = content->durable = Survivor(*chosen->second, survival);
    after[name] = std::move(content);
  }
  files_ = durable_files_ = std::move(after);
}

}  // namespace heddle::scheduler
