#include "worker/confine/stage_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/files/blob_store.h"
#include "base/sha256.h"
#include "worker/confine/policy.h"

namespace heddle::worker::confine {
namespace {

// A linker has a folder and two files at a time, and a stage may have a few threads that link.
constexpr int kMaxEntries = 4096;
constexpr int kMaxDepth = 8;
constexpr int64_t kTooMuch = std::numeric_limits<int64_t>::max() / 4;
// What a stage can make before the supervisor looks again, and much more.
constexpr int kMaxRemovals = 4'000'000;
// Folders of compiled code: enough for the jobs that a worker serves at a time.
constexpr size_t kMaxCodeFolders = 64;
constexpr size_t kNameDigits = 16;
constexpr char kFolderPrefix[] = "heddle-stage-";

// The names in a folder, except itself and its parent. At most `limit`. False: it cannot be listed.
bool ListNames(int folder, int limit, std::vector<std::string>* names) {
  const int own = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* entries = own < 0 ? nullptr : fdopendir(own);
  if (entries == nullptr) {
    if (own >= 0) close(own);
    return false;
  }
  while (const dirent* entry = readdir(entries)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names->push_back(name);
    if (static_cast<int>(names->size()) >= limit) break;
  }
  closedir(entries);
  return true;
}

// The same; none, if it cannot be listed.
std::vector<std::string> NamesIn(int folder, int limit) {
  std::vector<std::string> names;
  ListNames(folder, limit, &names);
  return names;
}

int OpenFolder(int parent, const std::string& name) {
  return openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

// Adds the space of all files to *bytes; false if there are too many, too deep ones, or some that the
// worker may not look at: a stage may forbid its own user to list a folder.
bool AddBytes(int folder, int depth, int* entries, int64_t* bytes) {
  if (depth > kMaxDepth) return false;
  std::vector<std::string> names;
  if (!ListNames(folder, kMaxEntries + 1, &names)) return false;
  for (const std::string& name : names) {
    if (++*entries > kMaxEntries) return false;
    struct stat info;
    if (fstatat(folder, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno != ENOENT) return false;
      continue;  // gone meanwhile
    }
    constexpr int64_t kBlock = 512;
    *bytes += info.st_blocks * kBlock;
    if (!S_ISDIR(info.st_mode)) continue;
    const int inner = OpenFolder(folder, name);
    if (inner < 0) {
      if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP) return false;
      continue;  // gone, or replaced
    }
    const bool all = AddBytes(inner, depth + 1, entries, bytes);
    close(inner);
    if (!all) return false;
  }
  return true;
}

// Gives a folder to the user of stages, if that is another one.
bool GiveTo(const std::string& path, const Confinement& confinement) {
  return !confinement.user || chown(path.c_str(), confinement.uid, confinement.gid) == 0;
}

// Lets the group of stages read a file, or enter a folder; `mode` also says what the owner may do.
bool ShowTo(const std::string& path, const Confinement& confinement, mode_t mode) {
  constexpr auto kSameOwner = static_cast<uid_t>(-1);
  return !confinement.user ||
         (chown(path.c_str(), kSameOwner, confinement.gid) == 0 && chmod(path.c_str(), mode) == 0);
}

// Removes what can be removed at once.
bool RemoveEntry(int folder, const std::string& name) {
  return unlinkat(folder, name.c_str(), 0) == 0 ||
         unlinkat(folder, name.c_str(), AT_REMOVEDIR) == 0;
}

}  // namespace

int64_t FolderBytes(const std::string& path) {
  const int folder = OpenFolder(AT_FDCWD, path);
  if (folder < 0) return errno == ENOENT ? 0 : kTooMuch;
  int entries = 0;
  int64_t bytes = 0;
  const bool all = AddBytes(folder, 0, &entries, &bytes);
  close(folder);
  return all ? bytes : kTooMuch;
}

bool EmptyFolder(const std::string& path) {
  const int folder = OpenFolder(AT_FDCWD, path);
  if (folder < 0) return errno == ENOENT;
  const absl::Cleanup close_folder = [folder] { close(folder); };
  // Folders in folders move up beside their parent before that is removed, so that no depth needs a
  // descriptor or a frame for each level.
  int removals = 0;
  constexpr int kBatch = 1024;
  while (true) {
    const std::vector<std::string> names = NamesIn(folder, kBatch);
    if (names.empty()) return true;
    int done = 0;
    for (const std::string& name : names) {
      if (++removals > kMaxRemovals) return false;
      if (RemoveEntry(folder, name)) {
        ++done;
        continue;
      }
      fchmodat(folder, name.c_str(), S_IRWXU,
               0);  // it is a folder, which may forbid its owner to look
      const int inner = OpenFolder(folder, name);
      if (inner < 0) continue;
      for (const std::string& deeper : NamesIn(inner, kBatch)) {
        if (++removals > kMaxRemovals) break;
        if (RemoveEntry(inner, deeper)) {
          ++done;
          continue;
        }
        fchmodat(inner, deeper.c_str(), S_IRWXU, 0);
        const std::string up = absl::StrCat(".", removals);
        done += renameat(inner, deeper.c_str(), folder, up.c_str()) == 0;
      }
      close(inner);
      done += unlinkat(folder, name.c_str(), AT_REMOVEDIR) == 0;
    }
    if (done == 0) return false;
  }
}

absl::StatusOr<std::unique_ptr<StageFolder>> StageFolder::Make(const std::string& parent,
                                                               const Confinement& confinement) {
  const auto refused = [](const std::string& path) {
    return absl::UnavailableError(
        absl::StrCat("cannot make the folder of a stage, ", path, ": ", std::strerror(errno)));
  };
  // Whatever the worker's umask is, the user of stages must be able to pass.
  if (mkdir(parent.c_str(), 0711) == 0) {
    if (chmod(parent.c_str(), 0711) != 0) return refused(parent);
  } else if (errno != EEXIST) {
    return refused(parent);
  }
  std::string path = absl::StrCat(parent, "/", kFolderPrefix, "XXXXXX");
  if (mkdtemp(path.data()) == nullptr) return refused(path);
  std::unique_ptr<StageFolder> folder(new StageFolder(path, confinement));
  for (const char* name : {kPrivateFolder, kBlobFolder, kRootFolder}) {
    const std::string inner = absl::StrCat(path, "/", name);
    if (mkdir(inner.c_str(), 0700) != 0) return refused(inner);
  }
  // Of these, the user of stages owns `tmp` alone.
  if (!ShowTo(path, confinement, 0710) ||
      !ShowTo(absl::StrCat(path, "/", kBlobFolder), confinement, 0750))
    return refused(path);
  if (!GiveTo(absl::StrCat(path, "/", kPrivateFolder), confinement)) return refused(path);
  return folder;
}

StageFolder::~StageFolder() {
  EmptyFolder(path_);
  rmdir(path_.c_str());
}

absl::Status StageFolder::ShowBlobs(
    const std::string& store, const google::protobuf::RepeatedPtrField<v1::BlobRef>& blobs) const {
  const std::string own = absl::StrCat(path_, "/", kBlobFolder);
  for (const v1::BlobRef& blob : blobs) {
    if (!IsDigest(blob.sha256())) return absl::InvalidArgumentError("a blob is named by no digest");
    const std::string from = BlobPath(store, blob.sha256());
    const std::string to = BlobPath(own, blob.sha256());
    const std::string folder = to.substr(0, to.rfind('/'));
    if (folder != own) {
      if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
        return absl::ErrnoToStatus(errno, folder);
      if (!ShowTo(folder, confinement_, 0750)) return absl::ErrnoToStatus(errno, folder);
    }
    // The same blob may be listed twice.
    if (link(from.c_str(), to.c_str()) != 0 && errno != EEXIST)
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot link the blob ", from, " to ", to));
    // A link is the same file, so the group of stages may read the store's, too, were its folder open.
    if (!ShowTo(to, confinement_, 0440)) return absl::ErrnoToStatus(errno, to);
  }
  return absl::OkStatus();
}

void StageFolder::RemoveLeftovers(const std::string& parent) {
  const int folder = OpenFolder(AT_FDCWD, parent);
  if (folder < 0) return;
  for (const std::string& name : NamesIn(folder, kMaxEntries)) {
    if (!name.starts_with(kFolderPrefix)) continue;
    const std::string path = absl::StrCat(parent, "/", name);
    EmptyFolder(path);
    rmdir(path.c_str());
  }
  close(folder);
}

int64_t StageFolder::PrivateBytes() const {
  return FolderBytes(absl::StrCat(path_, "/", kPrivateFolder));
}

std::string JobCodeFolder(const std::string& all, const std::string& job, int64_t created_unix_ns,
                          const Confinement& confinement) {
  if (all.empty()) return "";
  const std::string name =
      Sha256Hex(absl::StrCat(job, "\n", created_unix_ns)).substr(0, kNameDigits);
  const std::string folder = absl::StrCat(all, "/", name);
  // The oldest by the time when a stage was last given the folder.
  std::vector<std::pair<int64_t, std::string>> others;
  const int listed = OpenFolder(AT_FDCWD, all);
  if (listed < 0) return "";
  for (const std::string& other : NamesIn(listed, kMaxEntries)) {
    struct stat info;
    if (other == name || other.size() != kNameDigits ||
        fstatat(listed, other.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(info.st_mode))
      continue;
    others.emplace_back(info.st_atim.tv_sec, absl::StrCat(all, "/", other));
  }
  close(listed);
  std::sort(others.begin(), others.end());
  for (size_t i = 0; i + kMaxCodeFolders <= others.size(); ++i) {
    EmptyFolder(others[i].second);
    rmdir(others[i].second.c_str());
  }
  if (FolderBytes(folder) > kMaxCodeBytes) EmptyFolder(folder);
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return "";
  if (!GiveTo(folder, confinement)) return "";
  const timespec now[2] = {{.tv_sec = 0, .tv_nsec = UTIME_NOW},
                           {.tv_sec = 0, .tv_nsec = UTIME_OMIT}};
  utimensat(AT_FDCWD, folder.c_str(), now, AT_SYMLINK_NOFOLLOW);
  return folder;
}

}  // namespace heddle::worker::confine
