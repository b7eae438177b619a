#include "cost_model/features/statements.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "compiler/ir/ir.h"
#include "compiler/ir/visit.h"
#include "cost_model/features/index_ranges.h"

namespace heddle::cost_model {
namespace {

using ir::Expr;
using ir::ExprKind;
using ir::Op;

bool IsSpecial(Op op) { return op == Op::kPow || (op >= Op::kSign && op <= Op::kRound); }

void CountOp(const ir::ExprNode& e, Arithmetic& ops) {
  switch (e.op) {
    case Op::kLt:
    case Op::kLe:
    case Op::kEq:
    case Op::kNe:
    case Op::kAnd:
    case Op::kOr:
    case Op::kNot:
    case Op::kSelect:
    case Op::kIsNan:
    case Op::kIsInf:
      ops.select += 1;
      return;
    default:
      break;
  }
  if (!ir::IsFloat(e.dtype)) {
    ops.integer += 1;
  } else if (IsSpecial(e.op)) {
    ops.special += 1;
  } else if (e.op == Op::kMul) {
    ops.float_mul += 1;
  } else if (e.op == Op::kDiv) {
    ops.float_div += 1;
  } else {
    ops.float_add += 1;
  }
}

class Collector {
 public:
  std::vector<Statement> Take() && { return std::move(statements_); }

  void Visit(const ir::Stmt& s) {
    if (const auto* loop = ir::As<ir::For>(s)) return VisitFor(*loop);
    if (const auto* store = ir::As<ir::Store>(s)) Add(*store, false, guards_);
    if (const auto* block = ir::As<ir::Block>(s)) {
      const size_t size = ranges_.size();
      for (const ir::BlockIter& iter : block->iters) ranges_.PushIterator(iter);
      Add(block->store, block->reducer.has_value(), guards_ + (block->where != nullptr));
      if (block->reducer) CountCombine(*block, statements_.back().ops);
      ranges_.Truncate(size);
    }
    const bool guard = ir::As<ir::If>(s) != nullptr;
    guards_ += guard;
    ir::ForEachChild(s, [&](const ir::Stmt& child) { Visit(child); });
    guards_ -= guard;
  }

 private:
  // Masks of loops have 64 bits. A nest of more loops of extent two or more would run for
  // centuries; loops beyond the limit count as standing still.
  static constexpr size_t kMaxLoops = 64;

  void VisitFor(const ir::For& loop) {
    const size_t size = ranges_.size();
    const bool counts = loop.extent > 1 && loops_.size() < kMaxLoops;
    ranges_.PushLoop(loop.var.get(), counts ? uint64_t{1} << loops_.size() : 0);
    if (counts) loops_.push_back({loop.var.get(), loop.extent, loop.kind});
    Visit(loop.body);
    if (counts) loops_.pop_back();
    ranges_.Truncate(size);
  }

  static void CountCombine(const ir::Block& block, Arithmetic& ops) {
    if (!ir::IsFloat(block.store.buffer->dtype)) {
      ops.integer += 1;
    } else if (block.reducer->op == ir::ReduceOp::kProd) {
      ops.float_mul += 1;
    } else {
      ops.float_add += 1;
    }
  }

  void Add(const ir::Store& store, bool reduction, int guards) {
    Statement& st = statements_.emplace_back();
    st.loops = loops_;
    st.guards = guards;
    st.reduction = reduction;
    sources_.clear();
    sources_.push_back({store.buffer.get(), &store.indices, true});
    CollectValue(store.value, st);
    for (const Source& source : sources_) {
      Access access;
      access.buffer = source.buffer;
      access.is_store = source.is_store;
      st.accesses.push_back(std::move(access));
    }
    MeasureFootprints(st);
    MeasureStrides(st);
  }

  // Collects the arithmetic and the loads of a value. A load of the stored element marks a
  // reduction and is no access of its own. Equal loads are one access.
  void CollectValue(const Expr& e, Statement& st) {
    if (e->kind == ExprKind::kLoad) {
      if (SameAccess(*e, sources_[0])) {
        st.reduction = true;
        return;
      }
      for (const Source& s : sources_) {
        if (SameAccess(*e, s)) return;
      }
      sources_.push_back({e->buffer.get(), &e->args, false});
      for (const Expr& index : e->args) CollectIndexLoads(index, st);
      return;
    }
    if (e->kind == ExprKind::kOp) CountOp(*e, st.ops);
    if (e->kind == ExprKind::kCast) st.ops.cast += 1;
    for (const Expr& arg : e->args) CollectValue(arg, st);
  }

  // Collects the loads within an index (a gather).
  void CollectIndexLoads(const Expr& e, Statement& st) {
    if (e->kind == ExprKind::kLoad) return CollectValue(e, st);
    for (const Expr& arg : e->args) CollectIndexLoads(arg, st);
  }

  struct Source {
    const ir::Buffer* buffer;
    const std::vector<Expr>* indices;
    bool is_store;
    uint64_t mask = 0;  // the loops that its address depends on
  };

  static bool SameAccess(const ir::ExprNode& load, const Source& s) {
    if (load.buffer.get() != s.buffer) return false;
    for (size_t d = 0; d < load.args.size(); ++d) {
      if (!ir::StructuralEqual(load.args[d], (*s.indices)[d])) return false;
    }
    return true;
  }

  void MeasureFootprints(Statement& st) {
    const size_t num_loops = loops_.size();
    for (Access& a : st.accesses) {
      a.elements.resize(num_loops + 1);
      a.line_bytes.resize(num_loops + 1);
    }
    for (Source& source : sources_) {
      source.mask = 0;
      for (const Expr& index : *source.indices) source.mask |= ranges_.Mask(index);
    }
    for (size_t level = 0; level <= num_loops; ++level) {
      const uint64_t running = level >= 64 ? 0 : ~uint64_t{0} << level;
      // Each level has one more loop that stands still.
      const uint64_t changed = level == 0 ? IndexRanges::kAll : uint64_t{1} << (level - 1);
      ranges_.SetLoops(changed, [&](const IndexRanges::Entry& e) {
        if ((e.mask & running) == 0) return ir::Interval{0, 0};
        return ir::Interval{0, loops_[static_cast<size_t>(__builtin_ctzll(e.mask))].extent - 1};
      });
      for (size_t i = 0; i < st.accesses.size(); ++i) {
        Access& access = st.accesses[i];
        if (level > 0 && (sources_[i].mask & changed) == 0) {
          access.elements[level] = access.elements[level - 1];
          access.line_bytes[level] = access.line_bytes[level - 1];
        } else {
          Footprint(sources_[i], running, level, access);
        }
      }
    }
  }

  double TripsOf(uint64_t mask) const {
    double trips = 1;
    for (size_t k = 0; k < loops_.size(); ++k) {
      if (mask >> k & 1) trips *= static_cast<double>(loops_[k].extent);
    }
    return trips;
  }

  // A dimension takes as many values as its range is wide, but no more than the loops that it
  // depends on have iterations. The innermost dimension, and each further one while those inside it
  // are covered, form one contiguous run of cache lines.
  void Footprint(const Source& source, uint64_t running, size_t level, Access& access) const {
    const std::vector<int64_t>& shape = source.buffer->shape;
    double elements = 1, run_elements = 1, run_width = 1;
    uint64_t all = 0;
    bool contiguous = true;
    for (size_t d = shape.size(); d-- > 0;) {
      const Expr& index = (*source.indices)[d];
      const uint64_t mask = ranges_.Mask(index) & running;
      const std::optional<ir::Interval> range = ranges_.RangeOf(index);
      int64_t width = mask == 0 ? 1 : shape[d];
      if (range) width = std::min(range->max - range->min + 1, shape[d]);
      const double count = std::min(static_cast<double>(width), TripsOf(mask));
      elements *= count;
      all |= mask;
      if (contiguous) {
        run_elements *= count;
        run_width *= static_cast<double>(width);
      }
      contiguous = contiguous && width == shape[d];
    }
    elements = std::min(elements, TripsOf(all));
    const double bytes = static_cast<double>(ir::SizeOf(source.buffer->dtype));
    const double lines_per_run = std::ceil(run_width * bytes / kLineBytes);
    const double runs = std::max(1.0, elements / run_elements);
    access.elements[level] = elements;
    access.line_bytes[level] = std::min(runs * lines_per_run, elements) * kLineBytes;
  }

  // Address at the second iteration of each loop, all others at zero, minus the address at the
  // origin.
  void MeasureStrides(Statement& st) {
    for (Access& a : st.accesses) a.stride.resize(loops_.size());
    std::vector<int64_t> origin(st.accesses.size());
    for (size_t k = 0; k <= loops_.size(); ++k) {
      const uint64_t moved = k == 0 ? 0 : uint64_t{1} << (k - 1);
      // The loop that moved before returns to zero.
      const uint64_t changed = k == 0 ? IndexRanges::kAll : moved | moved >> 1;
      ranges_.SetLoops(changed, [&](const IndexRanges::Entry& e) {
        const int64_t at = (e.mask & moved) != 0 ? 1 : 0;
        return ir::Interval{at, at};
      });
      for (size_t i = 0; i < st.accesses.size(); ++i) {
        if (k == 0) {
          origin[i] = Address(sources_[i]);
        } else if ((sources_[i].mask & moved) != 0) {
          st.accesses[i].stride[k - 1] = Address(sources_[i]) - origin[i];
        }
      }
    }
  }

  int64_t Address(const Source& source) const {
    const std::vector<int64_t>& shape = source.buffer->shape;
    int64_t address = 0;
    for (size_t d = 0; d < shape.size(); ++d) {
      const std::optional<ir::Interval> range = ranges_.RangeOf((*source.indices)[d]);
      address = address * shape[d] + (range ? range->min : 0);
    }
    return address;
  }

  std::vector<Loop> loops_;
  int guards_ = 0;
  IndexRanges ranges_;
  std::vector<Source> sources_;  // of the statement being added
  std::vector<Statement> statements_;
};

}  // namespace

double Statement::Trips(size_t begin, size_t end) const {
  double trips = 1;
  for (size_t k = begin; k < end; ++k) trips *= static_cast<double>(loops[k].extent);
  return trips;
}

double Statement::LineBytes(size_t level) const {
  double bytes = 0;
  for (const Access& a : accesses) bytes += a.line_bytes[level];
  return bytes;
}

double Statement::Traffic(const Access& access, double capacity) const {
  size_t level = 0;
  while (level < loops.size() && LineBytes(level) > capacity) ++level;
  const double bytes = access.line_bytes[level];
  while (level > 0 && access.line_bytes[level - 1] == bytes) --level;
  return Trips(0, level) * bytes;
}

double Statement::Traffic(double capacity) const {
  double bytes = 0;
  for (const Access& a : accesses) bytes += Traffic(a, capacity);
  return bytes;
}

const std::vector<Statement>* KnownStatements::Find(const ir::Stmt& root) const {
  const auto it = entries_.find(root.get());
  return it == entries_.end() ? nullptr : &it->second.found;
}

void KnownStatements::Add(const ir::Stmt& root, std::vector<Statement> found) {
  if (entries_.size() >= kMost) entries_.clear();
  entries_[root.get()] = {root, std::move(found)};
}

std::vector<Statement> CollectStatements(const ir::Program& program, KnownStatements* known) {
  std::vector<Statement> all;
  if (program.body == nullptr) return all;
  const ir::Stmt* body = &program.body;
  while (const auto* alloc = ir::As<ir::Alloc>(*body)) body = &alloc->body;
  const auto* seq = ir::As<ir::Seq>(*body);
  const std::vector<ir::Stmt> roots = seq != nullptr ? seq->stmts : std::vector<ir::Stmt>{*body};
  for (const ir::Stmt& root : roots) {
    if (const auto* found = known == nullptr ? nullptr : known->Find(root)) {
      all.insert(all.end(), found->begin(), found->end());
      continue;
    }
    Collector collector;
    collector.Visit(root);
    std::vector<Statement> found = std::move(collector).Take();
    all.insert(all.end(), found.begin(), found.end());
    if (known != nullptr) known->Add(root, std::move(found));
  }
  return all;
}

}  // namespace heddle::cost_model
