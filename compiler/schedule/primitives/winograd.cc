// The Winograd form of a 3 x 3 convolution. primitives.h states the stages.
#include <array>
#include <functional>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/schedule/access.h"
#include "compiler/schedule/primitives/allocation.h"
#include "compiler/schedule/primitives/primitives.h"
#include "compiler/schedule/tree.h"

namespace heddle::schedule {

using ir::Block;
using ir::BufferRef;
using ir::Expr;
using ir::Stmt;

namespace {

constexpr int64_t kTaps = 3;

using Matrix = std::vector<std::vector<double>>;

struct Transforms {
  Matrix at;  // A^T: m x a
  Matrix bt;  // B^T: a x a
  Matrix g;   // G: a x 3
};

// Coefficients, lowest first, of the product of (x - p) over all points but the one at `skip`.
std::vector<double> PolynomialOf(const std::vector<double>& points, size_t skip) {
  std::vector<double> c{1};
  for (size_t l = 0; l < points.size(); ++l) {
    if (l == skip) continue;
    c.insert(c.begin(), 0);  // times x
    for (size_t k = 0; k + 1 < c.size(); ++k) c[k] -= points[l] * c[k + 1];
  }
  return c;
}

// Toom and Cook's construction: polynomials are evaluated at a - 1 points and at infinity,
// multiplied there, and interpolated; transposed (Winograd's trick), it gives a correlation.
// Points near zero with small numerators and denominators keep rounding errors small.
Transforms MakeTransforms(int64_t m) {
  constexpr std::array<double, 7> kPoints = {0, 1, -1, 2, -2, 0.5, -0.5};
  const size_t a = static_cast<size_t>(m + kTaps - 1);
  const std::vector<double> points(kPoints.begin(), kPoints.begin() + a - 1);
  Transforms t{Matrix(m, std::vector<double>(a, 0)), Matrix(a, std::vector<double>(a, 0)),
               Matrix(a, std::vector<double>(kTaps, 0))};
  for (size_t j = 0; j + 1 < a; ++j) {
    const double p = points[j];
    double scale = 1;
    for (size_t l = 0; l + 1 < a; ++l) {
      if (l != j) scale *= p - points[l];
    }
    double power = 1;
    for (int64_t k = 0; k < m || k < kTaps; ++k, power *= p) {
      if (k < m) t.at[k][j] = power;
      if (k < kTaps) t.g[j][k] = power / scale;
    }
    const std::vector<double> row = PolynomialOf(points, j);
    std::copy(row.begin(), row.end(), t.bt[j].begin());
  }
  t.at[m - 1][a - 1] = 1;
  t.g[a - 1][kTaps - 1] = 1;
  t.bt[a - 1] = PolynomialOf(points, points.size());
  return t;
}

// The convolution that a block computes. The operands may be of a narrower float than the sum.
struct Convolution {
  BufferRef x, w, out;
  int64_t batch, rows, columns, inputs, outputs;  // extents of n, y, x, i and o
};

bool IsVar(const Expr& e, const ir::Var* var) {
  return e->kind == ir::ExprKind::kVar && e->var.get() == var;
}

bool IsSumOf(const Expr& e, const ir::Var* a, const ir::Var* b) {
  return e->kind == ir::ExprKind::kOp && e->op == ir::Op::kAdd && IsVar(e->args[0], a) &&
         IsVar(e->args[1], b);
}

// The load that an operand of the product is, or that is cast for it; null if it is something else.
const ir::ExprNode* LoadOf(const Expr& e) {
  const Expr& inner =
      e->kind == ir::ExprKind::kCast && ir::IsFloat(e->args[0]->dtype) ? e->args[0] : e;
  return inner->kind == ir::ExprKind::kLoad && inner->args.size() == 4 ? inner.get() : nullptr;
}

std::optional<Convolution> Match(const Block& block) {
  if (!block.reducer || block.reducer->op != ir::ReduceOp::kSum || block.where) return std::nullopt;
  if (!block.reducer->init || !ir::IsFloat(block.store.buffer->dtype)) return std::nullopt;
  std::vector<const ir::BlockIter*> s, r;
  for (const ir::BlockIter& iter : block.iters) {
    (iter.kind == ir::IterKind::kSpatial ? s : r).push_back(&iter);
  }
  const Expr& value = block.store.value;
  if (s.size() != 4 || r.size() != 3 || r[0]->extent != kTaps || r[1]->extent != kTaps ||
      value->kind != ir::ExprKind::kOp || value->op != ir::Op::kMul) {
    return std::nullopt;
  }
  const auto *x = LoadOf(value->args[0]), *w = LoadOf(value->args[1]);
  if (x == nullptr || w == nullptr) return std::nullopt;
  const ir::Var *n = s[0]->var.get(), *row = s[1]->var.get(), *column = s[2]->var.get(),
                *o = s[3]->var.get();
  const ir::Var *kh = r[0]->var.get(), *kw = r[1]->var.get(), *i = r[2]->var.get();
  const bool fits = IsVar(x->args[0], n) && IsSumOf(x->args[1], row, kh) &&
                    IsSumOf(x->args[2], column, kw) && IsVar(x->args[3], i) &&
                    IsVar(w->args[0], kh) && IsVar(w->args[1], kw) && IsVar(w->args[2], i) &&
                    IsVar(w->args[3], o);
  if (!fits || block.store.indices.size() != 4) return std::nullopt;
  for (size_t d = 0; d < 4; ++d) {
    if (!IsVar(block.store.indices[d], s[d]->var.get())) return std::nullopt;
  }
  return Convolution{x->buffer,    w->buffer,    block.store.buffer, s[0]->extent,
                     s[1]->extent, s[2]->extent, r[2]->extent,       s[3]->extent};
}

// Makes the stages one after another.
class Stages {
 public:
  Stages(std::string block, ir::DType dtype) : block_(std::move(block)), dtype_(dtype) {}

  using Value = std::function<Expr(const std::vector<Expr>& spatial, const Expr& reduce)>;

  // A stage "<block>.<what>" over `shape`, summed over `reduce` steps unless that is 0.
  BufferRef Add(const std::string& what, std::vector<int64_t> shape, int64_t reduce,
                const Value& value) {
    const std::string name = absl::StrCat(block_, ".", what);
    BufferRef out = std::make_shared<const ir::Buffer>(ir::Buffer{name + "_buf", dtype_, shape});
    AddTo(name, out, reduce, value);
    buffers.push_back(out);
    return out;
  }

  void AddTo(const std::string& name, const BufferRef& out, int64_t reduce, const Value& value) {
    NewIters iters;
    std::vector<FreshLoop> loops;
    const auto add = [&](int64_t extent, ir::IterKind kind) {
      loops.push_back({MakeVar(absl::StrCat(name, ".", loops.size())), extent});
      iters.Add(name, extent, kind, ir::VarExpr(loops.back().var));
    };
    for (int64_t extent : out->shape) add(extent, ir::IterKind::kSpatial);
    std::optional<ir::Reducer> reducer;
    if (reduce > 0) {
      add(reduce, ir::IterKind::kReduce);
      reducer = ir::Reducer{ir::ReduceOp::kSum, ir::Zero(dtype_)};
    }
    std::vector<Expr> spatial(iters.exprs.begin(), iters.exprs.begin() + out->shape.size());
    const Expr v = value(spatial, iters.exprs.back());
    names.push_back(name);
    blocks.push_back({name, CursorsOf(loops)});
    for (const FreshLoop& loop : loops) names.push_back(loop.var->name);
    for (const ir::BlockIter& iter : iters.iters) names.push_back(iter.var->name);
    stmts.push_back(
        Nest(loops, ir::MakeStmt(Block{name, iters.iters, nullptr, reducer, {out, spatial, v}})));
  }

  std::vector<Stmt> stmts;
  std::vector<BufferRef> buffers;
  std::vector<std::string> names;  // of the stages, their loops and iterators
  std::vector<NewBlock> blocks;    // the stages

 private:
  std::string block_;
  ir::DType dtype_;
};

// Row `which` of the matrix times the vector at(0), at(1), .. Since `which` is an iterator, the
// result contains an expression for each row, and selects one of them.
Expr RowTimes(const Matrix& matrix, const Expr& which, ir::DType dtype,
              const std::function<Expr(int64_t)>& at) {
  Expr result;
  for (size_t row = matrix.size(); row > 0; --row) {
    Expr sum;
    for (size_t k = 0; k < matrix[row - 1].size(); ++k) {
      const double c = matrix[row - 1][k];
      if (c == 0) continue;
      const Expr x = at(static_cast<int64_t>(k));
      if (!sum) {
        sum = c == 1 ? x : x * ir::Float(c, dtype);
      } else if (c == 1 || c == -1) {
        sum = c == 1 ? sum + x : sum - x;
      } else {
        sum = sum + x * ir::Float(c, dtype);
      }
    }
    result = !result
                 ? sum
                 : ir::Select(ir::Make(ir::Op::kEq, which, ir::Int(static_cast<int64_t>(row) - 1)),
                              sum, result);
  }
  return result;
}

Expr LoadAs(ir::DType dtype, const BufferRef& buffer, const std::vector<Expr>& indices) {
  const Expr load = ir::Load(buffer, indices);
  return buffer->dtype == dtype ? load : ir::Cast(dtype, load);
}

void AddStages(const Convolution& c, const std::string& block, int64_t m, Stages& out) {
  const int64_t a = m + kTaps - 1;
  const int64_t t = (c.rows + m - 1) / m, u = (c.columns + m - 1) / m;
  const ir::DType dtype = c.out->dtype;
  const Transforms transforms = MakeTransforms(m);
  using Iters = std::vector<Expr>;
  BufferRef x = c.x;
  const std::vector<int64_t> read{c.batch, t * m + kTaps - 1, u * m + kTaps - 1, c.inputs};
  if (x->shape[1] < read[1] || x->shape[2] < read[2]) {
    x = out.Add("tiles", read, 0, [&](const Iters& s, const Expr&) {
      const Expr inside =
          ir::And(ir::Lt(s[1], ir::Int(c.x->shape[1])), ir::Lt(s[2], ir::Int(c.x->shape[2])));
      return ir::Select(inside, LoadAs(dtype, c.x, s), ir::Zero(dtype));
    });
  }
  const BufferRef data_rows =
      out.Add("data_rows", {a, a, c.batch, t, u, c.inputs}, 0, [&](const Iters& s, const Expr&) {
        return RowTimes(transforms.bt, s[0], dtype, [&](int64_t k) {
          return LoadAs(dtype, x,
                        {s[2], s[3] * ir::Int(m) + ir::Int(k), s[4] * ir::Int(m) + s[1], s[5]});
        });
      });
  const BufferRef data =
      out.Add("data", {a, a, c.batch, t, u, c.inputs}, 0, [&](const Iters& s, const Expr&) {
        return RowTimes(transforms.bt, s[1], dtype, [&](int64_t k) {
          return ir::Load(data_rows, {s[0], ir::Int(k), s[2], s[3], s[4], s[5]});
        });
      });
  const BufferRef weight_rows =
      out.Add("weight_rows", {a, kTaps, c.inputs, c.outputs}, 0, [&](const Iters& s, const Expr&) {
        return RowTimes(transforms.g, s[0], dtype, [&](int64_t k) {
          return LoadAs(dtype, c.w, {ir::Int(k), s[1], s[2], s[3]});
        });
      });
  const BufferRef weight =
      out.Add("weight", {a, a, c.inputs, c.outputs}, 0, [&](const Iters& s, const Expr&) {
        return RowTimes(transforms.g, s[1], dtype, [&](int64_t k) {
          return ir::Load(weight_rows, {s[0], ir::Int(k), s[2], s[3]});
        });
      });
  const BufferRef product = out.Add("product", {a, a, c.batch, t, u, c.outputs}, c.inputs,
                                    [&](const Iters& s, const Expr& i) {
                                      return ir::Load(data, {s[0], s[1], s[2], s[3], s[4], i}) *
                                             ir::Load(weight, {s[0], s[1], i, s[5]});
                                    });
  const BufferRef rows =
      out.Add("rows", {m, a, c.batch, t, u, c.outputs}, 0, [&](const Iters& s, const Expr&) {
        return RowTimes(transforms.at, s[0], dtype, [&](int64_t k) {
          return ir::Load(product, {ir::Int(k), s[1], s[2], s[3], s[4], s[5]});
        });
      });
  out.AddTo(block, c.out, 0, [&](const Iters& s, const Expr&) {
    return RowTimes(transforms.at, ir::FloorMod(s[2], ir::Int(m)), dtype, [&](int64_t k) {
      return ir::Load(rows, {ir::FloorMod(s[1], ir::Int(m)), ir::Int(k), s[0],
                             ir::FloorDiv(s[1], ir::Int(m)), ir::FloorDiv(s[2], ir::Int(m)), s[3]});
    });
  });
}

}  // namespace

absl::StatusOr<Rewritten> Winograd(const Program& p, const std::string& block_name, int64_t m) {
  if (m != 2 && m != 4 && m != 6) {
    return absl::InvalidArgumentError(
        absl::StrCat("a tile of ", m, " x ", m, " results is not one of 2, 4 and 6"));
  }
  Allocations allocs;
  const Stmt body = StripAllocs(p.body, &allocs);
  HEDDLE_ASSIGN_OR_RETURN(const Path path, FindBlock(body, block_name));
  StageView view;
  const std::optional<Convolution> c = Match(path.block());
  if (!c || !ViewStage(path, &view)) {
    return Illegal(path.block(), "is no 3 x 3 convolution of stride one in a naive nest");
  }
  if (c->rows < m || c->columns < m) return Illegal(path.block(), "is smaller than a tile");
  const size_t place = ir::As<ir::Seq>(path.nodes[0]) ? 1 : 0;
  for (size_t k = place + 1; k < path.nodes.size(); ++k) {
    if (ir::As<ir::Seq>(path.nodes[k])) {
      return Illegal(path.block(), "shares its loops with another block");
    }
  }
  Stages stages(block_name, c->out->dtype);
  AddStages(*c, block_name, m, stages);
  const Stmt without = ReplaceAt(path, place, ir::MakeSeq(stages.stmts));
  // The last stage takes over the name of the block, so this one name need not be free.
  std::vector<std::string> fresh;
  for (const BufferRef& buffer : stages.buffers) fresh.push_back(buffer->name);
  for (const std::string& name : stages.names) {
    if (name != block_name) fresh.push_back(name);
  }
  HEDDLE_RETURN_IF_ERROR(CheckNamesFree(p, fresh));
  allocs.buffers.insert(allocs.buffers.end(), stages.buffers.begin(), stages.buffers.end());
  HEDDLE_ASSIGN_OR_RETURN(Program transformed, Finish(p, without, allocs));
  return Rewritten(std::move(transformed), {}, std::move(stages.blocks));
}

}  // namespace heddle::schedule
