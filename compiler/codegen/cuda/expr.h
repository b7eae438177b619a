// Expressions as CUDA C++. Private to this folder.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "compiler/ir/analysis/analyzer.h"
#include "compiler/ir/ir.h"

namespace heddle::codegen {

// "float", .. of an element in memory; a bool takes one byte there.
std::string CudaType(ir::DType dtype);

// Writes expressions as text. Integers of type i64 are computed as int wherever everything in the
// expression surely fits: index arithmetic is a good part of a GPU's work, and 64-bit integers take
// it two instructions.
class CudaExpressions {
 public:
  // Names for what the program names: C++ words, unique in one source.
  std::string Declare(const std::string& name);
  void Bind(const ir::Var* var, std::string name, int64_t extent);
  void Bind(const ir::Buffer* buffer, std::string name) { buffers_[buffer] = std::move(name); }
  bool Knows(const ir::Buffer* buffer) const { return buffers_.count(buffer) > 0; }
  const std::string& NameOf(const ir::Buffer* buffer) const { return buffers_.at(buffer); }
  // What stands for a load, if something does: a register that holds it already.
  void Replace(const ir::ExprNode* load, std::string text) { replaced_[load] = std::move(text); }
  void Unreplace() { replaced_.clear(); }

  // Guards: what is known inside.
  ir::Analyzer& analyzer() { return analyzer_; }

  // The value; of i64 it may be an int of the same value.
  std::string Value(const ir::Expr& e);
  // The element number of an access, row-major.
  ir::Expr Element(const ir::Buffer& buffer, const std::vector<ir::Expr>& indices);
  std::string Access(const ir::Buffer& buffer, const std::vector<ir::Expr>& indices);

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
  std::unordered_map<const ir::ExprNode*, std::string> replaced_;
  std::unordered_map<const ir::ExprNode*, bool> fits_;
  std::vector<ir::Expr> kept_;  // whose nodes fits_ knows
};

}  // namespace heddle::codegen
