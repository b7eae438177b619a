// heddle-rules: generates substitutions, proves them, and checks the rules' file. An offline tool: what is
// shipped is its output, compiler/substitution/rules.txt.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/command_documents.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "compiler/substitution/algebra.h"
#include "compiler/substitution/axioms.h"
#include "compiler/substitution/derive.h"
#include "compiler/substitution/generator.h"
#include "compiler/substitution/prover/prover.h"
#include "compiler/substitution/rule_file.h"
#include "compiler/substitution/statements.h"

namespace heddle::substitution {
namespace {

using Clock = std::chrono::steady_clock;

// Proves rules on several threads. The result does not depend on their number.
std::vector<char> ProveAll(const std::vector<Rule>& rules, int threads, unsigned effort) {
  std::vector<char> proved(rules.size(), 0);
  std::atomic<size_t> next = 0;
  const auto start = Clock::now();
  const auto work = [&](bool reports) {
    for (size_t i = next++; i < rules.size(); i = next++) {
      proved[i] = Prove(rules[i], effort) ? 1 : 0;
      if (reports && i % 50 == 0) {
        const std::chrono::duration<double> took = Clock::now() - start;
        std::fprintf(stderr, "%zu of %zu, %.0f s\n", i, rules.size(), took.count());
      }
    }
  };
  std::vector<std::jthread> pool;
  for (int t = 0; t < threads; ++t) pool.emplace_back(work, t == 0);
  pool.clear();
  return proved;
}

std::string DigestOf(const std::vector<Rule>& rules) {
  Sha256 digest;
  for (const Rule& rule : rules) digest.Update(ToText(rule) + "\n");
  return digest.Hex().substr(0, 16);
}

// Each term of a rule equals its partner, whatever the others are: a graph may need one of them only. The rules and
// those of single terms that they contain, each once.
std::vector<Rule> WithSingleTerms(const std::vector<Rule>& rules) {
  std::map<std::string, Rule> all;
  for (const Rule& rule : rules) {
    all.emplace(ToText(rule), rule);
    for (size_t i = 0; rule.source.size() > 1 && i < rule.source.size(); ++i) {
      if (rule.source[i] == rule.target[i]) continue;
      Rule single = Canonical({{rule.source[i]}, {rule.target[i]}});
      std::string text = ToText(single);
      all.emplace(std::move(text), std::move(single));
    }
  }
  std::vector<Rule> sorted;
  for (auto& [text, rule] : all) sorted.push_back(std::move(rule));
  return sorted;
}

// Graphs of so many operators and more are counted before they are built.
constexpr int kCountedSize = 4;
constexpr int64_t kSample = 200;

absl::Status CheckFits(const GeneratorOptions& options, double memory_gib) {
  if (options.size < kCountedSize) return absl::OkStatus();
  options.progress("counting the graphs");
  const GraphCount count = CountGraphs(options, kSample);
  const double gib = static_cast<double>(count.bytes()) / (1 << 30);
  options.progress(absl::StrFormat("about %.1f million graphs, of which %.1f million are kept",
                                   static_cast<double>(count.graphs) / 1e6,
                                   static_cast<double>(count.kept) / 1e6));
  if (gib <= memory_gib) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "size %d needs about %.0f GiB for %.0f million graphs, and --memory allows %.0f: take --size "
      "%d, one of "
      "--domain matrices and images, or more memory",
      options.size, gib, static_cast<double>(count.kept) / 1e6, memory_gib, options.size - 1));
}

absl::Status RunGenerate(const GeneratorOptions& given, const std::string& output, bool unproved,
                         unsigned effort, double memory_gib) {
  GeneratorOptions options = given;
  const auto start = Clock::now();
  options.progress = [&](const std::string& line) {
    const std::chrono::duration<double> took = Clock::now() - start;
    std::fprintf(stderr, "%6.1f s  %s\n", took.count(), line.c_str());
  };
  HEDDLE_RETURN_IF_ERROR(CheckFits(options, memory_gib));
  const Generated generated = Generate(options);
  const std::string digest = DigestOf(generated.candidates);
  const size_t candidates = generated.candidates.size();
  Pruned pruned = Prune(generated.candidates, options);
  for (const Rule& statement : Statements()) {
    const Checked checked = CheckEqual(statement.source, statement.target);
    if (!checked.Holds()) {
      return absl::InternalError(
          absl::StrCat("'", ToText(statement), "' is wrong: ", checked.counterexample));
    }
    pruned.rules.push_back(statement);
  }
  options.progress(absl::StrCat(pruned.rules.size(), " to prove"));
  const std::vector<char> proved = ProveAll(pruned.rules, options.threads, effort);
  RuleFile file{AxiomsDigest(), {}, {}};
  std::vector<Rule> open, rules;
  for (size_t i = 0; i < proved.size(); ++i)
    (proved[i] != 0 ? rules : open).push_back(pruned.rules[i]);
  // Some hold only for windows with stride 1 and plain padding.
  std::vector<Rule> plain;
  for (const Rule& rule : open) plain.push_back(WithParameter(rule, "s", "1"));
  const std::vector<char> plain_proved = ProveAll(plain, options.threads, effort);
  size_t unknown = 0;
  for (size_t i = 0; i < plain.size(); ++i) {
    if (plain_proved[i] != 0) {
      rules.push_back(Canonical(plain[i]));
      continue;
    }
    ++unknown;
    if (unproved) std::printf("unknown  %s\n", ToText(open[i]).c_str());
  }
  const size_t all_proved = rules.size();
  const std::string proved_digest = DigestOf(rules);
  options.progress(absl::StrCat(rules.size(), " proved"));
  rules = WithSingleTerms(rules);
  const size_t with_single = rules.size();
  options.progress(absl::StrCat(rules.size(), " with those of single terms"));
  file.rules = Independent(std::move(rules), {}, [&](size_t done, size_t kept) {
    if (done % 100 == 0) options.progress(absl::StrCat(done, " examined, ", kept, " independent"));
  });
  file.remarks = {
      absl::StrCat("size ", options.size, ": ", generated.graphs, " graphs, ", generated.buckets,
                   " fingerprints"),
      absl::StrCat(candidates, " candidates, digest ", digest),
      absl::StrCat(pruned.renamed, " after renaming, ", pruned.common, " after common parts"),
      absl::StrCat(all_proved, " proved, digest ", proved_digest, "; ", unknown,
                   " unknown and dropped"),
      absl::StrCat(with_single, " with those of single terms"),
      absl::StrCat(file.rules.size(), " that do not follow from smaller ones, digest ",
                   DigestOf(file.rules))};
  for (const std::string& remark : file.remarks) std::printf("%s\n", remark.c_str());
  if (output.empty()) return absl::OkStatus();
  std::ofstream out(output);
  out << ToText(file);
  out.close();
  if (!out) return absl::InvalidArgumentError(absl::StrCat("cannot write ", output));
  return absl::OkStatus();
}

absl::Status RunProve(const std::string& path, size_t sample, uint64_t seed, int threads,
                      unsigned effort) {
  RuleFile file = ShippedRules();
  if (!path.empty()) {
    std::ifstream in(path);
    if (!in) return absl::NotFoundError(absl::StrCat("cannot read ", path));
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    HEDDLE_ASSIGN_OR_RETURN(file, ParseRuleFile(text));
  }
  if (file.axioms != AxiomsDigest()) {
    return absl::FailedPreconditionError(
        "the rules were proved from other axioms; make them again with: heddle-rules generate");
  }
  std::vector<Rule> rules = file.rules;
  if (sample > 0 && sample < rules.size()) {
    std::shuffle(rules.begin(), rules.end(), std::mt19937_64(seed));
    rules.resize(sample);
  }
  const std::vector<char> proved = ProveAll(rules, threads, effort);
  size_t failed = 0;
  for (size_t i = 0; i < rules.size(); ++i) {
    if (proved[i] != 0) continue;
    ++failed;
    std::printf("unknown  %s\n", ToText(rules[i]).c_str());
  }
  std::printf("%zu of %zu rules proved\n", rules.size() - failed, rules.size());
  if (failed > 0)
    return absl::FailedPreconditionError(absl::StrCat(failed, " rules are not proved"));
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  CLI::App app{"Generate and prove graph substitutions"};
  app.require_subcommand(1);
  GeneratorOptions options;
  options.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  std::string output, path;
  bool unproved = false;
  size_t sample = 0;
  uint64_t seed = 1;
  unsigned effort = kProofEffort;
  double memory_gib = 24;
  const std::map<std::string, Domains> domains{
      {"all", Domains::kAll}, {"matrices", Domains::kMatrices}, {"images", Domains::kImages}};

  CLI::App* generate =
      app.add_subcommand("generate", "Generate rules, prune them, keep what is proved");
  generate->add_option("--size", options.size, "Operators of a graph")->check(CLI::Range(1, 4));
  generate
      ->add_option("--domain", options.domains, "What graphs compute with: all, matrices, images")
      ->transform(CLI::CheckedTransformer(domains));
  generate->add_option("--memory", memory_gib, "GiB that graphs of size 4 may take");
  generate->add_option("--threads", options.threads, "Threads; the result is the same")
      ->check(CLI::Range(1, 256));
  generate->add_option("--seed", options.seed, "Of the tensors that are compared");
  generate->add_option("-o,--output", output, "Write the rules' file");
  generate->add_option("--effort", effort, "Bound on the solver's work for one proof");
  generate->add_flag("--unproved", unproved, "Print the rules that were not proved");

  CLI::App* prove = app.add_subcommand("prove", "Prove rules again");
  prove->add_option("file", path, "A rules' file; without it, the rules of this program");
  prove->add_option("--sample", sample, "Only so many, drawn at random");
  prove->add_option("--seed", seed, "Of the sample");
  prove->add_option("--effort", effort, "Bound on the solver's work for one proof");
  prove->add_option("--threads", options.threads, "Threads")->check(CLI::Range(1, 256));
  if (const auto end = heddle::ParseCommandLine(&app, argc, argv)) return *end;

  const absl::Status status = generate->parsed()
                                  ? RunGenerate(options, output, unproved, effort, memory_gib)
                                  : RunProve(path, sample, seed, options.threads, effort);
  if (status.ok()) return 0;
  std::fprintf(stderr, "heddle-rules: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace
}  // namespace heddle::substitution

int main(int argc, char** argv) { return heddle::substitution::Main(argc, argv); }
