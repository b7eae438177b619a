// The register machine of the interpreter. compile.cc translates programs to its code, and run.cc
// executes it.
//
// There is one file of 64-bit registers. A register holds an i64 (also a bool or narrower integer,
// already wrapped, or the bits of a u64), an f64, or in its lower half an f32 (also the value of an f16 or bf16). The
// parts of an index that only depend on outer loops are computed when those loops advance, so an
// access in an innermost loop costs one instruction (address = register + register * constant).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/interpreter/interpreter.h"
#include "compiler/ir/ir.h"

namespace heddle::interpreter {

union Register {
  int64_t i;
  double d;
  float f;
};

enum class Code : uint16_t {
  kHalt,
  // Integers.
  kMulAdd,    // dst = a + b * imm
  kMul,       // dst = a * b
  kFloorDiv,  // dst = a // imm, imm > 0
  kFloorMod,  // dst = a % imm, imm > 0
  kMin,
  kMax,  // dst = op(a, b)
  kLt,
  kLe,
  kEq,
  kNe,
  kAnd,
  kOr,
  kNot,
  kSelect,   // dst = a ? b : register imm
  kCallInt,  // dst = EvalInt(op sub, dtype imm, a, b)
  // Control. Jump targets are relative to the instruction itself.
  kJump,              // by imm
  kJumpIfZero,        // if a == 0, by imm
  kJumpIfNonZeroSum,  // if a + b * imm != 0, by dst
  kLoopBegin,         // register dst = imm
  kLoopUp,            // if ++dst < imm, by a (backwards)
  kLoopDown,          // if --dst >= 0, by a (backwards)
  // Memory. sub is the buffer. The element is a + b * imm unless a comment says otherwise.
  kCheckIndex,  // fails unless 0 <= a < imm; b is the dimension
  kForget,      // marks all elements of the buffer as unwritten
  kSetAxis,     // the position on GPU axis sub becomes a (races only)
  // Races only. imm 0: a barrier after which the last dst fetches may still arrive; 1: a launch
  // begins or ends; 2: a fetch ends.
  kBarrier,
  kLoadU8,
  kLoadI8,
  kLoadI16,
  kLoadU16,
  kLoadI32,
  kLoadU32,
  kLoadI64,
  kLoadF32,
  kLoadF64,
  kLoadF16,
  kLoadBF16,  // dst = element
  kLoadCheckedF32,
  kLoadChecked,  // fails if unwritten; the element has the buffer's dtype
  kStoreI8,
  kStoreI16,
  kStoreI32,
  kStoreI64,
  kStoreF32,
  kStoreF64,
  kStoreF16,
  kStoreBF16,      // element = dst
  kSumF32,         // element += dst
  kSumProductF32,  // element a += dst * register imm
  // Floats.
  kAddF32,
  kSubF32,
  kMulF32,
  kDivF32,
  kMinF32,
  kMaxF32,
  kLtF32,
  kLeF32,
  kAddF64,
  kSubF64,
  kMulF64,
  kDivF64,
  kMinF64,
  kMaxF64,
  kLtF64,
  kLeF64,
  kCallF32,
  kCallF64,  // dst = EvalFloat(op sub, a, b)
  kTestF32,
  kTestF64,  // dst = EvalFloatTest(op sub, a, b)
  kCast,     // dst = dtype imm of a, which is of dtype sub
};

struct Instruction {
  Code code = Code::kHalt;
  uint16_t sub = 0;
  int32_t dst = 0;
  int32_t a = 0;
  int32_t b = 0;
  int64_t imm = 0;
};

struct Bytecode {
  std::vector<Instruction> code;
  std::vector<Register> initial;       // the registers at the start: the constants
  std::vector<ir::BufferRef> buffers;  // inputs, outputs, then allocations
};

// `program` must have passed verification.
absl::StatusOr<Bytecode> CompileToBytecode(const ir::Program& program,
                                           const InterpreterOptions& options);

// Runs on the memory of the parameters (inputs, then outputs). Errors as Interpret.
absl::Status RunBytecode(const Bytecode& bytecode, std::span<const TensorRef> parameters,
                         size_t num_inputs, const InterpreterOptions& options);

// An element, given by its row-major index, as text: "x[3, 5]".
std::string ElementName(const ir::Buffer& buffer, int64_t element);

}  // namespace heddle::interpreter
