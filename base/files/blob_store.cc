#include "base/files/blob_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace heddle {
namespace {

absl::Status ErrnoStatus(const std::string& what) {
  const int error = errno;
  const std::string message = absl::StrCat(what, ": ", std::strerror(error));
  if (error == ENOSPC || error == EDQUOT) return absl::ResourceExhaustedError(message);
  if (error == ENOENT) return absl::NotFoundError(message);
  return absl::InternalError(message);
}

absl::Status SyncDirectory(const std::string& path) {
  const int directory = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return ErrnoStatus(path);
  const int result = fsync(directory);
  close(directory);
  return result == 0 ? absl::OkStatus() : ErrnoStatus(path);
}

}  // namespace

bool IsDigest(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

absl::StatusOr<std::unique_ptr<BlobStore>> BlobStore::Open(const std::string& directory) {
  std::error_code error;
  for (const std::string& path : {directory, directory + "/incoming"}) {
    std::filesystem::create_directories(path, error);
    if (error)
      return absl::InternalError(absl::StrCat("cannot make ", path, ": ", error.message()));
  }
  for (const auto& left : std::filesystem::directory_iterator(directory + "/incoming", error)) {
    std::filesystem::remove(left.path(), error);
  }
  return std::unique_ptr<BlobStore>(new BlobStore(directory));
}

absl::StatusOr<std::unique_ptr<BlobStore::Writer>> BlobStore::NewWriter() {
  static std::atomic<int64_t> counter{0};
  const std::string path = absl::StrCat(directory_, "/incoming/", getpid(), "-", counter++);
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return ErrnoStatus(path);
  return std::unique_ptr<Writer>(new Writer(directory_, path, file));
}

BlobStore::Writer::Writer(std::string directory, std::string path, int file)
    : directory_(std::move(directory)), path_(std::move(path)), file_(file) {}

BlobStore::Writer::~Writer() {
  if (file_ >= 0) close(file_);
  if (!path_.empty()) unlink(path_.c_str());
}

absl::Status BlobStore::Writer::Append(std::string_view data) {
  hash_.Update(data);
  size_bytes_ += static_cast<int64_t>(data.size());
  while (!data.empty()) {
    const ssize_t written = write(file_, data.data(), data.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoStatus(path_);
    data.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> BlobStore::Writer::Commit(const std::string& expected) {
  const std::string digest = hash_.Hex();
  if (!expected.empty() && expected != digest) {
    return absl::DataLossError(
        absl::StrCat("the digest of what arrived is ", digest, ", not ", expected));
  }
  if (fsync(file_) != 0) return ErrnoStatus(path_);
  close(file_);
  file_ = -1;
  const std::string folder = directory_ + "/" + digest.substr(0, 2);
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return ErrnoStatus(folder);
  const std::string final_path = folder + "/" + digest;
  known_ = access(final_path.c_str(), F_OK) == 0;
  if (rename(path_.c_str(), final_path.c_str()) != 0) return ErrnoStatus(final_path);
  path_.clear();
  HEDDLE_RETURN_IF_ERROR(SyncDirectory(folder));
  HEDDLE_RETURN_IF_ERROR(SyncDirectory(directory_));
  return digest;
}

absl::StatusOr<std::unique_ptr<BlobStore::Reader>> BlobStore::NewReader(
    const std::string& digest) const {
  if (!IsDigest(digest)) return absl::NotFoundError(absl::StrCat("no blob \"", digest, "\""));
  const std::string path = PathOf(digest);
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return ErrnoStatus(path);
  struct stat info;
  if (fstat(file, &info) != 0) {
    close(file);
    return ErrnoStatus(path);
  }
  return std::unique_ptr<Reader>(new Reader(digest, path, file, info.st_size));
}

BlobStore::Reader::Reader(std::string digest, std::string path, int file, int64_t size_bytes)
    : digest_(std::move(digest)), path_(std::move(path)), file_(file), size_bytes_(size_bytes) {}

BlobStore::Reader::~Reader() { close(file_); }

absl::StatusOr<std::string> BlobStore::Reader::Next(size_t limit) {
  if (ended_) return std::string();
  std::string out(limit, '\0');
  ssize_t got;
  do {
    got = read(file_, out.data(), out.size());
  } while (got < 0 && errno == EINTR);
  if (got < 0) return ErrnoStatus(digest_);
  out.resize(static_cast<size_t>(got));
  if (got > 0) {
    hash_.Update(out);
    return out;
  }
  ended_ = true;
  if (hash_.Hex() != digest_) {
    unlink(path_.c_str());
    return absl::DataLossError(
        absl::StrCat("blob ", digest_, " is damaged on disk; submit the model again"));
  }
  return out;
}

std::string BlobPath(const std::string& directory, const std::string& digest) {
  return absl::StrCat(directory, "/", digest.substr(0, 2), "/", digest);
}

bool BlobStore::Has(const std::string& digest, int64_t size_bytes) const {
  if (!IsDigest(digest)) return false;
  const std::string path = PathOf(digest);
  struct stat info;
  absl::MutexLock lock(&removing_);
  return utimensat(AT_FDCWD, path.c_str(), nullptr, 0) == 0 && stat(path.c_str(), &info) == 0 &&
         info.st_size == size_bytes;
}

absl::Status BlobStore::Remove(const std::string& digest) {
  if (!IsDigest(digest) || unlink(PathOf(digest).c_str()) == 0 || errno == ENOENT)
    return absl::OkStatus();
  return ErrnoStatus(PathOf(digest));
}

bool BlobStore::RemoveIfUnusedSince(const std::string& digest, absl::Time time) {
  if (!IsDigest(digest)) return false;
  const std::string path = PathOf(digest);
  struct stat info;
  absl::MutexLock lock(&removing_);
  return stat(path.c_str(), &info) == 0 && absl::TimeFromTimespec(info.st_mtim) < time &&
         unlink(path.c_str()) == 0;
}

std::vector<BlobStore::Entry> BlobStore::List() const {
  std::vector<Entry> entries;
  std::error_code error;
  for (const auto& folder : std::filesystem::directory_iterator(directory_, error)) {
    for (const auto& file : std::filesystem::directory_iterator(folder.path(), error)) {
      const std::string name = file.path().filename();
      struct stat info;
      if (!IsDigest(name) || stat(file.path().c_str(), &info) != 0) continue;
      entries.push_back({name, info.st_size, absl::TimeFromTimespec(info.st_mtim)});
    }
  }
  return entries;
}

int64_t BlobStore::FreeBytes() const {
  struct statvfs info;
  if (statvfs(directory_.c_str(), &info) != 0) return 0;
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

int64_t BlobStore::FreeFiles() const {
  struct statvfs info;
  if (statvfs(directory_.c_str(), &info) != 0) return 0;
  return info.f_files == 0 ? INT64_MAX : static_cast<int64_t>(info.f_favail);
}

}  // namespace heddle
