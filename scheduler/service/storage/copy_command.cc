#include "scheduler/service/storage/copy_command.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "scheduler/service/storage/data_folder.h"
#include "scheduler/store/copy_store.h"
#include "scheduler/store/open_store.h"

namespace heddle::scheduler {
namespace {

constexpr absl::Duration kShowEvery = absl::Seconds(1);

using Locks = std::vector<std::unique_ptr<DirectoryLock>>;

// The address of a store, whose folder is this process' alone while `locks` live.
absl::StatusOr<std::string> StoreAddress(const std::string& place, bool must_exist, Locks* locks) {
  if (IsPostgres(place)) return place;
  const std::string database = DatabaseOf(place);
  std::error_code error;
  if (must_exist && !std::filesystem::exists(database, error)) {
    return absl::NotFoundError(absl::StrCat(
        database,
        ": there is none; give a scheduler's data folder or postgresql://USER@HOST/DATABASE"));
  }
  HEDDLE_ASSIGN_OR_RETURN(std::unique_ptr<DirectoryLock> lock, DirectoryLock::Open("", place));
  if (!lock->Take()) {
    return absl::InvalidArgumentError(absl::StrCat(
        place, ": another heddle-scheduler uses it; stop it, or give another directory"));
  }
  locks->push_back(std::move(lock));
  return database;
}

}  // namespace

absl::Status RunCopyStore(const std::string& from, const std::string& to) {
  Locks locks;
  HEDDLE_ASSIGN_OR_RETURN(const std::string source,
                          StoreAddress(from, /*must_exist=*/true, &locks));
  HEDDLE_ASSIGN_OR_RETURN(const std::string target, StoreAddress(to, /*must_exist=*/false, &locks));
  const bool shown = isatty(STDERR_FILENO) != 0;
  absl::Time told = MonotonicNow();
  const auto copied = CopyStore(source, target, [&](const std::string& table, int64_t rows) {
    if (!shown || MonotonicNow() - told < kShowEvery) return;
    told = MonotonicNow();
    std::fprintf(stderr, "\r%s: %lld rows\x1b[K", table.c_str(), static_cast<long long>(rows));
  });
  if (shown) std::fprintf(stderr, "\r\x1b[K");
  HEDDLE_RETURN_IF_ERROR(copied.status());
  int64_t all = 0;
  for (const CopiedTable& table : *copied) {
    if (table.rows == 0) continue;
    all += table.rows;
    std::printf("%s: %lld rows, %lld of them copied now\n", table.name.c_str(),
                static_cast<long long>(table.rows), static_cast<long long>(table.copied));
  }
  std::printf("%s has all %lld rows of %s; digests of all tables are equal\n",
              ShownAddress(target).c_str(), static_cast<long long>(all),
              ShownAddress(source).c_str());
  return absl::OkStatus();
}

}  // namespace heddle::scheduler
