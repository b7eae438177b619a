#include "compiler/codegen/cuda/locals.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/ir/analysis/analyzer.h"
#include "compiler/ir/visit.h"

namespace heddle::codegen {

namespace {

using namespace ir;

// The part of an index that one loop variable contributes, if it is the same in every thread.
struct Part {
  int64_t stride = 0;
  int64_t extent = 0;
  bool operator==(const Part&) const = default;
};

// Maps each stride to the distance that all terms of this stride cover together. For 4 * i + j with
// i < 3, j < 4, it is {1: 3, 4: 8}.
using Reaches = std::map<int64_t, int64_t>;

int64_t Below(const Reaches& reaches, int64_t stride) {
  int64_t sum = 0;
  for (auto it = reaches.begin(); it != reaches.lower_bound(stride); ++it) sum += it->second;
  return sum;
}

// One dimension of a buffer that is spread over the threads.
struct Dimension {
  bool known = false;
  // The part of the index that depends on the thread, in the canonical thread variables.
  Linear thread;
  std::vector<Part> parts;  // by ascending stride
  bool dense = true;        // every access has these parts and this constant
  int64_t constant = 0;
  int64_t lo = 0, hi = 0;  // bounds of the part of the index that is the same in every thread
  Reaches threads;         // reaches of `thread`
  // For each access, the reaches of the part that is the same in every thread.
  std::vector<Reaches> rests;
  Interval starts;  // range of the smallest thread-independent index of each access
};

// Whether different threads access different elements. It compares the indices digit by digit: from
// the smallest stride of the threads upward, each stride must exceed what all smaller strides reach
// together. Then the indices of two threads differ by their highest different digit.
bool ThreadsApart(const Dimension& dim) {
  if (dim.threads.empty()) return true;
  std::set<int64_t> strides;
  for (const auto& entry : dim.threads) strides.insert(entry.first);
  for (const Reaches& rest : dim.rests) {
    for (auto it = rest.lower_bound(dim.threads.begin()->first); it != rest.end(); ++it) {
      if (dim.threads.count(it->first) > 0) return false;
      strides.insert(it->first);
    }
  }
  return std::all_of(strides.begin(), strides.end(), [&](int64_t stride) {
    int64_t below = 0;
    for (const Reaches& rest : dim.rests) below = std::max(below, Below(rest, stride));
    return stride > below + Below(dim.threads, stride) + dim.starts.max - dim.starts.min;
  });
}

bool SameTerms(const Linear& a, const Linear& b) {
  if (a.terms.size() != b.terms.size()) return false;
  return std::all_of(a.terms.begin(), a.terms.end(), [&](const auto& term) {
    return std::any_of(b.terms.begin(), b.terms.end(), [&](const auto& other) {
      return other.second == term.second && StructuralEqual(other.first, term.first);
    });
  });
}

class Spreader {
 public:
  absl::StatusOr<Stmt> Run(const Stmt& launch) {
    VisitStmt(launch, [&](const Stmt& s) {
      const For* loop = As<For>(s);
      if (loop == nullptr) return true;
      analyzer_.Bind(loop->var.get(), {0, loop->extent - 1});
      if (!IsGpuThread(loop->kind)) return true;
      VarRef& axis = axes_[static_cast<int>(loop->kind) - static_cast<int>(LoopKind::kThreadX)];
      if (!axis) axis = std::make_shared<const Var>(Var{std::string(Name(loop->kind))});
      canonical_[loop->var.get()] = VarExpr(axis);
      const auto known = analyzer_.Bounds(VarExpr(axis));
      analyzer_.Bind(axis.get(), {0, std::max(known ? known->max : 0, loop->extent - 1)});
      return true;
    });
    return Visit(launch, false);
  }

 private:
  absl::StatusOr<Stmt> Visit(const Stmt& s, bool in_thread) {
    const For* loop = As<For>(s);
    in_thread |= loop && IsGpuThread(loop->kind);
    absl::Status status;
    const Stmt result = MapChildren(s, [&](const Stmt& child) {
      absl::StatusOr<Stmt> visited = Visit(child, in_thread);
      status.Update(visited.status());
      return visited.ok() ? *std::move(visited) : child;
    });
    HEDDLE_RETURN_IF_ERROR(status);
    const Alloc* alloc = As<Alloc>(result);
    if (alloc == nullptr || alloc->buffer->scope != Scope::kLocal || in_thread) return result;
    return Spread(*alloc->buffer, alloc->body);
  }

  using Indices = std::vector<Expr>;

  // Calls `fn` for each access to the buffer. `threads`: the number of threads that execute the
  // statement.
  static void VisitAccesses(const Stmt& s, const Buffer& buffer, int64_t threads,
                            const std::function<void(const Indices&, int64_t)>& fn) {
    if (const Store* store = As<Store>(s); store && store->buffer.get() == &buffer)
      fn(store->indices, threads);
    ForEachExpr(s, [&](const Expr& e) {
      VisitLoads(e, [&](const Expr& load) {
        if (load->buffer.get() == &buffer) fn(load->args, threads);
      });
    });
    if (const For* loop = As<For>(s); loop && IsGpuThread(loop->kind)) threads *= loop->extent;
    ForEachChild(s, [&](const Stmt& child) { VisitAccesses(child, buffer, threads, fn); });
  }

  // Whether the access may touch a different element in each of `threads` threads.
  bool TellsApart(const Indices& indices, int64_t threads) {
    int64_t different = 1;
    for (const Expr& index : indices) {
      for (const auto& [term, factor] : analyzer_.SimplifyToLinear(index).terms) {
        const auto range = OfThread(term) ? analyzer_.Bounds(term) : std::nullopt;
        if (range && different < threads) different *= range->max - range->min + 1;
      }
    }
    return different >= threads;
  }

  bool OfThread(const Expr& e) const {
    for (const VarRef& var : FreeVars(e)) {
      if (canonical_.count(var.get())) return true;
    }
    return false;
  }

  // Splits an index into the terms that depend on the thread and the rest.
  void Split(const Expr& index, Linear* thread, Linear* rest) {
    const Linear all = analyzer_.SimplifyToLinear(index);
    rest->constant = all.constant;
    for (const auto& [term, factor] : all.terms) {
      if (OfThread(term)) {
        thread->terms.emplace_back(Substitute(term, canonical_), factor);
      } else {
        rest->terms.emplace_back(term, factor);
      }
    }
  }

  // Adds the distances that the terms cover. False if a term has no known bounds.
  bool AddReaches(const Linear& l, Reaches* reaches) {
    for (const auto& [term, factor] : l.terms) {
      const auto range = analyzer_.Bounds(term);
      if (!range) return false;
      if (range->max > range->min)
        (*reaches)[std::abs(factor)] += std::abs(factor) * (range->max - range->min);
    }
    return true;
  }

  // Adds an access to what is known of the dimension. False if it does not fit the earlier ones.
  bool Include(const Expr& index, Dimension* dim) {
    Linear thread, rest;
    Split(index, &thread, &rest);
    const auto bounds = analyzer_.Bounds(FromLinear(rest));
    Reaches threads, rests;
    if (!bounds || !AddReaches(thread, &threads) || !AddReaches(rest, &rests)) return false;
    std::vector<Part> parts;
    bool plain = true;
    for (const auto& [term, factor] : rest.terms) {
      const auto range = analyzer_.Bounds(term);
      plain &= range && range->min == 0 && factor > 0;
      if (range) parts.push_back({factor, range->max + 1});
    }
    std::sort(parts.begin(), parts.end(),
              [](const Part& a, const Part& b) { return a.stride < b.stride; });
    for (size_t k = 1; k < parts.size(); ++k)
      plain &= parts[k].stride >= parts[k - 1].stride * parts[k - 1].extent;
    if (!dim->known) {
      *dim = Dimension{true,        thread,      parts,   plain,   rest.constant,
                       bounds->min, bounds->max, threads, {rests}, {bounds->min, bounds->min}};
      return true;
    }
    dim->dense &= plain && parts == dim->parts && rest.constant == dim->constant;
    dim->lo = std::min(dim->lo, bounds->min);
    dim->hi = std::max(dim->hi, bounds->max);
    for (const auto& [stride, reach] : threads)
      dim->threads[stride] = std::max(dim->threads[stride], reach);
    dim->rests.push_back(std::move(rests));
    dim->starts.min = std::min(dim->starts.min, bounds->min);
    dim->starts.max = std::max(dim->starts.max, bounds->min);
    return SameTerms(thread, dim->thread);
  }

  absl::StatusOr<Stmt> Spread(const Buffer& buffer, const Stmt& body) {
    std::vector<Dimension> dims(buffer.shape.size());
    bool fits = true;
    VisitAccesses(body, buffer, 1, [&](const Indices& indices, int64_t threads) {
      for (size_t d = 0; d < indices.size(); ++d) fits = fits && Include(indices[d], &dims[d]);
      fits = fits && TellsApart(indices, threads);
    });
    fits = fits && std::all_of(dims.begin(), dims.end(), ThreadsApart);
    if (!fits) {
      return absl::UnimplementedError(
          absl::StrCat("local buffer ", buffer.name, " is not spread evenly over the threads"));
    }
    auto own = std::make_shared<Buffer>(buffer);
    for (size_t d = 0; d < dims.size(); ++d) {
      if (!dims[d].known) continue;
      own->shape[d] = dims[d].hi - dims[d].lo + 1;
      if (!dims[d].dense) continue;
      own->shape[d] = 1;
      for (const Part& part : dims[d].parts) own->shape[d] *= part.extent;
    }
    Stmt spread = MapElements(body, [&](const BufferRef& from, const Indices& indices) {
      std::optional<Element> moved;
      if (from.get() != &buffer) return moved;
      moved = {own, {}};
      for (size_t d = 0; d < indices.size(); ++d)
        moved->indices.push_back(Moved(indices[d], dims[d]));
      return moved;
    });
    return MakeStmt(Alloc{own, std::move(spread)});
  }

  Expr Moved(const Expr& index, const Dimension& dim) {
    Linear thread, rest;
    Split(index, &thread, &rest);
    if (!dim.dense) {
      rest.constant -= dim.lo;
      return FromLinear(rest);
    }
    Linear packed;
    for (const auto& [term, factor] : rest.terms) {
      int64_t stride = 1;
      for (const Part& part : dim.parts) {
        if (part.stride < factor) stride *= part.extent;
      }
      packed.terms.emplace_back(term, stride);
    }
    return FromLinear(packed);
  }

  Analyzer analyzer_;
  VarRef axes_[3];
  Substitution canonical_;
};

}  // namespace

absl::StatusOr<ir::Stmt> SpreadLocals(const ir::Stmt& launch) { return Spreader().Run(launch); }

}  // namespace heddle::codegen
