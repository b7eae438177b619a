#include "compiler/substitution/generator.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <thread>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/splitmix.h"
#include "compiler/substitution/algebra.h"
#include "compiler/substitution/derive.h"

namespace heddle::substitution {
namespace {

struct Leaf {
  Term term;
  Type type;
};

// An operator with values of its parameters. `names` stand for them in candidates.
struct Instance {
  Op op;
  std::vector<int64_t> values;
  std::vector<std::string> names;
};

struct Domain {
  std::vector<Leaf> leaves;
  std::vector<Instance> instances;
};

Term Variable(const std::string& name) { return {Op::kVariable, name, {}, {}}; }

Type WithSplit(Type type, int axis, int64_t first) {
  type.trees[static_cast<size_t>(axis)] =
      std::make_shared<SplitNode>(SplitNode{first, nullptr, nullptr});
  return type;
}

constexpr int64_t kKernel = 3;
constexpr int64_t kWindow = 1;
constexpr int64_t kFunction = 7;
constexpr int64_t kFactor = 2;
constexpr int64_t kMovement = 1;

Domain Matrices() {
  Domain d;
  const Type square = MakeType(Sort::kMatrix, {2, 2});
  for (const char* name : {"x", "y", "z"}) d.leaves.push_back({Variable(name), square});
  const Type wide = WithSplit(MakeType(Sort::kMatrix, {2, 4}), 1, 2);
  for (const char* name : {"p", "q"}) d.leaves.push_back({Variable(name), wide});
  d.leaves.push_back({Variable("r"), WithSplit(MakeType(Sort::kMatrix, {4, 2}), 0, 2)});
  d.leaves.push_back({Variable("s"), MakeType(Sort::kScalar, {})});
  d.leaves.push_back({Term{Op::kIdentity, "", {}, {}}, square});
  d.leaves.push_back({Term{Op::kOnes, "", {}, {}}, square});
  d.instances = {{Op::kAdd, {}, {}},
                 {Op::kMul, {}, {}},
                 {Op::kScale, {}, {}},
                 {Op::kMap, {kFunction}, {"f"}},
                 {Op::kTranspose, {}, {}},
                 {Op::kMatmul, {}, {}},
                 {Op::kMove, {kMovement}, {"r"}},
                 {Op::kConcat, {0}, {"0"}},
                 {Op::kConcat, {1}, {"1"}},
                 {Op::kSplit0, {0}, {"0"}},
                 {Op::kSplit0, {1}, {"1"}}};
  return d;
}

// Maps and products of elements meet nothing here that they do not meet among matrices.
Domain Images() {
  Domain d;
  const Type image = MakeType(Sort::kImage, {1, 2, 3, 3});
  for (const char* name : {"x", "y", "z"}) d.leaves.push_back({Variable(name), image});
  const Type deep = WithSplit(MakeType(Sort::kImage, {1, 4, 3, 3}), 1, 2);
  d.leaves.push_back({Variable("p"), deep});
  const Type weights = MakeType(Sort::kWeights, {2, 2, kKernel, kKernel});
  for (const char* name : {"v", "w"}) d.leaves.push_back({Variable(name), weights});
  d.leaves.push_back({Variable("u"), MakeType(Sort::kWeights, {2, 2, 1, 1})});
  d.leaves.push_back(
      {Variable("q"), WithSplit(MakeType(Sort::kWeights, {2, 4, kKernel, kKernel}), 1, 2)});
  const Type depthwise = MakeType(Sort::kDepthwiseWeights, {2, 1, kKernel, kKernel});
  for (const char* name : {"d", "e"}) d.leaves.push_back({Variable(name), depthwise});
  const Type grouped = MakeType(Sort::kGroupedWeights, {2, 1, 1, kKernel, kKernel});
  for (const char* name : {"g", "h"}) d.leaves.push_back({Variable(name), grouped});
  d.leaves.push_back({Variable("s"), MakeType(Sort::kScalar, {})});
  d.leaves.push_back({Term{Op::kPoolWeights, "", {"k"}, {}}, depthwise});
  d.leaves.push_back({Term{Op::kIdentityWeights, "", {"k"}, {}}, weights});
  d.instances = {{Op::kAdd, {}, {}},
                 {Op::kScale, {}, {}},
                 {Op::kConv, {kWindow}, {"s"}},
                 {Op::kDepthwise, {kWindow}, {"s"}},
                 {Op::kGrouped, {kWindow}, {"s"}},
                 {Op::kEnlarge, {kKernel}, {"k"}},
                 {Op::kMergeGroups, {kFactor}, {"m"}},
                 {Op::kAvgPool, {kKernel, kWindow}, {"k", "s"}},
                 {Op::kMaxPool, {kKernel, kWindow}, {"k", "s"}},
                 {Op::kConcat, {0}, {"0"}},
                 {Op::kConcat, {1}, {"1"}},
                 {Op::kSplit0, {0}, {"0"}},
                 {Op::kSplit0, {1}, {"1"}}};
  return d;
}

struct Fingerprint {
  uint64_t first = 0, second = 0;
  auto operator<=>(const Fingerprint&) const = default;
};
struct FingerprintHash {
  size_t operator()(const Fingerprint& f) const { return f.first; }
};

Fingerprint FingerprintOf(const Tensor& tensor) {
  Fingerprint f{static_cast<uint64_t>(tensor.type.sort), 1};
  const auto add = [&](uint64_t a, uint64_t b) {
    f.first = SplitMix64(f.first ^ a);
    f.second = SplitMix64(f.second ^ b);
  };
  for (const int64_t extent : tensor.type.shape)
    add(static_cast<uint64_t>(extent), static_cast<uint64_t>(extent));
  for (const Element& e : tensor.elements) add(e.first, e.second);
  return f;
}

// One operator of a graph: which instance, and which tensors it reads. A tensor is a number: leaves first,
// then results; a split has two.
struct Applied {
  int16_t instance = 0;
  int16_t a = -1, b = -1;
  auto operator<=>(const Applied&) const = default;
};
using SmallGraph = std::array<Applied, 4>;  // as many as are not {0, -1, -1}

constexpr bool IsSplit(Op op) { return op == Op::kSplit0; }

int NumApplied(const SmallGraph& graph) {
  return static_cast<int>(
      std::count_if(graph.begin(), graph.end(), [](const Applied& op) { return op.a >= 0; }));
}

// The terms of all tensors of a graph.
std::vector<Term> TermsOf(const Domain& domain, const SmallGraph& graph, int operators) {
  std::vector<Term> terms;
  for (const Leaf& leaf : domain.leaves) terms.push_back(leaf.term);
  for (int i = 0; i < operators; ++i) {
    const Instance& instance = domain.instances[static_cast<size_t>(graph[i].instance)];
    Term term{instance.op, "", instance.names, {terms[static_cast<size_t>(graph[i].a)]}};
    if (graph[i].b >= 0) term.operands.push_back(terms[static_cast<size_t>(graph[i].b)]);
    terms.push_back(term);
    if (IsSplit(instance.op)) {
      term.op = Op::kSplit1;
      terms.push_back(std::move(term));
    }
  }
  return terms;
}

// The results that no operator of the graph reads.
std::vector<int> OutputsOf(const Domain& domain, const SmallGraph& graph, int operators) {
  const int leaves = static_cast<int>(domain.leaves.size());
  std::vector<int> outputs;
  int next = leaves;
  for (int i = 0; i < operators; ++i) {
    const int results =
        IsSplit(domain.instances[static_cast<size_t>(graph[i].instance)].op) ? 2 : 1;
    for (int r = 0; r < results; ++r, ++next) {
      const bool read =
          std::any_of(graph.begin() + i + 1, graph.begin() + operators,
                      [&](const Applied& op) { return op.a == next || op.b == next; });
      if (!read) outputs.push_back(next);
    }
  }
  return outputs;
}

struct Table {
  std::unordered_map<Fingerprint, std::vector<SmallGraph>, FingerprintHash> graphs;
  std::set<std::string> collapses;  // texts of rules
  int64_t built = 0, kept = 0;
};

// Builds the graphs whose first operators are the share of one thread.
class Builder {
 public:
  // `sample`: 0 to keep all graphs; else they are only counted.
  Builder(const Domain& domain, const GeneratorOptions& options, int thread, int64_t sample = 0)
      : domain_(domain), options_(options), thread_(thread), sample_(sample) {
    for (const Leaf& leaf : domain.leaves) {
      Tensor tensor{leaf.type, {}};
      std::vector<int64_t> values(leaf.term.parameters.size(), kKernel);
      const auto constant = ConstantElements(leaf.term.op, values, leaf.type);
      tensor.elements = constant.has_value()
                            ? *constant
                            : RandomElements(leaf.type, options.seed * 1000 + tensors_.size());
      Push(std::move(tensor));
    }
  }

  Table Run() {
    Build(0, Applied{});
    return std::move(table_);
  }

 private:
  void Push(Tensor tensor) {
    prints_.push_back(FingerprintOf(tensor));
    tensors_.push_back(std::move(tensor));
  }

  void Build(int operators, const Applied& last) {
    if (sample_ > 0 && operators + 1 == options_.size && parents_++ % sample_ != 0) return;
    const int results = static_cast<int>(tensors_.size());
    for (int16_t i = 0; i < static_cast<int16_t>(domain_.instances.size()); ++i) {
      const Instance& instance = domain_.instances[static_cast<size_t>(i)];
      const bool binary = OpShapes()[static_cast<size_t>(instance.op)].operands == 2;
      const bool commutes = instance.op == Op::kAdd || instance.op == Op::kMul;
      for (int16_t a = 0; a < results; ++a) {
        // Only weights that are given are enlarged or have their groups merged.
        if ((instance.op == Op::kEnlarge || instance.op == Op::kMergeGroups) &&
            a >= static_cast<int16_t>(domain_.leaves.size()))
          break;
        for (int16_t b = binary ? 0 : -1; b < (binary ? results : 0); ++b) {
          const Applied next{i, a, b};
          if (operators == 0) {
            if (first_++ % options_.threads != thread_) continue;
          } else if (commutes && b < a) {
            continue;
          }
          // The same operators in another order are built elsewhere.
          if (operators > 0 && next <= last && !Reads(next)) continue;
          if (IsConstant(a) && (b < 0 || IsConstant(b))) continue;
          if (!Meets(a, instance.op) || (b >= 0 && !Meets(b, instance.op))) continue;
          Apply(operators, instance, next);
        }
      }
    }
  }

  bool IsConstant(int tensor) const {
    return tensor < static_cast<int>(domain_.leaves.size()) &&
           domain_.leaves[static_cast<size_t>(tensor)].term.op != Op::kVariable;
  }

  // A constant is an operand where it means something: ones of mul, and what computes the same as an operator
  // together with it in sums and concatenations of its kind.
  bool Meets(int tensor, Op op) const {
    if (!IsConstant(tensor)) return true;
    switch (domain_.leaves[static_cast<size_t>(tensor)].term.op) {
      case Op::kOnes:
        return op == Op::kMul;
      case Op::kIdentity:
        return op == Op::kMatmul || op == Op::kAdd || op == Op::kConcat;
      case Op::kPoolWeights:
        return op == Op::kDepthwise || op == Op::kAdd || op == Op::kConcat;
      default:
        return op == Op::kConv || op == Op::kAdd || op == Op::kConcat;
    }
  }

  // Whether it reads what the last operator made.
  bool Reads(const Applied& op) const { return op.a >= last_results_ || op.b >= last_results_; }

  void Apply(int operators, const Instance& instance, const Applied& op) {
    std::array<const Tensor*, 2> operands{&tensors_[static_cast<size_t>(op.a)], nullptr};
    std::array<const Type*, 2> types{&operands[0]->type, nullptr};
    const size_t n = op.b >= 0 ? 2 : 1;
    if (n == 2) {
      operands[1] = &tensors_[static_cast<size_t>(op.b)];
      types[1] = &operands[1]->type;
    }
    std::vector<Tensor> made;
    for (const Op which : {instance.op, Op::kSplit1}) {
      if (!made.empty() && !IsSplit(instance.op)) break;
      std::optional<Type> type = Infer(which, instance.values, std::span(types).first(n));
      if (!type.has_value()) return;
      Tensor tensor{*std::move(type), {}};
      tensor.elements = Compute(which, instance.values, std::span(operands).first(n), tensor.type);
      made.push_back(std::move(tensor));
    }
    const int64_t weight = sample_ > 0 && operators + 1 == options_.size ? sample_ : 1;
    table_.built += weight;
    graph_[static_cast<size_t>(operators)] = op;
    const size_t before = tensors_.size();
    bool collapsed = false;
    std::vector<std::pair<size_t, size_t>> equal;
    for (Tensor& tensor : made) {
      const Fingerprint print = FingerprintOf(tensor);
      const auto found = std::find(prints_.begin(), prints_.end(), print);
      if (found != prints_.end()) {
        collapsed = true;
        equal.emplace_back(tensors_.size(), static_cast<size_t>(found - prints_.begin()));
      }
      Push(std::move(tensor));
    }
    if (collapsed) {
      if (sample_ == 0) NoteCollapse(operators + 1, equal);
    } else {
      table_.kept += weight;
      if (sample_ == 0) Record(operators + 1);
      if (operators + 1 < options_.size) {
        const int last_results = std::exchange(last_results_, static_cast<int>(before));
        Build(operators + 1, op);
        last_results_ = last_results;
      }
    }
    tensors_.resize(before);
    prints_.resize(before);
    graph_[static_cast<size_t>(operators)] = Applied{};
  }

  void NoteCollapse(int operators, const std::vector<std::pair<size_t, size_t>>& equal) {
    const std::vector<Term> terms = TermsOf(domain_, graph_, operators);
    for (const auto& [a, b] : equal) {
      table_.collapses.insert(ToText(Canonical(Rule{{terms[a]}, {terms[b]}})));
    }
  }

  void Record(int operators) {
    Fingerprint sum;
    for (const int output : OutputsOf(domain_, graph_, operators)) {
      sum.first += SplitMix64(prints_[static_cast<size_t>(output)].first);
      sum.second += SplitMix64(prints_[static_cast<size_t>(output)].second);
    }
    table_.graphs[sum].push_back(graph_);
  }

  const Domain& domain_;
  const GeneratorOptions& options_;
  int thread_;
  int64_t sample_;
  int64_t first_ = 0, parents_ = 0;
  std::vector<Tensor> tensors_;
  std::vector<Fingerprint> prints_;
  SmallGraph graph_;
  int last_results_ = 0;  // the first result of the last operator
  Table table_;
};

// Outputs of a graph in the order of their fingerprints, so that equal ones of two graphs are partners.
std::vector<Term> OrderedOutputs(const Domain& domain, const SmallGraph& graph,
                                 const Leaves& leaves, const Parameters& parameters) {
  const int operators = NumApplied(graph);
  const std::vector<Term> terms = TermsOf(domain, graph, operators);
  std::vector<std::pair<Fingerprint, Term>> outputs;
  for (const int output : OutputsOf(domain, graph, operators)) {
    const Term& term = terms[static_cast<size_t>(output)];
    outputs.emplace_back(FingerprintOf(*Evaluate(term, leaves, parameters)), term);
  }
  std::sort(outputs.begin(), outputs.end());
  std::vector<Term> ordered;
  for (auto& [print, term] : outputs) ordered.push_back(std::move(term));
  return ordered;
}

// Whether a graph has constants or operators of weights. What such graphs are equal to says little of graphs
// without (derive.h).
bool GraphNeedsConstants(const Domain& domain, const SmallGraph& graph) {
  const auto leaves = static_cast<int16_t>(domain.leaves.size());
  const auto constant = [&](int16_t tensor) {
    return tensor >= 0 && tensor < leaves &&
           domain.leaves[static_cast<size_t>(tensor)].term.op != Op::kVariable;
  };
  return std::any_of(graph.begin(), graph.begin() + NumApplied(graph), [&](const Applied& op) {
    const Op kind = domain.instances[static_cast<size_t>(op.instance)].op;
    return kind == Op::kEnlarge || kind == Op::kMergeGroups || constant(op.a) || constant(op.b);
  });
}

void GenerateDomain(const Domain& domain, const GeneratorOptions& options, Generated* result,
                    std::set<std::string>* candidates) {
  std::vector<Table> tables(static_cast<size_t>(options.threads));
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < options.threads; ++t) {
      threads.emplace_back(
          [&, t] { tables[static_cast<size_t>(t)] = Builder(domain, options, t).Run(); });
    }
  }
  Table all = std::move(tables[0]);
  for (size_t t = 1; t < tables.size(); ++t) {
    for (auto& [print, graphs] : tables[t].graphs) {
      auto& into = all.graphs[print];
      into.insert(into.end(), graphs.begin(), graphs.end());
    }
    all.collapses.merge(tables[t].collapses);
    all.built += tables[t].built;
    tables[t] = {};
  }
  result->graphs += all.built;
  result->buckets += static_cast<int64_t>(all.graphs.size());
  candidates->merge(all.collapses);

  Leaves leaves;
  const Parameters parameters{
      {"f", kFunction}, {"s", kWindow}, {"k", kKernel}, {"m", kFactor}, {"r", kMovement}};
  for (const Leaf& leaf : domain.leaves) {
    const size_t seed = options.seed * 1000 + leaves.size();
    const std::vector<int64_t> values(leaf.term.parameters.size(), kKernel);
    const auto constant = ConstantElements(leaf.term.op, values, leaf.type);
    leaves[ToText(leaf.term)] = {
        leaf.type, constant.has_value() ? *constant : RandomElements(leaf.type, seed)};
  }
  for (auto& [print, graphs] : all.graphs) {
    if (graphs.size() < 2) continue;
    std::sort(graphs.begin(), graphs.end(), [](const SmallGraph& a, const SmallGraph& b) {
      return std::pair(NumApplied(a), a) < std::pair(NumApplied(b), b);
    });
    graphs.erase(std::unique(graphs.begin(), graphs.end()), graphs.end());
    const std::vector<Term> smallest = OrderedOutputs(domain, graphs[0], leaves, parameters);
    const bool constants = GraphNeedsConstants(domain, graphs[0]);
    std::vector<Term> plain;  // the smallest without constants, if the smallest has some
    for (size_t i = 1; i < graphs.size(); ++i) {
      const std::vector<Term> other = OrderedOutputs(domain, graphs[i], leaves, parameters);
      if (other == smallest || other.size() != smallest.size()) continue;
      candidates->insert(ToText(Canonical({other, smallest})));
      if (!constants || GraphNeedsConstants(domain, graphs[i])) continue;
      if (plain.empty()) {
        plain = other;
      } else if (other != plain) {
        candidates->insert(ToText(Canonical({other, plain})));
      }
    }
  }
}

// ---- Canonical form ----

using Names = std::map<std::string, std::string>;

void Rename(Term* term, const Names& variables, const Names& parameters) {
  if (term->op == Op::kVariable) term->name = variables.at(term->name);
  for (std::string& p : term->parameters) {
    if (const auto found = parameters.find(p); found != parameters.end()) p = found->second;
  }
  for (Term& operand : term->operands) Rename(&operand, variables, parameters);
}

Rule Renamed(Rule rule) {
  constexpr const char* kVariables[] = {"x", "y", "z", "w", "u", "v", "t", "r", "q", "p"};
  std::vector<Term> all = rule.source;
  all.insert(all.end(), rule.target.begin(), rule.target.end());
  Names variables, parameters;
  for (const std::string& name : VariablesOf(all)) {
    const size_t n = variables.size();
    variables[name] = n < std::size(kVariables) ? std::string(kVariables[n]) : absl::StrCat("x", n);
  }
  std::map<char, int> used;
  for (const std::string& name : ParametersOf(all)) {
    const int n = used[name[0]]++;
    parameters[name] = n == 0 ? std::string(1, name[0]) : absl::StrCat(std::string(1, name[0]), n);
  }
  for (auto* side : {&rule.source, &rule.target}) {
    for (Term& term : *side) Rename(&term, variables, parameters);
  }
  return rule;
}

// Names and the order of operands depend on each other.
Rule Normalized(Rule rule) {
  rule = Renamed(std::move(rule));
  for (int round = 0; round < 3; ++round) {
    for (auto* side : {&rule.source, &rule.target}) {
      for (Term& term : *side) SortCommutative(&term);
    }
    rule = Renamed(std::move(rule));
  }
  return rule;
}

// The pairs of terms in the order of the text that they have when their variables are all the same.
Rule SortedPairs(Rule rule) {
  std::vector<std::pair<std::string, size_t>> order;
  for (size_t i = 0; i < rule.source.size(); ++i) {
    const Rule pair = Normalized({{rule.source[i]}, {rule.target[i]}});
    order.emplace_back(ToText(pair), i);
  }
  std::sort(order.begin(), order.end());
  Rule sorted;
  for (const auto& [text, i] : order) {
    sorted.source.push_back(std::move(rule.source[i]));
    sorted.target.push_back(std::move(rule.target[i]));
  }
  return sorted;
}

}  // namespace

Rule Canonical(const Rule& rule) {
  Rule best;
  std::string best_text;
  const int a = NumOperators(rule.source), b = NumOperators(rule.target);
  for (const bool swap : {false, true}) {
    if (a != b && swap != (a > b)) continue;
    const Rule r = Normalized(SortedPairs(swap ? Reversed(rule) : rule));
    std::string text = ToText(r);
    if (best_text.empty() || text < best_text) {
      best = r;
      best_text = std::move(text);
    }
  }
  return best;
}

namespace {

std::vector<std::pair<const char*, Domain>> DomainsOf(const GeneratorOptions& options) {
  std::vector<std::pair<const char*, Domain>> domains;
  if (options.domains != Domains::kImages) domains.emplace_back("matrices", Matrices());
  if (options.domains != Domains::kMatrices) domains.emplace_back("images", Images());
  return domains;
}

}  // namespace

GraphCount CountGraphs(const GeneratorOptions& options, int64_t sample) {
  GeneratorOptions one = options;
  one.threads = 1;
  GraphCount count;
  for (const auto& [name, domain] : DomainsOf(options)) {
    const Table table = Builder(domain, one, 0, sample).Run();
    count.graphs += table.built;
    count.kept += table.kept;
  }
  return count;
}

Generated Generate(const GeneratorOptions& options) {
  Generated result;
  std::set<std::string> candidates;
  for (const auto& [name, domain] : DomainsOf(options)) {
    GenerateDomain(domain, options, &result, &candidates);
    if (options.progress) {
      options.progress(absl::StrCat(name, ": ", result.graphs, " graphs, ", result.buckets,
                                    " fingerprints, ", candidates.size(), " candidates so far"));
    }
  }
  for (const std::string& text : candidates) result.candidates.push_back(*ParseRule(text));
  return result;
}

// ---- Pruning ----

namespace {

bool Replace(Term* term, const Term& what, const Term& with) {
  if (*term == what) {
    *term = with;
    return true;
  }
  bool any = false;
  for (Term& operand : term->operands) any |= Replace(&operand, what, with);
  return any;
}

std::set<Term> SubtermsOf(const std::vector<Term>& terms) {
  std::set<Term> out;
  for (const Term& term : terms) AddSubterms(term, &out);
  return out;
}

void ReplaceInTerm(Term* term, const std::string& from, const std::string& to) {
  for (std::string& p : term->parameters) {
    if (p == from) p = to;
  }
  for (Term& operand : term->operands) ReplaceInTerm(&operand, from, to);
}

bool OnlyElements(const std::vector<Term>& terms) {
  for (const Term& term : SubtermsOf(terms)) {
    switch (term.op) {
      case Op::kAdd:
      case Op::kMul:
      case Op::kScale:
      case Op::kMap:
      case Op::kConcat:
      case Op::kSplit0:
      case Op::kSplit1:
        break;
      default:
        return false;
    }
  }
  return true;
}

bool Uses(const std::vector<Term>& terms, const std::string& parameter) {
  for (const Term& term : SubtermsOf(terms)) {
    if (std::find(term.parameters.begin(), term.parameters.end(), parameter) !=
        term.parameters.end())
      return true;
  }
  return false;
}

class Pruner {
 public:
  Pruned Run(std::vector<Rule> candidates, const GeneratorOptions& options) {
    std::set<std::string> rules = GeneralRules(candidates, options.threads);
    if (options.progress) options.progress(absl::StrCat(rules.size(), " with general parameters"));
    DropInstances(&rules);
    pruned_.renamed = static_cast<int64_t>(rules.size());
    if (options.progress) options.progress(absl::StrCat(rules.size(), " after renaming"));
    std::vector<std::string> open(rules.begin(), rules.end());
    std::set<std::string> kept;
    while (!open.empty()) {
      const std::string text = std::move(open.back());
      open.pop_back();
      const Rule rule = *ParseRule(text);
      std::vector<Rule> parts;
      if (!Reduce(rule, &parts)) {
        kept.insert(text);
        continue;
      }
      pruned_.dropped.push_back({rule, parts});
      for (const Rule& part : parts) {
        const std::string part_text = ToText(part);
        if (rules.insert(part_text).second) open.push_back(part_text);
      }
    }
    DropInstances(&kept);
    pruned_.common = static_cast<int64_t>(kept.size());
    for (const std::string& text : kept) pruned_.rules.push_back(*ParseRule(text));
    return std::move(pruned_);
  }

 private:
  static std::set<std::string> GeneralRules(const std::vector<Rule>& candidates, int threads) {
    std::vector<std::set<std::string>> shares(static_cast<size_t>(threads));
    {
      std::vector<std::jthread> pool;
      for (size_t t = 0; t < shares.size(); ++t) {
        pool.emplace_back([&, t] {
          Pruner pruner;
          for (size_t i = t; i < candidates.size(); i += shares.size()) {
            const auto general = pruner.General(candidates[i]);
            if (general.has_value() && general->source != general->target)
              shares[t].insert(ToText(*general));
          }
        });
      }
    }
    for (size_t t = 1; t < shares.size(); ++t) shares[0].merge(shares[t]);
    return std::move(shares[0]);
  }

  bool Holds(const Rule& rule) {
    const std::string text = ToText(rule);
    const auto found = known_.find(text);
    if (found != known_.end()) return found->second;
    return known_[text] = CheckEqual(rule.source, rule.target, {.cases = 64}).Holds();
  }

  // With its parameters as general as it holds.
  std::optional<Rule> General(const Rule& rule) {
    std::vector<Rule> attempts{rule};
    if (OnlyElements(rule.source) && OnlyElements(rule.target)) {
      const bool zero = Uses(rule.source, "0") || Uses(rule.target, "0");
      const bool one = Uses(rule.source, "1") || Uses(rule.target, "1");
      if (zero != one)
        attempts.insert(attempts.begin(), WithParameter(rule, zero ? "0" : "1", "a"));
    }
    attempts.push_back(WithParameter(rule, "s", "1"));
    for (const Rule& attempt : attempts) {
      Rule canonical = Canonical(attempt);
      if (Holds(canonical)) return canonical;
    }
    return std::nullopt;
  }

  // Drops rules that are others with some variables equal, or with constants for variables.
  void DropInstances(std::set<std::string>* rules) {
    std::map<std::string, std::vector<std::pair<Rule, std::vector<std::string>>>> by_shape;
    for (const std::string& text : *rules) {
      const Rule rule = *ParseRule(text);
      for (const bool swap : {false, true}) {
        const Rule r = swap ? Reversed(rule) : rule;
        std::vector<std::string> names;
        const std::string shape = Skeleton(r, &names);
        if (!swap) by_shape[shape].emplace_back(rule, names);
      }
    }
    std::vector<std::string> drop;
    for (const std::string& text : *rules) {
      const Rule rule = *ParseRule(text);
      for (const bool swap : {false, true}) {
        std::vector<std::string> names;
        const auto found = by_shape.find(Skeleton(swap ? Reversed(rule) : rule, &names));
        if (found == by_shape.end()) continue;
        const auto general =
            std::find_if(found->second.begin(), found->second.end(), [&](const auto& other) {
              return Distinct(other.second) > Distinct(names) && Maps(other.second, names);
            });
        if (general == found->second.end()) continue;
        drop.push_back(text);
        pruned_.dropped.push_back({rule, {general->first}});
        break;
      }
    }
    for (const std::string& text : drop) rules->erase(text);
  }

  static bool IsVariable(const std::string& leaf) { return leaf.size() == 1; }
  // How many different variables there are.
  static size_t Distinct(const std::vector<std::string>& names) {
    const std::set<std::string> distinct(names.begin(), names.end());
    return static_cast<size_t>(std::count_if(distinct.begin(), distinct.end(), IsVariable));
  }
  static bool Maps(const std::vector<std::string>& from, const std::vector<std::string>& to) {
    std::map<std::string, std::string> map;
    for (size_t i = 0; i < from.size(); ++i) {
      if (!IsVariable(from[i]) && from[i] != to[i]) return false;
      if (map.emplace(from[i], to[i]).first->second != to[i]) return false;
    }
    return true;
  }
  // The text with all leaves alike, and the leaves in order.
  static std::string Skeleton(const Rule& rule, std::vector<std::string>* names) {
    std::string text;
    for (const auto* side : {&rule.source, &rule.target}) {
      for (const Term& term : *side) AppendSkeleton(term, &text, names);
      text += '=';
    }
    return text;
  }
  static void AppendSkeleton(const Term& term, std::string* text, std::vector<std::string>* names) {
    if (term.operands.empty()) {
      *text += '_';
      names->push_back(ToText(term));
      return;
    }
    absl::StrAppend(text, static_cast<int>(term.op), "[");
    for (const std::string& p : term.parameters) absl::StrAppend(text, p, ",");
    *text += ']';
    for (const Term& operand : term.operands) AppendSkeleton(operand, text, names);
    *text += ')';
  }

  static std::vector<std::string> Sorted(std::vector<std::string> names) {
    std::sort(names.begin(), names.end());
    return names;
  }

  // Rules that this one follows from, each with fewer operators. False: there are none. Whether no rule is
  // needed because both sides are the same: true, and no parts.
  bool Reduce(const Rule& rule, std::vector<Rule>* parts) {
    // Terms that are equal as they stand.
    Rule rest;
    for (size_t i = 0; i < rule.source.size(); ++i) {
      if (rule.source[i] == rule.target[i]) continue;
      rest.source.push_back(rule.source[i]);
      rest.target.push_back(rule.target[i]);
    }
    if (rest.source.empty()) return true;
    if (rest.source.size() < rule.source.size()) {
      parts->push_back(Canonical(rest));
      return true;
    }
    // Pairs that share nothing.
    if (rule.source.size() > 1) {
      int sources = 0, targets = 0;
      bool same_variables = true;
      for (size_t i = 0; i < rule.source.size(); ++i) {
        const std::span<const Term> a(&rule.source[i], 1), b(&rule.target[i], 1);
        sources += NumOperators(a);
        targets += NumOperators(b);
        same_variables &= Sorted(VariablesOf(a)) == Sorted(VariablesOf(b));
      }
      if (same_variables && sources == NumOperators(rule.source) &&
          targets == NumOperators(rule.target)) {
        for (size_t i = 0; i < rule.source.size(); ++i)
          parts->push_back(Canonical({{rule.source[i]}, {rule.target[i]}}));
        return true;
      }
    }
    // A common operator with the same operands becomes a variable.
    const std::set<Term> sources = SubtermsOf(rule.source), targets = SubtermsOf(rule.target);
    for (const Term& common : sources) {
      if (!targets.contains(common)) continue;
      Rule general = rule;
      const Term fresh = Variable("fresh");
      for (auto* side : {&general.source, &general.target}) {
        for (Term& term : *side) Replace(&term, common, fresh);
      }
      general = Canonical(general);
      if (!Holds(general)) continue;
      parts->push_back(std::move(general));
      return true;
    }
    // The same last operator: its operands are equal, one by one.
    for (size_t i = 0; i < rule.source.size(); ++i) {
      const Term &a = rule.source[i], &b = rule.target[i];
      if (a.op != b.op || a.parameters != b.parameters || a.operands.empty()) continue;
      std::vector<std::vector<size_t>> orders{{0, 1}};
      if (a.op == Op::kAdd || a.op == Op::kMul) orders.push_back({1, 0});
      for (const std::vector<size_t>& order : orders) {
        std::vector<Rule> operands;
        bool hold = true;
        for (size_t j = 0; j < a.operands.size() && hold; ++j) {
          const Term& other = b.operands[order[j]];
          if (a.operands[j] == other) continue;
          Rule operand = Canonical({{a.operands[j]}, {other}});
          hold = Holds(operand);
          operands.push_back(std::move(operand));
        }
        if (!hold) continue;
        *parts = std::move(operands);
        if (rule.source.size() > 1) {
          Rule others = rule;
          others.source.erase(others.source.begin() + static_cast<int64_t>(i));
          others.target.erase(others.target.begin() + static_cast<int64_t>(i));
          others = Canonical(others);
          if (!Holds(others)) continue;
          parts->push_back(std::move(others));
        }
        return true;
      }
    }
    return false;
  }

  std::map<std::string, bool> known_;  // whether a rule holds
  Pruned pruned_;
};

}  // namespace

Rule WithParameter(Rule rule, const std::string& from, const std::string& to) {
  for (auto* side : {&rule.source, &rule.target}) {
    for (Term& term : *side) ReplaceInTerm(&term, from, to);
  }
  return rule;
}

Pruned Prune(std::vector<Rule> candidates, const GeneratorOptions& options) {
  return Pruner().Run(std::move(candidates), options);
}

}  // namespace heddle::substitution
