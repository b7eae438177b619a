// The module file: everything needed to run one tuned model, in one file.
//
//   bytes 0..7    "HEDDLE02", "HEDDLE03" with packed parameters, or "HEDDLE04" with several blocks of rows: the digits are the
//                 format version
//   bytes 8..15   length of the manifest, little endian
//   bytes 16..23  XXH3 (64 bits) of the manifest, little endian
//   manifest      JSON (manifest_json.cc documents every key): producer, target, model name and
//                 digest, inputs, outputs, kernels (symbol, task key, label, flops, schedule
//                 source), calls, arena size, sections with offset, size and XXH3
//   sections      "code" (an ELF shared object; for GPUs a cubin), "params" and "packed", the
//                 parameters in their packed form (packed_params.h), each at a 64-byte aligned offset
//   trailer       if the module is signed: by whom (base/files/trailer.h). Reading a module does not look at it
//
// This folder includes nothing of ours but headers of base/. Running a module needs libc, libm, threads and
// Abseil's status library, and the driver's library for a GPU module.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/files/shared_bytes.h"
#include "compiler/runtime/gpu_launch.h"
#include "compiler/runtime/numerics.h"
#include "compiler/runtime/packed_params.h"

namespace heddle::runtime {

// A dimension of an output whose extent depends on data. The shape has its largest possible extent;
// after a run, another output of the module holds the extent (an i64 scalar). What lies behind it
// has no meaning.
struct DimLength {
  int axis = 0;
  int output = 0;
};

inline constexpr size_t kMostSamples = size_t{1} << 16;  // values of a tensor (TensorSpec::samples)

struct TensorSpec {
  std::string name;
  std::string dtype;           // "f32", .. as in the IR
  std::vector<int64_t> shape;  // an extent may be 0
  std::vector<DimLength> lengths = {};
  // u8 only: the last dimension holds the bytes of a text with zeros behind it. A text that is longer is cut.
  bool text = false;
  // Names for people who run the module on tables; a row is one index of dimension 0.
  std::vector<std::string> columns =
      {};  // of the elements (or texts) of a row; empty: they have none
  std::vector<std::string> labels =
      {};  // labels[k] is what the integer k stands for; empty: itself
  // f32 only: for each element of a row, finite values that lie on both sides of what the model compares it with, so that rows drawn
  // from them go through all of the model when it is timed. An element without values may be any number; empty: so may all.
  std::vector<std::vector<float>> samples = {};
  int64_t SizeBytes() const;  // 0 for an unknown dtype
};

// Where a buffer of a call lies.
enum class Place { kInput, kOutput, kParam, kArena };
struct BufferSlot {
  Place place = Place::kArena;
  int64_t index = 0;  // kInput, kOutput: number of the tensor; kParam, kArena: byte offset
  int64_t bytes = 0;
};

struct KernelSpec {
  std::string symbol;
  std::string task;   // workload key
  std::string label;  // for people to read
  double flops = 0;
  int64_t workspace_bytes = 0;
  std::string schedule;               // "tuned", "default" or "naive"
  double record_ms = 0;               // what the schedule took when it was measured; 0: not known
  Numerics numerics;                  // the accuracy that the kernel promises
  int64_t untouched_bytes = 0;        // input bytes that a call does not read, as in a look-up
  std::vector<GpuLaunch> launches{};  // GPUs: at least one; CPUs: none
  bool warm = false;                  // whether record_ms is with code and constants in the caches
};

struct CallSpec {
  int kernel = 0;
  std::vector<BufferSlot> buffers;  // inputs, then outputs
};

// The calls for a block of rows. Its tensors begin where those of the manifest do, and have fewer rows.
struct RowBlock {
  int64_t rows = 0;
  std::vector<CallSpec> calls;  // execution order
};

struct Manifest {
  std::string producer;      // "heddle 0.1.0"
  std::string model;         // name
  std::string model_digest;  // SHA-256 of the submitted bytes, hexadecimal
  std::string target;        // canonical text
  std::string plan;          // what was chosen above the operators (compiler/plan/plan.h)
  std::string machine;  // for which it was chosen (compiler/machine/measured_machine.h); empty: any
  std::vector<std::string> cpu_features;  // instruction sets that the code needs (cpu_features.h)
  int threads = 1;
  std::vector<TensorSpec> inputs;
  // The outputs of the model, and behind them those that only hold lengths.
  std::vector<TensorSpec> outputs;
  // Dimension 0 of every input and output counts the same rows, and outputs for a row depend on no other row.
  bool independent_rows = false;
  std::vector<KernelSpec> kernels;
  std::vector<CallSpec> calls;  // execution order
  // If rows are independent: calls for fewer rows than the inputs have, largest first. All blocks share the kernels, the
  // parameters, the arena and the memory of inputs and outputs.
  std::vector<RowBlock> smaller_blocks = {};
  int64_t arena_bytes = 0;
  int64_t unshared_bytes = 0;
  int64_t workspace_bytes = 0;  // the largest of all kernels
  // What the file holds in packed form, by offset.
  std::vector<PackedParam> packed;

  // The number of outputs that the model itself has.
  int NumResults() const;

  // Block 0 has `calls`; those behind it are smaller_blocks.
  size_t NumBlocks() const { return 1 + smaller_blocks.size(); }
  const std::vector<CallSpec>& CallsOf(size_t block) const {
    return block == 0 ? calls : smaller_blocks[block - 1].calls;
  }
  // The rows of a block; 0 if rows are not independent.
  int64_t RowsOf(size_t block) const;
  // `spec`, an input or output, as a block has it.
  TensorSpec InBlock(TensorSpec spec, size_t block) const;
  // Its bytes there.
  int64_t BytesInBlock(const TensorSpec& spec, size_t block) const;

  // The numerics of the kernel with the widest relative tolerance. The model's outputs get that
  // tolerance.
  Numerics LeastExactNumerics() const {
    Numerics least;
    for (const KernelSpec& kernel : kernels) {
      if (kernel.numerics.Allowed().relative > least.Allowed().relative) least = kernel.numerics;
    }
    return least;
  }

  // Whether a device of its own runs it (device_kind.h), not this machine's CPU.
  bool ForGpu() const;
};

struct Module {
  Manifest manifest;
  std::string code;
  SharedBytes params = SharedBytes::Of("");
};

std::string SerializeModule(const Module& module);
// Whether the bytes begin as modules of any format version do; a damaged one may.
bool IsModule(std::string_view bytes);

// Takes the next bytes of a file. An error ends the writing.
using ByteSink = std::function<absl::Status(std::string_view)>;
// Writes the file of a module piece by piece. Its parameters are `params`, each at the next 64-byte
// boundary; they are read twice and not copied, and those in manifest.packed are packed. Errors are those of `sink`.
absl::Status WriteModule(const Manifest& manifest, std::string_view code,
                         const std::vector<SharedBytes>& params, const ByteSink& sink);

// InvalidArgument or DataLoss with one line that names the problem: the bytes are not a module,
// have a newer format version, are truncated (with expected and found sizes), have a wrong checksum
// (with the section), or the manifest contradicts the sections (every offset is checked).
absl::StatusOr<Module> ParseModule(std::string_view bytes);
// Large parameters stay in the file, which is mapped: it may be removed, but nobody may write to it.
absl::StatusOr<Module> ReadModuleFile(const std::string& path);

}  // namespace heddle::runtime
