#include "compiler/graph/fusion/fuse.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <queue>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/vocabulary/workload_key.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/fusion/row_blocks.h"
#include "compiler/graph/ops/op_util.h"
#include "compiler/ir/text.h"
#include "compiler/ir/visit.h"

namespace heddle::graph {
namespace {

constexpr int64_t kMostWeight = 1 << 20;  // of a task

// Whether the kernels of a graph are timed with warm code and constants: those of a model of trees are (measure/measure.h).
bool AreTimedWarm(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
    return node.kind == OpKind::kForestWalk || node.kind == OpKind::kForestSelect ||
           node.kind == OpKind::kForestRanks || node.kind == OpKind::kForestLeaves;
  });
}

// By node: whether it transposes what one product reads, and nobody else.
std::vector<bool> TransposesOfProducts(const Graph& graph) {
  const std::vector<int> uses = UseCounts(graph), producers = Producers(graph);
  std::vector<int> reads(graph.nodes.size(), 0);     // by the first product that reads it
  std::vector<int> product(graph.nodes.size(), -1);  // that one
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (graph.nodes[n].kind != OpKind::kMatmul) continue;
    for (ValueId v : graph.nodes[n].inputs) {
      const int u = producers[v];
      if (u < 0) continue;
      if (product[u] < 0) product[u] = static_cast<int>(n);
      reads[u] += product[u] == static_cast<int>(n);
    }
  }
  std::vector<bool> found(graph.nodes.size(), false);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    found[n] = node.kind == OpKind::kTranspose && reads[n] > 0 && reads[n] == uses[node.outputs[0]];
  }
  return found;
}

// Builds the groups.
//
// No merge creates a cycle between groups. A node joins a group only if all its readers are in its
// own group or that one, so only the last node's value leaves a group. If one other group alone
// reads that value, there is no other path to that group.
class Fuser {
 public:
  Fuser(const Graph& graph, const FuseOptions& options)
      : graph_(graph),
        separate_(options.separate),
        producers_(Producers(graph)),
        uses_(UseCounts(graph)),
        by_columns_(graph.nodes.size(), false) {
    const size_t n = graph.nodes.size();
    if (!options.columns.empty()) by_columns_ = TransposesOfProducts(graph);
    for (size_t i = 0; i < n; ++i) {
      const std::string& name = graph.values[graph.nodes[i].outputs[0]].name;
      by_columns_[i] =
          by_columns_[i] && options.columns.contains(name) && !separate_.contains(name);
    }
    group_.resize(n);
    std::iota(group_.begin(), group_.end(), 0);
    members_.resize(n);
    consumers_.resize(n);
    for (size_t i = 0; i < n; ++i) {
      members_[i] = {static_cast<int>(i)};
      for (ValueId v : graph.nodes[i].inputs) {
        if (producers_[v] >= 0) consumers_[producers_[v]].push_back(static_cast<int>(i));
      }
    }
  }

  // Each node in turn tries to merge with the groups that make its operands.
  std::vector<std::vector<int>> Run() {
    for (size_t v = 0; v < graph_.nodes.size(); ++v) {
      // This repeats, because one operand that joins may let another join: conv * sigmoid(conv)
      // reads the convolution twice.
      for (bool changed = true; changed;) {
        changed = false;
        for (ValueId operand : graph_.nodes[v].inputs) {
          const int u = producers_[operand];
          if (u < 0 || group_[u] == group_[v] || separate_.contains(graph_.values[operand].name) ||
              !MayJoin(u, static_cast<int>(v)))
            continue;
          Merge(group_[u], group_[v]);
          changed = true;
        }
      }
    }
    std::vector<std::vector<int>> groups;
    for (auto& members : members_) {
      if (members.empty()) continue;
      std::sort(members.begin(), members.end());
      groups.push_back(members);
    }
    return groups;
  }

 private:
  const OpDef& DefOf(int node) const { return Def(graph_.nodes[node].kind); }
  FusionClass Class(int node) const { return DefOf(node).fusion; }
  const TensorType& OutType(int node) const {
    return graph_.values[graph_.nodes[node].outputs[0]].type;
  }

  // The member that is not injective, or -1.
  int Anchor(int group) const {
    for (int m : members_[group]) {
      if (Class(m) != FusionClass::kInjective) return m;
    }
    return -1;
  }

  // Whether node u, which makes an operand of v and is in another group, may join v's group.
  bool MayJoin(int u, int v) const {
    // A transpose that a product reads by columns joins it alone: what is computed before it stays outside.
    if (by_columns_[v]) return false;
    if (!OnlyReadBy(u, group_[u], group_[v])) return false;
    return (by_columns_[u] || ClassesAllow(u, v)) && StaysSmall(u, v);
  }

  // Limits the nodes of a group, and how often an expression repeats itself. An operand that is read twice occurs twice in
  // the expression into which it is inlined, so a chain of y * y doubles with every link.
  bool StaysSmall(int u, int v) const {
    constexpr double kMostRepeated = 256;  // nodes; schedules inline no more than that
    constexpr size_t kMostMembers = 128;   // the time to compile grows faster than they do
    std::vector<int> all = members_[group_[u]];
    all.insert(all.end(), members_[group_[v]].begin(), members_[group_[v]].end());
    if (all.size() > kMostMembers) return false;
    std::sort(all.begin(), all.end());
    std::map<int, double> tree;  // node -> size of its expression, including its operands
    double once = 0;             // the size if each node of the group occurred once
    for (int n : all) {
      double size = 1;
      for (ValueId operand : graph_.nodes[n].inputs) {
        const auto made = tree.find(producers_[operand]);
        size += made == tree.end() ? 1 : made->second;
      }
      once += 1 + static_cast<double>(graph_.nodes[n].inputs.size());
      tree[n] = Class(n) == FusionClass::kInjective ? size : 1;  // others are not inlined
    }
    return tree.at(v) - once <= kMostRepeated;
  }

  bool ClassesAllow(int u, int v) const {
    const int above = Anchor(group_[u]), below = Anchor(group_[v]);
    if (above >= 0 && below >= 0) return false;
    if (Class(u) == FusionClass::kOpaque || Class(v) == FusionClass::kOpaque) return false;
    if (above >= 0) {
      // The group of v joins the output of an anchor.
      return Class(above) == FusionClass::kComplexOutFusable &&
             AllElementwise(group_[v], OutType(above).shape);
    }
    if (below >= 0 && Class(below) == FusionClass::kComplexOutFusable) {
      // A complex operator reads each element many times, so its own operands are computed before
      // it. Operands of the elementwise nodes that follow it may join.
      return v != below && !Feeds(group_[u], below) &&
             AllElementwise(group_[u], OutType(below).shape);
    }
    // Arithmetic must not be repeated for every element of a larger result. Moving data is cheap
    // enough to be repeated.
    return !DefOf(u).elementwise || NumElements(OutType(v)) <= NumElements(OutType(u)) ||
           Class(v) == FusionClass::kReduction;
  }

  bool Feeds(int group, int node) const {
    for (int m : members_[group]) {
      if (std::count(consumers_[m].begin(), consumers_[m].end(), node) != 0) return true;
    }
    return false;
  }

  bool AllElementwise(int group, const Shape& shape) const {
    return std::all_of(members_[group].begin(), members_[group].end(),
                       [&](int m) { return DefOf(m).elementwise && OutType(m).shape == shape; });
  }

  bool OnlyReadBy(int u, int a, int b) const {
    int read = 0;
    for (int c : consumers_[u]) {
      if (group_[c] != a && group_[c] != b) return false;
      ++read;
    }
    return read == uses_[graph_.nodes[u].outputs[0]];  // false if u is also an output of the graph
  }

  void Merge(int from, int into) {
    for (int m : members_[from]) group_[m] = into;
    members_[into].insert(members_[into].end(), members_[from].begin(), members_[from].end());
    members_[from].clear();
  }

  const Graph& graph_;
  const std::set<std::string>& separate_;
  std::vector<int> producers_, uses_, group_;
  std::vector<bool> by_columns_;  // by node: a transpose that joins the product
  std::vector<std::vector<int>> members_, consumers_;
};

// The groups in execution order. Among the groups whose inputs are computed, the one whose last
// node comes first in the graph is next.
std::vector<std::vector<int>> ExecutionOrder(const Graph& graph,
                                             std::vector<std::vector<int>> groups) {
  const std::vector<int> producers = Producers(graph);
  std::vector<int> group_of(graph.nodes.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    for (int m : groups[g]) group_of[m] = static_cast<int>(g);
  }
  std::vector<std::set<int>> next(groups.size());
  std::vector<int> waiting(groups.size(), 0);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (ValueId v : graph.nodes[i].inputs) {
      if (producers[v] < 0) continue;
      const int from = group_of[producers[v]], to = group_of[i];
      if (from != to && next[from].insert(to).second) ++waiting[to];
    }
  }
  using Entry = std::pair<int, int>;  // last node, group
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
  const auto push = [&](int g) { ready.emplace(groups[g].back(), g); };
  for (size_t g = 0; g < groups.size(); ++g) {
    if (waiting[g] == 0) push(static_cast<int>(g));
  }
  std::vector<std::vector<int>> ordered;
  while (!ready.empty()) {
    const int g = ready.top().second;
    ready.pop();
    ordered.push_back(groups[g]);
    for (int to : next[g]) {
      if (--waiting[to] == 0) push(to);
    }
  }
  return ordered;
}

// The operators as text: "conv2d+add+relu"; "(concat+reshape)x128" if operators repeat; ".." at the
// end if the text is too long.
std::string OperatorsText(const std::vector<std::string>& ops) {
  constexpr size_t kLongest = 40;  // characters, the width of a table's column
  // In operators. Longer patterns are rare and fill the line alone.
  constexpr size_t kLongestPattern = 4;
  std::string text;
  for (size_t i = 0; i < ops.size();) {
    size_t pattern = 1, covered = 1;
    for (size_t p = 1; p <= kLongestPattern; ++p) {
      size_t end = i + p;
      while (end < ops.size() && ops[end] == ops[end - p]) ++end;
      const size_t whole = (end - i) / p * p;
      if (whole >= 2 * p && whole > covered) pattern = p, covered = whole;
    }
    std::string part = absl::StrJoin(ops.begin() + i, ops.begin() + i + pattern, "+");
    if (covered > pattern) part = absl::StrCat("(", part, ")x", covered / pattern);
    const bool last = i + covered == ops.size();
    if (text.size() + 1 + part.size() + (last ? 0 : 3) > kLongest) {
      if (text.empty()) return part.substr(0, kLongest - 2) + "..";
      return text + "+..";
    }
    absl::StrAppend(&text, text.empty() ? "" : "+", part);
    i += covered;
  }
  return text;
}

bool OnlyRelabels(const Graph& graph, const std::vector<int>& nodes) {
  return std::all_of(nodes.begin(), nodes.end(),
                     [&](int n) { return Def(graph.nodes[n].kind).relabels; });
}

// Finds the flops, the label, the inputs and the outputs of a group.
absl::StatusOr<Group> Describe(const Graph& graph, std::vector<int> nodes,
                               const std::vector<int>& uses) {
  Group group;
  group.nodes = std::move(nodes);
  std::set<ValueId> made;
  std::map<ValueId, int> read_inside;
  for (int n : group.nodes) {
    for (ValueId v : graph.nodes[n].inputs) {
      ++read_inside[v];
      if (!made.count(v) &&
          std::find(group.inputs.begin(), group.inputs.end(), v) == group.inputs.end()) {
        group.inputs.push_back(v);
      }
    }
    made.insert(graph.nodes[n].outputs[0]);
  }
  std::vector<std::string> ops;
  double counted = 0, elements = 0;
  for (int n : group.nodes) {
    const Node& node = graph.nodes[n];
    const ValueId out = node.outputs[0];
    // A result that nobody reads (dead code) is an output, too, because every kernel has one.
    if (uses[out] > read_inside[out] || uses[out] == 0) group.outputs.push_back(out);
    ops.push_back(NameOf(node.kind));
    counted += Flops(graph, node);
    elements += static_cast<double>(NumElements(graph.values[out].type));
  }
  group.flops = counted > 0 ? counted : elements;
  group.label = absl::StrCat(OperatorsText(ops), " ",
                             ShapeText(graph.values[group.outputs.back()].type.shape));
  return group;
}

FuseMemo::Range ScanRange(const TensorData& table) {
  const auto scan = [&](const auto* elements) -> FuseMemo::Range {
    const int64_t count = NumElements(table.type);
    if (count == 0) return {};
    const auto [least, most] = std::minmax_element(elements, elements + count);
    return {*least, *most};
  };
  if (table.type.dtype == ir::DType::kU8)
    return scan(reinterpret_cast<const uint8_t*>(table.bytes->data()));
  return scan(reinterpret_cast<const int32_t*>(table.bytes->data()));
}

// What the elements of an input of a group lie below (OpDef::below), if it is a constant that keeps what all
// its readers expect; else 0. `memo` is optional.
int64_t Below(const Graph& graph, const Group& group, ValueId v, FuseMemo* memo) {
  const auto constant = graph.constants.find(v);
  if (constant == graph.constants.end()) return 0;
  const TensorData& data = constant->second;
  const bool bytes = data.type.dtype == ir::DType::kU8;
  if (!bytes && data.type.dtype != ir::DType::kI32) return 0;
  int64_t below = 0;
  for (int n : group.nodes) {
    const Node& node = graph.nodes[n];
    const auto reads = std::find(node.inputs.begin(), node.inputs.end(), v);
    if (reads == node.inputs.end()) continue;
    if (Def(node.kind).below == nullptr) return 0;
    const std::vector<TensorType> types = InputTypes(graph, node);
    const std::vector<int64_t> expected =
        Def(node.kind).below({types, graph.values[node.outputs[0]].type, AttrsOf(node)});
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      if (node.inputs[k] != v) continue;
      if (expected[k] <= 0) return 0;
      below = below == 0 ? expected[k] : std::min(below, expected[k]);
    }
  }
  if (below == 0) return 0;
  if (bytes) below = std::min<int64_t>(below, 256);  // the range of the type
  const FuseMemo::Range range = memo != nullptr ? memo->RangeOf(data) : ScanRange(data);
  return range.least >= 0 && range.most < below ? below : 0;
}

absl::StatusOr<tensor::TensorProgram> ExpressGroup(const Graph& graph, const Group& group,
                                                   FuseMemo* memo) {
  std::vector<std::string> ops;
  for (int n : group.nodes) ops.push_back(NameOf(graph.nodes[n].kind));
  tensor::Builder b(absl::StrJoin(ops, "_"));
  std::map<ValueId, tensor::Tensor> tensors;
  for (size_t i = 0; i < group.inputs.size(); ++i) {
    const TensorType& type = graph.values[group.inputs[i]].type;
    tensors[group.inputs[i]] = b.Input(absl::StrCat("p", i), type.dtype, type.shape,
                                       graph.constants.contains(group.inputs[i]),
                                       Below(graph, group, group.inputs[i], memo));
  }
  for (int n : group.nodes) {
    const Node& node = graph.nodes[n];
    std::vector<tensor::Tensor> operands;
    for (ValueId v : node.inputs) operands.push_back(tensors.at(v));
    const absl::StatusOr<tensor::Tensor> out = Express(node.kind, b, operands, node.attrs);
    if (!out.ok()) {
      return absl::Status(out.status().code(), absl::StrCat(NameOf(node.kind), " node '", node.name,
                                                            "': ", out.status().message()));
    }
    const ValueId result = node.outputs[0];
    tensors[result] = b.Stored(*out, graph.values[result].type.dtype);
  }
  std::vector<tensor::Tensor> outputs;
  for (ValueId v : group.outputs) outputs.push_back(tensors.at(v));
  return b.Build(outputs);
}

// Everything that ExpressGroup reads of the graph and the group.
std::string Signature(const Graph& graph, const Group& group, FuseMemo* memo) {
  std::map<ValueId, size_t> number;
  std::string text;
  for (ValueId v : group.inputs) {
    number.emplace(v, number.size());
    absl::StrAppend(&text, ToText(graph.values[v].type),
                    graph.constants.contains(v) ? " constant " : " ", Below(graph, group, v, memo),
                    "\n");
  }
  for (int n : group.nodes) {
    const Node& node = graph.nodes[n];
    absl::StrAppend(&text, NameOf(node.kind));
    for (ValueId v : node.inputs) absl::StrAppend(&text, " ", number.at(v));
    absl::StrAppend(&text, ExactText(node.attrs), " ", ToText(graph.values[node.outputs[0]].type),
                    "\n");
    number.emplace(node.outputs[0], number.size());
  }
  for (ValueId v : group.outputs) absl::StrAppend(&text, " ", number.at(v));
  return text;
}

absl::StatusOr<FuseMemo::Known> MakeProgram(const Graph& graph, const Group& group, bool timed_warm,
                                            FuseMemo* memo) {
  HEDDLE_ASSIGN_OR_RETURN(tensor::TensorProgram program, ExpressGroup(graph, group, memo));
  FuseMemo::Known made;
  HEDDLE_ASSIGN_OR_RETURN(made.naive, tensor::LowerToLoops(program));
  made.timed_warm = timed_warm;
  if (timed_warm) made.naive.name += ir::kTimedWarm;
  made.workload = ir::Print(made.naive);
  made.key = WorkloadKey(made.workload);
  return made;
}

// Sets the key of a group and, if asked, its program and workload.
absl::Status AddProgram(const Graph& graph, bool timed_warm, const FuseOptions& options,
                        Group* group) {
  FuseMemo::Known made;
  const FuseMemo::Known* known = &made;
  if (options.memo == nullptr) {
    HEDDLE_ASSIGN_OR_RETURN(made, MakeProgram(graph, *group, timed_warm, nullptr));
  } else {
    const std::string signature =
        absl::StrCat(timed_warm ? "timed warm\n" : "", Signature(graph, *group, options.memo));
    known = options.memo->Find(signature);
    if (known == nullptr) {
      HEDDLE_ASSIGN_OR_RETURN(made, MakeProgram(graph, *group, timed_warm, options.memo));
      known = options.memo->Keep(signature, std::move(made));
    }
  }
  group->key = known->key;
  group->timed_warm = known->timed_warm;
  if (!options.programs) return absl::OkStatus();
  group->naive = known->naive;
  group->workload = known->workload;
  return absl::OkStatus();
}

}  // namespace

const FuseMemo::Known* FuseMemo::Find(const std::string& signature) const {
  absl::MutexLock lock(&mutex_);
  const auto found = programs_.find(signature);
  return found == programs_.end() ? nullptr : &found->second;
}

const FuseMemo::Known* FuseMemo::Keep(const std::string& signature, Known known) {
  absl::MutexLock lock(&mutex_);
  return &programs_.try_emplace(signature, std::move(known)).first->second;
}

size_t FuseMemo::size() const {
  absl::MutexLock lock(&mutex_);
  return programs_.size();
}

FuseMemo::Range FuseMemo::RangeOf(const TensorData& table) {
  const std::tuple key(table.bytes->data(), table.bytes->size(), table.type.dtype);
  {
    absl::MutexLock lock(&mutex_);
    const auto found = ranges_.find(key);
    if (found != ranges_.end()) return found->second.range;
  }
  const Range range = ScanRange(table);  // two threads may both do it
  absl::MutexLock lock(&mutex_);
  ++scans_;
  ranges_.try_emplace(key, KnownRange{table.bytes, range});
  return range;
}

size_t FuseMemo::scans() const {
  absl::MutexLock lock(&mutex_);
  return scans_;
}

absl::StatusOr<tensor::TensorProgram> GroupExpression(const FusedGraph& fused, const Group& group) {
  return ExpressGroup(fused.graph, group, nullptr);
}

namespace {

// What tells two operators of one name and result apart, for people: " by 64x64x3x3, stride 2x2" is a
// convolution's weights and stride, " from 1x64x112x112, kernel 3x3" a pool's operand and window.
std::string DetailOf(const Graph& graph, const Group& group) {
  int anchor = group.nodes.front();
  for (int n : group.nodes) {
    if (Def(graph.nodes[n].kind).fusion != FusionClass::kInjective) anchor = n;
  }
  const Node& node = graph.nodes[anchor];
  std::string detail;
  if (!node.inputs.empty()) {
    const bool binary = node.inputs.size() > 1;
    detail = absl::StrCat(binary ? " by " : " from ",
                          ShapeText(graph.values[node.inputs[binary ? 1 : 0]].type.shape));
  }
  for (const auto& [attr, word] : {std::pair{"kernel", "kernel"}, {"strides", "stride"}}) {
    const auto found = node.attrs.find(attr);
    if (found == node.attrs.end()) continue;
    const Shape* extents = std::get_if<Shape>(&found->second);
    const bool plain = extents == nullptr || std::all_of(extents->begin(), extents->end(),
                                                         [](int64_t e) { return e == 1; });
    if (!plain) absl::StrAppend(&detail, ", ", word, " ", ShapeText(*extents));
  }
  return detail;
}

// Adds the detail to labels that groups of different workloads share.
void TellLabelsApart(FusedGraph* fused) {
  std::map<std::string, std::set<std::string_view>> keys;  // by label
  for (const Group& group : fused->groups) keys[group.label].insert(group.key);
  for (Group& group : fused->groups) {
    if (keys.at(group.label).size() > 1)
      absl::StrAppend(&group.label, DetailOf(fused->graph, group));
  }
}

}  // namespace

absl::StatusOr<FusedGraph> Fuse(Graph graph, const FuseOptions& options) {
  std::vector<std::vector<int>> groups;
  if (options.enabled) {
    groups = ExecutionOrder(graph, Fuser(graph, options).Run());
  } else {
    for (size_t i = 0; i < graph.nodes.size(); ++i) groups.push_back({static_cast<int>(i)});
  }
  const std::vector<int> uses = UseCounts(graph);
  const bool timed_warm = AreTimedWarm(graph);
  FusedGraph fused;
  std::map<std::string, std::string> workloads;  // by key
  for (std::vector<int>& nodes : groups) {
    if (options.enabled && OnlyRelabels(graph, nodes)) {
      for (int n : nodes) {
        fused.views[graph.nodes[n].outputs[0]] = fused.MemoryOf(graph.nodes[n].inputs[0]);
      }
      continue;
    }
    HEDDLE_ASSIGN_OR_RETURN(Group group, Describe(graph, std::move(nodes), uses));
    HEDDLE_RETURN_IF_ERROR(AddProgram(graph, timed_warm, options, &group));
    // Keys are hashes that identify tasks, records and kernels, so a collision must be an error.
    if (options.programs &&
        workloads.emplace(group.key, group.workload).first->second != group.workload) {
      return absl::InternalError(absl::StrCat("two different workloads have the key ", group.key,
                                              ", one is ", group.label));
    }
    fused.groups.push_back(std::move(group));
  }
  fused.graph = std::move(graph);
  TellLabelsApart(&fused);
  return fused;
}

std::set<std::string> MayBeColumns(const Graph& graph) {
  const std::vector<bool> transposes = TransposesOfProducts(graph);
  std::set<std::string> names;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (transposes[n]) names.insert(graph.values[graph.nodes[n].outputs[0]].name);
  }
  return names;
}

std::vector<Task> ExtractTasks(const FusedGraph& fused) {
  const std::vector<int64_t> runs = RunsOfGroups(fused);
  std::vector<Task> tasks;
  std::map<std::string, size_t> by_key;
  for (size_t g = 0; g < fused.groups.size(); ++g) {
    const Group& group = fused.groups[g];
    auto [it, fresh] = by_key.emplace(group.key, tasks.size());
    if (fresh) tasks.push_back({group.key, group.workload, group.label, group.flops, 0, {}});
    Task& task = tasks[it->second];
    task.weight = static_cast<int>(std::min<int64_t>(task.weight + runs[g], kMostWeight));
    int anchor = group.nodes.front();
    for (int n : group.nodes) {
      if (Def(fused.graph.nodes[n].kind).fusion != FusionClass::kInjective) anchor = n;
    }
    task.nodes.push_back(fused.graph.nodes[anchor].name);
  }
  std::stable_sort(tasks.begin(), tasks.end(), [](const Task& a, const Task& b) {
    return a.flops * a.weight > b.flops * b.weight;
  });
  return tasks;
}

}  // namespace heddle::graph
