#include "compiler/plan/reuse.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "compiler/graph/core/operator.h"
#include "compiler/graph/fusion/memory_plan.h"

namespace heddle::plan {
namespace {

using graph::FusedGraph;
using graph::Group;
using graph::ValueId;

// Smaller constants and results are left out: what they save is less than any error.
constexpr int64_t kLeastBytes = 4 << 10;

int64_t BytesOf(const FusedGraph& fused, ValueId v) {
  const graph::TensorType& type = fused.graph.values[static_cast<size_t>(v)].type;
  return graph::NumElements(type) * ir::SizeOf(type.dtype);
}

// Numbers the constants of a graph by their elements.
class ConstantNumbers {
 public:
  explicit ConstantNumbers(const FusedGraph& fused) : fused_(fused) {}

  // -1: it is no constant.
  int Of(ValueId v) {
    const auto [known, fresh] = of_value_.try_emplace(v, -1);
    if (!fresh) return known->second;
    const auto data = fused_.graph.constants.find(v);
    if (data == fused_.graph.constants.end()) return -1;
    // Constants with the same address are not compared, since they may be large.
    const std::string_view bytes = *data->second.bytes;
    const auto [at, unseen] = of_address_.try_emplace({bytes.data(), bytes.size()}, 0);
    if (unseen)
      at->second = of_bytes_.try_emplace(bytes, static_cast<int>(of_bytes_.size())).first->second;
    return known->second = at->second;
  }

 private:
  const FusedGraph& fused_;
  std::map<ValueId, int> of_value_;
  std::map<std::pair<const char*, size_t>, int> of_address_;
  std::map<std::string_view, int> of_bytes_;
};

// The operands that the result of a kernel may overwrite, if nobody reads them later: each element of the result needs only
// the element at the same place. As indices of Group::inputs.
std::vector<size_t> Overwritable(const FusedGraph& fused, const Group& group) {
  const graph::Graph& graph = fused.graph;
  std::vector<size_t> found;
  if (group.outputs.size() != 1 || BytesOf(fused, group.outputs[0]) < kLeastBytes) return found;
  const graph::TensorType& result = graph.values[static_cast<size_t>(group.outputs[0])].type;
  for (const int n : group.nodes) {
    const graph::Node& node = graph.nodes[static_cast<size_t>(n)];
    if (!graph::Def(node.kind).elementwise ||
        graph.values[static_cast<size_t>(node.outputs[0])].type.shape != result.shape)
      return found;
  }
  for (size_t i = 0; i < group.inputs.size(); ++i) {
    const ValueId v = group.inputs[i];
    if (!graph.constants.contains(v) && graph.values[static_cast<size_t>(v)].type == result)
      found.push_back(i);
  }
  return found;
}

// What a call does whose result takes the place of an operand.
KernelWork InPlace(const FusedGraph& fused, const Group& group, KernelWork work) {
  work.activation_bytes -= static_cast<double>(BytesOf(fused, group.outputs[0]));
  return work;
}

struct Access {
  int memory = 0;
  int64_t bytes = 0;
};

// What a call touches.
struct Call {
  KernelWork alone, work;         // as it is timed, and in the model
  std::vector<Access> constants;  // those that are worth looking at
  std::vector<Access> others;     // inputs and outputs that are no constants
};

// The calls of an inference. Constants and others have numbers of their own, from 0 on.
struct Inference {
  std::vector<Call> calls;
  int constants = 0, others = 0;
};

Inference CallsOf(const FusedGraph& fused) {
  Inference inference;
  ConstantNumbers numbers(fused);
  std::map<std::pair<int, std::string_view>, int> constants;  // by number and key of the kernel
  std::map<ValueId, int> others;
  // The arena holds what is neither given nor a constant nor a result of the model.
  std::set<ValueId> outside(fused.graph.inputs.begin(), fused.graph.inputs.end());
  for (const ValueId v : fused.graph.outputs) outside.insert(fused.MemoryOf(v));
  std::map<ValueId, int> reads_left;
  for (const Group& group : fused.groups) {
    for (const ValueId v : group.inputs) ++reads_left[fused.MemoryOf(v)];
  }
  for (const Group& group : fused.groups) {
    Call& call = inference.calls.emplace_back();
    const std::vector<int64_t> touched = TouchedBytes(fused, group);
    call.work = call.alone = WorkOf(fused, group, touched);
    const auto touch = [&](ValueId v, int64_t bytes) {
      if (const int constant = numbers.Of(v); constant >= 0) {
        if (bytes < kLeastBytes) return;
        const int next = static_cast<int>(constants.size());
        call.constants.push_back(
            {constants.try_emplace({constant, group.key}, next).first->second, bytes});
      } else {
        const int next = static_cast<int>(others.size());
        call.others.push_back({others.try_emplace(fused.MemoryOf(v), next).first->second, bytes});
      }
    };
    for (size_t i = 0; i < group.inputs.size(); ++i) touch(group.inputs[i], touched[i]);
    for (const size_t i : Overwritable(fused, group)) {
      const ValueId memory = fused.MemoryOf(group.inputs[i]);
      if (reads_left[memory] != 1 || fused.graph.constants.contains(memory) ||
          outside.contains(memory) || outside.contains(group.outputs[0]))
        continue;
      call.work = InPlace(fused, group, call.work);
      others[group.outputs[0]] = others.at(memory);
      break;
    }
    for (ValueId v : group.outputs) touch(v, BytesOf(fused, v));
    for (const ValueId v : group.inputs) --reads_left[fused.MemoryOf(v)];
  }
  inference.constants = static_cast<int>(constants.size());
  inference.others = static_cast<int>(others.size());
  return inference;
}

// The memory that calls touch, by the time of the last call that touched it (Bennett and Kruskal, "LRU stack
// processing", 1975).
class Recency {
 public:
  Recency(int memories, size_t times)
      : last_(static_cast<size_t>(memories), -1),
        bytes_(static_cast<size_t>(memories), 0),
        sums_(times + 1, 0) {}

  int Last(int memory) const { return last_[static_cast<size_t>(memory)]; }  // -1: never

  void Touch(const Access& access, int time) {
    const auto m = static_cast<size_t>(access.memory);
    if (last_[m] >= 0) Add(last_[m], -bytes_[m]);
    last_[m] = time;
    bytes_[m] = access.bytes;
    Add(time, access.bytes);
  }

  // Bytes that were touched at this time or later.
  int64_t Since(int time) const { return total_ - Before(time); }

 private:
  // A Fenwick tree of bytes by time.
  void Add(int time, int64_t bytes) {
    total_ += bytes;
    for (size_t i = static_cast<size_t>(time) + 1; i < sums_.size(); i += i & -i) sums_[i] += bytes;
  }
  int64_t Before(int time) const {
    int64_t sum = 0;
    for (auto i = static_cast<size_t>(time); i > 0; i -= i & -i) sum += sums_[i];
    return sum;
  }

  std::vector<int> last_;
  std::vector<int64_t> bytes_, sums_;
  int64_t total_ = 0;
};

// The most memory that values other than constants take.
int64_t OthersBytes(const FusedGraph& fused) {
  int64_t bytes = graph::PlanMemory(fused).arena_bytes;
  for (const auto* values : {&fused.graph.inputs, &fused.graph.outputs}) {
    for (ValueId v : *values) bytes += BytesOf(fused, v);
  }
  return bytes;
}

}  // namespace

ReuseModel::ReuseModel(const machine::TargetInfo& target)
    : roofline_(target), caches_known_(target.execution == machine::Execution::kThreads) {}

double ReuseModel::Warm(const KernelWork& alone, const KernelWork& work, double constants_ns,
                        double cold_ns) const {
  const double least = roofline_.Ns(work, constants_ns),
               saved = std::max(0.0, roofline_.ColdNs(alone) - least);
  return std::min(cold_ns, std::max(least, cold_ns - saved));
}

std::vector<double> ReuseModel::CostsNs(const FusedGraph& fused,
                                        const std::vector<double>& cold_ns) const {
  if (!caches_known_) return cold_ns;
  const Inference inference = CallsOf(fused);
  const size_t calls = inference.calls.size();
  Recency constants(inference.constants, 2 * calls), others(inference.others, 2 * calls);
  const int64_t others_bytes = OthersBytes(fused);
  std::vector<double> costs = cold_ns;
  // In the second of two inferences, every constant has been read before.
  for (size_t time = 0; time < 2 * calls; ++time) {
    const Call& call = inference.calls[time % calls];
    const int now = static_cast<int>(time);
    std::vector<int> before;
    for (const Access& access : call.constants) before.push_back(constants.Last(access.memory));
    for (const Access& access : call.constants) constants.Touch(access, now);
    for (const Access& access : call.others) others.Touch(access, now);
    if (time < calls || fused.groups[time - calls].timed_warm) continue;
    const double cold_rate = roofline_.ColdRate(call.alone);
    double constants_ns = call.alone.constant_bytes / cold_rate;
    for (size_t i = 0; i < before.size(); ++i) {
      const auto bytes = static_cast<double>(call.constants[i].bytes);
      const int64_t distance =
          constants.Since(before[i]) + std::min(others_bytes, others.Since(before[i]));
      const double rate = roofline_.RateAt(call.work, static_cast<double>(distance));
      if (rate > cold_rate) constants_ns -= bytes / cold_rate - bytes / rate;
    }
    costs[time - calls] = Warm(call.alone, call.work, constants_ns, cold_ns[time - calls]);
  }
  return costs;
}

double ReuseModel::LeastNs(const FusedGraph& fused, const Group& group, double cold_ns) const {
  if (!caches_known_ || group.timed_warm) return cold_ns;
  const std::vector<int64_t> touched = TouchedBytes(fused, group);
  const KernelWork work = WorkOf(fused, group, touched);
  const double cold_rate = roofline_.ColdRate(work);
  double constants_ns = 0;
  for (size_t i = 0; i < group.inputs.size(); ++i) {
    if (!fused.graph.constants.contains(group.inputs[i])) continue;
    const auto bytes = static_cast<double>(touched[i]);
    const double rate = touched[i] < kLeastBytes ? cold_rate : roofline_.RateAt(work, bytes);
    constants_ns += bytes / std::max(cold_rate, rate);
  }
  const double elsewhere = Warm(work, work, constants_ns, cold_ns);
  if (Overwritable(fused, group).empty()) return elsewhere;
  return std::min(elsewhere, Warm(work, InPlace(fused, group, work), constants_ns, cold_ns));
}

std::vector<bool> ReuseModel::MayReuse(const FusedGraph& fused) const {
  const size_t calls = fused.groups.size();
  std::vector<bool> may(calls, false);
  if (!caches_known_) return may;
  ConstantNumbers numbers(fused);
  std::map<int, size_t> reader;  // of each constant, the first group
  int64_t bytes = 0;
  for (size_t g = 0; g < calls; ++g) {
    const Group& group = fused.groups[g];
    const std::vector<int64_t> touched = TouchedBytes(fused, group);
    if (!Overwritable(fused, group).empty()) may[g] = true;
    for (size_t i = 0; i < group.inputs.size(); ++i) {
      const int constant = numbers.Of(group.inputs[i]);
      if (constant < 0 || touched[i] < kLeastBytes) continue;
      const auto [first, fresh] = reader.try_emplace(constant, g);
      if (fresh) {
        bytes += touched[i];
      } else if (first->second != g) {
        may[first->second] = may[g] = true;
      }
    }
  }
  if (static_cast<double>(bytes) <= roofline_.CacheBytes()) may.assign(calls, true);
  return may;
}

}  // namespace heddle::plan
