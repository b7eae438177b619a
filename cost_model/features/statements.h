// The statements of a loop program, each with its loop nest, its arithmetic and what its accesses
// touch: the numbers features are made of. Blocks and plain stores give the same statement; loops
// of extent one do not count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "compiler/ir/ir.h"

namespace heddle::cost_model {

struct Loop {
  const ir::Var* var = nullptr;
  int64_t extent = 2;
  ir::LoopKind kind = ir::LoopKind::kSerial;
};

// Operations of one execution of a statement.
struct Arithmetic {
  double float_add = 0;  // additions, subtractions, minima and maxima, negations
  double float_mul = 0;
  double float_div = 0;
  double special = 0;  // exp, sqrt, tanh and the like
  double select = 0;   // selects, comparisons and logic
  double integer = 0;  // arithmetic on integers that is part of a value, not of an index
  double cast = 0;

  double Flops() const { return float_add + float_mul + float_div + special; }
};

// One load or store. Index k of the vectors means: the loops from k inwards run, those outside k
// stand still; so index 0 is the whole nest and the last index (number of loops) a single
// execution.
struct Access {
  const ir::Buffer* buffer = nullptr;
  bool is_store = false;
  std::vector<double> elements;    // distinct elements touched
  std::vector<double> line_bytes;  // bytes of the 64-byte cache lines these lie in
  std::vector<int64_t>
      stride;  // per loop: elements the address moves from its first to its second iteration

  double Bytes(size_t level) const { return elements[level] * ir::SizeOf(buffer->dtype); }
};

struct Statement {
  std::vector<Loop> loops;  // outermost first
  int guards = 0;           // enclosing conditions
  bool reduction = false;   // reads the element it writes
  Arithmetic ops;
  std::vector<Access> accesses;  // the store first

  // Executions of loops [begin, end).
  double Trips(size_t begin, size_t end) const;
  double Trips() const { return Trips(0, loops.size()); }
  double LineBytes(size_t level) const;  // working set: sum over the accesses
  // Bytes of `access` that come from beyond a cache of `capacity` bytes, over all executions: the
  // outermost level whose working set fits is loaded anew in every iteration outside it, except by
  // the loops directly outside it over which the access stands still.
  double Traffic(const Access& access, double capacity) const;
  double Traffic(double capacity) const;
};

inline constexpr int64_t kLineBytes = 64;

// What was found of statements at the root of programs, by node: those of one search share most.
class KnownStatements {
 public:
  // Null if it is not known.
  const std::vector<Statement>* Find(const ir::Stmt& root) const;
  // All are forgotten first where there are kMost.
  void Add(const ir::Stmt& root, std::vector<Statement> found);

 private:
  static constexpr size_t kMost = 512;  // some kilobytes each
  struct Entry {
    ir::Stmt root;  // kept alive: the key is its address
    std::vector<Statement> found;
  };
  std::unordered_map<const ir::StmtNode*, Entry> entries_;
};

// In program order. What `known`, if given, has not is added to it.
std::vector<Statement> CollectStatements(const ir::Program& program,
                                         KnownStatements* known = nullptr);

}  // namespace heddle::cost_model
