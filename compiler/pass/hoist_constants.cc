#include "compiler/pass/hoist_constants.h"

#include <algorithm>
#include <set>
#include <unordered_set>

#include "compiler/ir/visit.h"

namespace heddle::pass {

namespace {

using namespace ir;

using BufferSet = std::unordered_set<const Buffer*>;

// A root statement and what it touches.
struct Part {
  Stmt stmt;
  BufferSet reads;
  BufferSet writes;
  bool hoisted = false;
};

Part Describe(Stmt stmt) {
  Part part{std::move(stmt), {}, {}};
  VisitLoads(part.stmt, [&](const Expr& load) { part.reads.insert(load->buffer.get()); });
  VisitStmt(part.stmt, [&](const Stmt& s) {
    if (const Buffer* written = WrittenBuffer(s)) part.writes.insert(written);
    return true;
  });
  return part;
}

// The statements at the root, under the allocations that span them.
std::vector<Part> RootParts(const Program& program, std::vector<BufferRef>* allocated) {
  Stmt body = program.body;
  while (auto* alloc = As<Alloc>(body)) {
    allocated->push_back(alloc->buffer);
    body = alloc->body;
  }
  std::vector<Part> parts;
  if (auto* seq = As<Seq>(body)) {
    for (const Stmt& child : seq->stmts) parts.push_back(Describe(child));
  } else {
    parts.push_back(Describe(body));
  }
  return parts;
}

// Marks the parts that depend on `constants` only and write none of the buffers in `stay`. A buffer
// that some unmarked part writes is not known, and neither is what reads it. So marks are taken
// back until nothing changes.
void MarkHoisted(const BufferSet& constants, const BufferSet& stay, std::vector<Part>* parts) {
  for (Part& part : *parts) part.hoisted = true;
  bool changed = true;
  while (changed) {
    changed = false;
    BufferSet unknown = stay;
    for (const Part& part : *parts) {
      if (!part.hoisted) unknown.insert(part.writes.begin(), part.writes.end());
    }
    BufferSet known = constants;
    for (Part& part : *parts) {
      if (!part.hoisted) continue;
      const bool writes_known = std::none_of(part.writes.begin(), part.writes.end(),
                                             [&](const Buffer* b) { return unknown.count(b); });
      const bool reads_known =
          std::all_of(part.reads.begin(), part.reads.end(), [&](const Buffer* b) {
            return (known.count(b) || part.writes.count(b)) && !unknown.count(b);
          });
      if (writes_known && reads_known) {
        known.insert(part.writes.begin(), part.writes.end());
      } else {
        part.hoisted = false;
        changed = true;
      }
    }
  }
}

Stmt Rebuild(const std::vector<Part>& parts, bool hoisted,
             const std::vector<BufferRef>& allocated) {
  std::vector<Stmt> stmts;
  for (const Part& part : parts) {
    if (part.hoisted == hoisted) stmts.push_back(part.stmt);
  }
  Stmt body = MakeSeq(std::move(stmts));
  for (auto it = allocated.rbegin(); it != allocated.rend(); ++it) {
    body = MakeStmt(Alloc{*it, std::move(body)});
  }
  return body;
}

BufferRef AsInput(const Buffer& buffer) {
  auto input = std::make_shared<Buffer>(buffer);
  input->scope = Scope::kGlobal;
  input->constant = true;
  return input;
}

BufferRef AsOutput(const Buffer& buffer) {
  auto output = std::make_shared<Buffer>(buffer);
  output->scope = Scope::kGlobal;
  return output;
}

// What the parts touch at run time (late) and when the module is made (early).
struct Touched {
  BufferSet read_late, read_early, written_early;
};

Touched Sort(const std::vector<Part>& parts) {
  Touched touched;
  for (const Part& part : parts) {
    (part.hoisted ? touched.read_early : touched.read_late)
        .insert(part.reads.begin(), part.reads.end());
    if (part.hoisted) touched.written_early.insert(part.writes.begin(), part.writes.end());
  }
  return touched;
}

// The largest prepacked buffer if all together exceed kMaxPrepackGrowth, else null.
const Buffer* LargestOfTooMany(const Program& scheduled, const std::vector<BufferRef>& allocated,
                               const Touched& touched) {
  int64_t made = 0, from = 0;
  const Buffer* largest = nullptr;
  for (const BufferRef& input : scheduled.inputs) {
    if (touched.read_early.count(input.get())) from += input->SizeBytes();
  }
  for (const BufferRef& buffer : allocated) {
    if (!touched.written_early.count(buffer.get()) || !touched.read_late.count(buffer.get()))
      continue;
    made += buffer->SizeBytes();
    if (largest == nullptr || buffer->SizeBytes() > largest->SizeBytes()) largest = buffer.get();
  }
  return made > kMaxPrepackGrowth * from ? largest : nullptr;
}

}  // namespace

HoistedProgram HoistConstants(const Program& scheduled) {
  BufferSet constants;
  BufferSet outputs;  // and other buffers that the kernel has to compute
  for (const BufferRef& input : scheduled.inputs) {
    if (input->constant) constants.insert(input.get());
  }
  for (const BufferRef& output : scheduled.outputs) outputs.insert(output.get());
  if (constants.empty()) return {scheduled, std::nullopt};

  std::vector<BufferRef> allocated;
  std::vector<Part> parts = RootParts(scheduled, &allocated);
  MarkHoisted(constants, outputs, &parts);
  Touched touched = Sort(parts);
  // Leaves the largest buffer to the kernel until the rest is small enough.
  while (const Buffer* largest = LargestOfTooMany(scheduled, allocated, touched)) {
    outputs.insert(largest);
    MarkHoisted(constants, outputs, &parts);
    touched = Sort(parts);
  }
  const auto& [read_late, read_early, written_early] = touched;
  Program kernel{scheduled.name, {}, scheduled.outputs, nullptr};
  Program prepack{scheduled.name + ".prepack", {}, {}, nullptr};
  BufferMap as_input, as_output;
  std::vector<BufferRef> kernel_allocated, prepack_allocated, prepacked;
  for (const BufferRef& input : scheduled.inputs) {
    if (!input->constant || read_late.count(input.get())) kernel.inputs.push_back(input);
    if (read_early.count(input.get())) prepack.inputs.push_back(input);
  }
  for (const BufferRef& buffer : allocated) {
    if (!written_early.count(buffer.get())) {
      kernel_allocated.push_back(buffer);
    } else if (!read_late.count(buffer.get())) {
      prepack_allocated.push_back(buffer);
    } else {
      prepacked.push_back(buffer);
      as_input[buffer.get()] = AsInput(*buffer);
      as_output[buffer.get()] = AsOutput(*buffer);
      kernel.inputs.push_back(as_input[buffer.get()]);
      prepack.outputs.push_back(as_output[buffer.get()]);
    }
  }
  if (prepacked.empty()) return {scheduled, std::nullopt};
  kernel.body = ReplaceBuffers(Rebuild(parts, false, kernel_allocated), as_input);
  prepack.body = ReplaceBuffers(Rebuild(parts, true, prepack_allocated), as_output);
  return {std::move(kernel), std::move(prepack)};
}

}  // namespace heddle::pass
