// Cases in tests/cases/ir/*.txt: a program, what to do with it, and the result beside it.
//
//   == ACTION TITLE
//   program ..
//   -- expect
//   text
//
// HEDDLE_BLESS=1 writes what came out over what was expected.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "compiler/interpreter/interpreter.h"
#include "compiler/ir/analysis/simplify.h"
#include "compiler/ir/text.h"
#include "compiler/ir/verify/verifier.h"
#include "tests/ir/run_program.h"
#include "tests/places.h"

namespace heddle::ir {
namespace {

struct Case {
  std::string action, title, input, expected;
};

struct CaseFile {
  std::string preamble;  // what stands before the first case
  std::vector<Case> cases;
};

CaseFile ReadCases(const std::filesystem::path& path) {
  CaseFile file;
  std::ifstream in(path);
  std::string* sink = &file.preamble;
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("== ", 0) == 0) {
      std::istringstream words(line.substr(3));
      Case c;
      words >> c.action;
      std::getline(words >> std::ws, c.title);
      file.cases.push_back(c);
      sink = &file.cases.back().input;
    } else if (line == "-- expect" && !file.cases.empty()) {
      sink = &file.cases.back().expected;
    } else {
      *sink += line + "\n";
    }
  }
  return file;
}

void WriteCases(const std::filesystem::path& path, const CaseFile& file) {
  std::ofstream out(path);
  out << file.preamble;
  for (const Case& c : file.cases) {
    out << "== " << c.action << " " << c.title << "\n" << c.input << "-- expect\n" << c.expected;
  }
}

std::string Interpreted(const Program& program) {
  interpreter::Arena arena(program);
  const absl::Status status = interpreter::Interpret(program, arena.tensors);
  if (!status.ok()) return std::string(status.message()) + "\n";
  std::ostringstream out;
  for (size_t n = 0; n < program.outputs.size(); ++n) {
    out << program.outputs[n]->name << " =";
    for (int64_t k = 0; k < program.outputs[n]->NumElements(); ++k)
      out << " " << arena.Get(program.inputs.size() + n, k);
    out << "\n";
  }
  return out.str();
}

std::string Message(const absl::Status& status) {
  return status.ok() ? "ok\n" : std::string(status.message()) + "\n";
}

std::string Perform(const Case& c) {
  const absl::StatusOr<Program> program = Parse(c.input);
  if (!program.ok()) return std::string(program.status().message()) + "\n";
  if (c.action == "print") return Print(*program);
  if (c.action == "simplify") return Print(Simplify(program->body, false));
  if (c.action == "simplify-keep") return Print(Simplify(program->body, true));
  if (c.action == "verify") return Message(Verify(*program, Level::kScheduled));
  if (c.action == "verify-lowered") return Message(Verify(*program, Level::kLowered));
  if (c.action == "interpret") {
    if (absl::Status status = Verify(*program); !status.ok()) return Message(status);
    return Interpreted(*program);
  }
  if (c.action == "interpret-unverified") return Interpreted(*program);
  return "unknown action " + c.action + "\n";
}

// Blank lines and blanks at line ends separate cases for the reader; they do not count.
std::string Trimmed(const std::string& text) {
  std::istringstream in(text);
  std::string result;
  for (std::string line; std::getline(in, line);) {
    line.erase(line.find_last_not_of(" \t") + 1);
    if (!line.empty()) result += line + "\n";
  }
  return result;
}

TEST(GoldenIr, EveryCaseGivesWhatStandsBesideIt) {
  const std::filesystem::path folder = std::filesystem::path(HEDDLE_SOURCE_DIR) / "tests/cases/ir";
  const bool bless = std::getenv("HEDDLE_BLESS") != nullptr;
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".txt") continue;
    CaseFile file = ReadCases(entry.path());
    bool changed = false;
    for (Case& c : file.cases) {
      ++count;
      const std::string actual = Perform(c);
      if (Trimmed(actual) == Trimmed(c.expected)) continue;
      if (bless) {
        c.expected = actual + "\n";
        changed = true;
      } else {
        ADD_FAILURE() << entry.path().filename() << ", case \"" << c.title << "\"\nexpected:\n"
                      << c.expected << "got:\n"
                      << actual;
      }
    }
    if (changed) WriteCases(entry.path(), file);
  }
  EXPECT_GE(count, 50) << "the cases were not found";
}

}  // namespace
}  // namespace heddle::ir
