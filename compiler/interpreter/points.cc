// The second oracle. It evaluates single elements on demand from their definitions, without loops.
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "compiler/interpreter/bytecode.h"
#include "compiler/interpreter/interpreter.h"
#include "compiler/ir/arithmetic.h"
#include "compiler/ir/visit.h"

namespace heddle::interpreter {
namespace {

using ir::DType;
using ir::Expr;
using ir::ExprKind;
using ir::Op;

// A value: `i` for integers and bools, `d` for floats (an f32 is kept as the double of the same
// value).
struct Value {
  int64_t i = 0;
  double d = 0;
};

// Stages nest as deep as a fused chain is long. Deeper nesting means that there is a cycle.
constexpr int kMaxDepth = 1000;

class PointEvaluator {
 public:
  absl::Status SetUp(const ir::Program& program, std::span<const TensorRef> inputs) {
    if (inputs.size() != program.inputs.size())
      return absl::InvalidArgumentError("evaluate points: wrong number of inputs");
    for (size_t i = 0; i < inputs.size(); ++i) {
      const ir::Buffer& buffer = *program.inputs[i];
      if (inputs[i].dtype != buffer.dtype || inputs[i].shape != buffer.shape ||
          inputs[i].data == nullptr) {
        return absl::InvalidArgumentError("evaluate points: the tensor for " + buffer.name +
                                          " has another type or shape");
      }
      inputs_[&buffer] = inputs[i].data;
    }
    absl::Status status;
    ir::VisitStmt(program.body, [&](const ir::Stmt& s) {
      if (const auto* block = ir::As<ir::Block>(s)) status.Update(Define(*block));
      if (ir::As<ir::Store>(s) || ir::As<ir::If>(s))
        status.Update(NotNaive("a statement outside a block"));
      return true;
    });
    return status;
  }

  absl::StatusOr<Value> Element(const ir::Buffer& buffer, int64_t element) {
    if (element < 0 || element >= buffer.NumElements()) {
      return absl::InternalError("evaluate points: element " + std::to_string(element) +
                                 " is outside " + buffer.name);
    }
    if (auto input = inputs_.find(&buffer); input != inputs_.end())
      return ReadInput(buffer.dtype, input->second, element);
    auto block = blocks_.find(&buffer);
    if (block == blocks_.end())
      return absl::InternalError("evaluate points: no block defines " + buffer.name);
    auto& known = memo_[&buffer];
    if (auto it = known.find(element); it != known.end()) return it->second;
    if (++depth_ > kMaxDepth)
      return absl::InvalidArgumentError("evaluate points: definitions nest too deeply");
    HEDDLE_ASSIGN_OR_RETURN(Value value, Compute(*block->second, element));
    --depth_;
    memo_[&buffer][element] = value;
    return value;
  }

 private:
  static absl::Status NotNaive(const std::string& why) {
    return absl::InvalidArgumentError("evaluate points: not a naive program: " + why);
  }

  absl::Status Define(const ir::Block& block) {
    const ir::Buffer& buffer = *block.store.buffer;
    if (!blocks_.try_emplace(&buffer, &block).second)
      return NotNaive("two blocks write " + buffer.name);
    if (block.where || (block.reducer && !block.reducer->init))
      return NotNaive(block.name + " is guarded or decomposed");
    size_t dimension = 0;
    for (const ir::BlockIter& iter : block.iters) {
      if (iter.kind == ir::IterKind::kReduce) continue;
      const bool plain = dimension < buffer.shape.size() &&
                         iter.extent == buffer.shape[dimension] &&
                         block.store.indices[dimension]->kind == ExprKind::kVar &&
                         block.store.indices[dimension]->var == iter.var;
      if (!plain) return NotNaive(block.name + " does not store to its iterators");
      ++dimension;
    }
    return dimension == buffer.shape.size()
               ? absl::OkStatus()
               : NotNaive(block.name + " lacks an iterator per dimension");
  }

  static Value ReadInput(DType dtype, const void* data, int64_t element) {
    Value v;
    switch (dtype) {
      case DType::kBool:
      case DType::kU8:
        v.i = static_cast<const uint8_t*>(data)[element];
        break;
      case DType::kI8:
        v.i = static_cast<const int8_t*>(data)[element];
        break;
      case DType::kI32:
        v.i = static_cast<const int32_t*>(data)[element];
        break;
      case DType::kI16:
        v.i = static_cast<const int16_t*>(data)[element];
        break;
      case DType::kU16:
        v.i = static_cast<const uint16_t*>(data)[element];
        break;
      case DType::kU32:
        v.i = static_cast<const uint32_t*>(data)[element];
        break;
      case DType::kI64:
      case DType::kU64:
        v.i = static_cast<const int64_t*>(data)[element];
        break;
      case DType::kF32:
        v.d = static_cast<const float*>(data)[element];
        break;
      case DType::kF64:
        v.d = static_cast<const double*>(data)[element];
        break;
      case DType::kF16:
      case DType::kBF16:
        v.d = ir::HalfValue(static_cast<const uint16_t*>(data)[element], dtype);
        break;
    }
    return v;
  }

  using Env = std::unordered_map<const ir::Var*, int64_t>;

  absl::StatusOr<Value> Compute(const ir::Block& block, int64_t element) {
    Env env;
    const auto& shape = block.store.buffer->shape;
    std::vector<const ir::BlockIter*> reduce;
    std::vector<const ir::BlockIter*> spatial;
    for (const ir::BlockIter& iter : block.iters)
      (iter.kind == ir::IterKind::kReduce ? reduce : spatial).push_back(&iter);
    for (size_t k = shape.size(); k-- > 0;) {
      env[spatial[k]->var.get()] = element % shape[k];
      element /= shape[k];
    }
    if (!block.reducer) return Eval(block.store.value, env);
    HEDDLE_ASSIGN_OR_RETURN(Value sum, Eval(block.reducer->init, env));
    for (const ir::BlockIter* iter : reduce) env[iter->var.get()] = 0;
    const Op op = ir::CombineOp(block.reducer->op);
    for (bool more = true; more;) {
      HEDDLE_ASSIGN_OR_RETURN(Value v, Eval(block.store.value, env));
      HEDDLE_ASSIGN_OR_RETURN(
          sum, Apply(op, block.store.buffer->dtype, block.store.buffer->dtype, sum, v));
      more = false;
      for (size_t k = reduce.size(); k-- > 0 && !more;) {  // the next point, last iterator fastest
        int64_t& i = env[reduce[k]->var.get()];
        more = ++i < reduce[k]->extent;
        if (!more) i = 0;
      }
    }
    return sum;
  }

  static absl::StatusOr<Value> Apply(Op op, DType operand, DType result, Value a, Value b) {
    Value v;
    if (!ir::IsFloat(operand)) {
      v.i = *ir::EvalInt(op, operand, a.i, b.i);
    } else if (result == DType::kBool) {
      v.i = *ir::EvalFloatTest(op, a.d, b.d);
    } else {
      v.d = *ir::EvalFloat(op, operand, a.d, b.d);
    }
    return v;
  }

  absl::StatusOr<Value> EvalLoad(const Expr& e, const Env& env) {
    int64_t element = 0;
    for (size_t k = 0; k < e->args.size(); ++k) {
      HEDDLE_ASSIGN_OR_RETURN(Value index, Eval(e->args[k], env));
      if (index.i < 0 || index.i >= e->buffer->shape[k]) {
        return absl::InternalError("evaluate points: index " + std::to_string(k) + " of " +
                                   e->buffer->name + " is " + std::to_string(index.i) +
                                   ", outside the shape");
      }
      element = element * e->buffer->shape[k] + index.i;
    }
    return Element(*e->buffer, element);
  }

  absl::StatusOr<Value> Eval(const Expr& e, const Env& env) {
    switch (e->kind) {
      case ExprKind::kInt:
        return Value{e->int_value, 0};
      case ExprKind::kFloat:
        return Value{0, e->float_value};
      case ExprKind::kVar:
        return Value{env.at(e->var.get()), 0};
      case ExprKind::kLoad:
        return EvalLoad(e, env);
      case ExprKind::kCast:
        return EvalCast(e, env);
      case ExprKind::kOp:
        break;
    }
    HEDDLE_ASSIGN_OR_RETURN(Value a, Eval(e->args[0], env));
    if (e->op == Op::kSelect) return Eval(e->args[a.i ? 1 : 2], env);
    if (e->op == Op::kAnd) return a.i ? Eval(e->args[1], env) : absl::StatusOr<Value>(a);
    if (e->op == Op::kOr) return a.i ? absl::StatusOr<Value>(a) : Eval(e->args[1], env);
    Value b = a;
    if (e->args.size() > 1) {
      HEDDLE_ASSIGN_OR_RETURN(b, Eval(e->args[1], env));
    }
    return Apply(e->op, e->args[0]->dtype, e->dtype, a, b);
  }

  absl::StatusOr<Value> EvalCast(const Expr& e, const Env& env) {
    HEDDLE_ASSIGN_OR_RETURN(Value v, Eval(e->args[0], env));
    const bool from_float = ir::IsFloat(e->args[0]->dtype);
    if (!ir::IsFloat(e->dtype))
      return Value{from_float ? ir::FloatToInt(v.d, e->dtype) : ir::WrapInt(v.i, e->dtype), 0};
    if (from_float) return Value{0, ir::RoundFloat(v.d, e->dtype)};
    return Value{0, ir::IntToFloat(v.i, e->args[0]->dtype, e->dtype)};
  }

  std::unordered_map<const ir::Buffer*, const void*> inputs_;
  std::unordered_map<const ir::Buffer*, const ir::Block*> blocks_;
  std::unordered_map<const ir::Buffer*, std::unordered_map<int64_t, Value>> memo_;
  int depth_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<double>> EvaluatePoints(const ir::Program& naive,
                                                   std::span<const TensorRef> inputs,
                                                   std::span<const OutputPoint> points) {
  PointEvaluator evaluator;
  HEDDLE_RETURN_IF_ERROR(evaluator.SetUp(naive, inputs));
  std::vector<double> values;
  for (const OutputPoint& point : points) {
    if (point.output < 0 || static_cast<size_t>(point.output) >= naive.outputs.size()) {
      return absl::InvalidArgumentError("evaluate points: no output " +
                                        std::to_string(point.output));
    }
    const ir::Buffer& buffer = *naive.outputs[point.output];
    HEDDLE_ASSIGN_OR_RETURN(Value value, evaluator.Element(buffer, point.element));
    values.push_back(
        ir::IsFloat(buffer.dtype) ? value.d : ir::IntToFloat(value.i, buffer.dtype, DType::kF64));
  }
  return values;
}

}  // namespace heddle::interpreter
