// The folder of one stage, on the supervisor's side: what the stage may read and write on disk.
//
// The process of the stage works in this folder. It may be hostile, so that whatever it leaves in
// `tmp` is looked at and removed without following a link, and without trusting a depth or a
// number.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "proto/common.pb.h"
#include "worker/confine/mechanisms.h"

namespace heddle::worker::confine {

class StageFolder {
 public:
  // Makes a folder with a new name in `parent`, which is made if needed. Its `tmp` belongs to the
  // user of the confinement, if that has one. Unavailable: the disk refuses.
  static absl::StatusOr<std::unique_ptr<StageFolder>> Make(const std::string& parent,
                                                           const Confinement& confinement);
  // Removes the folders that a worker left in `parent` when it was killed. No other worker may use
  // it.
  static void RemoveLeftovers(const std::string& parent);
  // Removes it with all that is in it. No process of the stage may be left.
  ~StageFolder();
  StageFolder(const StageFolder&) = delete;
  StageFolder& operator=(const StageFolder&) = delete;

  const std::string& path() const { return path_; }

  // Shows these blobs of the store in `store` (base/files/blob_store.h) to the stage, and no
  // others. Its user may read them afterwards.
  absl::Status ShowBlobs(const std::string& store,
                         const google::protobuf::RepeatedPtrField<v1::BlobRef>& blobs) const;

  // FolderBytes of `tmp`.
  int64_t PrivateBytes() const;

 private:
  StageFolder(std::string path, const Confinement& confinement)
      : path_(std::move(path)), confinement_(confinement) {}

  const std::string path_;
  const Confinement confinement_;
};

// Disk space of the files in a folder that a stage may write, as they are now. A number or depth of
// files that no stage needs counts as more than any limit, and so does what the worker may not look
// at. 0 if there is no such folder.
int64_t FolderBytes(const std::string& path);

// Removes everything in the folder. True: nothing is left. False: the disk refuses, or there is
// more than anyone should have to wait for.
bool EmptyFolder(const std::string& path);

// The folder of the job's compiled code in the folder of all, made if needed. A stage of one job
// cannot leave code there that another job would run. Jobs of two schedulers, or of an earlier
// database, may have the same name; the times of their submission tell them apart. Of the folders
// of jobs, the oldest go, and one that is larger than kMaxCodeBytes begins anew. Empty, if it
// cannot be made.
inline constexpr int64_t kMaxCodeBytes = int64_t{1} << 30;
std::string JobCodeFolder(const std::string& all, const std::string& job, int64_t created_unix_ns,
                          const Confinement& confinement);

}  // namespace heddle::worker::confine
