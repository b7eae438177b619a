// Executes bytecode: the register machine.
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "compiler/interpreter/bytecode.h"
#include "compiler/interpreter/memory.h"
#include "compiler/interpreter/races.h"
#include "compiler/ir/arithmetic.h"

namespace heddle::interpreter {
namespace {

using ir::DType;
using ir::Op;

// Why the machine stopped, for the message.
enum class Fault { kNone, kOutside, kIndexOutside, kUnwritten, kSteps, kRace };

class Machine {
 public:
  Machine(const Bytecode& bytecode, const InterpreterOptions& options)
      : bytecode_(bytecode), options_(options), registers_(bytecode.initial) {}

  absl::Status SetUp(std::span<const TensorRef> parameters, size_t num_inputs) {
    memory_.resize(bytecode_.buffers.size());
    for (size_t i = 0; i < memory_.size(); ++i) {
      const ir::Buffer& buffer = *bytecode_.buffers[i];
      Memory& m = memory_[i];
      m.elements = static_cast<uint64_t>(buffer.NumElements());
      if (i < parameters.size()) {
        m.data = static_cast<uint8_t*>(parameters[i].data);
      } else {
        HEDDLE_ASSIGN_OR_RETURN(m.data, Allocate(static_cast<size_t>(buffer.SizeBytes()), buffer));
      }
      if (options_.check_uninitialized && i >= num_inputs) {
        HEDDLE_ASSIGN_OR_RETURN(m.written, Allocate(m.elements, buffer));
        std::memset(m.written, 0, m.elements);
        if (options_.check_races) {
          watches_.push_back(
              std::make_unique<RaceDetector::Watch>(buffer.scope, buffer.NumElements()));
          m.watch = watches_.back().get();
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status Run() {
    Execute();
    switch (fault_) {
      case Fault::kNone:
        return absl::OkStatus();
      case Fault::kOutside:
        return absl::InternalError("interpreter: element " + std::to_string(fault_element_) +
                                   " is outside " + BufferName());
      case Fault::kIndexOutside:
        return absl::InternalError("interpreter: index " + std::to_string(fault_dimension_) +
                                   " of " + BufferName() + " is " + std::to_string(fault_element_) +
                                   ", outside the shape");
      case Fault::kUnwritten:
        return absl::InternalError("interpreter: " + ElementName(Buffer(), fault_element_) +
                                   " is read before it is written");
      case Fault::kRace:
        return absl::InternalError(
            "interpreter: " + ElementName(Buffer(), fault_element_) +
            " is touched by two threads, or fetched and touched, without a barrier "
            "between");
      case Fault::kSteps:
        return absl::DeadlineExceededError("interpreter: more than " +
                                           std::to_string(options_.max_steps) + " stores");
    }
    return absl::OkStatus();
  }

  // The first element of a parameter that was never written, or -1.
  int64_t FirstUnwritten(size_t parameter) const {
    const Memory& m = memory_[parameter];
    if (m.written == nullptr || m.elements == 0) return -1;
    const void* hole = std::memchr(m.written, 0, m.elements);
    return hole == nullptr ? -1 : static_cast<const uint8_t*>(hole) - m.written;
  }

 private:
  absl::StatusOr<uint8_t*> Allocate(size_t bytes, const ir::Buffer& buffer) {
    auto block = std::unique_ptr<uint8_t[]>(new (std::nothrow) uint8_t[bytes]);
    if (!block) {
      return absl::ResourceExhaustedError("interpreter: no memory for " + buffer.name + " (" +
                                          std::to_string(bytes) + " bytes)");
    }
    owned_.push_back(std::move(block));
    return owned_.back().get();
  }

  const ir::Buffer& Buffer() const { return *bytecode_.buffers[fault_buffer_]; }
  std::string BufferName() const { return Buffer().name; }

  void Fail(Fault fault, const Instruction& at, int64_t element) {
    fault_ = fault;
    fault_buffer_ = at.sub;
    fault_dimension_ = at.b;
    fault_element_ = element;
  }

  // Whether the element may be read. If not, records the fault.
  bool CheckRead(const Instruction& at, const Memory& m, uint64_t element) {
    if (element >= m.elements)
      return Fail(Fault::kOutside, at, static_cast<int64_t>(element)), false;
    if (m.written != nullptr && !m.written[element])
      return Fail(Fault::kUnwritten, at, static_cast<int64_t>(element)), false;
    if (m.watch != nullptr && !races_.Read(*m.watch, element))
      return Fail(Fault::kRace, at, static_cast<int64_t>(element)), false;
    return true;
  }
  bool CheckWrite(const Instruction& at, const Memory& m, uint64_t element) {
    if (element >= m.elements)
      return Fail(Fault::kOutside, at, static_cast<int64_t>(element)), false;
    if (--steps_left_ < 0) return Fail(Fault::kSteps, at, 0), false;
    if (m.written != nullptr) m.written[element] = 1;
    if (m.watch != nullptr && !races_.Write(*m.watch, element))
      return Fail(Fault::kRace, at, static_cast<int64_t>(element)), false;
    return true;
  }

  void Execute();

  const Bytecode& bytecode_;
  const InterpreterOptions& options_;
  std::vector<Register> registers_;
  std::vector<Memory> memory_;
  std::vector<std::unique_ptr<uint8_t[]>> owned_;
  std::vector<std::unique_ptr<RaceDetector::Watch>> watches_;
  RaceDetector races_;
  int64_t steps_left_ = 0;
  Fault fault_ = Fault::kNone;
  size_t fault_buffer_ = 0;
  int fault_dimension_ = 0;
  int64_t fault_element_ = 0;
};

inline int64_t MulAdd(int64_t a, int64_t b, int64_t k) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) +
                              static_cast<uint64_t>(b) * static_cast<uint64_t>(k));
}

// One case for each instruction, in the order of the enumeration. It is one function, because this
// loop determines the interpreter's speed.
void Machine::Execute() {
  Register* const r = registers_.data();
  const Memory* const memory = memory_.data();
  steps_left_ = options_.max_steps;
  for (const Instruction* pc = bytecode_.code.data();; ++pc) {
    const Instruction& in = *pc;
    const auto element = [&] {
      return static_cast<uint64_t>(MulAdd(r[in.a].i, r[in.b].i, in.imm));
    };
    switch (in.code) {
      case Code::kHalt:
        return;
      case Code::kMulAdd:
        r[in.dst].i = MulAdd(r[in.a].i, r[in.b].i, in.imm);
        break;
      case Code::kMul:
        r[in.dst].i = MulAdd(0, r[in.a].i, r[in.b].i);
        break;
      case Code::kFloorDiv:
        r[in.dst].i = ir::FloorDivInt(r[in.a].i, in.imm);
        break;
      case Code::kFloorMod:
        r[in.dst].i = ir::FloorModInt(r[in.a].i, in.imm);
        break;
      case Code::kMin:
        r[in.dst].i = r[in.a].i < r[in.b].i ? r[in.a].i : r[in.b].i;
        break;
      case Code::kMax:
        r[in.dst].i = r[in.a].i > r[in.b].i ? r[in.a].i : r[in.b].i;
        break;
      case Code::kLt:
        r[in.dst].i = r[in.a].i < r[in.b].i;
        break;
      case Code::kLe:
        r[in.dst].i = r[in.a].i <= r[in.b].i;
        break;
      case Code::kEq:
        r[in.dst].i = r[in.a].i == r[in.b].i;
        break;
      case Code::kNe:
        r[in.dst].i = r[in.a].i != r[in.b].i;
        break;
      case Code::kAnd:
        r[in.dst].i = r[in.a].i && r[in.b].i;
        break;
      case Code::kOr:
        r[in.dst].i = r[in.a].i || r[in.b].i;
        break;
      case Code::kNot:
        r[in.dst].i = !r[in.a].i;
        break;
      case Code::kSelect:
        r[in.dst] = r[in.a].i ? r[in.b] : r[in.imm];
        break;
      case Code::kCallInt:
        r[in.dst].i =
            *ir::EvalInt(static_cast<Op>(in.sub), static_cast<DType>(in.imm), r[in.a].i, r[in.b].i);
        break;
      case Code::kJump:
        pc += in.imm - 1;
        break;
      case Code::kJumpIfZero:
        if (r[in.a].i == 0) pc += in.imm - 1;
        break;
      case Code::kJumpIfNonZeroSum:
        if (element() != 0) pc += in.dst - 1;
        break;
      case Code::kLoopBegin:
        r[in.dst].i = in.imm;
        break;
      case Code::kLoopUp:
        if (++r[in.dst].i < in.imm) pc += in.a - 1;
        break;
      case Code::kLoopDown:
        if (--r[in.dst].i >= 0) pc += in.a - 1;
        break;
      case Code::kCheckIndex:
        if (static_cast<uint64_t>(r[in.a].i) >= static_cast<uint64_t>(in.imm))
          return Fail(Fault::kIndexOutside, in, r[in.a].i);
        break;
      case Code::kForget:
        if (memory[in.sub].written != nullptr)
          std::memset(memory[in.sub].written, 0, memory[in.sub].elements);
        if (memory[in.sub].watch != nullptr) memory[in.sub].watch->Forget();
        break;
      case Code::kSetAxis:
        races_.SetAxis(in.sub, r[in.a].i);
        break;
      case Code::kBarrier:
        if (in.imm == 0) races_.Barrier(in.dst);
        if (in.imm == 1) races_.NewLaunch();
        if (in.imm == 2) races_.EndFetch();
        break;
#define HEDDLE_LOAD(code, field, type)                                                           \
  case code: {                                                                                   \
    const uint64_t e = element();                                                                \
    if (e >= memory[in.sub].elements) return Fail(Fault::kOutside, in, static_cast<int64_t>(e)); \
    r[in.dst].field = Read<type>(memory[in.sub], e);                                             \
    break;                                                                                       \
  }
        HEDDLE_LOAD(Code::kLoadU8, i, uint8_t)
        HEDDLE_LOAD(Code::kLoadI8, i, int8_t)
        HEDDLE_LOAD(Code::kLoadI16, i, int16_t)
        HEDDLE_LOAD(Code::kLoadU16, i, uint16_t)
        HEDDLE_LOAD(Code::kLoadI32, i, int32_t)
        HEDDLE_LOAD(Code::kLoadU32, i, uint32_t)
        HEDDLE_LOAD(Code::kLoadI64, i, int64_t)
        HEDDLE_LOAD(Code::kLoadF32, f, float)
        HEDDLE_LOAD(Code::kLoadF64, d, double)
#undef HEDDLE_LOAD
      case Code::kLoadF16:
      case Code::kLoadBF16: {
        const uint64_t e = element();
        if (e >= memory[in.sub].elements) return Fail(Fault::kOutside, in, static_cast<int64_t>(e));
        r[in.dst] = LoadAny(memory[in.sub], bytecode_.buffers[in.sub]->dtype, e);
        break;
      }
      case Code::kLoadCheckedF32: {
        const uint64_t e = element();
        if (!CheckRead(in, memory[in.sub], e)) return;
        r[in.dst].f = Read<float>(memory[in.sub], e);
        break;
      }
      case Code::kLoadChecked: {
        const uint64_t e = element();
        if (!CheckRead(in, memory[in.sub], e)) return;
        r[in.dst] = LoadAny(memory[in.sub], bytecode_.buffers[in.sub]->dtype, e);
        break;
      }
#define HEDDLE_STORE(code, field, type)                                 \
  case code: {                                                          \
    const uint64_t e = element();                                       \
    if (!CheckWrite(in, memory[in.sub], e)) return;                     \
    Write<type>(memory[in.sub], e, static_cast<type>(r[in.dst].field)); \
    break;                                                              \
  }
        HEDDLE_STORE(Code::kStoreI8, i, int8_t)
        HEDDLE_STORE(Code::kStoreI16, i, int16_t)
        HEDDLE_STORE(Code::kStoreI32, i, int32_t)
        HEDDLE_STORE(Code::kStoreI64, i, int64_t)
        HEDDLE_STORE(Code::kStoreF32, f, float)
        HEDDLE_STORE(Code::kStoreF64, d, double)
#undef HEDDLE_STORE
      case Code::kStoreF16:
      case Code::kStoreBF16: {
        const uint64_t e = element();
        if (!CheckWrite(in, memory[in.sub], e)) return;
        const DType dtype = in.code == Code::kStoreF16 ? DType::kF16 : DType::kBF16;
        Write<uint16_t>(memory[in.sub], e, ir::HalfBits(r[in.dst].f, dtype));
        break;
      }
      case Code::kSumF32: {
        const uint64_t e = element();
        const Memory& m = memory[in.sub];
        if (!CheckRead(in, m, e) || !CheckWrite(in, m, e)) return;
        Write<float>(m, e, Read<float>(m, e) + r[in.dst].f);
        break;
      }
      case Code::kSumProductF32: {
        const auto e = static_cast<uint64_t>(r[in.a].i);
        const Memory& m = memory[in.sub];
        if (!CheckRead(in, m, e) || !CheckWrite(in, m, e)) return;
        Write<float>(m, e, Read<float>(m, e) + r[in.dst].f * r[in.imm].f);
        break;
      }
      case Code::kAddF32:
        r[in.dst].f = r[in.a].f + r[in.b].f;
        break;
      case Code::kSubF32:
        r[in.dst].f = r[in.a].f - r[in.b].f;
        break;
      case Code::kMulF32:
        r[in.dst].f = r[in.a].f * r[in.b].f;
        break;
      case Code::kDivF32:
        r[in.dst].f = r[in.a].f / r[in.b].f;
        break;
      case Code::kMinF32:
        r[in.dst].f = r[in.b].f < r[in.a].f ? r[in.b].f : r[in.a].f;
        break;
      case Code::kMaxF32:
        r[in.dst].f = r[in.a].f < r[in.b].f ? r[in.b].f : r[in.a].f;
        break;
      case Code::kLtF32:
        r[in.dst].i = r[in.a].f < r[in.b].f;
        break;
      case Code::kLeF32:
        r[in.dst].i = r[in.a].f <= r[in.b].f;
        break;
      case Code::kAddF64:
        r[in.dst].d = r[in.a].d + r[in.b].d;
        break;
      case Code::kSubF64:
        r[in.dst].d = r[in.a].d - r[in.b].d;
        break;
      case Code::kMulF64:
        r[in.dst].d = r[in.a].d * r[in.b].d;
        break;
      case Code::kDivF64:
        r[in.dst].d = r[in.a].d / r[in.b].d;
        break;
      case Code::kMinF64:
        r[in.dst].d = r[in.b].d < r[in.a].d ? r[in.b].d : r[in.a].d;
        break;
      case Code::kMaxF64:
        r[in.dst].d = r[in.a].d < r[in.b].d ? r[in.b].d : r[in.a].d;
        break;
      case Code::kLtF64:
        r[in.dst].i = r[in.a].d < r[in.b].d;
        break;
      case Code::kLeF64:
        r[in.dst].i = r[in.a].d <= r[in.b].d;
        break;
      case Code::kCallF32:
        r[in.dst].f = static_cast<float>(
            *ir::EvalFloat(static_cast<Op>(in.sub), DType::kF32, r[in.a].f, r[in.b].f));
        break;
      case Code::kCallF64:
        r[in.dst].d = *ir::EvalFloat(static_cast<Op>(in.sub), DType::kF64, r[in.a].d, r[in.b].d);
        break;
      case Code::kTestF32:
        r[in.dst].i = *ir::EvalFloatTest(static_cast<Op>(in.sub), r[in.a].f, r[in.b].f);
        break;
      case Code::kTestF64:
        r[in.dst].i = *ir::EvalFloatTest(static_cast<Op>(in.sub), r[in.a].d, r[in.b].d);
        break;
      case Code::kCast:
        r[in.dst] = Convert(r[in.a], static_cast<DType>(in.sub), static_cast<DType>(in.imm));
        break;
    }
  }
}

}  // namespace

std::string ElementName(const ir::Buffer& buffer, int64_t element) {
  std::string indices;
  for (size_t k = buffer.shape.size(); k-- > 0;) {
    indices = std::to_string(element % buffer.shape[k]) + (indices.empty() ? "" : ", ") + indices;
    element /= buffer.shape[k];
  }
  return buffer.name + "[" + indices + "]";
}

absl::Status RunBytecode(const Bytecode& bytecode, std::span<const TensorRef> parameters,
                         size_t num_inputs, const InterpreterOptions& options) {
  Machine machine(bytecode, options);
  HEDDLE_RETURN_IF_ERROR(machine.SetUp(parameters, num_inputs));
  HEDDLE_RETURN_IF_ERROR(machine.Run());
  for (size_t i = num_inputs; i < parameters.size(); ++i) {
    if (const int64_t hole = machine.FirstUnwritten(i); hole >= 0) {
      return absl::InternalError("interpreter: output element " +
                                 ElementName(*bytecode.buffers[i], hole) + " is never written");
    }
  }
  return absl::OkStatus();
}

}  // namespace heddle::interpreter
