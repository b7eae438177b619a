#include "compiler/measure/random_input.h"

#include <algorithm>
#include <cstdint>
#include <set>

#include "compiler/ir/arithmetic.h"
#include "compiler/ir/visit.h"

namespace heddle::internal {
namespace {

template <typename T, typename Next>
void FillWith(const ir::Buffer& buffer, void* data, const Next& next) {
  T* out = static_cast<T*>(data);
  const int64_t count = buffer.NumElements();
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<T>(next());
}

using Buffers = std::set<const ir::Buffer*>;

// Whether an element of `buffers` is a term of the value, and does not only choose between others.
bool Carries(const ir::Expr& value, const Buffers& buffers) {
  switch (value->kind) {
    case ir::ExprKind::kLoad:
      return buffers.contains(value->buffer.get());
    case ir::ExprKind::kCast:
      return Carries(value->args[0], buffers);
    case ir::ExprKind::kOp:
      if (value->dtype == ir::DType::kBool) return false;
      return std::any_of(value->args.begin() + (value->op == ir::Op::kSelect ? 1 : 0),
                         value->args.end(),
                         [&](const ir::Expr& operand) { return Carries(operand, buffers); });
    default:
      return false;
  }
}

// A node of a complete tree whose nodes are numbered level by level: its left child, or the node itself if it is a
// leaf or the range ends before its child.
int64_t LeftChild(int64_t node, int64_t below) {
  const int64_t child = 2 * node + 1;
  return child < below ? child : std::min(node, below - 1);
}

}  // namespace

int LinkDimension(const ir::Program& program, const ir::Buffer& table) {
  Buffers carriers{&table};
  for (size_t before = 0; before != carriers.size();) {
    before = carriers.size();
    ir::VisitStmt(program.body, [&](const ir::Stmt& s) {
      const auto* block = ir::As<ir::Block>(s);
      const auto* store = block != nullptr ? &block->store : ir::As<ir::Store>(s);
      if (store != nullptr && Carries(store->value, carriers)) carriers.insert(store->buffer.get());
      return true;
    });
  }
  int found = -1;
  ir::VisitLoads(program.body, [&](const ir::Expr& load) {
    if (load->buffer.get() != &table) return;
    for (size_t d = 0; d < load->args.size(); ++d) {
      if (Carries(load->args[d], carriers)) found = static_cast<int>(d);
    }
  });
  return found;
}

void FillInput(const ir::Program& program, const ir::Buffer& buffer, void* data, SplitMix& random) {
  const int links = buffer.below > 0 ? LinkDimension(program, buffer) : -1;
  int64_t extent = 1, inner = 1;  // of the dimension of links, and of those after it together
  for (size_t d = 0; links >= 0 && d < buffer.shape.size(); ++d) {
    if (d == static_cast<size_t>(links)) extent = buffer.shape[d];
    if (d > static_cast<size_t>(links)) inner *= buffer.shape[d];
  }
  int64_t element = 0;
  const auto small = [&]() -> int64_t {
    if (links >= 0) return LeftChild(element++ / inner % extent, buffer.below);
    if (buffer.below > 0)
      return static_cast<int64_t>(random.Next() % static_cast<uint64_t>(buffer.below));
    return static_cast<int64_t>(random.Next() % 4) + 1;
  };
  const auto real = [&] { return 2 * random.Unit() - 1; };
  switch (buffer.dtype) {
    case ir::DType::kBool:
      return FillWith<uint8_t>(buffer, data, [&] { return random.Next() & 1; });
    case ir::DType::kI8:
    case ir::DType::kU8:
      return FillWith<uint8_t>(buffer, data, small);
    case ir::DType::kI16:
    case ir::DType::kU16:
      return FillWith<uint16_t>(buffer, data, small);
    case ir::DType::kI32:
    case ir::DType::kU32:
      return FillWith<int32_t>(buffer, data, small);
    case ir::DType::kI64:
    case ir::DType::kU64:
      return FillWith<int64_t>(buffer, data, small);
    case ir::DType::kF32:
      return FillWith<float>(buffer, data, real);
    case ir::DType::kF64:
      return FillWith<double>(buffer, data, real);
    case ir::DType::kF16:
    case ir::DType::kBF16:
      return FillWith<uint16_t>(
          buffer, data, [&] { return ir::HalfBits(static_cast<float>(real()), buffer.dtype); });
  }
}

}  // namespace heddle::internal
