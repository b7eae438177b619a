// Matrix products: matmul ([.., M, K] x [.., K, N], batch dimensions broadcast) and einsum.
#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/graph/ops/op_util.h"
#include "compiler/graph/ops/sum_type.h"

namespace heddle::graph {
namespace {

using ir::Expr;
using ir::ReduceOp;

absl::StatusOr<Shape> MatmulShape(const Shape& a, const Shape& b) {
  if (a.size() < 2 || b.size() < 2 || a.back() != b[b.size() - 2]) {
    return BadInput(absl::StrCat("cannot multiply matrices ", ShapeText(a), " and ", ShapeText(b)));
  }
  HEDDLE_ASSIGN_OR_RETURN(Shape out,
                          BroadcastShapes({a.begin(), a.end() - 2}, {b.begin(), b.end() - 2}));
  out.push_back(a[a.size() - 2]);
  out.push_back(b.back());
  return out;
}

OpDef MatmulOp() {
  OpDef op{OpKind::kMatmul, FusionClass::kComplexOutFusable};
  op.attrs = {SingleAttr()};
  op.laws.channels_of_weights = [](const OpUse& use) {
    return use.output.shape.size() == 2 ? 1 : -1;
  };
  op.infer = [](Types in, const OpAttrs& attrs) -> absl::StatusOr<TensorType> {
    HEDDLE_RETURN_IF_ERROR(ExpectInputs(in, 2, 2));
    if (in[0].dtype != in[1].dtype || in[0].dtype == ir::DType::kBool) {
      return BadInput(absl::StrCat("cannot multiply ", ToText(in[0]), " by ", ToText(in[1])));
    }
    HEDDLE_ASSIGN_OR_RETURN(Shape out, MatmulShape(in[0].shape, in[1].shape));
    return TensorType{SumType(in[0].dtype, attrs), out};
  };
  op.express = [](tensor::Builder& b, Tensors in,
                  const OpAttrs&) -> absl::StatusOr<tensor::Tensor> {
    const Shape &x = in[0].shape(), &y = in[1].shape();
    HEDDLE_ASSIGN_OR_RETURN(Shape out, MatmulShape(x, y));
    return b.Reduce(
        "matmul", out, {x.back()}, ReduceOp::kSum, [&](tensor::Iters s, tensor::Iters r) {
          tensor::Iters batch = s.first(s.size() - 2);
          const Shape batch_shape(out.begin(), out.end() - 2);
          std::vector<Expr> i = BroadcastIndex(batch, batch_shape, {x.begin(), x.end() - 2});
          std::vector<Expr> j = BroadcastIndex(batch, batch_shape, {y.begin(), y.end() - 2});
          i.insert(i.end(), {s[s.size() - 2], r[0]});
          j.insert(j.end(), {r[0], s.back()});
          return in[0].At(std::move(i)) * in[1].At(std::move(j));
        });
  };
  op.flops = [](const OpUse& use) {
    return 2.0 * Product(use.output.shape) * use.inputs[0].shape.back();
  };
  return op;
}

// ---- einsum ----

// "terms" are strings of single-letter labels, one for each operand, joined by ','. "result" holds
// the labels of the output. The importer has expanded ellipses and implicit results.
struct Einsum {
  std::vector<std::string> terms;
  std::string result, summed;
  std::map<char, int64_t> extents;
};

absl::StatusOr<Einsum> ParseEinsum(const std::vector<Shape>& shapes, const OpAttrs& attrs) {
  Einsum e;
  e.result = attrs.Text("result");
  std::string terms = attrs.Text("terms") + ",";
  for (size_t begin = 0, comma; (comma = terms.find(',', begin)) != std::string::npos;
       begin = comma + 1) {
    e.terms.push_back(terms.substr(begin, comma - begin));
  }
  if (e.terms.size() != shapes.size())
    return BadInput("the equation has another number of operands");
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (e.terms[i].size() != shapes[i].size()) {
      return BadInput(
          absl::StrCat("term '", e.terms[i], "' does not fit shape ", ShapeText(shapes[i])));
    }
    for (size_t d = 0; d < shapes[i].size(); ++d) {
      auto [it, fresh] = e.extents.emplace(e.terms[i][d], shapes[i][d]);
      if (!fresh && it->second != shapes[i][d]) {
        return BadInput(
            absl::StrCat("label '", std::string(1, e.terms[i][d]), "' has two extents"));
      }
    }
  }
  for (char c : e.result) {
    if (!e.extents.count(c)) return BadInput("the result has a label that no operand has");
  }
  for (const auto& [label, extent] : e.extents) {
    if (e.result.find(label) == std::string::npos) e.summed.push_back(label);
  }
  return e;
}

OpDef EinsumOp() {
  OpDef op{OpKind::kEinsum, FusionClass::kComplexOutFusable};
  op.attrs = {{.name = "terms", .fallback = std::string(), .required = true},
              {.name = "result", .fallback = std::string(), .required = true}};
  op.infer = [](Types in, const OpAttrs& attrs) -> absl::StatusOr<TensorType> {
    std::vector<Shape> shapes;
    for (const TensorType& t : in) {
      if (t.dtype != in[0].dtype || t.dtype == ir::DType::kBool)
        return BadInput("operands differ in type");
      shapes.push_back(t.shape);
    }
    HEDDLE_ASSIGN_OR_RETURN(Einsum e, ParseEinsum(shapes, attrs));
    Shape out;
    for (char c : e.result) out.push_back(e.extents[c]);
    return TensorType{in[0].dtype, out};
  };
  op.express = [](tensor::Builder& b, Tensors in,
                  const OpAttrs& attrs) -> absl::StatusOr<tensor::Tensor> {
    std::vector<Shape> shapes;
    for (const tensor::Tensor& t : in) shapes.push_back(t.shape());
    HEDDLE_ASSIGN_OR_RETURN(Einsum e, ParseEinsum(shapes, attrs));
    Shape out, summed;
    for (char c : e.result) out.push_back(e.extents[c]);
    for (char c : e.summed) summed.push_back(e.extents[c]);
    const auto value = [&](tensor::Iters s, tensor::Iters r) {
      Expr product;
      for (size_t i = 0; i < in.size(); ++i) {
        std::vector<Expr> index;
        for (char c : e.terms[i]) {
          const size_t at = e.result.find(c);
          index.push_back(at != std::string::npos ? s[at] : r[e.summed.find(c)]);
        }
        Expr x = in[i].At(std::move(index));
        product = product ? product * x : x;
      }
      return product;
    };
    if (summed.empty()) {
      return b.Compute("einsum", out, [&](tensor::Iters s) { return value(s, {}); });
    }
    return b.Reduce("einsum", out, summed, ReduceOp::kSum, value);
  };
  op.flops = [](const OpUse& use) {
    std::vector<Shape> shapes;
    for (const TensorType& t : use.inputs) shapes.push_back(t.shape);
    auto e = ParseEinsum(shapes, use.attrs);
    double points = 2;
    if (e.ok())
      for (const auto& [label, extent] : e->extents) points *= static_cast<double>(extent);
    return points;
  };
  return op;
}

}  // namespace

void AppendMatmulOps(std::vector<OpDef>& ops) {
  ops.push_back(MatmulOp());
  ops.push_back(EinsumOp());
}

}  // namespace heddle::graph
