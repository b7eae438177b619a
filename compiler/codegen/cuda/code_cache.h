// Compiled code on disk, found again by all it was compiled from: other tries of a candidate, other
// schedules of the same program and other jobs need not compile it again. Private to this folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace heddle::codegen {

class CodeCache {
 public:
  // So many files at most (and as many that were being written when somebody was killed), of so
  // many bytes each: what does not fit is not kept, and what falls on the same place takes it.
  static constexpr uint64_t kFiles = 1024;
  static constexpr size_t kLargestFile = size_t{1} << 20;

  // In the folder that HEDDLE_CODE_CACHE names, which is made; nothing where it names none or the
  // folder cannot be.
  static std::optional<CodeCache> Open();

  struct Code {
    std::string cubin;
    std::string log;  // the compiler's report
  };
  // `key`: everything the code depends on. Nothing, too, where the file is another's or damaged.
  std::optional<Code> Find(const std::string& key) const;
  // Whole or not at all, whoever else writes; errors are nobody's.
  void Put(const std::string& key, const Code& code) const;

 private:
  explicit CodeCache(std::string folder) : folder_(std::move(folder)) {}
  std::string FileOf(const std::string& key) const;
  std::string folder_;
};

}  // namespace heddle::codegen
