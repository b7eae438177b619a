// Translates expressions and stores of the loop IR to LLVM IR. Private to this folder: includes
// LLVM.
#pragma once

#include <optional>
#include <vector>

#include "compiler/codegen/llvm/emit_context.h"

namespace heddle::codegen {

// Inside a vectorized loop, an expression is a scalar if it does not depend on the vector lane,
// else a vector with one element for each lane. Scalars are broadcast where they meet vectors.
class ExprEmitter {
 public:
  explicit ExprEmitter(EmitContext& context) : c_(context), b_(context.builder) {}

  llvm::Value* Emit(const ir::Expr& e);
  // In a vectorized loop, the address must depend on the vector lane.
  void EmitStore(const ir::Store& store);
  // Fetches the cache line into the second-level cache, which holds a whole panel until it is used.
  // Outside of vectorized loops only.
  void EmitPrefetch(const ir::Prefetch& prefetch);

  // The mask of the vector lanes that are active and for which `condition` (a vector) holds.
  llvm::Value* Restrict(llvm::Value* condition);

 private:
  // The addresses of the vector lanes of an access.
  struct Address {
    llvm::Value* pointer = nullptr;  // address of lane 0; null if the lanes have no constant stride
    int64_t stride = 0;              // in elements, from lane to lane
    // Without a constant stride: the element index of each lane, relative to `base`.
    llvm::Value* offsets = nullptr;
    llvm::Value* base = nullptr;
    llvm::Align alignment;  // of lane 0
  };

  llvm::Type* RegisterType(ir::DType dtype);
  llvm::Type* MemoryType(ir::DType dtype);
  llvm::Type* Widen(llvm::Type* type) { return llvm::FixedVectorType::get(type, c_.lanes); }
  llvm::Value* Broadcast(llvm::Value* v);
  void Unify(llvm::Value*& a, llvm::Value*& b);
  llvm::Value* LaneNumbers(llvm::Type* element);
  llvm::Value* AllLanes();

  bool OffsetsFitI32(const ir::Linear& lanes);
  // The part of an index that differs from lane to lane (term by term), and the rest.
  struct Parts {
    ir::Linear lanes, rest;
  };
  Parts SplitByLanes(const ir::Linear& index);
  // `inside`: the elements of all active vector lanes lie within the buffer.
  Address MakeAddress(const ir::Buffer& buffer, const ir::Linear& index, bool inside = true);
  llvm::Value* LanePointers(const Address& address, llvm::Type* type);
  bool LanesInside(const ir::Buffer& buffer, const std::vector<ir::Expr>& indices, int lanes);
  bool IsOnStack(const ir::Buffer& buffer);
  int MemoryLanes(const ir::Buffer& buffer);
  llvm::Value* Resize(llvm::Value* v, int lanes, llvm::Value* fill);
  llvm::Value* WideMask(int lanes);
  llvm::Value* EmitContiguousLoad(const ir::ExprNode& e, const Address& address, llvm::Type* type,
                                  bool safe);
  llvm::Value* EmitLoad(const ir::ExprNode& e);
  llvm::Value* EmitElements(const ir::ExprNode& e, const ir::Linear& index);
  // A load whose vector lanes read different elements of one aligned vector: the start of the
  // vector, and the element that each lane reads.
  struct Permutation {
    ir::Linear start;
    std::vector<int> pick;
  };
  std::optional<Permutation> AsPermutation(const ir::Buffer& buffer, const ir::Linear& index);
  // A load whose vector lanes read elements of a table that fits into vector registers.
  struct Table {
    ir::Linear start;       // the first element; the same for all lanes
    ir::Linear place;       // of each lane, counted from `start`: 0, 1, .. elements - 1
    int64_t elements = 0;   // at most kMaxTable
    int64_t available = 0;  // the elements from `start` on that surely lie in the buffer
    Lookup lookup;
  };
  std::optional<Table> AsTable(const ir::Buffer& buffer, const ir::Linear& index);
  llvm::Value* EmitPlaces(const ir::Linear& place, llvm::Type* element);
  std::vector<llvm::Value*> LoadTable(const ir::Buffer& buffer, const Table& table,
                                      llvm::Type* element);
  llvm::Value* EmitTableLoad(const ir::Buffer& buffer, const Table& table);
  bool HasOnePlace(const ir::ExprNode& load, bool masked);
  llvm::Value* EmitGuardedLoads(llvm::Value* condition, const ir::ExprNode& e);
  llvm::Value* Repeated(const ir::Expr& constant);
  bool AccessesLanesSingly(const Address& address);
  llvm::Value* LanePointer(const Address& address, llvm::Type* type, int lane);
  llvm::Value* EmitSingleLoads(const Address& address, llvm::Type* type, llvm::Align alignment);
  void EmitSingleStores(llvm::Value* value, const Address& address, llvm::Type* type,
                        llvm::Align alignment);
  llvm::Value* EmitUniformLoadWhereAnyLane(const Address& address, llvm::Type* type);
  llvm::Value* EmitEverySecond(const Address& address, llvm::Type* type);

  llvm::Value* EmitOp(const ir::ExprNode& e);
  llvm::Value* EmitArithmetic(const ir::ExprNode& e);
  llvm::Value* EmitFloatBinary(ir::Op op, llvm::Value* x, llvm::Value* y);
  llvm::Value* EmitIntBinary(const ir::ExprNode& e, llvm::Value* x, llvm::Value* y);
  llvm::Value* EmitIntDivision(const ir::ExprNode& e, llvm::Value* x, llvm::Value* y);
  llvm::Value* EmitUnary(const ir::ExprNode& e);
  llvm::Value* EmitCompare(const ir::ExprNode& e);
  llvm::Value* EmitLaneCompare(const ir::ExprNode& e);
  llvm::Value* EmitLogic(const ir::ExprNode& e);
  llvm::Value* EmitSelect(const ir::ExprNode& e);
  llvm::Value* EmitBranches(llvm::Value* condition, const ir::Expr& then_value,
                            const ir::Expr& else_value);
  llvm::Value* EmitUnderMask(llvm::Value* mask, const ir::Expr& e);
  llvm::Value* EmitCast(const ir::ExprNode& e);
  llvm::Value* Convert(llvm::Value* x, ir::DType from, ir::DType to);

  EmitContext& c_;
  bool in_index_ = false;  // true while the index of an access is emitted
  // Set while loads are emitted that may lie outside of their buffers unless `guard_` holds. Vector
  // lanes for which it does not hold read `instead_`.
  llvm::Value* guard_ = nullptr;
  ir::Expr instead_;
  llvm::IRBuilder<>& b_;
};

}  // namespace heddle::codegen
