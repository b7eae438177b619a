// A cache of compiled code on disk. The key is everything that the code depends on. It avoids
// compiling again for another attempt at a candidate, another schedule that gives the same program,
// or another job. Private to this folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace heddle::codegen {

class CodeCache {
 public:
  // The maximum number of files, and of bytes in a file. Larger code is not kept, and new code
  // replaces old code that has the same file. A process that is killed while it writes may leave
  // one more file for each of them.
  static constexpr uint64_t kFiles = 1024;
  static constexpr size_t kLargestFile = size_t{1} << 20;

  // Opens the cache in the folder that HEDDLE_CODE_CACHE names, and makes the folder if needed.
  // Nothing if the variable is not set or the folder cannot be made.
  static std::optional<CodeCache> Open();

  struct Code {
    std::string cubin;
    std::string log;  // the compiler's report
  };
  // The code stored under `key`. Nothing if the file is absent, has another key, or is damaged.
  std::optional<Code> Find(const std::string& key) const;
  // Writes a new file and renames it, so that readers never see a half-written one. Errors are
  // ignored. If two processes write the same file at once, it may be damaged, which Find notices.
  void Put(const std::string& key, const Code& code) const;

 private:
  explicit CodeCache(std::string folder) : folder_(std::move(folder)) {}
  std::string FileOf(const std::string& key) const;
  std::string folder_;
};

}  // namespace heddle::codegen
