#include "compiler/ir/ir.h"

#include <array>
#include <cassert>
#include <limits>

#include "compiler/ir/arithmetic.h"

namespace heddle::ir {
namespace {

struct DTypeRow {
  std::string_view name;
  int64_t size;
};
// Indexed by DType.
constexpr std::array<DTypeRow, 13> kDTypes = {{{"bool", 1},
                                               {"i8", 1},
                                               {"u8", 1},
                                               {"i32", 4},
                                               {"i64", 8},
                                               {"f32", 4},
                                               {"f64", 8},
                                               {"f16", 2},
                                               {"bf16", 2},
                                               {"i16", 2},
                                               {"u16", 2},
                                               {"u32", 4},
                                               {"u64", 8}}};

struct OpRow {
  std::string_view name;
  int arity;
};
// Indexed by Op.
constexpr std::array<OpRow, 41> kOps = {{
    {"+", 2},     {"-", 2},    {"*", 2},     {"/", 2},    {"//", 2},    {"%", 2},     {"min", 2},
    {"max", 2},   {"pow", 2},  {"<", 2},     {"<=", 2},   {"==", 2},    {"!=", 2},    {"&&", 2},
    {"||", 2},    {"not", 1},  {"neg", 1},   {"abs", 1},  {"sign", 1},  {"exp", 1},   {"log", 1},
    {"sqrt", 1},  {"tanh", 1}, {"erf", 1},   {"sin", 1},  {"cos", 1},   {"tan", 1},   {"asin", 1},
    {"acos", 1},  {"atan", 1}, {"sinh", 1},  {"cosh", 1}, {"asinh", 1}, {"acosh", 1}, {"atanh", 1},
    {"floor", 1}, {"ceil", 1}, {"round", 1}, {"tf32", 1}, {"isnan", 1}, {"isinf", 1},
}};
constexpr OpRow kSelectRow = {"select", 3};

// Indexed by LoopKind.
constexpr std::array<std::string_view, 12> kLoopKinds = {
    "",           "parallel",    "vectorized",  "unrolled",    "blockIdx.x", "blockIdx.y",
    "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z", "vthread",    "tensor"};

}  // namespace

int64_t SizeOf(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].size; }

bool IsFloat(DType dtype) { return dtype >= DType::kF32 && dtype <= DType::kBF16; }

bool IsHalf(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16; }

bool IsInteger(DType dtype) { return !IsFloat(dtype) && dtype != DType::kBool; }

bool IsUnsigned(DType dtype) { return dtype == DType::kU8 || dtype >= DType::kU16; }

std::string_view Name(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].name; }

std::optional<DType> DTypeFromName(std::string_view name) {
  for (size_t i = 0; i < kDTypes.size(); ++i) {
    if (kDTypes[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

int64_t Buffer::NumElements() const {
  int64_t n = 1;
  for (int64_t extent : shape) n *= extent;
  return n;
}

std::string_view Name(Op op) {
  return op == Op::kSelect ? kSelectRow.name : kOps[static_cast<size_t>(op)].name;
}

std::optional<Op> OpFromName(std::string_view name) {
  if (name == kSelectRow.name) return Op::kSelect;
  for (size_t i = 0; i < kOps.size(); ++i) {
    if (kOps[i].name == name) return static_cast<Op>(i);
  }
  return std::nullopt;
}

int Arity(Op op) {
  return op == Op::kSelect ? kSelectRow.arity : kOps[static_cast<size_t>(op)].arity;
}

std::string_view Name(LoopKind kind) { return kLoopKinds[static_cast<size_t>(kind)]; }

std::optional<LoopKind> LoopKindFromName(std::string_view name) {
  for (size_t i = 0; i < kLoopKinds.size(); ++i) {
    if (kLoopKinds[i] == name) return static_cast<LoopKind>(i);
  }
  return std::nullopt;
}

bool IsGpu(LoopKind kind) { return kind >= LoopKind::kBlockX; }

bool IsGpuBlock(LoopKind kind) {
  return kind == LoopKind::kBlockX || kind == LoopKind::kBlockY || kind == LoopKind::kBlockZ;
}

bool IsGpuThread(LoopKind kind) {
  return kind == LoopKind::kThreadX || kind == LoopKind::kThreadY || kind == LoopKind::kThreadZ;
}

std::string_view Name(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kProd:
      return "prod";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kMin:
      return "min";
  }
  return "";
}

Op CombineOp(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return Op::kAdd;
    case ReduceOp::kProd:
      return Op::kMul;
    case ReduceOp::kMax:
      return Op::kMax;
    case ReduceOp::kMin:
      return Op::kMin;
  }
  return Op::kAdd;
}

namespace {

Expr Lowest(DType dtype) {
  if (IsFloat(dtype)) return Float(-std::numeric_limits<double>::infinity(), dtype);
  return Int(LowestInt(dtype), dtype);
}

Expr Highest(DType dtype) {
  if (IsFloat(dtype)) return Float(std::numeric_limits<double>::infinity(), dtype);
  return Int(HighestInt(dtype), dtype);
}

}  // namespace

Expr Identity(ReduceOp op, DType dtype) {
  switch (op) {
    case ReduceOp::kSum:
      return Zero(dtype);
    case ReduceOp::kProd:
      return IsFloat(dtype) ? Float(1, dtype) : Int(1, dtype);
    case ReduceOp::kMax:
      return Lowest(dtype);
    case ReduceOp::kMin:
      return Highest(dtype);
  }
  return nullptr;
}

Stmt MakeSeq(std::vector<Stmt> stmts) {
  std::vector<Stmt> flat;
  for (Stmt& s : stmts) {
    if (const Seq* inner = As<Seq>(s)) {
      flat.insert(flat.end(), inner->stmts.begin(), inner->stmts.end());
    } else {
      flat.push_back(std::move(s));
    }
  }
  if (flat.size() == 1) return flat[0];
  return MakeStmt(Seq{std::move(flat)});
}

}  // namespace heddle::ir
