// heddle-fingerprint: digests of what compiler, search and dispatcher decide, one line each.
// Compare two builds with `diff`; --dump writes the texts of the lines that contain a word.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/command_documents.h"
#include "client/zoo/zoo.h"
#include "tests/fingerprint/fingerprint.h"

int main(int argc, char** argv) {
  heddle::fingerprint::CompilerOptions compiler;
  compiler.models = heddle::zoo::ZooNames();
  compiler.targets = {"llvm -mcpu=sapphirerapids", "llvm -mcpu=sapphirerapids -threads=2",
                      "llvm -mcpu=znver3", "llvm -mcpu=znver3 -threads=2", "cuda -arch=sm_90"};
  std::vector<std::string> policies = {"predictive", "round_robin", "sequential"};
  uint64_t seeds = 1000;
  std::string dump, words;
  bool no_code = false;
  CLI::App app("Digests of what compiler, search and dispatcher decide, one line each.");
  app.add_option("--models", compiler.models, "Models of the zoo")->delimiter(',');
  app.add_option("--targets", compiler.targets, "Targets")->delimiter(';');
  app.add_option("--points", compiler.points, "Random points of each search space");
  app.add_option("--search", compiler.strategies, "Strategies to run on each task")->delimiter(',');
  app.add_flag("--no-code", no_code, "Without machine code");
  app.add_option("--policies", policies, "Policies of the dispatcher")->delimiter(',');
  app.add_option("--seeds", seeds, "Random worlds for each policy");
  app.add_option("--dump", dump, "Folder for the texts behind the digests");
  app.add_option("--words", words, "Dump only facts whose name contains this");
  if (const auto end = heddle::ParseCommandLine(&app, argc, argv)) return *end;
  compiler.machine_code = !no_code;
  std::erase(compiler.models, "");  // --models "": none
  if (!dump.empty()) std::filesystem::create_directories(dump);

  const heddle::fingerprint::Sink sink = [&](const std::string& name, std::string_view text) {
    const std::string digest = heddle::fingerprint::Digest(text);
    std::printf("%s %s\n", digest.c_str(), name.c_str());
    std::fflush(stdout);
    if (dump.empty() || name.find(words) == std::string::npos) return;
    std::string file = name;
    for (char& c : file) {
      if (c == ' ' || c == '/') c = '_';
    }
    std::ofstream(std::filesystem::path(dump) / file) << text;
  };
  absl::Status status = compiler.models.empty()
                            ? absl::OkStatus()
                            : heddle::fingerprint::FingerprintCompiler(compiler, sink);
  if (status.ok() && seeds > 0)
    status = heddle::fingerprint::FingerprintDispatcher(policies, 1, seeds, sink);
  if (!status.ok()) std::fprintf(stderr, "heddle-fingerprint: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
