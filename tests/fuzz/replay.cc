// Runs a fuzz target over the files of folders, in place of libFuzzer. Usage: fuzz_NAME FOLDER..
//
// A file may take kMostSeconds. The name of the file under way is printed first, so that it is the last one if the program ends.
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

// Sanitizers and a busy machine together cost a factor of a hundred; inputs take milliseconds.
constexpr unsigned kMostSeconds = 60;

std::vector<std::filesystem::path> FilesOf(const char* folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

int main(int count, char** arguments) {
  size_t inputs = 0;
  for (int i = 1; i < count; ++i) {
    for (const std::filesystem::path& path : FilesOf(arguments[i])) {
      std::printf("%s\n", path.c_str());
      std::fflush(stdout);
      std::ifstream file(path, std::ios::binary);
      const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
      alarm(kMostSeconds);  // its signal ends the program
      LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
      alarm(0);
      ++inputs;
    }
  }
  std::printf("%zu inputs\n", inputs);
  if (inputs > 0) return 0;
  std::fprintf(stderr, "replay: no input; name a folder that has some\n");
  return 1;
}
