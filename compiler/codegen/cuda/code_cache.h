// Compiled code on disk, found by everything it was compiled from: another attempt at a candidate,
// another schedule that gives the same program, or another job does not compile it again. Private
// to this folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace heddle::codegen {

class CodeCache {
 public:
  // The most files, and bytes of a file. Larger code is not kept; new code replaces old code that
  // has the same file. A process that is killed while it writes may leave one more file for each of
  // them.
  static constexpr uint64_t kFiles = 1024;
  static constexpr size_t kLargestFile = size_t{1} << 20;

  // In the folder that HEDDLE_CODE_CACHE names, which is made if needed. Nothing if it names none
  // or the folder cannot be made.
  static std::optional<CodeCache> Open();

  struct Code {
    std::string cubin;
    std::string log;  // the compiler's report
  };
  // `key`: everything the code depends on. Nothing if the file is absent, has another key, or is
  // damaged.
  std::optional<Code> Find(const std::string& key) const;
  // Writes the whole file or none, whoever else writes. Errors are ignored.
  void Put(const std::string& key, const Code& code) const;

 private:
  explicit CodeCache(std::string folder) : folder_(std::move(folder)) {}
  std::string FileOf(const std::string& key) const;
  std::string folder_;
};

}  // namespace heddle::codegen
