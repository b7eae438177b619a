#include "scheduler/service/storage/copy_command.h"

#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/files/blob_store.h"
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

// Copies the blobs that are missing in the other data folder, and checks the digest of each.
absl::Status CopyBlobs(const std::string& from, const std::string& to) {
  constexpr size_t kPiece = size_t{1} << 20;
  HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<BlobStore> source,
                          BlobStore::Open(from + "/blobs"));
  HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<BlobStore> target, BlobStore::Open(to + "/blobs"));
  const std::vector<BlobStore::Entry> blobs = source->List();
  size_t copied = 0;
  for (const BlobStore::Entry& blob : blobs) {
    if (target->Has(blob.digest, blob.size_bytes)) continue;
    HEDDLE_ASSIGN_OR_RETURN(const auto reader, source->NewReader(blob.digest));
    HEDDLE_ASSIGN_OR_RETURN(const auto writer, target->NewWriter());
    while (true) {
      HEDDLE_ASSIGN_OR_RETURN(const std::string piece, reader->Next(kPiece));
      if (piece.empty()) break;
      HEDDLE_RETURN_IF_ERROR(writer->Append(piece));
    }
    HEDDLE_RETURN_IF_ERROR(writer->Commit(blob.digest).status());
    ++copied;
  }
  std::printf("blobs: %zu models and modules, %zu of them copied now\n", blobs.size(), copied);
  return absl::OkStatus();
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
  if (!IsPostgres(from) && !IsPostgres(to)) {
    HEDDLE_RETURN_IF_ERROR(CopyBlobs(from, to));
  } else if (all > 0) {
    std::printf(
        "models and modules are files, and not copied: %s\n",
        IsPostgres(from) && IsPostgres(to) ? "schedulers keep their --data"
        : IsPostgres(to)
            ? absl::StrCat("give the scheduler --data ", from, " beside --store").c_str()
            : absl::StrCat("copy the folder blobs of the scheduler's --data to ", to).c_str());
  }
  std::printf("%s has all %lld rows of %s; digests of all tables are equal\n",
              ShownAddress(target).c_str(), static_cast<long long>(all),
              ShownAddress(source).c_str());
  return absl::OkStatus();
}

}  // namespace heddle::scheduler
