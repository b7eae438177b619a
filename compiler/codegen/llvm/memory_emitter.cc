// Emits loads, stores and their addresses.
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <utility>

#include "compiler/codegen/llvm/expr_emitter.h"
#include "compiler/codegen/workspace.h"
#include "compiler/ir/analysis/index.h"
#include "compiler/ir/arithmetic.h"
#include "compiler/ir/visit.h"
#include "llvm/Analysis/VectorUtils.h"
#include "llvm/IR/Module.h"

namespace heddle::codegen {

using llvm::Type;
using llvm::Value;

namespace {

// Vector lanes with a constant stride of at most this many elements, as of the channels of a pixel, are
// looked up in the registers that hold them and what lies between.
constexpr int64_t kMostTableStride = 4;

// Whether the store adds a product with the literal zero to a sum, which happens at the positions
// of a window that lie in the padding. Such a term counts as nothing (numerics.h).
bool AddsPadding(const ir::Store& store) {
  const ir::Expr& sum = store.value;
  if (sum->kind != ir::ExprKind::kOp || sum->op != ir::Op::kAdd || !ir::IsFloat(sum->dtype))
    return false;
  const ir::Expr& term = sum->args[1];
  if (!ir::StructuralEqual(sum->args[0], ir::Load(store.buffer, store.indices)) ||
      term->kind != ir::ExprKind::kOp || term->op != ir::Op::kMul)
    return false;
  return std::any_of(term->args.begin(), term->args.end(), [](const ir::Expr& factor) {
    return factor->kind == ir::ExprKind::kFloat && factor->float_value == 0;
  });
}

}  // namespace

ExprEmitter::Parts ExprEmitter::SplitByLanes(const ir::Linear& index) {
  Parts parts;
  for (const auto& term : index.terms) {
    (ir::UsesVar(term.first, c_.lane_var) ? parts.lanes : parts.rest).terms.push_back(term);
  }
  parts.rest.constant = index.constant;
  return parts;
}

// Whether the part of an index that differs from lane to lane is a sum of i32 that does not overflow, in
// whatever order it is added up.
bool ExprEmitter::OffsetsFitI32(const ir::Linear& lanes) {
  int64_t most = 0;
  for (const auto& [term, coefficient] : lanes.terms) {
    const std::optional<ir::Interval> bounds = ir::Bounds(term * ir::Int(coefficient), c_.ranges);
    if (!bounds || !ir::Contains(ir::OfType(ir::DType::kI32), *bounds)) return false;
    most += std::max(-bounds->min, bounds->max);
  }
  return most <= std::numeric_limits<int32_t>::max();
}

ExprEmitter::Address ExprEmitter::MakeAddress(const ir::Buffer& buffer, const ir::Linear& linear,
                                              bool inside) {
  const bool in_index = std::exchange(in_index_, true);
  Type* type = MemoryType(buffer.dtype);
  const int64_t size = SizeOf(buffer.dtype);
  Address address;
  int64_t alignment = std::gcd(kBufferAlignment, linear.constant * size);
  Value* offset = nullptr;   // of lane 0, without the constant
  Value* offsets = nullptr;  // the terms that depend on the lane other than by a constant stride
  const auto add = [&](Value*& sum, Value* value, int64_t coefficient) {
    value = b_.CreateMul(value, llvm::ConstantInt::getSigned(value->getType(), coefficient), "",
                         false, true);
    sum = sum ? b_.CreateAdd(sum, value, "", false, true) : value;
  };
  const Parts parts = SplitByLanes(linear);
  for (const auto& [term, coefficient] : parts.rest.terms) {
    alignment = std::gcd(alignment, coefficient * size);
    add(offset, Emit(term), coefficient);
  }
  // A gather by i32 offsets reads twice as many elements at once as one by i64.
  Type* offset_type = OffsetsFitI32(parts.lanes) ? b_.getInt32Ty() : b_.getInt64Ty();
  for (const auto& [term, coefficient] : parts.lanes.terms) {
    if (term->kind == ir::ExprKind::kVar) {
      address.stride += coefficient;
    } else {
      add(offsets, b_.CreateTrunc(Broadcast(Emit(term)), Widen(offset_type)), coefficient);
    }
  }
  in_index_ = in_index;
  address.alignment = llvm::Align(static_cast<uint64_t>(alignment));
  // Under a mask, the addresses of some lanes, even of the first, may lie outside of the buffer.
  // Then `inbounds` would be wrong.
  auto step = [&](Value* pointer, Value* by) {
    return c_.mask || !inside ? b_.CreateGEP(type, pointer, by)
                              : b_.CreateInBoundsGEP(type, pointer, by);
  };
  Value* pointer = c_.buffers.at(&buffer);
  if (offset) pointer = step(pointer, offset);
  if (linear.constant != 0)
    pointer = step(pointer, b_.getInt64(static_cast<uint64_t>(linear.constant)));
  if (!offsets) {
    address.pointer = pointer;
    return address;
  }
  if (address.stride != 0) {
    Value* lanes = LaneNumbers(offset_type);
    offsets = b_.CreateAdd(offsets, b_.CreateMul(lanes, llvm::ConstantInt::getSigned(
                                                            lanes->getType(), address.stride)));
  }
  address.base = pointer;
  address.offsets = offsets;
  address.alignment = llvm::Align(static_cast<uint64_t>(size));
  return address;
}

void ExprEmitter::EmitPrefetch(const ir::Prefetch& prefetch) {
  const ir::ExprNode& element = *prefetch.element;
  const ir::Linear index = LinearIndex(*element.buffer, element.args, c_.ranges);
  const Address address = MakeAddress(*element.buffer, index, /*inside=*/false);
  Value* read = b_.getInt32(0);
  Value* second_level = b_.getInt32(2);
  Value* data = b_.getInt32(1);
  b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {b_.getPtrTy()},
                     {address.pointer, read, second_level, data});
}

Value* ExprEmitter::LanePointers(const Address& address, Type* type) {
  if (!address.pointer) return b_.CreateGEP(type, address.base, address.offsets);
  Value* lanes = LaneNumbers(b_.getInt64Ty());
  Value* offsets =
      b_.CreateMul(lanes, llvm::ConstantInt::getSigned(lanes->getType(), address.stride));
  return b_.CreateGEP(type, address.pointer, offsets);
}

// Whether lanes at a constant distance are loaded and stored one by one. Where gathers are no faster than that, LLVM takes them
// apart, too, but it makes a vector of addresses first and moves each of them to a scalar register, which takes longer than
// the loads. Here the addresses are constant distances from that of lane 0.
bool ExprEmitter::AccessesLanesSingly(const Address& address) {
  return address.pointer && !c_.lookup.avx512f && !c_.lookup.fast_gather;
}

Value* ExprEmitter::LanePointer(const Address& address, Type* type, int lane) {
  return b_.CreateGEP(type, address.pointer,
                      b_.getInt64(static_cast<uint64_t>(lane * address.stride)));
}

Value* ExprEmitter::EmitSingleLoads(const Address& address, Type* type, llvm::Align alignment) {
  Value* value = llvm::PoisonValue::get(Widen(type));
  for (int lane = 0; lane < c_.lanes; ++lane) {
    Value* element = b_.CreateAlignedLoad(type, LanePointer(address, type, lane), alignment);
    value = b_.CreateInsertElement(value, element, static_cast<uint64_t>(lane));
  }
  return value;
}

void ExprEmitter::EmitSingleStores(Value* value, const Address& address, Type* type,
                                   llvm::Align alignment) {
  for (int lane = 0; lane < c_.lanes; ++lane) {
    Value* element = b_.CreateExtractElement(value, static_cast<uint64_t>(lane));
    b_.CreateAlignedStore(element, LanePointer(address, type, lane), alignment);
  }
}

// All lanes read one element, whose address may lie outside of the buffer if no lane is active. So
// it is read only if some lane is.
Value* ExprEmitter::EmitUniformLoadWhereAnyLane(const Address& address, Type* type) {
  Value* any = b_.CreateOrReduce(c_.mask);
  llvm::BasicBlock* before = b_.GetInsertBlock();
  auto* read = llvm::BasicBlock::Create(b_.getContext(), "read", c_.function);
  auto* after = llvm::BasicBlock::Create(b_.getContext(), "after", c_.function);
  b_.CreateCondBr(any, read, after);
  b_.SetInsertPoint(read);
  Value* value = b_.CreateAlignedLoad(type, address.pointer, address.alignment);
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
  llvm::PHINode* phi = b_.CreatePHI(type, 2);
  phi->addIncoming(value, read);
  phi->addIncoming(llvm::Constant::getNullValue(type), before);
  return phi;
}

// Loads elements 0, 2, 4, .. by two loads that end exactly at the last element, and a shuffle. This
// is much faster than a gather.
Value* ExprEmitter::EmitEverySecond(const Address& address, Type* type) {
  const int lanes = c_.lanes;
  Value* low = b_.CreateAlignedLoad(Widen(type), address.pointer,
                                    llvm::Align(type->getScalarSizeInBits() / 8));
  Value* high_pointer =
      b_.CreateInBoundsGEP(type, address.pointer, b_.getInt64(static_cast<uint64_t>(lanes - 1)));
  Value* high =
      b_.CreateAlignedLoad(Widen(type), high_pointer, llvm::Align(type->getScalarSizeInBits() / 8));
  std::vector<int> pick;
  for (int i = 0; i < lanes; ++i)
    pick.push_back(2 * i < lanes ? 2 * i : lanes + 2 * i - (lanes - 1));
  return b_.CreateShuffleVector(low, high, pick);
}

bool ExprEmitter::IsOnStack(const ir::Buffer& buffer) {
  return llvm::isa<llvm::AllocaInst>(c_.buffers.at(&buffer));
}

// Whether `lanes` elements from lane 0 on lie within the buffer, regardless of the mask.
bool ExprEmitter::LanesInside(const ir::Buffer& buffer, const std::vector<ir::Expr>& indices,
                              int lanes) {
  const Parts parts = SplitByLanes(LinearIndex(buffer, indices, c_.ranges));
  std::optional<ir::Interval> bounds = ir::Bounds(ir::FromLinear(parts.rest), c_.ranges);
  return bounds && bounds->min >= 0 && bounds->max + lanes <= buffer.NumElements();
}

// The number of lanes of a memory access, rounded up to a power of two, because accesses of other
// widths are split. Buffers in registers keep the exact width, and so do CPUs without fast masked
// accesses.
int ExprEmitter::MemoryLanes(const ir::Buffer& buffer) {
  const int rounded = static_cast<int>(std::bit_ceil(static_cast<unsigned>(c_.lanes)));
  return c_.masked_memory && !IsOnStack(buffer) ? rounded : c_.lanes;
}

// `v` with more or fewer lanes. New lanes are taken from `fill`; if it is null, they are undefined.
Value* ExprEmitter::Resize(Value* v, int lanes, Value* fill) {
  const int have =
      static_cast<int>(llvm::cast<llvm::FixedVectorType>(v->getType())->getNumElements());
  std::vector<int> pick;
  for (int i = 0; i < lanes; ++i) pick.push_back(i < have ? i : fill ? have : llvm::PoisonMaskElem);
  return b_.CreateShuffleVector(v, fill ? fill : llvm::PoisonValue::get(v->getType()), pick);
}

// The mask of a vector of `lanes` lanes in which the active ones of the first c_.lanes are set.
Value* ExprEmitter::WideMask(int lanes) {
  Value* mask = c_.mask ? c_.mask : AllLanes();
  return lanes == c_.lanes ? mask
                           : Resize(mask, lanes, llvm::Constant::getNullValue(mask->getType()));
}

// Loads lanes that are contiguous in memory.
Value* ExprEmitter::EmitContiguousLoad(const ir::ExprNode& e, const Address& address, Type* type,
                                       bool safe) {
  const int lanes = MemoryLanes(*e.buffer);
  auto* wide = llvm::FixedVectorType::get(type, static_cast<unsigned>(lanes));
  Value* value;
  if (safe && (lanes == c_.lanes || LanesInside(*e.buffer, e.args, lanes))) {
    value = b_.CreateAlignedLoad(wide, address.pointer, address.alignment);
  } else {
    value = b_.CreateMaskedLoad(wide, address.pointer, address.alignment, WideMask(lanes),
                                llvm::Constant::getNullValue(wide));
  }
  return lanes == c_.lanes ? value : Resize(value, c_.lanes, nullptr);
}

// The aligned vector load cannot leave the buffer: it starts at a multiple of the lane count, the
// buffer is a multiple of it long, and at least one lane reads an element of the vector. Under a
// mask, no lane might, so masked loads are excluded.
std::optional<ExprEmitter::Permutation> ExprEmitter::AsPermutation(const ir::Buffer& buffer,
                                                                   const ir::Linear& index) {
  if (!c_.lane_var || c_.mask || IsOnStack(buffer)) return std::nullopt;
  if (!std::has_single_bit(static_cast<unsigned>(c_.lanes)) || buffer.NumElements() % c_.lanes != 0)
    return std::nullopt;
  auto [moving, start] = SplitByLanes(index);
  const auto is_var = [](const auto& term) { return term.first->kind == ir::ExprKind::kVar; };
  if (std::all_of(moving.terms.begin(), moving.terms.end(), is_var)) return std::nullopt;
  for (const auto& [term, coefficient] : start.terms) {
    if (coefficient % c_.lanes != 0) return std::nullopt;
  }
  const int64_t first = ir::FloorModInt(index.constant, c_.lanes);
  start.constant = index.constant - first;
  Permutation result{std::move(start), {}};
  const ir::Expr offset = ir::FromLinear(moving);
  for (int lane = 0; lane < c_.lanes; ++lane) {
    const ir::Expr at = ir::Substitute(offset, {{c_.lane_var, ir::Int(lane)}});
    int64_t element = 0;
    if (!ir::IsConstInt(ir::Simplify(at, c_.ranges), &element)) return std::nullopt;
    element += first;
    if (element < 0 || element >= c_.lanes) return std::nullopt;
    result.pick.push_back(static_cast<int>(element));
  }
  return result;
}

// A window that surely lies in the buffer may be read whatever the mask is. Lanes that are equal,
// contiguous or two apart read memory better than a table.
std::optional<ExprEmitter::Table> ExprEmitter::AsTable(const ir::Buffer& buffer,
                                                       const ir::Linear& index) {
  if (!c_.lane_var) return std::nullopt;
  const std::optional<int64_t> stride = ir::Stride(index, c_.lane_var);
  if (stride && ((*stride >= 0 && *stride <= 2) || std::abs(*stride) > kMostTableStride))
    return std::nullopt;
  const auto bits = static_cast<int>(SizeOf(buffer.dtype) * 8);
  const std::optional<Lookup> lookup = FindLookup(c_.lookup, bits);
  if (!lookup) return std::nullopt;
  auto [place, start] = SplitByLanes(index);
  const std::optional<ir::Interval> places = ir::Bounds(ir::FromLinear(place), c_.ranges),
                                    starts = ir::Bounds(ir::FromLinear(start), c_.ranges);
  if (!places || !starts) return std::nullopt;
  const ir::Interval window = ir::Add(*starts, *places);
  if (window.min < 0 || window.max >= buffer.NumElements()) return std::nullopt;
  const ir::Interval size = ir::Add({places->max, places->max}, {-places->min, -places->min});
  if (size.max >= kMaxTable) return std::nullopt;
  const int64_t elements = size.max + 1;
  const bool moves = c_.loop_var == nullptr || ir::DependsOn(start, c_.loop_var);
  if (!IsWorthLookup(c_.lookup, *lookup, bits, elements, c_.lanes, moves)) return std::nullopt;
  place.constant = -places->min;
  start.constant += places->min;
  const int64_t available = buffer.NumElements() - (starts->max + places->min);
  return Table{std::move(start), std::move(place), elements, available, *lookup};
}

// The place of each lane, as integers of the width of an element. Places are less than 2^8, so that it
// does not matter if sums of their terms are not.
Value* ExprEmitter::EmitPlaces(const ir::Linear& place, Type* element) {
  const bool in_index = std::exchange(in_index_, true);
  const auto constant = [&](int64_t value) {
    return llvm::ConstantInt::get(Widen(element), static_cast<uint64_t>(value));
  };
  Value* sum = constant(place.constant);
  for (const auto& [term, coefficient] : place.terms) {
    Value* value = b_.CreateTrunc(Broadcast(Emit(term)), Widen(element));
    sum = b_.CreateAdd(sum, b_.CreateMul(value, constant(coefficient)));
  }
  in_index_ = in_index;
  return sum;
}

// The registers of a table. What lies in them beyond the table is other elements or zeros.
std::vector<Value*> ExprEmitter::LoadTable(const ir::Buffer& buffer, const Table& table,
                                           Type* element) {
  const Address address = MakeAddress(buffer, table.start);
  const int entries = table.lookup.entries;
  auto* type = llvm::FixedVectorType::get(element, static_cast<unsigned>(entries));
  std::vector<int> repeated;
  for (int lane = 0; lane < table.lookup.lanes; ++lane) repeated.push_back(lane % entries);
  std::vector<Value*> registers;
  for (int64_t first = 0; first < table.elements; first += entries) {
    Value* pointer =
        b_.CreateConstInBoundsGEP1_64(element, address.pointer, static_cast<uint64_t>(first));
    const llvm::Align alignment = llvm::commonAlignment(
        address.alignment, static_cast<uint64_t>(first * SizeOf(buffer.dtype)));
    Value* loaded;
    if (first + entries <= table.available) {
      loaded = b_.CreateAlignedLoad(type, pointer, alignment);
    } else {
      std::vector<llvm::Constant*> inside;
      for (int64_t i = first; i < first + entries; ++i)
        inside.push_back(b_.getInt1(i < table.elements));
      loaded = b_.CreateMaskedLoad(type, pointer, alignment, llvm::ConstantVector::get(inside),
                                   llvm::Constant::getNullValue(type));
    }
    registers.push_back(entries < table.lookup.lanes ? b_.CreateShuffleVector(loaded, repeated)
                                                     : loaded);
  }
  return registers;
}

// Loads from a table. If there are more lanes than a register has, they are looked up in turn.
Value* ExprEmitter::EmitTableLoad(const ir::Buffer& buffer, const Table& table) {
  Type* element = b_.getIntNTy(static_cast<unsigned>(SizeOf(buffer.dtype) * 8));
  Value* places = EmitPlaces(table.place, element);
  const std::vector<Value*> registers = LoadTable(buffer, table, element);
  const int step = table.lookup.lanes, lanes = (c_.lanes + step - 1) / step * step;
  places = Resize(places, lanes, nullptr);
  std::vector<Value*> found;
  for (int first = 0; first < lanes; first += step) {
    std::vector<int> pick(static_cast<size_t>(step));
    std::iota(pick.begin(), pick.end(), first);
    found.push_back(EmitLookup(b_, table.lookup, registers, b_.CreateShuffleVector(places, pick)));
  }
  Value* value = found.size() == 1 ? found[0] : llvm::concatenateVectors(b_, found);
  return b_.CreateBitCast(Resize(value, c_.lanes, nullptr), Widen(MemoryType(buffer.dtype)));
}

// Whether the whole load can be redirected to another address. Its lanes must read one element,
// contiguous elements or, unless `masked`, elements of one vector, and its index must not contain a
// load.
bool ExprEmitter::HasOnePlace(const ir::ExprNode& load, bool masked) {
  bool one = !IsOnStack(*load.buffer);  // accesses to stack buffers must stay plain
  for (const ir::Expr& index : load.args) {
    VisitExpr(index, [&](const ir::Expr& x) { one = one && x->kind != ir::ExprKind::kLoad; });
  }
  if (!one || !c_.lane_var) return one;
  const ir::Linear index = LinearIndex(*load.buffer, load.args, c_.ranges);
  if (!masked && AsPermutation(*load.buffer, index)) return true;
  const std::optional<int64_t> stride = ir::Stride(index, c_.lane_var);
  return stride == 0 || stride == 1;
}

// The address of a constant array that holds this value once for each lane of a register.
Value* ExprEmitter::Repeated(const ir::Expr& constant) {
  const auto lanes = std::bit_ceil(static_cast<unsigned>(c_.lanes));
  const std::vector<llvm::Constant*> elements(lanes, llvm::cast<llvm::Constant>(Emit(constant)));
  auto* type = llvm::ArrayType::get(MemoryType(constant->dtype), lanes);
  llvm::Constant* content = llvm::ConstantArray::get(type, elements);
  llvm::Module& module = *c_.function->getParent();
  for (llvm::GlobalVariable& known : module.globals()) {
    if (known.hasInitializer() && known.getInitializer() == content) return &known;
  }
  auto* made = new llvm::GlobalVariable(module, type, /*isConstant=*/true,
                                        llvm::GlobalValue::PrivateLinkage, content);
  made->setUnnamedAddr(llvm::GlobalValue::UnnamedAddr::Global);
  made->setAlignment(llvm::Align(kBufferAlignment));
  return made;
}

// Emits select(condition, f(x), c) without a branch. Here x is a load that may lie outside of its
// buffer unless the condition holds, and f(c) = c, as in padding, in the relu of padding, or in
// padding of another type. The result is f(x) with a load of c, in the type of x, in place of x
// where the condition does not hold. A tile has
// dozens of such loads, and its accumulators would not stay in registers across as many branches.
// Null if `e` does not have this form.
Value* ExprEmitter::EmitGuardedLoads(Value* condition, const ir::ExprNode& e) {
  const ir::Expr &value = e.args[1], &constant = e.args[2];
  const bool is_constant =
      constant->kind == ir::ExprKind::kInt || constant->kind == ir::ExprKind::kFloat;
  if (c_.mask || guard_ || !is_constant || constant->dtype == ir::DType::kBool) return nullptr;
  const auto outside = [&](const ir::Expr& x) {
    return x->kind == ir::ExprKind::kLoad && !InBounds(*x->buffer, x->args, c_.ranges);
  };
  ir::Expr instead;
  bool can = true, masked = false;  // masked: some condition inside differs from lane to lane
  VisitExpr(value, [&](const ir::Expr& x) {
    const bool decides =
        x->kind == ir::ExprKind::kOp &&
        (x->op == ir::Op::kSelect || x->op == ir::Op::kAnd || x->op == ir::Op::kOr);
    masked |= decides && ir::UsesVar(x->args[0], c_.lane_var);
  });
  VisitExpr(value, [&](const ir::Expr& x) {
    if (!outside(x)) return;
    if (!instead) instead = x->dtype == constant->dtype ? constant : ir::Cast(x->dtype, constant);
    can = can && x->dtype == instead->dtype && x->dtype != ir::DType::kBool &&
          HasOnePlace(*x, masked);
  });
  if (!can || !instead) return nullptr;
  const ir::Expr without = ir::RewriteExpr(
      value, [&](const ir::Expr& x) -> ir::Expr { return outside(x) ? instead : x; });
  if (!ir::StructuralEqual(ir::Simplify(without, c_.ranges), constant)) return nullptr;
  guard_ = condition;
  instead_ = instead;
  Value* result = Emit(value);
  guard_ = nullptr;
  return result;
}

Value* ExprEmitter::EmitLoad(const ir::ExprNode& e) {
  Value* value = EmitElements(e, LinearIndex(*e.buffer, e.args, c_.ranges));
  if (e.dtype != ir::DType::kBool) return value;
  return b_.CreateICmpNE(value, llvm::Constant::getNullValue(value->getType()));
}

// The elements as they lie in memory.
Value* ExprEmitter::EmitElements(const ir::ExprNode& e, const ir::Linear& index) {
  const std::optional<Permutation> permutation = AsPermutation(*e.buffer, index);
  if (!permutation) {
    if (const auto table = AsTable(*e.buffer, index)) return EmitTableLoad(*e.buffer, *table);
  }
  Address address = MakeAddress(*e.buffer, permutation ? permutation->start : index);
  Type* type = MemoryType(e.dtype);
  if (guard_ && !InBounds(*e.buffer, e.args, c_.ranges))
    address.pointer = b_.CreateSelect(guard_, address.pointer, Repeated(instead_));
  const bool safe = !c_.mask || InBounds(*e.buffer, e.args, c_.ranges);
  Value* value;
  if (permutation) {
    value = b_.CreateAlignedLoad(Widen(type), address.pointer, address.alignment);
    value = b_.CreateShuffleVector(value, permutation->pick);
  } else if (address.pointer && address.stride == 0) {
    value = safe ? b_.CreateAlignedLoad(type, address.pointer, address.alignment)
                 : EmitUniformLoadWhereAnyLane(address, type);
  } else if (address.pointer && address.stride == 1) {
    value = EmitContiguousLoad(e, address, type, safe);
  } else if (address.pointer && address.stride == 2 && safe) {
    value = EmitEverySecond(address, type);
  } else if (const llvm::Align alignment(static_cast<uint64_t>(SizeOf(e.dtype)));
             safe && AccessesLanesSingly(address)) {
    value = EmitSingleLoads(address, type, alignment);
  } else {
    value = b_.CreateMaskedGather(Widen(type), LanePointers(address, type), alignment,
                                  safe ? AllLanes() : c_.mask,
                                  llvm::Constant::getNullValue(Widen(type)));
  }
  return value;
}

void ExprEmitter::EmitStore(const ir::Store& store) {
  if (AddsPadding(store)) return;
  Value* value = Emit(store.value);
  Address address =
      MakeAddress(*store.buffer, LinearIndex(*store.buffer, store.indices, c_.ranges));
  Type* type = MemoryType(store.buffer->dtype);
  if (!c_.lane_var) {
    if (store.buffer->dtype == ir::DType::kBool) value = b_.CreateZExt(value, type);
    b_.CreateAlignedStore(value, address.pointer, address.alignment);
    return;
  }
  value = Broadcast(value);
  if (store.buffer->dtype == ir::DType::kBool) value = b_.CreateZExt(value, Widen(type));
  if (address.pointer && address.stride == 1) {
    // A buffer that may live in registers is blended, because a masked store would force it into
    // memory.
    if (c_.mask && IsOnStack(*store.buffer) &&
        LanesInside(*store.buffer, store.indices, c_.lanes)) {
      Value* old = b_.CreateAlignedLoad(value->getType(), address.pointer, address.alignment);
      b_.CreateAlignedStore(b_.CreateSelect(c_.mask, value, old), address.pointer,
                            address.alignment);
      return;
    }
    const int lanes = MemoryLanes(*store.buffer);
    if (lanes != c_.lanes) value = Resize(value, lanes, nullptr);
    if (c_.mask || lanes != c_.lanes) {
      b_.CreateMaskedStore(value, address.pointer, address.alignment, WideMask(lanes));
    } else {
      b_.CreateAlignedStore(value, address.pointer, address.alignment);
    }
    return;
  }
  const llvm::Align alignment(static_cast<uint64_t>(SizeOf(store.buffer->dtype)));
  if (!c_.mask && AccessesLanesSingly(address))
    return EmitSingleStores(value, address, type, alignment);
  b_.CreateMaskedScatter(value, LanePointers(address, type), alignment,
                         c_.mask ? c_.mask : AllLanes());
}

}  // namespace heddle::codegen
