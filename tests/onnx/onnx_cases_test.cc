// The official ONNX operator tests (package libonnx-testdata) through import, compile and run.
// Children run the cases, so that one that crashes or hangs costs only itself.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "tests/onnx/onnx_case.h"

namespace heddle::onnx_cases {
namespace {

// What is reached today; raise these when more operators are supported.
constexpr int kSupportedFloor = 819;
constexpr int kPassedFloor = 819;
constexpr int kRandomFloor = 10;
constexpr int kSilenceSeconds = 60;  // a single case takes well under one

// A child that runs cases from `next` on and writes a line when it begins one and one when it ends.
struct Child {
  pid_t pid = -1;
  int fd = -1;
};

Child Spawn(const std::vector<std::string>& cases, size_t next) {
  int ends[2];
  if (pipe(ends) != 0) return {};
  const pid_t pid = fork();
  if (pid != 0) {
    close(ends[1]);
    return {pid, ends[0]};
  }
  close(ends[0]);
  FILE* out = fdopen(ends[1], "w");
  for (size_t i = next; i < cases.size(); ++i) {
    const Result r = RunCase(std::string(kCaseFolder) + "/" + cases[i]);
    std::fprintf(out, "%d %s\n", static_cast<int>(r.verdict), r.message.c_str());
    std::fflush(out);
  }
  _exit(0);
}

// One line, without its end; false at the end of the stream or after a long silence.
bool ReadLine(int fd, std::string& line) {
  line.clear();
  for (char c;;) {
    pollfd p{fd, POLLIN, 0};
    if (poll(&p, 1, kSilenceSeconds * 1000) <= 0 || read(fd, &c, 1) != 1) return false;
    if (c == '\n') return true;
    line += c;
  }
}

std::map<std::string, Result> RunAll(const std::vector<std::string>& cases) {
  std::map<std::string, Result> results;
  size_t next = 0;
  while (next < cases.size()) {
    const Child child = Spawn(cases, next);
    if (child.pid < 0) {
      ADD_FAILURE() << "cannot start a process for the cases from " << cases[next] << " on";
      break;
    }
    std::string line;
    while (next < cases.size() && ReadLine(child.fd, line)) {
      results[cases[next++]] = {static_cast<Verdict>(line[0] - '0'), line.substr(2)};
    }
    kill(child.pid, SIGKILL);
    int status = 0;
    waitpid(child.pid, &status, 0);
    close(child.fd);
    if (next < cases.size())
      results[cases[next++]] = {Verdict::kFailed, "the case crashed or hung"};
  }
  return results;
}

TEST(OnnxCases, EverySupportedCasePasses) {
  std::vector<std::string> cases = ListCases();
  ASSERT_FALSE(cases.empty()) << "no cases in " << kCaseFolder << ": install libonnx-testdata";
  // HEDDLE_ONNX_CASE=name runs the cases whose name contains it.
  const char* only = std::getenv("HEDDLE_ONNX_CASE");
  if (only != nullptr)
    std::erase_if(cases, [&](const std::string& c) { return c.find(only) == std::string::npos; });
  ASSERT_FALSE(cases.empty()) << "no case contains '" << only << "'";
  int supported = 0, passed = 0, constant = 0, random = 0;
  for (const auto& [name, result] : RunAll(cases)) {
    if (result.verdict == Verdict::kUnsupported) {
      if (std::getenv("HEDDLE_ONNX_VERBOSE") != nullptr)
        std::printf("unsupported %s: %s\n", name.c_str(), result.message.c_str());
      continue;
    }
    if (result.verdict == Verdict::kRandom) {
      ++random;
      continue;
    }
    ++supported;
    if (result.message == kAllConstant) ++constant;
    if (result.verdict == Verdict::kPassed)
      ++passed;
    else
      ADD_FAILURE() << name << ": " << result.message;
  }
  std::printf("onnx cases: %d total, %d supported, %d passed\n", static_cast<int>(cases.size()),
              supported, passed);
  std::printf("(%d of them with all inputs constant: checked, but computed at import)\n", constant);
  std::printf("(and %d with random results: only types and shapes are checked)\n", random);
  if (only != nullptr) return;
  EXPECT_GE(supported, kSupportedFloor);
  EXPECT_GE(passed, kPassedFloor);
  EXPECT_GE(random, kRandomFloor);
}

}  // namespace
}  // namespace heddle::onnx_cases
