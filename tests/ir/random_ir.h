// Random expressions and programs, and an evaluator that shares nothing with the code under test.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "compiler/ir/analysis/simplify.h"
#include "compiler/ir/ir.h"

namespace heddle::ir {

using Env = std::unordered_map<const Var*, int64_t>;

inline int64_t FloorDivOracle(int64_t a, int64_t b) {
  return static_cast<int64_t>(
      std::floor(static_cast<long double>(a) / static_cast<long double>(b)));
}

// Value of an i64 or bool expression without loads.
inline int64_t EvalInteger(const Expr& e, const Env& env) {
  if (e->kind == ExprKind::kInt) return e->int_value;
  if (e->kind == ExprKind::kVar) return env.at(e->var.get());
  const auto arg = [&](int i) { return EvalInteger(e->args[i], env); };
  switch (e->op) {
    case Op::kAdd:
      return arg(0) + arg(1);
    case Op::kSub:
      return arg(0) - arg(1);
    case Op::kMul:
      return arg(0) * arg(1);
    case Op::kDiv:
      return arg(0) / arg(1);
    case Op::kFloorDiv:
      return FloorDivOracle(arg(0), arg(1));
    case Op::kFloorMod:
      return arg(0) - arg(1) * FloorDivOracle(arg(0), arg(1));
    case Op::kMin:
      return std::min(arg(0), arg(1));
    case Op::kMax:
      return std::max(arg(0), arg(1));
    case Op::kLt:
      return arg(0) < arg(1);
    case Op::kLe:
      return arg(0) <= arg(1);
    case Op::kEq:
      return arg(0) == arg(1);
    case Op::kNe:
      return arg(0) != arg(1);
    case Op::kAnd:
      return arg(0) && arg(1);
    case Op::kOr:
      return arg(0) || arg(1);
    case Op::kNot:
      return !arg(0);
    case Op::kNeg:
      return -arg(0);
    case Op::kAbs:
      return std::abs(arg(0));
    case Op::kSign:
      return (arg(0) > 0) - (arg(0) < 0);
    case Op::kSelect:
      return arg(0) ? arg(1) : arg(2);
    default:
      ADD_FAILURE() << "operator outside the test's domain";
      return 0;
  }
}

class RandomExpr {
 public:
  explicit RandomExpr(std::mt19937_64& rng) : rng_(rng) {}

  int64_t Pick(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(rng_);
  }

  VarRef AddVar(const std::string& name, int64_t low, int64_t high) {
    vars.push_back(std::make_shared<Var>(Var{name}));
    ranges[vars.back().get()] = {low, high};
    return vars.back();
  }

  Env RandomEnv() {
    Env env;
    for (const VarRef& var : vars)
      env[var.get()] = Pick(ranges[var.get()].min, ranges[var.get()].max);
    return env;
  }

  // Divisors and factors that schedules use, and a few odd ones.
  int64_t Factor() {
    static constexpr int64_t kFactors[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 14, 16, 56};
    return kFactors[Pick(0, std::size(kFactors) - 1)];
  }

  // Nodes are made without folding, so that the simplifier sees everything.
  static Expr Raw(Op op, std::vector<Expr> args) {
    ExprNode node{ExprKind::kOp, op == Op::kSelect ? args[1]->dtype : args[0]->dtype};
    if (op >= Op::kLt && op <= Op::kNot) node.dtype = DType::kBool;
    node.op = op;
    node.args = std::move(args);
    return std::make_shared<const ExprNode>(std::move(node));
  }

  Expr Integer(int depth) {
    if (depth == 0 || Pick(0, 9) == 0) {
      return vars.empty() || Pick(0, 3) == 0 ? Int(Pick(-20, 20))
                                             : VarExpr(vars[Pick(0, vars.size() - 1)]);
    }
    const auto sub = [&] { return Integer(depth - 1); };
    switch (Pick(0, 15)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return Raw(Op::kAdd, {sub(), sub()});
      case 4:
        return Raw(Op::kSub, {sub(), sub()});
      case 5:
      case 6:
        return Raw(Op::kMul, {sub(), Int(Factor())});
      case 7:
      case 8:
        return Raw(Op::kFloorDiv, {sub(), Int(Factor())});
      case 9:
      case 10:
        return Raw(Op::kFloorMod, {sub(), Int(Factor())});
      case 11:
        return Raw(Op::kMin, {sub(), sub()});
      case 12:
        return Raw(Op::kMax, {sub(), sub()});
      case 13:
        return Raw(Op::kSelect, {Condition(depth - 1), sub(), sub()});
      case 14:
        return Raw(Pick(0, 1) ? Op::kNeg : Op::kAbs, {sub()});
      default:
        return Raw(Pick(0, 3) ? Op::kDiv : Op::kMul, {sub(), Int(Factor())});
    }
  }

  Expr Condition(int depth) {
    static constexpr Op kCompare[] = {Op::kLt, Op::kLe, Op::kEq, Op::kNe, Op::kLt, Op::kLe};
    if (depth > 0) {
      switch (Pick(0, 7)) {
        case 0:
        case 1:
          return Raw(Op::kAnd, {Condition(depth - 1), Condition(depth - 1)});
        case 2:
          return Raw(Op::kOr, {Condition(depth - 1), Condition(depth - 1)});
        case 3:
          return Raw(Op::kNot, {Condition(depth - 1)});
        default:
          break;
      }
    }
    const int below = depth > 0 ? depth - 1 : 0;
    return Raw(kCompare[Pick(0, 5)], {Integer(below), Integer(below)});
  }

  std::vector<VarRef> vars;
  Ranges ranges;

 protected:
  std::mt19937_64& rng_;
};

// Small verified programs: an input, an output that is fully written first, an allocation, loops,
// guards, blocks. Indices are wrapped into bounds with %, unless `wild`: then they are any affine
// form and only some programs verify.
class RandomProgram : public RandomExpr {
 public:
  RandomProgram(std::mt19937_64& rng, bool wild) : RandomExpr(rng), wild_(wild) {}

  Program Make() {
    Program p;
    p.name = "random";
    static constexpr DType kTypes[] = {DType::kF32, DType::kF64, DType::kI64,
                                       DType::kI32, DType::kI8,  DType::kU8};
    dtype_ = kTypes[Pick(0, 5)];
    in_ = NewBuffer("x", Scope::kGlobal);
    out_ = NewBuffer("y", Scope::kGlobal);
    temp_ = NewBuffer("t", Pick(0, 1) ? Scope::kGlobal : Scope::kLocal);
    p.inputs = {in_};
    p.outputs = {out_};
    std::vector<Stmt> stmts = {Fill(out_), Fill(temp_)};
    for (int64_t n = Pick(1, 3); n > 0; --n) stmts.push_back(Statement(3));
    p.body = MakeStmt(Alloc{temp_, MakeSeq(std::move(stmts))});
    return p;
  }

 private:
  BufferRef NewBuffer(const std::string& name, Scope scope) {
    auto buffer = std::make_shared<Buffer>();
    buffer->name = name;
    buffer->dtype = dtype_;
    buffer->scope = scope;
    for (int64_t rank = Pick(0, 2); rank >= 0; --rank) buffer->shape.push_back(Pick(1, 6));
    return buffer;
  }

  std::string NewName(const char* prefix) { return prefix + std::to_string(next_name_++); }

  Expr Literal() {
    if (!IsFloat(dtype_)) return Int(Pick(-3, 100), dtype_);
    static constexpr double kSpecial[] = {0.0, -0.0, 1.0, 0.1, 1e-30, 3e20, 1.0 / 3};
    const int64_t k = Pick(0, 20);
    if (k == 0) return Float(INFINITY, dtype_);
    if (k == 1) return Float(-INFINITY, dtype_);
    if (k == 2) return Float(NAN, dtype_);
    return k < 10 ? Float(kSpecial[k - 3], dtype_)
                  : Float(static_cast<double>(Pick(-1000, 1000)) / 64, dtype_);
  }

  std::vector<Expr> Indices(const Buffer& buffer) {
    std::vector<Expr> indices;
    for (int64_t extent : buffer.shape) {
      Expr e = Integer(wild_ ? 1 : 2);
      indices.push_back(wild_ ? e : Raw(Op::kFloorMod, {e, Int(extent)}));
    }
    return indices;
  }

  Expr Value(int depth) {
    if (depth == 0) {
      switch (Pick(0, 3)) {
        case 0:
          return Literal();
        case 1:
          return Load(Pick(0, 1) ? out_ : temp_, Indices(Pick(0, 1) ? *out_ : *temp_));
        default:
          return Load(in_, Indices(*in_));
      }
    }
    const auto sub = [&] { return Value(depth - 1); };
    static constexpr Op kNumbers[] = {Op::kAdd, Op::kSub, Op::kMul, Op::kMin, Op::kMax};
    static constexpr Op kFloats[] = {Op::kExp,   Op::kSqrt,  Op::kTanh,
                                     Op::kFloor, Op::kRound, Op::kErf};
    switch (Pick(0, 7)) {
      case 0:
        return Raw(Op::kSelect, {Condition(1), sub(), sub()});
      case 1:
        return Raw(Op::kSelect, {Raw(Op::kLt, {sub(), sub()}), sub(), sub()});
      case 2:
        return IsFloat(dtype_) ? Raw(kFloats[Pick(0, 5)], {sub()}) : Raw(Op::kNeg, {sub()});
      case 3:
        return Cast(dtype_, Cast(Pick(0, 1) ? DType::kF64 : DType::kI32, sub()));
      case 4:
        return Cast(dtype_, Integer(2));
      default:
        return Raw(kNumbers[Pick(0, 4)], {sub(), sub()});
    }
  }

  // Same-rank loads need the right buffer; Value picks buffer and shape independently, so repair
  // here.
  Expr Repaired(const Expr& e) {
    if (e->kind != ExprKind::kLoad || e->args.size() == e->buffer->shape.size()) {
      if (e->args.empty()) return e;
      std::vector<Expr> args;
      for (const Expr& a : e->args) args.push_back(Repaired(a));
      ExprNode node = *e;
      if (e->kind == ExprKind::kLoad && !wild_) {
        for (size_t k = 0; k < args.size(); ++k)
          args[k] = Raw(Op::kFloorMod, {args[k], Int(e->buffer->shape[k])});
      }
      node.args = std::move(args);
      return std::make_shared<const ExprNode>(std::move(node));
    }
    return Load(in_, Indices(*in_));
  }

  // One pass over every element, so that later reads find it written.
  Stmt Fill(const BufferRef& buffer) {
    Block block;
    block.name = NewName("fill");
    std::vector<For> loops;
    for (int64_t extent : buffer->shape) {
      auto loop_var = std::make_shared<Var>(Var{NewName("f")});
      auto iter_var = std::make_shared<Var>(Var{NewName("v")});
      loops.push_back(For{loop_var, extent, LoopKind::kSerial, nullptr});
      block.iters.push_back({iter_var, extent, IterKind::kSpatial, VarExpr(loop_var)});
      block.store.indices.push_back(VarExpr(iter_var));
    }
    block.store.buffer = buffer;
    block.store.value = Literal();
    Stmt body = MakeStmt(std::move(block));
    for (auto loop = loops.rbegin(); loop != loops.rend(); ++loop) {
      loop->body = std::move(body);
      body = MakeStmt(std::move(*loop));
    }
    return body;
  }

  Stmt Statement(int depth) {
    const int64_t kind = depth == 0 ? 9 : Pick(0, 9);
    if (kind < 5) {
      const int64_t extent = Pick(1, 5);
      VarRef var = AddVar(NewName("i"), 0, extent - 1);
      std::vector<Stmt> body;
      for (int64_t n = Pick(1, 2); n > 0; --n) body.push_back(Statement(depth - 1));
      vars.pop_back();
      return MakeStmt(For{var, extent, Pick(0, 3) ? LoopKind::kSerial : LoopKind::kUnrolled,
                          MakeSeq(std::move(body))});
    }
    if (kind < 7) return MakeStmt(If{Condition(2), Statement(depth - 1)});
    const BufferRef& target = Pick(0, 1) ? out_ : temp_;
    Expr value = Repaired(Value(2));
    return MakeStmt(Store{target, Indices(*target), value});
  }

  bool wild_;
  DType dtype_ = DType::kF32;
  BufferRef in_, out_, temp_;
  int next_name_ = 0;
};

}  // namespace heddle::ir
