// Schedule primitives: pure functions from a program to a program, or to the reason why not.
//
// Loops and blocks are named; names are unique in a program. Every primitive keeps the meaning of
// the program. It refuses a request with FailedPrecondition (legal, but not in this program),
// InvalidArgument (malformed), or NotFound (no such loop or block). Names of new loops and blocks
// derive from old ones, so that a trace replays to the same names. Each primitive returns cursors
// to what it makes (cursor.h), listed under `makes:`.
//
// A primitive that moves blocks or changes kinds of loops also refuses whatever would make the
// iterations of a parallel, vectorized or GPU loop depend on each other (allocation.h).
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/schedule/cursor.h"

namespace heddle::schedule {

using ir::Program;

// ---- Loops ----

// rewrite:  for i in N { S(i) }
//           ->  for i.0 in f0 { for i.1 in f1 { .. S((i.0*f1 + i.1)*f2 + ..) } }
//           If the product of the factors exceeds N, blocks inside get `where i < N`.
// makes:    loops: i.0, i.1, ..
// refuses:  non-positive factors; a product smaller than N; a product over 2N (the guard wastes
//           more than half); GPU-bound or vectorized loops; a product over N where the loop was
//           fused before (a guard on the whole does not bound its parts).
absl::StatusOr<Rewritten> Split(const Program& p, const std::string& loop,
                                const std::vector<int64_t>& factors);

// rewrite:  for i in N { for j in M { S(i,j) } }  ->  for i*j in N*M { S(i*j // M, i*j % M) }
// makes:    loops: i*j
// refuses:  loops that are not directly nested in the given order; loops of kinds other than
//           serial; loops that mean different things to a reduction below (spatial, reduce,
//           repeating): split and reordered again, its updates could come before its
//           initialisation; more than 2^40 iterations.
absl::StatusOr<Rewritten> Fuse(const Program& p, const std::vector<std::string>& loops);

// rewrite:  permutes loops of one perfectly nested chain into the given order. Loops of the chain
//           that are not named keep their places.
// refuses:  loops that do not lie on one chain with nothing else between them; an order that puts
//           a loop which repeats a reduction inside its reduce loops (updates would run twice after
//           one initialisation).
absl::StatusOr<Rewritten> Reorder(const Program& p, const std::vector<std::string>& loops);

// rewrite:  sets the kind of the loop. A vectorized loop has as many vector lanes as iterations.
// refuses:  parallel or vectorized over a reduce iterator; vectorized loops that contain other
//           parallel or vectorized loops; extents over 64 for vectorize, over 4096 for unroll (code
//           size); parallel inside parallel; iterations that write the same elements or share a
//           local buffer; GPU-bound loops.
absl::StatusOr<Rewritten> Parallel(const Program& p, const std::string& loop);
absl::StatusOr<Rewritten> Vectorize(const Program& p, const std::string& loop);
absl::StatusOr<Rewritten> Unroll(const Program& p, const std::string& loop);

// rewrite:  binds a loop to a GPU axis.
// refuses:  reduce loops; axes already bound on the path; block axes inside thread axes.
absl::StatusOr<Rewritten> Bind(const Program& p, const std::string& loop, ir::LoopKind axis);

// ---- Where a block is computed ----

// rewrite:  moves `block` to the head of `loop`'s body, before its consumers, in fresh loops over
//           the union of what the consumers under `loop` read.
// makes:    loops: <block>@<loop>.<k>, one for each iterator of the block, in their order
// refuses:  a block that writes an output; consumers outside `loop`; a block whose inputs are
//           produced under `loop` after it; a reduction already decomposed; vectorized loops. A
//           dimension whose region is not understood is computed whole; that is refused where the
//           block's own producers share loops with it and have finished just a part.
absl::StatusOr<Rewritten> ComputeAt(const Program& p, const std::string& block,
                                    const std::string& loop);

// rewrite:  moves a consumer block (e.g. an epilogue) to the tail of `loop`'s body, over just the
//           region its producer has finished there.
// makes:    loops: <block>@<loop>.<k>, which repeat the producer's spatial loops inside `loop`,
//           then one for each iterator that the producer lacks
// refuses:  a producer whose elements under `loop` are not final (reduce loops outside); several
//           producers under different loops; a region that is not exactly what one iteration of
//           `loop` produces (elements would be lost or repeated): a consumer that reads its
//           producer at other than a point of its own, a producer computed several times; a
//           consumer with a guard; vectorized loops.
absl::StatusOr<Rewritten> ReverseComputeAt(const Program& p, const std::string& block,
                                           const std::string& loop);

// rewrite:  substitutes an injective block's value into every load of its buffer and deletes it.
// refuses:  reductions; blocks that write an output; blocks whose buffer is read by nobody or whose
//           store indices are not exactly its iterators; blocks that share their buffer with
//           another (a split-off initialisation); readers that grow too large.
absl::StatusOr<Rewritten> ComputeInline(const Program& p, const std::string& block);

// rewrite:  folds an injective consumer block into its only producer, which then writes the
//           consumer's buffer directly: an elementwise epilogue with no reduction in between.
// refuses:  a producer that is a reduction, or has other consumers; a consumer that reads the
//           producer at anything but its own point, that has several producers, or a guard.
absl::StatusOr<Rewritten> ReverseComputeInline(const Program& p, const std::string& block);

// ---- Where values are kept ----

// rewrite:  copies `buffer` (an input or an intermediate) into a new buffer "<buffer>.<scope>_buf"
//           before its reader `block`, which reads the copy. Only the region that the reader needs
//           is copied.
// makes:    blocks: <buffer>.<scope> in loops <buffer>.<scope>.<k>, one for each dimension
// refuses:  blocks that do not read the buffer; a copy of that name that exists already; an input whose
//           elements have a range (ir::Buffer::below), because only inputs have one.
absl::StatusOr<Rewritten> CacheRead(const Program& p, const std::string& block,
                                    const std::string& buffer, ir::Scope scope);

// rewrite:  `block` writes a new buffer "<block>.<scope>_buf" instead, and a new block after its
//           loop nest copies the result out.
// makes:    blocks: <block>.copy in loops <block>.copy.<k>, which repeat the block's spatial loops
// refuses:  a decomposed reduction; a copy that exists already; a reduce loop outside the block's
//           nest.
absl::StatusOr<Rewritten> CacheWrite(const Program& p, const std::string& block, ir::Scope scope);

// rewrite:  changes the scope of the buffer a block writes.
// refuses:  inputs and outputs (always global); local for a buffer that parallel iterations share.
//           Shared memory outside GPU blocks is refused by the verifier.
absl::StatusOr<Rewritten> SetScope(const Program& p, const std::string& block, ir::Scope scope);

// rewrite:  `block` reads a copy of `buffer` in another layout, made before the root statement that
//           holds the block. `numbers` has a factor f and then a place for each dimension: the
//           copy's dimensions are those of the buffer divided by their factors (rounded up, filled
//           with zeros), in the order of the places, then the remainders of those with f > 1. So
//           `pack conv w 1 1 1 32 3 0 1 2` turns [kh, kw, ic, oc] into [oc/32, kh, kw, ic, 32]. The
//           copy of a `const` input is made when the module is (pass/hoist_constants.h).
// makes:    blocks: <buffer>.pack in loops <buffer>.pack.<k>, one for each dimension
// refuses:  blocks that do not read the buffer, or share loops with the block that makes it;
//           factors that waste more than half; places that are no permutation; a second packing.
absl::StatusOr<Rewritten> Pack(const Program& p, const std::string& block,
                               const std::string& buffer, const std::vector<int64_t>& numbers);

// ---- Reductions ----

// rewrite:  puts the initialisation of a reduction into a block of its own, right before `loop`, in
//           copies of the spatial loops from `loop` inwards, of the same kinds.
// makes:    blocks: <block>.init in loops <copied loop>.init
// refuses:  blocks that do not reduce; a reduce loop outside `loop`; loops that do not enclose the
//           block; a loop inside `loop` that repeats the reduction.
absl::StatusOr<Rewritten> DecomposeReduction(const Program& p, const std::string& block,
                                             const std::string& loop);

// rewrite:  C[s] op= v(s, r)  ->  C.rf[s, r0] op= v(s, r), then C[s] op= C.rf[s, r0]
//           where r0 is `loop`. The first block keeps the old loops, `loop` being spatial in it;
//           the second keeps the name.
// makes:    loops: <block>.merge.<k> around `block`: its spatial loops, then r0
//           blocks: <block>.rf; its first iterator is r0, then come the spatial ones, then the
//           reduce loops that are left
// refuses:  loops that are not reduce loops of the block; blocks with a guard; reductions already
//           decomposed.
absl::StatusOr<Rewritten> Rfactor(const Program& p, const std::string& block,
                                  const std::string& loop);

// rewrite:  a convolution C[n, y, x, o] = sum over (kh, kw, i) of X[n, y + kh, x + kw, i] *
//           W[kh, kw, i, o] with a 3 x 3 window becomes F(m x m, 3 x 3) of Lavin & Gray, "Fast
//           Algorithms for Convolutional Neural Networks" (CVPR 2016): for tiles of m x m results,
//           Y = A^T [sum over i of (G w G^T) * (B^T d B)] A. With a = m + 2, t rows and u columns
//           of tiles, the new stages are
//             <block>.tiles      [n, t m + 2, u m + 2, i]  X, then zeros; only if X is smaller
//             <block>.data_rows  [a, a, n, t, u, i]        B^T d
//             <block>.data       [a, a, n, t, u, i]        (B^T d) B
//             <block>.weight_rows[a, 3, i, o]              G w
//             <block>.weight     [a, a, i, o]              (G w) G^T
//             <block>.product    [a, a, n, t, u, o]        the sum over i
//             <block>.rows       [m, a, n, t, u, o]        A^T M
//             <block>            [n, y, x, o]              (A^T M) A
//           Fewer multiplications, less exact: numerics.h says how much. X and W may be of a
//           narrower type that is cast for the product, as halves are; the stages have the sum's.
// makes:    blocks: the stages in this order, each in loops <stage>.<k>, one for each dimension and
//           one for the sum
// refuses:  m other than 2, 4 and 6; anything else than such a convolution of floats in a naive
//           nest of its own; results smaller than a tile.
absl::StatusOr<Rewritten> Winograd(const Program& p, const std::string& block, int64_t m);

// ---- Tensor cores ----

// rewrite:  x * y in a block that sums products of f32 elements -> tf32(x) * tf32(y), as tensor
//           cores multiply them. Less exact; numerics.h says how much.
// refuses:  blocks that sum anything else.
absl::StatusOr<Rewritten> Tf32(const Program& p, const std::string& block);

// rewrite:  for i in 2 { for j in 2 { for k in K { update } } } -> the same nest with `i` a tensor
//           loop: one product of tensor cores, which the threads of a warp make together.
// refuses:  whatever is not the nest that ir.h describes for such loops: a thread's rows and
//           columns must be those of its place in the warp, the sums local, initialised elsewhere
//           and without a guard, the operands in shared or global memory.
absl::StatusOr<Rewritten> Tensorize(const Program& p, const std::string& loop);

}  // namespace heddle::schedule
