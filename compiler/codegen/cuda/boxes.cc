// Writes fetches of tiles as copies of boxes (sm_90's TMA). One thread starts a copy; the copy engine
// computes the addresses, swaps the pieces of the panels, and counts the bytes that have arrived. Who
// multiplies the tile waits for them.
//
// Only memory of products of four warps is filled so, and only if nothing else touches it: each part
// is filled for one step, and read by the product of that step.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/codegen/cuda/launch.h"
#include "compiler/ir/analysis/index.h"
#include "compiler/ir/visit.h"
#include "compiler/runtime/cuda/device.h"

namespace heddle::codegen {

using namespace ir;

namespace {

constexpr int64_t kMaxBoxRows = 256;                    // of the copy engine
constexpr int64_t kMaxExtent = (int64_t{1} << 31) - 1;  // of a matrix
constexpr int64_t kRowUnit = 8;  // elements: rows begin at multiples of 16 bytes

// A statement's loops but those over blocks, and conditions, from outside.
struct FillPlace {
  std::vector<const For*> loops;
  std::vector<const If*> conditions;
};

// Whether the loops, each index of which moves `place` by a constant, go through 0 .. `elements` - 1,
// each once.
bool CoversOnce(const Linear& place, const std::vector<const For*>& loops, int64_t elements) {
  std::vector<std::pair<int64_t, int64_t>> strides;  // and extents
  for (const For* loop : loops) {
    const std::optional<int64_t> stride = Stride(place, loop->var.get());
    if (!stride) return false;
    if (loop->extent > 1) strides.emplace_back(*stride, loop->extent);
  }
  std::sort(strides.begin(), strides.end());
  int64_t next = 1;
  for (const auto& [stride, extent] : strides) {
    if (stride != next) return false;
    next *= extent;
  }
  const bool others = std::any_of(place.terms.begin(), place.terms.end(), [&](const auto& term) {
    return term.first->kind != ExprKind::kVar ||
           std::none_of(loops.begin(), loops.end(),
                        [&](const For* loop) { return loop->var == term.first->var; });
  });
  return next == elements && place.constant == 0 && !others;
}

// How the loads and stores of one buffer lie in a launch.
struct Touches {
  struct Fill {
    const For* thread;
    FillPlace place;
  };
  std::vector<Fill> fills;  // thread loops that store into it
  std::vector<Fill> reads;  // that load from it
  bool elsewhere = false;   // it is touched outside of thread loops
};

bool LoadsFrom(const Stmt& s, const Buffer* buffer) {
  bool found = false;
  VisitLoads(s, [&](const Expr& load) { found |= load->buffer.get() == buffer; });
  return found;
}

bool StoresInto(const Stmt& s, const Buffer* buffer) {
  return Any(s, [&](const Stmt& node) { return WrittenBuffer(node) == buffer; });
}

Touches TouchesOf(const Stmt& s, const Buffer* buffer) {
  Touches touches;
  FillPlace place;
  const auto visit = [&](const auto& self, const Stmt& node) -> void {
    if (const For* loop = As<For>(node)) {
      if (IsGpuThread(loop->kind)) {
        if (StoresInto(node, buffer)) touches.fills.push_back({loop, place});
        if (LoadsFrom(node, buffer)) touches.reads.push_back({loop, place});
        return;
      }
      const bool kept = !IsGpuBlock(loop->kind);
      if (kept) place.loops.push_back(loop);
      self(self, loop->body);
      if (kept) place.loops.pop_back();
      return;
    }
    if (const If* branch = As<If>(node)) {
      place.conditions.push_back(branch);
      self(self, branch->body);
      place.conditions.pop_back();
      return;
    }
    touches.elsewhere |= WrittenBuffer(node) == buffer;
    if (As<Store>(node)) touches.elsewhere |= LoadsFrom(node, buffer);
    ForEachChild(node, [&](const Stmt& child) { self(self, child); });
  };
  visit(visit, s);
  return touches;
}

}  // namespace

std::optional<CudaLaunch::BoxFetch> CudaLaunch::MatchBox(const For& thread, const Buffer& buffer,
                                                         Analyzer& analyzer) const {
  std::vector<const For*> loops = {&thread};
  const For* inner = As<For>(thread.body);
  while (inner != nullptr) {
    loops.push_back(inner);
    inner = As<For>(inner->body);
  }
  const Store* store = As<Store>(loops.back()->body);
  if (thread.kind != LoopKind::kThreadX || store == nullptr || !async_.count(store) ||
      store->buffer.get() != &buffer || store->value->kind != ExprKind::kLoad)
    return std::nullopt;
  const Expr& load = store->value;
  const Buffer& from = *load->buffer;
  const size_t rank = buffer.shape.size(), source_rank = from.shape.size();
  if (source_rank < 2 || from.dtype != buffer.dtype || from.shape.back() % kRowUnit != 0 ||
      from.shape.back() < kPanelWidth || from.NumElements() > kMaxExtent)
    return std::nullopt;
  const Expr &row = store->indices[rank - 2], &column = store->indices[rank - 1];
  const int64_t rows = buffer.shape[rank - 2], columns = buffer.shape[rank - 1];
  if (!CoversOnce(analyzer.SimplifyToLinear(row * Int(columns) + column), loops, rows * columns))
    return std::nullopt;
  Expr source_row = load->args[0];
  for (size_t d = 1; d + 1 < source_rank; ++d)
    source_row = source_row * Int(from.shape[d]) + load->args[d];
  BoxFetch fetch{&buffer, store, analyzer.Simplify(load->args[source_rank - 1] - column),
                 analyzer.Simplify(source_row - row)};
  for (const For* loop : loops) {
    for (const Expr& e : {store->indices[0], fetch.x, fetch.y}) {
      if (UsesVar(e, loop->var.get())) return std::nullopt;
    }
  }
  return fetch;
}

bool CudaLaunch::FindBoxesOf(const Stmt& s, const Buffer& buffer, Analyzer& analyzer) {
  const size_t rank = buffer.shape.size();
  if (rank < 3) return false;
  const int64_t parts = buffer.shape[0], rows = buffer.shape[rank - 2];
  const int64_t box_rows = std::min(rows, kMaxBoxRows);
  if (buffer.NumElements() != parts * rows * buffer.shape[rank - 1] || parts > 32 ||
      rows % box_rows != 0)
    return false;
  const Touches touches = TouchesOf(s, &buffer);
  if (touches.elsewhere || touches.reads.size() != 1) return false;
  // Read by the product of each step.
  const auto& [reader, read_at] = touches.reads[0];
  const auto group = groups_.find(reader);
  if (group == groups_.end() || !read_at.conditions.empty() || read_at.loops.empty()) return false;
  const TensorProduct& p = group->second.product.product;
  const bool is_a = p.a->buffer.get() == &buffer, is_b = p.b->buffer.get() == &buffer;
  if (is_a == is_b) return false;
  const Expr& part = is_a ? p.a->args[0] : p.b->args[0];
  const For& steps = *read_at.loops.back();
  const auto is_step = [&](const Expr& e, int64_t* ahead) {
    return IsConstInt(analyzer.Simplify(e - VarExpr(steps.var)), ahead);
  };
  const auto is_part = [&](const Expr& e, int64_t* ahead) {
    int64_t modulus = 0;
    if (steps.extent <= parts && is_step(e, ahead)) return true;
    return e->kind == ExprKind::kOp && e->op == Op::kFloorMod && IsConstInt(e->args[1], &modulus) &&
           modulus == parts && is_step(e->args[0], ahead);
  };
  int64_t ahead = 0;
  if (steps.kind != LoopKind::kSerial || !is_part(part, &ahead) || ahead != 0) return false;
  // The fetches, in the order of the program. All but the last stand before the loop, for its first steps. The last one stands
  // in the loop and fetches for a later step.
  const std::vector<const For*> outside(read_at.loops.begin(), read_at.loops.end() - 1);
  std::vector<BoxFetch> fetches;
  bool in_steps = false;
  for (const auto& [thread, place] : touches.fills) {
    std::optional<BoxFetch> fetch = MatchBox(*thread, buffer, analyzer);
    if (!fetch || in_steps) return false;
    const Expr& filled = fetch->store->indices[0];
    int64_t number = 0, limit = 0;
    if (place.loops == outside) {
      if (!place.conditions.empty() || !IsConstInt(filled, &number) || number != ahead++)
        return false;
    } else {
      in_steps = true;
      if (place.loops != read_at.loops || place.conditions.size() != 1) return false;
      const Expr& condition = place.conditions[0]->condition;
      if (!is_part(filled, &number) || number != ahead || condition->kind != ExprKind::kOp ||
          condition->op != Op::kLt || !is_step(condition->args[0], &number) || number != ahead ||
          !IsConstInt(condition->args[1], &limit) || limit != steps.extent)
        return false;
    }
    fetch->thread = thread;
    fetches.push_back(*std::move(fetch));
  }
  if (ahead < 1 || ahead >= parts || ahead > steps.extent || (!in_steps && ahead < steps.extent))
    return false;
  const Buffer& from = *fetches[0].store->value->buffer;
  for (const BoxFetch& fetch : fetches) {
    if (fetch.store->value->buffer.get() != &from) return false;
  }
  Box box{&buffer, &from, box_rows};
  box.map = exprs_.Declare(absl::StrCat(buffer.name, ".map"));
  box.full = exprs_.Declare(absl::StrCat(buffer.name, ".full"));
  box.turns = exprs_.Declare(absl::StrCat(buffer.name, ".turns"));
  boxes_.push_back(std::move(box));
  for (BoxFetch& fetch : fetches) {
    async_.erase(fetch.store);
    box_fetches_.emplace(fetch.thread, std::move(fetch));
  }
  return true;
}

void CudaLaunch::FindBoxes(const Stmt& s) {
  Analyzer analyzer;
  std::vector<const Buffer*> panels;
  VisitStmt(s, [&](const Stmt& node) {
    if (const For* loop = As<For>(node)) analyzer.Bind(loop->var.get(), {0, loop->extent - 1});
    const Alloc* alloc = As<Alloc>(node);
    if (alloc != nullptr && exprs_.UsesPanels(alloc->buffer.get()))
      panels.push_back(alloc->buffer.get());
    return true;
  });
  for (const Buffer* buffer : panels) {
    const bool boxed = boxes_.size() < runtime::kMaxBoxes && FindBoxesOf(s, *buffer, analyzer);
    publish_ |= !boxed;
  }
  for (const Box& box : boxes_)
    absl::StrAppend(&parameters_, ", const __grid_constant__ h_map ", box.map);
}

std::vector<const Buffer*> CudaLaunch::mapped() const {
  std::vector<const Buffer*> buffers;
  for (const Box& box : boxes_) buffers.push_back(box.from);
  return buffers;
}

const CudaLaunch::Box* CudaLaunch::BoxOf(const Buffer* buffer) const {
  for (const Box& box : boxes_) {
    if (box.buffer == buffer) return &box;
  }
  return nullptr;
}

std::string CudaLaunch::BoxTable() const {
  std::vector<int64_t> numbers;
  for (size_t k = 0; k < boxes_.size(); ++k) {
    const Buffer& from = *boxes_[k].from;
    const int64_t width = from.shape.back();
    numbers.insert(numbers.end(), {static_cast<int64_t>(buffers_ + k), width,
                                   from.NumElements() / width, boxes_[k].rows});
  }
  if (numbers.empty()) return "";
  return absl::StrCat("extern \"C\" __device__ int ", symbol_, "_boxes[] = {",
                      absl::StrJoin(numbers, ", "), "};\n");
}

void CudaLaunch::DeclareBoxes() {
  if (boxes_.empty()) return;
  for (const Box& box : boxes_) {
    Line(dynamic_ ? absl::StrCat("u64* const ", box.full, " = (u64*)(h_shared + ", box.offset, ");")
                  : absl::StrCat("__shared__ u64 ", box.full, "[", box.buffer->shape[0], "];"));
    Line(absl::StrCat("unsigned ", box.turns, " = 0;"));
  }
  Open("if (threadIdx.x == 0) ");
  for (const Box& box : boxes_)
    Line(absl::StrCat("h_arrivals(", box.full, ", ", box.buffer->shape[0], ");"));
  Close();
  Line("__syncthreads();");
}

void CudaLaunch::BoxNest(const BoxFetch& fetch) {
  const Buffer& buffer = *fetch.buffer;
  const Box& box = *BoxOf(&buffer);
  const size_t rank = buffer.shape.size();
  const int64_t rows = buffer.shape[rank - 2], columns = buffer.shape[rank - 1];
  Open("if (threadIdx.x == 0) ");
  Line(absl::StrCat("const int h_part = ", exprs_.Value(fetch.store->indices[0]),
                    ", h_x = ", exprs_.Value(fetch.x), ", h_y = ", exprs_.Value(fetch.y), ";"));
  Line(absl::StrCat("h_expect(&", box.full, "[h_part], ", rows * columns * SizeOf(buffer.dtype),
                    ");"));
  for (int64_t x = 0; x < columns; x += kPanelWidth) {
    for (int64_t y = 0; y < rows; y += box.rows) {
      Line(absl::StrCat("h_box(&", exprs_.NameOf(&buffer), "[h_part * ", rows * columns, " + ",
                        x * rows + y * kPanelWidth, "], &", box.map, ", &", box.full,
                        "[h_part], h_x + ", x, ", h_y + ", y, ");"));
    }
  }
  Close();
  Line("__syncwarp();");
}

void CudaLaunch::WaitForBox(const Expr& load) {
  const Box* box = BoxOf(load->buffer.get());
  if (box == nullptr) return;
  Open("");
  Line(absl::StrCat("const int h_part = ", exprs_.Value(load->args[0]), ";"));
  Line(absl::StrCat("h_arrived(&", box->full, "[h_part], ", box->turns, " >> h_part & 1);"));
  Line(absl::StrCat(box->turns, " ^= 1u << h_part;"));
  Close();
}

}  // namespace heddle::codegen
