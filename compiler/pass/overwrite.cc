#include "compiler/pass/overwrite.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <variant>

#include "compiler/ir/visit.h"

namespace heddle::pass {
namespace {

using ir::As;
using ir::Buffer;
using ir::Expr;
using ir::Stmt;

struct OutputUse {
  double stores = 0;  // how many stores run if all guards are true
  bool read = false;
};

struct InputUse {
  std::set<const Buffer*> by;  // outputs whose stores read the element at the same place
  bool otherwise = false;      // read at another place, or by another statement
};

class Uses {
 public:
  explicit Uses(const ir::Program& program) {
    for (const ir::BufferRef& buffer : program.inputs) inputs_[buffer.get()];
    for (const ir::BufferRef& buffer : program.outputs) outputs_[buffer.get()];
    Walk(program.body, 1);
  }

  bool Proven(const ir::BufferRef& output, const ir::BufferRef& input) const {
    const OutputUse& out = outputs_.at(output.get());
    const InputUse& in = inputs_.at(input.get());
    return !blocks_ && output->dtype == input->dtype && output->shape == input->shape &&
           !out.read && out.stores <= static_cast<double>(output->NumElements()) && !in.otherwise &&
           in.by.size() == 1 && in.by.count(output.get()) > 0;
  }

 private:
  void Walk(const Stmt& s, double times) {
    if (auto* store = As<ir::Store>(s)) {
      for (const Expr& index : store->indices) Read(index, nullptr);
      Read(store->value, store);
      if (auto it = outputs_.find(store->buffer.get()); it != outputs_.end())
        it->second.stores += times;
    } else if (auto* prefetch = As<ir::Prefetch>(s)) {  // reads its indices, not its element
      for (const Expr& index : prefetch->element->args) Read(index, nullptr);
    } else {
      blocks_ |= As<ir::Block>(s) != nullptr;
      ir::ForEachExpr(s, [&](const Expr& e) { Read(e, nullptr); });
    }
    if (auto* loop = As<ir::For>(s)) times *= static_cast<double>(loop->extent);
    ir::ForEachChild(s, [&](const Stmt& child) { Walk(child, times); });
  }

  // `store`: whose value `e` is; null for anything else.
  void Read(const Expr& e, const ir::Store* store) {
    ir::VisitLoads(e, [&](const Expr& node) {
      if (auto it = outputs_.find(node->buffer.get()); it != outputs_.end()) it->second.read = true;
      auto it = inputs_.find(node->buffer.get());
      if (it == inputs_.end()) return;
      const bool in_place = store != nullptr && outputs_.count(store->buffer.get()) > 0 &&
                            std::equal(node->args.begin(), node->args.end(), store->indices.begin(),
                                       store->indices.end(), ir::StructuralEqual);
      if (in_place) {
        it->second.by.insert(store->buffer.get());
      } else {
        it->second.otherwise = true;
      }
    });
  }

  std::unordered_map<const Buffer*, OutputUse> outputs_;
  std::unordered_map<const Buffer*, InputUse> inputs_;
  bool blocks_ = false;
};

}  // namespace

std::vector<Overwrite> FindOverwrites(const ir::Program& lowered) {
  const Uses uses(lowered);
  std::vector<Overwrite> found;
  for (size_t o = 0; o < lowered.outputs.size(); ++o) {
    for (size_t i = 0; i < lowered.inputs.size(); ++i) {
      if (uses.Proven(lowered.outputs[o], lowered.inputs[i]))
        found.push_back({static_cast<int>(o), static_cast<int>(i)});
    }
  }
  return found;
}

}  // namespace heddle::pass
