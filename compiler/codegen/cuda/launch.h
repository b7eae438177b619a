// Writes one launch as a CUDA C++ function. Private to this folder.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/codegen/cuda/expr.h"
#include "compiler/codegen/cuda/gpu_arch.h"
#include "compiler/ir/analysis/group_product.h"
#include "compiler/ir/ir.h"

namespace heddle::codegen {

class CudaLaunch {
 public:
  // `groups`: the target makes products of four warps.
  CudaLaunch(std::string symbol, bool groups) : symbol_(std::move(symbol)), use_groups_(groups) {}

  // `alone`: its memory does not overlap with that of any other parameter.
  void AddParameter(const ir::Buffer& buffer, bool written, bool alone);
  // Writes the launch. Its local buffers must be spread over the threads already (locals.h). Called
  // once. Unimplemented: the launch allocates global memory that is not a parameter.
  absl::Status Emit(const ir::Stmt& s);

  const std::string& symbol() const { return symbol_; }
  const std::string& source() const { return source_; }
  const GpuDemand& demand() const { return demand_; }
  // After Emit: the buffers of which the launch takes a map, after the other parameters.
  std::vector<const ir::Buffer*> mapped() const;
  std::array<int64_t, 3> grid() const { return {extents_[0], extents_[1], extents_[2]}; }
  std::array<int64_t, 3> block() const { return {extents_[3], extents_[4], extents_[5]}; }
  int64_t static_shared_bytes() const { return dynamic_ ? 0 : shared_bytes_; }
  int64_t dynamic_shared_bytes() const { return dynamic_ ? shared_bytes_ : 0; }

 private:
  friend class TensorNestEmitter;
  static constexpr int kAxes = 6;  // blockIdx.x, y, z, threadIdx.x, y, z

  absl::Status Measure(const ir::Stmt& s);
  void Line(const std::string& text);
  void Open(const std::string& text);
  void Close();
  absl::Status Visit(const ir::Stmt& s);
  absl::Status VisitAny(const ir::Stmt& s);
  absl::Status VisitFor(const ir::For& loop);
  absl::Status VisitAxis(const ir::For& loop, int axis);
  absl::Status VisitAlloc(const ir::Alloc& alloc);
  void VisitStore(const ir::Store& store);
  // Writes a sum, maximum or minimum by shuffles within the first warp (warp.cc) instead of in one
  // thread. This changes the order of its terms. False if the loop is no such reduction.
  bool WarpReduction(const ir::For& loop);
  // Writes a nest of unrolled loops around a tensor loop (tensor.cc). It loads the operands of all
  // products into registers, then makes the products. False if the loop is no such nest.
  absl::StatusOr<bool> TensorNest(const ir::For& loop);
  // The number of registers that the operands of such a nest take in each thread.
  int64_t TensorWords(const ir::Stmt& s) const;

  // A thread loop that four warps make together (group.cc). The sums of a product lie in an array.
  struct Group {
    ir::GroupProduct product;
    int64_t half = 0, tile = 0, column = 0;  // distances of a sum from the one 8 rows, 8 columns or
                                             // one column further
    bool late = false;                       // it may still run until the second barrier after it
  };
  // Finds such thread loops, the loops in which they run late, and the memory that is in panels.
  void FindGroups(const ir::Stmt& s);
  // Whether the product `group` that is made in each iteration of the loop may run during the next
  // one: only the product touches its sums, and neither this iteration nor the next stores anything
  // where the product reads.
  static bool MayRunLate(const ir::For& loop, const ir::For& group, const Group& product,
                         ir::Analyzer& analyzer);
  void GroupNest(const ir::For& thread, const Group& group);
  // Waits for all products of the group. Its sums may be used then.
  void WaitForGroup(const Group& group);

  // Shared memory whose parts are boxes of a matrix in global memory (boxes.cc).
  struct Box {
    const ir::Buffer* buffer;
    const ir::Buffer* from;
    int64_t rows = 0;  // of a copy; there are several if a part has more rows, or several panels
    // The names of the map, of what counts the bytes that arrive in each part, and of what says for
    // each part how often it was filled, modulo 2.
    std::string map{}, full{}, turns{};
    int64_t offset = 0;  // of `full` in shared memory
  };
  // A thread loop that fills a part.
  struct BoxFetch {
    const ir::Buffer* buffer;
    const ir::Store* store;
    ir::Expr x, y;  // the first column and row of the box
    const ir::For* thread = nullptr;
  };
  // Finds such memory among that of products of four warps. After FindAsync and FindGroups.
  void FindBoxes(const ir::Stmt& s);
  bool FindBoxesOf(const ir::Stmt& s, const ir::Buffer& buffer, ir::Analyzer& analyzer);
  // Nothing if the thread loop does not fill a part of the buffer with a box.
  std::optional<BoxFetch> MatchBox(const ir::For& thread, const ir::Buffer& buffer,
                                   ir::Analyzer& analyzer) const;
  const Box* BoxOf(const ir::Buffer* buffer) const;
  // Tells the runtime which parameters are maps (runtime/cuda/device.h, CudaBox).
  std::string BoxTable() const;
  void DeclareBoxes();
  void BoxNest(const BoxFetch& fetch);
  // Before a product: waits for the part that the load reads, if it is a box.
  void WaitForBox(const ir::Expr& load);
  // Writes a vectorized loop around one store with vector loads and stores. False if the memory
  // accesses do not allow that.
  bool VectorStore(const ir::For& loop, const ir::Store& store);
  // Finds the stores that can be asynchronous copies. Such a store reads global memory that the
  // launch does not write. It writes shared memory that nothing else in its thread loop touches, so
  // a barrier, which waits for the copies, stands before every use.
  void FindAsync(const ir::Stmt& s);
  // Writes a store as an asynchronous copy. False if its value is not a copy.
  bool AsyncStore(const ir::Store& store);
  // Whether the elements of the vector lanes are contiguous and the first is aligned to the whole
  // vector.
  bool IsVector(const ir::Buffer& buffer, const std::vector<ir::Expr>& indices,
                const ir::For& loop);

  CudaExpressions exprs_;
  std::string symbol_, source_, parameters_, body_;
  int indent_ = 1;
  int vectors_ = 0;  // number of vector registers named so far
  std::array<int64_t, kAxes> extents_{1, 1, 1, 1, 1, 1};
  std::array<bool, kAxes> bound_{};
  const ir::For* thread_ = nullptr;  // the enclosing threadIdx.x loop, and its variable's name
  std::string thread_name_;
  bool staged_ = false;  // some barrier does not wait for the latest fetches
  bool in_fetch_ = false;
  int operands_ = 0;      // number of tensor nests whose registers are named
  bool guarded_ = false;  // inside the guard that picks the first thread of unbound axes
  bool use_groups_;
  std::unordered_map<const ir::For*, Group> groups_;       // by thread loop
  std::unordered_map<const ir::For*, const Group*> late_;  // by the loop around the thread loop
  std::vector<ir::VarRef> group_vars_;                     // keeps them alive
  std::string functions_;                                  // that the launch uses
  std::unordered_map<const ir::Buffer*, int64_t> shared_;  // offsets in bytes
  std::unordered_set<const ir::Store*> async_;
  size_t buffers_ = 0;  // number of parameters that are buffers
  std::vector<Box> boxes_;
  std::unordered_map<const ir::For*, BoxFetch> box_fetches_;  // by thread loop
  bool publish_ = false;  // threads store what products of four warps read
  int64_t shared_bytes_ = 0;
  bool dynamic_ = false;
  GpuDemand demand_;
};

}  // namespace heddle::codegen
