// Runs a module. A run in steady state allocates nothing and takes no lock, apart from the barriers
// of the thread pool: what a call needs is bound when the executor is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/runtime/module.h"
#include "compiler/runtime/row_cut.h"
#include "compiler/runtime/timing.h"

namespace heddle::runtime {

class ExecutorBackend;

class Executor {
 public:
  struct Options {
    int threads = 0;        // 0: the module's number
    std::vector<int> cpus;  // cores to which the pool's workers are pinned
    int gpu = 0;            // number of the device, for GPU modules
  };
  // FailedPrecondition: the code needs CPU features (named in the message) or a GPU that this
  // machine lacks.
  static absl::StatusOr<std::unique_ptr<Executor>> Create(Module module, const Options& options);
  static absl::StatusOr<std::unique_ptr<Executor>> Create(Module module) {
    return Create(std::move(module), Options());
  }
  ~Executor();

  const Manifest& manifest() const;
  // Dense row-major host memory, owned by the executor and valid for its lifetime (but of an output that
  // is bound, OutputData is the bound memory). Write the inputs, call Run, then read the outputs. An output
  // whose extents depend on data is there with its largest shape.
  void* InputData(int index);
  size_t InputBytes(int index) const { return inputs_[static_cast<size_t>(index)].bytes; }
  const void* OutputData(int index) const;
  // Makes the model read input `index` from `data`, and write output `index` to it, without a copy: dense
  // row-major memory of the tensor's size, at a multiple of kBufferAlignment. It holds until the next call for
  // the same tensor, or RunRows, so `data` must live as long. Null: the executor's own memory again. Memory of an
  // output must overlap no other tensor. InvalidArgument: not aligned. FailedPrecondition: the module is for a GPU.
  absl::Status BindInput(int index, const void* data);
  absl::Status BindOutput(int index, void* data);
  // The shape that an output has after the last run.
  const std::vector<int64_t>& OutputShape(int index) const {
    return outputs_[static_cast<size_t>(index)].shape;
  }
  // The elements of that shape, densely.
  std::string Output(int index) const;
  void CopyOutput(int index, char* to) const;
  size_t OutputBytes(int index) const;
  // Runs the model. With a block other than 0, it reads and writes only the first rows of inputs and outputs, as many as
  // the block has (Manifest::RowsOf). On a GPU this includes the copies of inputs and outputs. Fails only on a GPU.
  absl::Status Run(size_t block = 0);
  // For independent rows: runs the model on any number of them. inputs[i] holds `rows` rows of input i, densely, and
  // outputs[i] gets those of output i; a null output is not copied. RowCut (row_cut.h) cuts them into blocks, by what the
  // kernels took (KernelSpec::record_ms). With several threads, each takes rows of its own if those are 1024 and one
  // largest block at least; fewer rows are shared by the loops of the kernels. After the run, the executor's own inputs and outputs
  // hold those of some blocks, and have the shapes of the largest one. `outputs` must not overlap `inputs`.
  // InvalidArgument: rows are not independent, there are less than none or more than an address space holds, or an input or an
  // array is null. Without rows, arrays may be null.
  absl::Status RunRows(int64_t rows, const void* const* inputs, void* const* outputs);
  // The median time in nanoseconds of each call (one entry per manifest().CallsOf(block)) over `rounds`
  // runs. On a GPU, the copies are not included. Empty after a failure.
  std::vector<double> ProfileNs(int rounds, size_t block = 0);
  // The first failure of any run so far.
  const absl::Status& status() const;

 private:
  Executor(Manifest manifest, std::unique_ptr<ExecutorBackend> backend);

  // What a run needs to know of a tensor.
  struct Tensor {
    size_t bytes = 0;      // of the largest shape
    size_t row_bytes = 0;  // 0 if rows are not independent
    size_t element_bytes = 0;
    std::vector<int64_t> shape;   // of an output: after the last run
    const void* bound = nullptr;  // where it is, if not in the executor's own memory
    char* own = nullptr;          // the executor's own memory: of an input
    const char* own_output = nullptr;
  };
  void CopyRows(char* to, const char* from, size_t bytes);
  // A call in which threads take rows of their own.
  void ShareRows(int64_t rows, const void* const* inputs, void* const* outputs);
  // The rows from `begin` to `end`, in the memory of a thread.
  void RunRange(int64_t begin, int64_t end, int thread, const void* const* inputs,
                void* const* outputs);
  void SetShapes(size_t block);
  void Unbind();

  const Manifest manifest_;
  const std::unique_ptr<ExecutorBackend> backend_;
  const std::vector<int64_t> block_rows_;  // by block
  const RowCut cut_;
  int64_t most_rows_ = 0;  // that RunRows takes
  int64_t least_shared_rows_ =
      INT64_MAX;                          // so many rows or more: each thread takes some of its own
  std::vector<Tensor> inputs_, outputs_;  // as in the manifest
  bool any_bound_ = false;                // whether a tensor may be bound
  size_t shaped_ = SIZE_MAX;  // the block whose shapes outputs have, if rows are independent
  absl::Status status_;
};

}  // namespace heddle::runtime
