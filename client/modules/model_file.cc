#include "client/modules/model_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <tuple>

#include "absl/cleanup/cleanup.h"
#include "base/files/mapped_file.h"
#include "base/files/model_beginning.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "client/views/terminal.h"
#include "compiler/driver/import_model.h"
#include "compiler/onnx/parts.h"
#include "compiler/runtime/module.h"

namespace heddle::client {
namespace {

namespace fs = std::filesystem;

constexpr size_t kReadBytes = size_t{1} << 20;
constexpr int64_t kShownStep = int64_t{64} << 20;

absl::Status Invalid(const std::string& what) { return absl::InvalidArgumentError(what); }

// An open file of a model.
class Source {
 public:
  static absl::StatusOr<Source> Open(const std::string& path) {
    Source source(path, open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    const std::string why = std::strerror(errno);
    struct stat info;
    if (source.file_ < 0 || fstat(source.file_, &info) != 0)
      return Invalid(fmt::format("cannot read '{}': {}", path, why));
    if (S_ISDIR(info.st_mode))
      return Invalid(fmt::format("cannot read '{}': it is a directory", path));
    if (!S_ISREG(info.st_mode))
      return Invalid(fmt::format("cannot read '{}': it is no regular file", path));
    source.size_ = info.st_size;
    return source;
  }
  ~Source() {
    if (file_ >= 0) close(file_);
  }
  Source(Source&& other) noexcept
      : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)), size_(other.size_) {}

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }

  // Passes the bytes on in pieces. The file must have them.
  absl::Status Read(int64_t offset, int64_t length,
                    absl::FunctionRef<void(std::string_view)> take) const {
    std::string buffer(std::min<size_t>(kReadBytes, static_cast<size_t>(length)), '\0');
    while (length > 0) {
      const auto wanted = std::min<size_t>(buffer.size(), static_cast<size_t>(length));
      const ssize_t got = pread(file_, buffer.data(), wanted, offset);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return Invalid(fmt::format("cannot read '{}' to its end", path_));
      take({buffer.data(), static_cast<size_t>(got)});
      offset += got;
      length -= got;
    }
    return absl::OkStatus();
  }

 private:
  Source(std::string path, int file) : path_(std::move(path)), file_(file) {}
  std::string path_;
  int file_;
  int64_t size_ = 0;
};

// Finds and digests the tensors of one model.
class Opener {
 public:
  Opener(const std::string& path, const std::function<void(int64_t)>& progress)
      : path_(path), progress_(progress) {
    const fs::path folder = fs::path(path).parent_path();
    folder_ = folder.empty() ? "." : folder.string();
  }

  absl::StatusOr<ModelFile> Run() {
    std::error_code error;
    if (!fs::exists(path_, error)) {
      return absl::NotFoundError(fmt::format("cannot read '{}': {}", path_,
                                             std::strerror(error ? error.value() : ENOENT)));
    }
    HEDDLE_ASSIGN_OR_RETURN(Source source, Source::Open(path_));
    if (source.size() == 0)
      return Invalid(fmt::format(
          "'{}' is empty; an ONNX model, or one of XGBoost or LightGBM is expected", path_));
    HEDDLE_ASSIGN_OR_RETURN(const SharedBytes bytes, MapFile(path_));
    sources_.emplace("", std::move(source));
    model_.path = path_;
    if (IsForestFile(*bytes)) {  // has no parts in other files
      model_.onnx = *bytes;
      return std::move(model_);
    }
    if (const absl::Status begin = CheckModelBeginning(*bytes); !begin.ok())
      return Invalid(fmt::format("'{}': {}", path_, std::string(begin.message())));
    absl::StatusOr<std::string> onnx =
        onnx::DetachParts(*bytes, [this](const onnx::TensorPlace& place) { return Place(place); });
    if (!onnx.ok()) {
      return absl::Status(onnx.status().code(),
                          fmt::format("{}: {}", path_, std::string(onnx.status().message())));
    }
    model_.onnx = *std::move(onnx);
    return std::move(model_);
  }

 private:
  absl::StatusOr<onnx::PlacedTensor> Place(const onnx::TensorPlace& place) {
    const auto refuse = [&place](const std::string& why) {
      return Invalid(fmt::format("tensor '{}': {}", place.tensor, why));
    };
    auto source = sources_.find(place.location);
    if (source == sources_.end()) {
      const absl::StatusOr<std::string> file = ResolveLocation(folder_, place.location);
      if (!file.ok()) return refuse(std::string(file.status().message()));
      absl::StatusOr<Source> opened = Source::Open(*file);
      if (!opened.ok()) return refuse(std::string(opened.status().message()));
      source = sources_.emplace(place.location, *std::move(opened)).first;
    }
    const Source& file = source->second;
    const int64_t length = place.length >= 0 ? place.length : file.size() - place.offset;
    if (place.offset > file.size() || length > file.size() - place.offset) {
      return refuse(fmt::format("'{}' has {} bytes, but the tensor is {} bytes from byte {} on",
                                place.location, file.size(), std::max<int64_t>(length, 0),
                                place.offset));
    }
    onnx::PlacedTensor placed;
    if (length < onnx::kPartBytes) {
      HEDDLE_RETURN_IF_ERROR(file.Read(place.offset, length,
                                       [&](std::string_view piece) { placed.elements += piece; }));
      return placed;
    }
    placed.bytes = length;
    std::string& digest = digests_[{place.location, place.offset, length}];
    if (digest.empty()) {
      Sha256 hash;
      HEDDLE_RETURN_IF_ERROR(file.Read(place.offset, length, [&](std::string_view piece) {
        hash.Update(piece);
        read_bytes_ += static_cast<int64_t>(piece.size());
        if (progress_) progress_(read_bytes_);
      }));
      digest = hash.Hex();
      if (seen_.emplace(digest, true).second) {
        model_.parts.push_back({digest, file.path(), place.offset, length});
        model_.part_bytes += length;
      }
    }
    placed.digest = digest;
    return placed;
  }

  const std::string path_;
  const std::function<void(int64_t)>& progress_;
  std::string folder_;
  std::map<std::string, Source> sources_;  // by location
  std::map<std::tuple<std::string, int64_t, int64_t>, std::string> digests_;
  std::map<std::string, bool> seen_;
  int64_t read_bytes_ = 0;
  ModelFile model_;
};

}  // namespace

absl::StatusOr<std::string> ResolveLocation(const std::string& folder,
                                            const std::string& location) {
  const fs::path relative(location);
  if (relative.is_absolute() || location.find('\0') != std::string::npos) {
    return Invalid(
        fmt::format("its file '{}' is refused: it must be named relative to the model", location));
  }
  for (const fs::path& step : relative) {
    if (step == "..")
      return Invalid(
          fmt::format("its file '{}' is refused: it leaves the model's folder", location));
  }
  std::error_code error;
  const fs::path root = fs::canonical(folder, error);
  if (error) return Invalid(fmt::format("cannot read '{}': {}", folder, error.message()));
  const fs::path file = fs::canonical(root / relative, error);
  if (error) {
    return Invalid(fmt::format("cannot read its file '{}': {}",
                               (fs::path(folder) / relative).string(), error.message()));
  }
  const auto [end, rest] = std::mismatch(root.begin(), root.end(), file.begin(), file.end());
  if (end != root.end()) {
    return Invalid(
        fmt::format("its file '{}' is refused: a symbolic link leads out of the model's "
                    "folder, to {}",
                    location, file.string()));
  }
  return file.string();
}

absl::StatusOr<ModelFile> OpenModel(const std::string& path,
                                    const std::function<void(int64_t)>& progress) {
  return Opener(path, progress).Run();
}

bool HoldsModule(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  char begin[8] = {};
  file.read(begin, sizeof begin);
  return runtime::IsModule({begin, static_cast<size_t>(file.gcount())});
}

absl::StatusOr<ModelFile> OpenModelShown(const std::string& path, bool animate) {
  int64_t shown = 0;
  absl::StatusOr<ModelFile> model = OpenModel(path, [&](int64_t bytes) {
    if (!animate || bytes < shown + kShownStep) return;
    shown = bytes;
    fmt::print(stderr, "\rreading {}: {}\x1b[K", path, FormatBytes(bytes));
    std::fflush(stderr);
  });
  if (shown > 0) fmt::print(stderr, "\r\x1b[K");
  return model;
}

graph::ExternalLoader ModelFile::Loader() const {
  return [this](const onnx::TensorPlace& place) -> absl::StatusOr<SharedBytes> {
    const std::string digest = onnx::PartDigest(place.location);
    const auto part = std::find_if(parts.begin(), parts.end(),
                                   [&](const FilePart& p) { return p.digest == digest; });
    if (part == parts.end()) {
      return Invalid(fmt::format("tensor '{}' is stored in the unknown file '{}'", place.tensor,
                                 place.location));
    }
    return MapFile(part->path, part->offset, part->bytes);
  };
}

}  // namespace heddle::client
