// Files that a program writes where a user said.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace heddle {

// A file that is written piece by piece. A regular file changes all at once, at Commit: until then the
// old one is there, and stays if the disk is full or the program ends. (The bytes go to a temporary
// file beside it, which is then renamed; permissions stay.) A link is followed, so what it points to
// is written. What is no regular file, such as a device or a pipe, is written as it is. "-" is the
// standard output.
//
// Errors are InvalidArgument and name the path.
class OutputFile {
 public:
  static absl::StatusOr<OutputFile> Open(const std::string& path);
  OutputFile(OutputFile&& other) noexcept;
  // Without Commit, a regular file is as it was.
  ~OutputFile();
  absl::Status Append(std::string_view bytes);
  absl::Status Commit();

 private:
  OutputFile(std::string path, std::string target, std::string temporary, int file)
      : path_(std::move(path)),
        target_(std::move(target)),
        temporary_(std::move(temporary)),
        file_(file) {}
  absl::Status Error(int error) const;

  std::string path_;       // as the user said
  std::string target_;     // what it points to
  std::string temporary_;  // empty: it is written in place, or is committed
  int file_;
};

// Whether OutputFile could write there, for who has long work to do before it does. Changes nothing.
absl::Status CheckWritable(const std::string& path);

// Writes a whole file, as OutputFile does.
absl::Status WriteFile(const std::string& path, std::string_view bytes);

}  // namespace heddle
