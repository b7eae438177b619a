#include "worker/confine/loader_folders.h"

#include <glob.h>

#include <cstddef>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace heddle::worker::confine {
namespace {

constexpr size_t kMostFolders = 256;
constexpr size_t kMostFiles = 64;

// The files that an `include` of the file `from` names.
std::vector<std::string> Included(const std::string& from, const std::string& pattern) {
  const std::filesystem::path whole = std::filesystem::path(from).parent_path() / pattern;
  std::vector<std::string> files;
  glob_t found{};
  if (glob(whole.c_str(), 0, nullptr, &found) == 0)
    files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  return files;
}

}  // namespace

std::vector<std::string> LoaderFolders(const std::string& configuration) {
  std::vector<std::string> folders, files = {configuration};
  for (size_t at = 0; at < files.size() && at < kMostFiles; ++at) {
    const std::string name = files[at];
    std::ifstream file(name);
    for (std::string line; std::getline(file, line);) {
      const absl::string_view text = absl::string_view(line).substr(0, line.find('#'));
      const std::vector<std::string> words =
          absl::StrSplit(text, absl::ByAnyChar(" \t:,"), absl::SkipEmpty());
      if (!words.empty() && words[0] == "include") {
        for (size_t i = 1; i < words.size(); ++i) {
          const std::vector<std::string> more = Included(name, words[i]);
          files.insert(files.end(), more.begin(), more.end());
        }
        continue;
      }
      for (const std::string& word : words) {
        if (word.front() == '/' && folders.size() < kMostFolders) folders.push_back(word);
      }
    }
  }
  return folders;
}

}  // namespace heddle::worker::confine
