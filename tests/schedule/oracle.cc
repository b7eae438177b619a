#include "tests/schedule/oracle.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/interpreter/interpreter.h"
#include "compiler/ir/arithmetic.h"
#include "compiler/ir/text.h"
#include "compiler/ir/verify/verifier.h"
#include "compiler/ir/visit.h"
#include "compiler/measure/compare.h"
#include "compiler/pass/lower.h"
#include "compiler/schedule/primitives/allocation.h"
#include "compiler/schedule/tree.h"

namespace heddle::schedule {

namespace {

// The elements of a tensor of f32, halves, i32 or u8.
std::string StoredBytes(const std::vector<float>& values, ir::DType dtype) {
  if (dtype == ir::DType::kI32) {
    std::string bytes(values.size() * sizeof(int32_t), 0);
    for (size_t i = 0; i < values.size(); ++i) {
      const int32_t number = std::isnan(values[i]) ? -1 : static_cast<int32_t>(values[i]);
      std::memcpy(bytes.data() + i * sizeof(number), &number, sizeof(number));
    }
    return bytes;
  }
  if (dtype == ir::DType::kU8) {
    std::string bytes(values.size(), 0);
    for (size_t i = 0; i < values.size(); ++i)
      bytes[i] = static_cast<char>(std::isnan(values[i]) ? 255 : static_cast<int>(values[i]));
    return bytes;
  }
  const auto size = static_cast<size_t>(ir::SizeOf(dtype));
  std::string bytes(values.size() * size, 0);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t half = ir::IsHalf(dtype) ? ir::HalfBits(values[i], dtype) : 0;
    const void* from = ir::IsHalf(dtype) ? static_cast<const void*>(&half) : &values[i];
    std::memcpy(bytes.data() + i * size, from, size);
  }
  return bytes;
}

std::vector<double> Loaded(const std::string& bytes, ir::DType dtype) {
  const auto size = static_cast<size_t>(ir::SizeOf(dtype));
  std::vector<double> values(bytes.size() / size);
  for (size_t i = 0; i < values.size(); ++i) {
    float value = 0;
    uint16_t half = 0;
    void* to = ir::IsHalf(dtype) ? static_cast<void*>(&half) : &value;
    std::memcpy(to, bytes.data() + i * size, size);
    values[i] = ir::IsHalf(dtype) ? ir::HalfValue(half, dtype) : value;
  }
  return values;
}

}  // namespace

absl::StatusOr<Outputs> RunOnRandomInputs(const ir::Program& program, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<std::string> memory;
  std::vector<interpreter::TensorRef> tensors;
  auto add = [&](const ir::BufferRef& buffer, bool input) {
    std::vector<float> values(buffer->NumElements(), std::numeric_limits<float>::quiet_NaN());
    if (input) {
      for (float& value : values) value = uniform(rng);
      if (ir::IsInteger(buffer->dtype)) {
        // Without a range, also numbers that no index may be.
        std::uniform_int_distribution<int> number(
            buffer->below > 0 || ir::IsUnsigned(buffer->dtype) ? 0 : -3,
            buffer->below > 0 ? static_cast<int>(buffer->below) - 1 : 12);
        for (float& value : values) value = static_cast<float>(number(rng));
      }
    }
    memory.push_back(StoredBytes(values, buffer->dtype));
    tensors.push_back({buffer->dtype, buffer->shape, memory.back().data()});
  };
  memory.reserve(program.inputs.size() + program.outputs.size());  // a short string must not move
  for (const ir::BufferRef& buffer : program.inputs) add(buffer, true);
  for (const ir::BufferRef& buffer : program.outputs) add(buffer, false);
  HEDDLE_RETURN_IF_ERROR(interpreter::Interpret(program, tensors));
  Outputs outputs;
  for (size_t i = program.inputs.size(); i < memory.size(); ++i)
    outputs.push_back(Loaded(memory[i], tensors[i].dtype));
  return outputs;
}

absl::Status CompareOutputs(const Outputs& expected, const Outputs& found) {
  for (size_t k = 0; k < expected.size(); ++k) {
    for (size_t i = 0; i < expected[k].size(); ++i) {
      if (Close(expected[k][i], found[k][i])) continue;
      return absl::DataLossError(absl::StrCat("output ", k, " element ", i, ": expected ",
                                              expected[k][i], ", found ", found[k][i]));
    }
  }
  return absl::OkStatus();
}

namespace {

absl::Status Prefixed(const absl::Status& status, const std::string& what) {
  return absl::Status(status.code(), absl::StrCat(what, ": ", status.message()));
}

// Extents of loops and, as zero, blocks: by name.
std::map<std::string, int64_t> Named(const ir::Program& program) {
  std::map<std::string, int64_t> named;
  ir::VisitStmt(program.body, [&](const ir::Stmt& s) {
    if (const auto* loop = ir::As<ir::For>(s)) named[loop->var->name] = loop->extent;
    if (const auto* block = ir::As<ir::Block>(s)) named[block->name] = 0;
    return true;
  });
  return named;
}

// What a step gives back is there, and lacks nothing that is new.
absl::Status CheckCursors(const ir::Program& before, const Rewritten& after) {
  std::map<std::string, int64_t> made;
  const auto add = [&](const std::vector<Loop>& loops) {
    for (const Loop& loop : loops) made[loop.name] = loop.extent;
  };
  add(after.loops);
  for (const NewBlock& block : after.blocks) {
    made[block.name] = 0;
    add(block.loops);
  }
  const std::map<std::string, int64_t> old = Named(before), now = Named(after.program);
  for (const auto& [name, extent] : made) {
    const auto found = now.find(name);
    if (found == now.end() || found->second != extent)
      return absl::InternalError(absl::StrCat("cursor to ", name, " of extent ", extent));
  }
  for (const auto& [name, extent] : now) {
    if (!old.count(name) && !made.count(name))
      return absl::InternalError(absl::StrCat("no cursor to ", name));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckTrace(const ir::Program& naive, const Trace& trace, uint64_t seed) {
  ir::Program program = naive;
  for (const Step& step : trace.steps) {
    HEDDLE_ASSIGN_OR_RETURN(Rewritten next, ApplyStep(program, step));
    if (absl::Status status = CheckCursors(program, next); !status.ok())
      return Prefixed(status, absl::StrCat("cursors of ", ToText(Trace{{step}})));
    program = std::move(next.program);
    if (absl::Status status = ir::Verify(program); !status.ok()) {
      return Prefixed(status,
                      absl::StrCat("verify after ", ToText(Trace{{step}}), ir::Print(program)));
    }
    // Steps ask of the loops that are new to them alone. With the guards of uneven splits, which
    // CheckIndependent does not reckon with, asking of all may refuse what is independent.
    const std::vector<Path> blocks = AllBlocks(program.body);
    const bool guarded = std::any_of(blocks.begin(), blocks.end(), [](const Path& path) {
      return path.block().where != nullptr;
    });
    const absl::Status independent =
        guarded ? absl::OkStatus() : CheckConcurrency(program.body, ir::MakeStmt(ir::Seq{}));
    if (!independent.ok()) {
      return Prefixed(independent, absl::StrCat("independence after ", ToText(Trace{{step}}),
                                                ir::Print(program)));
    }
  }
  HEDDLE_ASSIGN_OR_RETURN(Outputs expected, RunOnRandomInputs(naive, seed));
  auto found = RunOnRandomInputs(program, seed);
  if (!found.ok()) return Prefixed(found.status(), absl::StrCat("run of ", ir::Print(program)));
  if (absl::Status status = CompareOutputs(expected, *found); !status.ok()) {
    return Prefixed(status, absl::StrCat("result of ", ir::Print(program)));
  }
  auto lowered = pass::Lower(program);
  if (!lowered.ok()) return Prefixed(lowered.status(), absl::StrCat("lower ", ir::Print(program)));
  found = RunOnRandomInputs(*lowered, seed);
  if (!found.ok()) {
    return Prefixed(found.status(), absl::StrCat("run of lowered ", ir::Print(*lowered)));
  }
  if (absl::Status status = CompareOutputs(expected, *found); !status.ok()) {
    return Prefixed(status, absl::StrCat("result of lowered ", ir::Print(*lowered)));
  }
  return absl::OkStatus();
}

namespace {

// What went wrong, without the details that change when steps are left out. A trace that binds GPU
// axes must not shrink to one that is merely illegal without them.
std::string Kind(const absl::Status& status) {
  std::string message(status.message());
  size_t rule = message.rfind("}\n: ");
  std::string what = message.substr(0, message.find(' '));
  return rule == std::string::npos
             ? what
             : absl::StrCat(what, " ",
                            message.substr(rule + 4, message.find(':', rule + 4) - rule - 4));
}

}  // namespace

Trace Minimise(const ir::Program& naive, Trace trace, uint64_t seed) {
  const std::string kind = Kind(CheckTrace(naive, trace, seed));
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (size_t i = trace.steps.size(); i > 0; --i) {
      Trace candidate = trace;
      candidate.steps.erase(candidate.steps.begin() + static_cast<int64_t>(i) - 1);
      if (!Replay(naive, candidate).ok()) continue;
      absl::Status status = CheckTrace(naive, candidate, seed);
      if (status.ok() || Kind(status) != kind) continue;
      trace = std::move(candidate);
      smaller = true;
    }
  }
  return trace;
}

std::string Explain(const ir::Program& naive, const Trace& trace, uint64_t seed) {
  Trace small = Minimise(naive, trace, seed);
  return absl::StrCat("seed ", seed, "\n", ir::Print(naive), "\nminimised trace:\n", ToText(small),
                      "\n", CheckTrace(naive, small, seed).message());
}

}  // namespace heddle::schedule
