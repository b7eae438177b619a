// The statements of a loop program, each with its loop nest, its arithmetic and the footprints of
// its accesses: the numbers that features are made of. A block and the store that it lowers to give
// the same statement. Loops of extent one do not count.
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

// One load or store. Entry k of a vector is about the loops from k inwards, while those outside
// stand still: entry 0 is the whole nest, and the last entry (the number of loops) one execution.
struct Access {
  const ir::Buffer* buffer = nullptr;
  bool is_store = false;
  std::vector<double> elements;    // distinct elements touched
  std::vector<double> line_bytes;  // bytes of the 64-byte cache lines these lie in
  // For each loop: elements by which its second iteration moves the address.
  std::vector<int64_t> stride;

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
  // Bytes of `access` that come from beyond a cache of `capacity` bytes, over all executions. The
  // outermost level whose working set fits is loaded again in every iteration of the loops outside
  // it. Loops directly outside it that do not move the access cause no further loads.
  double Traffic(const Access& access, double capacity) const;
  double Traffic(double capacity) const;
};

inline constexpr int64_t kLineBytes = 64;

// The statements found below root statements of programs, by node. Programs of one search share
// most of their root statements.
class KnownStatements {
 public:
  // Null if the root is not known.
  const std::vector<Statement>* Find(const ir::Stmt& root) const;
  // Forgets everything first if it holds kMost entries.
  void Add(const ir::Stmt& root, std::vector<Statement> found);

 private:
  static constexpr size_t kMost = 512;  // some kilobytes each
  struct Entry {
    ir::Stmt root;  // kept alive: the key is its address
    std::vector<Statement> found;
  };
  std::unordered_map<const ir::StmtNode*, Entry> entries_;
};

// Statements in program order. Uses and extends `known` if it is given.
std::vector<Statement> CollectStatements(const ir::Program& program,
                                         KnownStatements* known = nullptr);

}  // namespace heddle::cost_model
