#include "compiler/graph/passes/evaluate.h"

#include <cmath>
#include <cstring>
#include <map>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/graph/core/operator.h"
#include "compiler/graph/ops/op_util.h"
#include "compiler/ir/fold.h"
#include "compiler/ir/visit.h"

namespace heddle::graph {
namespace {

using ir::DType;
using ir::Expr;
using ir::ExprKind;
using ir::Op;

// A scalar of any type; integers and bools in `i`, floats in `f`.
struct Scalar {
  int64_t i = 0;
  double f = 0;
};

template <typename T>
T Read(const char* data, int64_t index) {
  T v;
  std::memcpy(&v, data + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return v;
}

Scalar ReadElement(DType dtype, const char* data, int64_t index) {
  switch (dtype) {
    case DType::kBool:
      return {Read<uint8_t>(data, index) != 0, 0};
    case DType::kI8:
      return {Read<int8_t>(data, index), 0};
    case DType::kU8:
      return {Read<uint8_t>(data, index), 0};
    case DType::kI32:
      return {Read<int32_t>(data, index), 0};
    case DType::kI64:
      return {Read<int64_t>(data, index), 0};
    case DType::kF32:
      return {0, Read<float>(data, index)};
    case DType::kF64:
      return {0, Read<double>(data, index)};
    case DType::kF16:
    case DType::kBF16:
      return {0, ir::HalfValue(Read<uint16_t>(data, index), dtype)};
  }
  return {};
}

template <typename T>
void Write(char* data, int64_t index, T v) {
  std::memcpy(data + index * static_cast<int64_t>(sizeof(T)), &v, sizeof(T));
}

void WriteElement(DType dtype, char* data, int64_t index, Scalar v) {
  switch (dtype) {
    case DType::kBool:
      return Write<uint8_t>(data, index, v.i != 0);
    case DType::kI8:
      return Write(data, index, static_cast<int8_t>(v.i));
    case DType::kU8:
      return Write(data, index, static_cast<uint8_t>(v.i));
    case DType::kI32:
      return Write(data, index, static_cast<int32_t>(v.i));
    case DType::kI64:
      return Write(data, index, v.i);
    case DType::kF32:
      return Write(data, index, static_cast<float>(v.f));
    case DType::kF64:
      return Write(data, index, v.f);
    case DType::kF16:
    case DType::kBF16:
      return Write(data, index, ir::HalfBits(static_cast<float>(v.f), dtype));
  }
}

// One node of an expression in an array, children before parents; the last one is the root.
struct Step {
  ExprKind kind;
  Op op = Op::kAdd;
  DType dtype = DType::kI64;    // of the result
  DType operand = DType::kI64;  // of the first operand
  Scalar constant = {};
  int var = 0;                 // kVar: index into the iterators
  const char* data = nullptr;  // kLoad
  Shape shape = {};            // kLoad
  std::vector<int> args = {};
};

class Evaluator {
 public:
  using Memory = std::unordered_map<const ir::Buffer*, std::string*>;

  Evaluator(const Expr& root, const std::vector<const ir::Var*>& vars, const Memory& memory) {
    for (size_t i = 0; i < vars.size(); ++i) vars_[vars[i]] = static_cast<int>(i);
    root_ = Compile(root, memory);
    values_.resize(vars.size());
  }

  std::vector<int64_t>& vars() { return values_; }
  Scalar Run() { return Eval(root_); }
  const std::string& error() const { return error_; }

 private:
  int Compile(const Expr& e, const Memory& memory) {
    if (auto it = compiled_.find(e.get()); it != compiled_.end()) return it->second;
    Step step{e->kind, e->op, e->dtype};
    step.constant = {e->int_value, e->float_value};
    for (const Expr& a : e->args) step.args.push_back(Compile(a, memory));
    if (!e->args.empty()) step.operand = e->args[0]->dtype;
    if (e->kind == ExprKind::kVar) step.var = vars_.at(e->var.get());
    if (e->kind == ExprKind::kLoad) {
      step.data = memory.at(e->buffer.get())->data();
      step.shape = e->buffer->shape;
    }
    steps_.push_back(std::move(step));
    return compiled_[e.get()] = static_cast<int>(steps_.size()) - 1;
  }

  Scalar Eval(int at) {
    const Step& s = steps_[at];
    switch (s.kind) {
      case ExprKind::kInt:
      case ExprKind::kFloat:
        return s.constant;
      case ExprKind::kVar:
        return {values_[s.var], 0};
      case ExprKind::kLoad:
        return Load(s);
      case ExprKind::kCast:
        return Convert(s);
      case ExprKind::kOp:
        return Apply(s);
    }
    return {};
  }

  Scalar Load(const Step& s) {
    int64_t index = 0;
    for (size_t d = 0; d < s.shape.size(); ++d) {
      const int64_t i = Eval(s.args[d]).i;
      if (i < 0 || i >= s.shape[d]) {
        if (error_.empty())
          error_ = absl::StrCat("index ", i, " of dimension ", d, " leaves extent ", s.shape[d]);
        return {};
      }
      index = index * s.shape[d] + i;
    }
    return ReadElement(s.dtype, s.data, index);
  }

  Scalar Convert(const Step& s) {
    const Scalar v = Eval(s.args[0]);
    const bool from_float = ir::IsFloat(s.operand), to_float = ir::IsFloat(s.dtype);
    if (to_float) return {0, ir::RoundFloat(from_float ? v.f : static_cast<double>(v.i), s.dtype)};
    return {from_float ? ir::FloatToInt(v.f, s.dtype) : ir::WrapInt(v.i, s.dtype), 0};
  }

  Scalar Apply(const Step& s) {
    const Scalar a = Eval(s.args[0]);
    if (s.op == Op::kSelect) return Eval(s.args[a.i != 0 ? 1 : 2]);
    if (s.op == Op::kAnd && a.i == 0) return {0, 0};
    if (s.op == Op::kOr && a.i != 0) return {1, 0};
    const Scalar b = s.args.size() > 1 ? Eval(s.args[1]) : Scalar{};
    if (!ir::IsFloat(s.operand)) return {ir::EvalInt(s.op, s.operand, a.i, b.i).value_or(0), 0};
    if (s.dtype == DType::kBool) return {ir::EvalFloatTest(s.op, a.f, b.f).value_or(false), 0};
    return {0, ir::EvalFloat(s.op, s.dtype, a.f, b.f).value_or(std::nan(""))};
  }

  std::unordered_map<const ir::Var*, int> vars_;
  std::unordered_map<const ir::ExprNode*, int> compiled_;
  std::vector<Step> steps_;
  std::vector<int64_t> values_;
  std::string error_;
  int root_ = 0;
};

// Advances mixed-radix digits [begin, end); false after the last combination.
bool Next(std::vector<int64_t>& digits, size_t begin, const Shape& extents) {
  for (size_t d = extents.size(); d-- > 0;) {
    if (++digits[begin + d] < extents[d]) return true;
    digits[begin + d] = 0;
  }
  return false;
}

absl::Status EvaluateStage(const tensor::Stage& stage, const Evaluator::Memory& memory,
                           std::string& out) {
  std::vector<const ir::Var*> vars;
  Shape spatial, reduce;
  for (const auto& [var, extent] : stage.spatial)
    vars.push_back(var.get()), spatial.push_back(extent);
  for (const auto& [var, extent] : stage.reduce)
    vars.push_back(var.get()), reduce.push_back(extent);
  Evaluator eval(stage.value, vars, memory);
  const DType dtype = stage.out->dtype;
  int64_t index = 0;
  do {
    Scalar value;
    if (!stage.op) {
      value = eval.Run();
    } else {
      const Expr identity = ir::Identity(*stage.op, dtype);
      const Op combine = ir::CombineOp(*stage.op);
      value = {identity->int_value, identity->float_value};
      do {
        const Scalar term = eval.Run();
        if (ir::IsFloat(dtype))
          value.f = ir::EvalFloat(combine, dtype, value.f, term.f).value_or(0);
        else
          value.i = ir::EvalInt(combine, dtype, value.i, term.i).value_or(0);
      } while (Next(eval.vars(), spatial.size(), reduce));
    }
    WriteElement(dtype, out.data(), index++, value);
  } while (Next(eval.vars(), 0, spatial));
  if (eval.error().empty()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("stage ", stage.out->name, ": ", eval.error()));
}

absl::StatusOr<tensor::TensorProgram> ExpressAlone(OpKind kind, const Attrs& attrs, Types inputs,
                                                   const TensorType& result) {
  tensor::Builder b(NameOf(kind));
  std::vector<tensor::Tensor> in;
  for (size_t i = 0; i < inputs.size(); ++i)
    in.push_back(b.Input(absl::StrCat("p", i), inputs[i].dtype, inputs[i].shape));
  HEDDLE_ASSIGN_OR_RETURN(const tensor::Tensor out, Express(kind, b, in, attrs));
  return b.Build({b.Stored(out, result.dtype)});
}

}  // namespace

absl::StatusOr<std::vector<TensorData>> EvaluateProgram(const tensor::TensorProgram& program,
                                                        std::span<const TensorData> inputs) {
  if (inputs.size() != program.inputs.size()) return BadInput("wrong number of inputs");
  Evaluator::Memory memory;
  std::vector<std::unique_ptr<std::string>> owned;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ir::Buffer& buffer = *program.inputs[i];
    if (inputs[i].type != TensorType{buffer.dtype, buffer.shape}) {
      return BadInput(absl::StrCat("input ", i, " is ", ToText(inputs[i].type)));
    }
    owned.push_back(std::make_unique<std::string>(*inputs[i].bytes));
    memory[&buffer] = owned.back().get();
  }
  for (const tensor::Stage& stage : program.stages) {
    owned.push_back(
        std::make_unique<std::string>(static_cast<size_t>(stage.out->SizeBytes()), '\0'));
    memory[stage.out.get()] = owned.back().get();
    HEDDLE_RETURN_IF_ERROR(EvaluateStage(stage, memory, *owned.back()));
  }
  std::vector<TensorData> outputs;
  for (const ir::BufferRef& out : program.outputs) {
    outputs.push_back({{out->dtype, out->shape},
                       std::make_shared<const std::string>(std::move(*memory.at(out.get())))});
  }
  return outputs;
}

absl::StatusOr<TensorData> EvaluateOp(OpKind kind, const Attrs& attrs,
                                      std::span<const TensorData> inputs) {
  std::vector<TensorType> types;
  for (const TensorData& t : inputs) types.push_back(t.type);
  HEDDLE_ASSIGN_OR_RETURN(const TensorType out, InferType(kind, types, attrs));
  if (NumElements(out) == 0) return TensorData{out, std::make_shared<const std::string>()};
  const OpDef& def = Def(kind);
  if (def.relabels) return TensorData{out, inputs[0].bytes};
  if (def.evaluate) return def.evaluate(inputs, out, OpAttrs(def.attrs, attrs));
  HEDDLE_ASSIGN_OR_RETURN(const tensor::TensorProgram program,
                          ExpressAlone(kind, attrs, types, out));
  HEDDLE_ASSIGN_OR_RETURN(std::vector<TensorData> results, EvaluateProgram(program, inputs));
  return results[0];
}

absl::StatusOr<std::vector<TensorData>> EvaluateGraph(const Graph& graph,
                                                      std::span<const TensorData> inputs) {
  if (inputs.size() != graph.inputs.size()) return BadInput("wrong number of inputs");
  std::map<ValueId, TensorData> values = graph.constants;
  for (size_t i = 0; i < inputs.size(); ++i) values[graph.inputs[i]] = inputs[i];
  for (const Node& node : graph.nodes) {
    std::vector<TensorData> operands;
    for (ValueId v : node.inputs) operands.push_back(values.at(v));
    HEDDLE_ASSIGN_OR_RETURN(values[node.outputs[0]], EvaluateOp(node.kind, node.attrs, operands));
  }
  std::vector<TensorData> outputs;
  for (ValueId v : graph.outputs) outputs.push_back(values.at(v));
  return outputs;
}

double EvaluationCost(OpKind kind, const Attrs& attrs, Types inputs) {
  const absl::StatusOr<TensorType> out = InferType(kind, inputs, attrs);
  if (!out.ok()) return INFINITY;
  const OpDef& def = Def(kind);
  if (def.relabels || def.evaluate) return static_cast<double>(NumElements(*out));
  const auto program = ExpressAlone(kind, attrs, inputs, *out);
  if (!program.ok()) return INFINITY;
  double cost = 0;
  for (const tensor::Stage& stage : program->stages) {
    double points = static_cast<double>(stage.out->NumElements()), nodes = 0;
    for (const auto& [var, extent] : stage.reduce) points *= static_cast<double>(extent);
    ir::VisitExpr(stage.value, [&](const Expr&) { ++nodes; });
    cost += points * nodes;
  }
  return cost;
}

}  // namespace heddle::graph
