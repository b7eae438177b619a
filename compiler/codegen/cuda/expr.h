// Writes expressions as CUDA C++. Private to this folder.
#pragma once

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "compiler/ir/analysis/analyzer.h"
#include "compiler/ir/ir.h"

namespace heddle::codegen {

// The C++ type of an element in memory, where a bool takes one byte.
std::string CudaType(ir::DType dtype);

// Writes expressions as text. An i64 is computed as an int if every value in the expression
// provably fits. Index arithmetic is a large part of a GPU's work, and a 64-bit operation takes two
// instructions.
class CudaExpressions {
 public:
  // A C++ name for a name of the program. It is unique in the source.
  std::string Declare(const std::string& name);
  void Bind(const ir::Var* var, std::string name, int64_t extent);
  void Bind(const ir::Buffer* buffer, std::string name) { buffers_[buffer] = std::move(name); }
  bool Knows(const ir::Buffer* buffer) const { return buffers_.count(buffer) > 0; }
  const std::string& NameOf(const ir::Buffer* buffer) const { return buffers_.at(buffer); }
  // Writes `text` in place of the load. `text` is a register that already holds the value.
  void Replace(const ir::ExprNode* load, std::string text) { replaced_[load] = std::move(text); }
  void Unreplace() { replaced_.clear(); }

  // Knows the ranges of variables and the conditions of the enclosing guards.
  ir::Analyzer& analyzer() { return analyzer_; }

  // The text of the value. An i64 may be written as an int.
  std::string Value(const ir::Expr& e);
  // The row-major index of the element that an access reads or writes.
  ir::Expr Element(const ir::Buffer& buffer, const std::vector<ir::Expr>& indices);
  std::string Access(const ir::Buffer& buffer, const std::vector<ir::Expr>& indices);
  // From now on, Access places the elements of this buffer in panels (ir/analysis/group_product.h).
  void UsePanels(const ir::Buffer* buffer) { panels_.insert(buffer); }
  bool UsesPanels(const ir::Buffer* buffer) const { return panels_.count(buffer) > 0; }

 private:
  bool FitsInt(const ir::Expr& e);
  std::string Int64(const ir::Expr& e);
  std::string Wide(const ir::Expr& e);
  std::string Operator(const ir::Expr& e);
  std::string FloatOperator(const ir::Expr& e);
  std::string IntegerOperator(const ir::Expr& e);
  std::string Conversion(const ir::Expr& e);
  std::string Float(double value, ir::DType dtype);

  ir::Analyzer analyzer_;
  std::unordered_map<std::string, int> used_;
  std::unordered_map<const ir::Var*, std::string> vars_;
  std::unordered_map<const ir::Buffer*, std::string> buffers_;
  std::unordered_set<const ir::Buffer*> panels_;
  std::unordered_map<const ir::ExprNode*, std::string> replaced_;
  std::unordered_map<const ir::ExprNode*, bool> fits_;
  std::vector<ir::Expr> kept_;  // keeps the nodes of fits_ alive
};

}  // namespace heddle::codegen
