// The loop IR: what a fused operator is made of, from the first naive loops down to what a back end
// translates.
//
// Grammar (the text form that text.h prints and parses; indentation is free, `#` starts a comment):
//
//   program ::= "program" name "(" param,* ")" "->" "(" param,* ")" "{" stmt* "}"
//   param   ::= name ":" dtype "[" int,* "]" below? "const"?
//   below   ::= "<" int                                           -- elements lie in 0, 1, .. int-1
//   stmt    ::= "for" name "in" int kind? "{" stmt* "}"             -- name = 0, 1, .. int-1
//             | "alloc" name ":" dtype "[" int,* "]" scope "{" stmt* "}"
//             | "block" name "(" iter,* ")" where? reduce? "{" store "}"
//             | store
//             | "if" expr "{" stmt* "}"
//             | "barrier" int?                                      -- all threads of a GPU block
//             | "prefetch" name "[" expr,* "]"                      -- a hint, no effect
//   kind    ::= "parallel" | "vectorized" | "unrolled" | "vthread"
//             | "blockIdx.x" | "blockIdx.y" | "blockIdx.z"
//             | "threadIdx.x" | "threadIdx.y" | "threadIdx.z" | "tensor"
//   scope   ::= "global" | "shared" | "local"
//   iter    ::= name "<" int ("spatial" | "reduce") "=" expr        -- its value, in loop variables
//   where   ::= "where" expr                                        -- runs only if true
//   reduce  ::= ("sum" | "prod" | "max" | "min") ("init" expr)?     -- none: initialised elsewhere
//   store   ::= name "[" expr,* "]" "=" expr
//   expr    ::= int | float | name | name "[" expr,* "]"
//             | op "(" expr,* ")" | dtype "(" expr ")" | "(" expr infix expr ")"
//   infix   ::= "+" | "-" | "*" | "/" | "//" | "%" | "<" | "<=" | "==" | "!=" | "&&" | "||"
//             -- "//" and "%" are floor division and floor modulus; "/" is float division or
//                truncating integer division
//   dtype   ::= "bool" | "i8" | "u8" | "i16" | "u16" | "i32" | "u32" | "i64" | "u64"
//             | "f32" | "f64" | "f16" | "bf16"
//   name    ::= a letter or "_", then letters, digits, "_", ".", "@", "*"; no word that begins a
//               statement. Infix operators stand between blanks: "a*b" is a name (of the loop that
//               fused a and b)
//   Literals: 3 is i64, 3i32 another integer type, 3.0 or 3.0f64 a float (f32 unless said),
//   true/false, inf, -inf, nan.
//
// Meaning, and the global rules (verify/verifier.h is their executable form):
//   * Every name (buffer, variable, block) is unique in a program. Shapes and extents are positive
//     constants.
//   * i64 never overflows: the verifier checks that of indices, and that of data is assumed. Other
//     integers wrap. An integer divided by zero is 0 under every rounding, and so is the remainder:
//     x / 0 = x // 0 = x % 0 = 0. A power 0 ** -n divides by zero.
//   * Expressions have no side effects, and their evaluation order is free. `select`, `&&` and `||`
//     evaluate lazily, so that a guard protects a load. Everything else may be evaluated eagerly.
//   * Floats: IEEE per operation, but a multiply and the add that uses it may contract to a fused
//     multiply-add. A reduction adds its terms in the order of the loops, which schedules may
//     change. max(a, b) is a < b ? b : a and min(a, b) is b < a ? b : a, NaN included; sign(NaN)
//     is 0. Float to integer truncates, saturates out of range, and takes NaN to 0.
//   * f16 (IEEE half) and bf16 (the upper half of an f32) are formats of memory: they are loaded,
//     stored, selected and cast, and nothing else. A cast from another type rounds to f32 first,
//     then to nearest even. tf32(x) is x with the 10 bits of mantissa that tensor cores read of an
//     f32, rounded to nearest, ties away from zero.
//   * A block is one statement with the loops abstracted away: it binds its iterators, and its
//     store is written in iterators only, never in loop variables. So a loop transformation
//     touches bindings, not bodies. A block with `reduce` means: at the first instance of its
//     reduce iterators (all zero) store `init` to the element (if present); then
//     element = op(element, value). Instances with equal spatial iterators run in the loops' order.
//     A block with `reduce` may read the buffer that it writes, at elements that are complete, as in
//     a recurrence. Then its loops stay as they were written: plain, and bound one to one to its
//     iterators.
//   * `parallel`, `vectorized` and GPU loops claim that their iterations are independent; the
//     verifier checks what it can. Iterations of an `unrolled` or plain loop run in order.
//   * `alloc` gives uninitialised memory that lives for its body. `local` belongs to one thread and
//     is meant for registers or stack, `shared` to one GPU block, `global` to the kernel call.
//     Reading an unwritten element is an error (the interpreter catches it). A `local` buffer
//     around thread loops is spread over the threads: each element is touched by only one of them.
//   * An outermost nest of `blockIdx` loops is one launch. On each axis it has as many threads as
//     the largest loop of that axis. In a smaller loop the other threads do nothing. Statements
//     that no loop of an axis encloses are run by the first thread of that axis. Thread loops may
//     stand beside each other; what one of them writes to shared or global memory, others may
//     touch only beyond a `barrier`. Schedules have no barriers: lowering adds them
//     (pass/insert_barriers.h), outside of thread loops.
//   * Stores to shared memory may be asynchronous. A condition or thread loop that stores to shared
//     memory, and that no other encloses, is a fetch. After `barrier n` all fetches but the last n
//     are complete (n is 0 if it is not given). A program must not touch what an incomplete fetch
//     stores.
//   * A `tensor` loop is a product that the 32 threads of a warp make together on tensor cores.
//     Each thread t = 0..31 of a warp makes four sums, in rows t // 4 and t // 4 + 8 and columns
//     2 * (t % 4) and 2 * (t % 4) + 1 of a tile of 16 x 8:
//       for i in 2 tensor { for j in 2 { for k in K {
//         c[..] = (c[..] + (f32(a[..]) * f32(b[..]))) } } }
//     with K = 16, c: f32 local, a and b: f16 or bf16; or with K = 8, a and b: f32 under tf32(..).
//     a[..] is the same whatever j and t % 4 are, b[..] whatever i and t // 4. So the threads of a
//     warp read each other's elements of a and b, which none of them writes between two barriers.
//     All 32 threads run it, side by side on threadIdx.x: no condition stands between it and that
//     loop. Products are exact. The machine chooses the order in which it adds them, and rounds
//     about as f32 does.
//   * A `const` input is known when a module is made. What depends only on such inputs may be
//     computed then (pass/hoist_constants.h). Outputs are never `const`.
//   * The elements of an integer input with `below` lie in that range, so that they may be indices. The
//     caller keeps that; the range fits the type.
//   * A scheduled program may contain blocks but no `prefetch`, which lowering adds; a lowered
//     program (pass/lower.h) contains no blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace heddle::ir {

enum class DType : uint8_t {
  kBool,
  kI8,
  kU8,
  kI32,
  kI64,
  kF32,
  kF64,
  kF16,
  kBF16,
  kI16,
  kU16,
  kU32,
  kU64
};

int64_t SizeOf(DType dtype);  // bytes; a bool takes one
bool IsFloat(DType dtype);
bool IsHalf(DType dtype);     // f16 and bf16
bool IsInteger(DType dtype);  // bool is not an integer
bool IsUnsigned(DType dtype);
std::string_view Name(DType dtype);
std::optional<DType> DTypeFromName(std::string_view name);

enum class Scope : uint8_t { kGlobal, kShared, kLocal };

// A named dense row-major array. Its identity is its address: two buffers are never merged because
// they look alike.
struct Buffer {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // empty for a scalar
  Scope scope = Scope::kGlobal;
  bool constant = false;  // an input known when a module is made
  int64_t below =
      0;  // of an integer input, if positive: each element is at least 0 and less than this

  int64_t NumElements() const;
  int64_t SizeBytes() const { return NumElements() * SizeOf(dtype); }
};
using BufferRef = std::shared_ptr<const Buffer>;

// A loop variable or block iterator, always i64. Its identity is its address.
struct Var {
  std::string name;
};
using VarRef = std::shared_ptr<const Var>;

// Operators of an expression, each with a fixed arity (the table stands in ir.cc).
// clang-format off
enum class Op : uint8_t {
  // Binary, operands of one type.
  kAdd, kSub, kMul, kDiv, kFloorDiv, kFloorMod, kMin, kMax, kPow,
  // Comparisons: bool of two operands of one type. a > b is written b < a.
  kLt, kLe, kEq, kNe,
  // Logic on bool.
  kAnd, kOr, kNot,
  // Unary, result of the operand's type.
  kNeg, kAbs, kSign, kExp, kLog, kSqrt, kTanh, kErf, kSin, kCos, kTan, kAsin, kAcos, kAtan,
  kSinh, kCosh, kAsinh, kAcosh, kAtanh, kFloor, kCeil, kRound /* half to even */,
  kTf32 /* of an f32 only */,
  // Tests of floats -> bool.
  kIsNan, kIsInf,
  // select(bool, a, b), lazy.
  kSelect,
};
// clang-format on

std::string_view Name(Op op);
std::optional<Op> OpFromName(std::string_view name);
int Arity(Op op);

struct ExprNode;
using Expr = std::shared_ptr<const ExprNode>;  // never null inside a program

enum class ExprKind : uint8_t { kInt, kFloat, kVar, kLoad, kOp, kCast };

// One immutable node type for every expression. `kind` decides which fields have a meaning:
struct ExprNode {
  ExprKind kind;
  DType dtype;               // of the result
  int64_t int_value = 0;     // kInt (bool, integers; of a u64 the bits)
  double float_value = 0;    // kFloat
  VarRef var{};              // kVar
  BufferRef buffer{};        // kLoad
  Op op = Op::kAdd;          // kOp
  std::vector<Expr> args{};  // kLoad: indices; kOp: operands; kCast: the one operand
};

// Constructors. They fold constants and drop neutral elements (x+0, x*1, ..), so that index
// arithmetic stays readable; analysis/simplify.h rewrites more deeply. Operand types must agree:
// debug builds assert it, and the verifier reports it.
Expr Int(int64_t value, DType dtype = DType::kI64);
Expr Bool(bool value);
Expr Float(double value, DType dtype = DType::kF32);
Expr VarExpr(VarRef var);
Expr Load(BufferRef buffer, std::vector<Expr> indices);
Expr Make(Op op, std::vector<Expr> args);
Expr Make(Op op, Expr a, Expr b);  // for two operands, without copies
Expr Cast(DType dtype, Expr operand);
Expr Select(Expr condition, Expr then_value, Expr else_value);
Expr Zero(DType dtype);

inline Expr operator+(Expr a, Expr b) { return Make(Op::kAdd, std::move(a), std::move(b)); }
inline Expr operator-(Expr a, Expr b) { return Make(Op::kSub, std::move(a), std::move(b)); }
inline Expr operator*(Expr a, Expr b) { return Make(Op::kMul, std::move(a), std::move(b)); }
inline Expr FloorDiv(Expr a, Expr b) { return Make(Op::kFloorDiv, std::move(a), std::move(b)); }
inline Expr FloorMod(Expr a, Expr b) { return Make(Op::kFloorMod, std::move(a), std::move(b)); }
inline Expr Lt(Expr a, Expr b) { return Make(Op::kLt, std::move(a), std::move(b)); }
inline Expr Le(Expr a, Expr b) { return Make(Op::kLe, std::move(a), std::move(b)); }
inline Expr And(Expr a, Expr b) { return Make(Op::kAnd, std::move(a), std::move(b)); }

bool IsConstInt(const Expr& e, int64_t* value = nullptr);
// Same structure, same variables and buffers (by identity).
bool StructuralEqual(const Expr& a, const Expr& b);

// ---- Statements ----

struct StmtNode;
using Stmt = std::shared_ptr<const StmtNode>;  // never null inside a program

enum class LoopKind : uint8_t {
  kSerial,
  kParallel,
  kVectorized,
  kUnrolled,
  kBlockX,
  kBlockY,
  kBlockZ,
  kThreadX,
  kThreadY,
  kThreadZ,
  kVThread,
  kTensor,
};
std::string_view Name(LoopKind kind);  // "" for kSerial
std::optional<LoopKind> LoopKindFromName(std::string_view name);
bool IsGpu(LoopKind kind);  // launched on a GPU, or spread over its threads
bool IsGpuBlock(LoopKind kind);
bool IsGpuThread(LoopKind kind);

struct For {
  VarRef var;
  int64_t extent = 1;
  LoopKind kind = LoopKind::kSerial;
  Stmt body;
};

enum class IterKind : uint8_t { kSpatial, kReduce };

struct BlockIter {
  VarRef var;
  int64_t extent = 1;
  IterKind kind = IterKind::kSpatial;
  Expr binding;  // in loop variables; lies in [0, extent) whenever `where` holds
};

enum class ReduceOp : uint8_t { kSum, kProd, kMax, kMin };
std::string_view Name(ReduceOp op);
Op CombineOp(ReduceOp op);
Expr Identity(ReduceOp op, DType dtype);

struct Reducer {
  ReduceOp op = ReduceOp::kSum;
  Expr init;  // null when another block initialises (after decompose_reduction)
};

struct Store {
  BufferRef buffer;
  std::vector<Expr> indices;
  Expr value;
};

struct Block {
  std::string name;
  std::vector<BlockIter> iters;
  Expr where;  // null = always; in loop variables
  std::optional<Reducer> reducer;
  Store store;  // in iterators
};

struct If {
  Expr condition;
  Stmt body;
};

struct Seq {
  std::vector<Stmt> stmts;
};

struct Alloc {
  BufferRef buffer;  // carries the scope
  Stmt body;
};

struct Barrier {
  int late = 0;  // fetches that may still be incomplete after it
};

// A hint that the cache line of an element is needed soon. Only the row-major address counts:
// indices may exceed their dimension and the buffer.
struct Prefetch {
  Expr element;  // a load
};

using StmtVariant = std::variant<For, Block, Store, If, Seq, Alloc, Barrier, Prefetch>;
struct StmtNode : StmtVariant {
  using StmtVariant::StmtVariant;
  const StmtVariant& AsVariant() const { return *this; }  // for std::visit
};

template <typename T>
Stmt MakeStmt(T node) {
  return std::make_shared<const StmtNode>(std::move(node));
}
// Null if the statement is of another kind.
template <typename T>
const T* As(const Stmt& s) {
  return std::get_if<T>(&s->AsVariant());
}
// Flattens nested sequences and unwraps a sequence of one.
Stmt MakeSeq(std::vector<Stmt> stmts);

// A kernel: it only reads its inputs and writes every element of its outputs. Callers pass inputs,
// then outputs.
struct Program {
  std::string name;
  std::vector<BufferRef> inputs;
  std::vector<BufferRef> outputs;
  Stmt body;
};

}  // namespace heddle::ir
