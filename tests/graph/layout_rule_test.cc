// Layout rules and roles of attributes, proved by the expressions of the operators: an operator has
// a form in another layout if and only if its expression, given operands in that layout and
// attributes that follow their roles, computes the result in that layout. Forms that change more
// than the order of dimensions (LayoutRule::form) are tested in layout_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "compiler/graph/core/operator.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/layout/layout_moves.h"
#include "compiler/graph/ops/op_util.h"
#include "compiler/graph/passes/evaluate.h"
#include "tests/graph/random_graph.h"

namespace heddle::graph {
namespace {

constexpr double kRuleTolerance = 1e-5;  // products and roots in another order
constexpr int64_t kBlock = 2;            // channels
constexpr int kUses = 100;               // of each operator

// One use of an operator on data.
struct Use {
  std::vector<TensorData> in;
  Attrs attrs;
};

std::string Describe(const OpDef& op, const Use& use) {
  std::string text = NameOf(op.kind);
  for (const TensorData& x : use.in) absl::StrAppend(&text, " ", ToText(x.type));
  for (const auto& [name, value] : use.attrs) absl::StrAppend(&text, " ", name, "=", ToText(value));
  return text;
}

// ---- Random uses ----

class UseDraw {
 public:
  explicit UseDraw(TestRng& rng) : rng_(rng) {}

  // A legal use of the operator; nullopt if it is only made by the choice of layouts. Extents of a
  // tensor differ from each other, so that no two dimensions can be mistaken for each other.
  std::optional<Use> Of(const OpDef& op) {
    x_ = {2, 8, 3, 5, 7};
    if (Coin()) std::swap(x_[2], x_[3]);
    rank_ = Pick(3, 5);
    x_.resize(rank_);
    if (op.kind == OpKind::kBatchNorm) {
      const Shape c{x_[1]};
      return Use{{F32(x_), F32(c), F32(c), F32(c), F32(c)}, {{"axis", int64_t{1}}}};
    }
    if (op.elementwise) return Elementwise(op);
    if (op.family == OpFamily::kReduction) return Reduction(op);
    if (op.family == OpFamily::kPool) return Pool();
    return Other(op.kind);
  }

 private:
  int64_t Pick(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(rng_);
  }
  bool Coin() { return Pick(0, 1) == 1; }
  int64_t Axis() { return Pick(0, rank_ - 1); }
  Shape Axes() {
    Shape axes;
    for (int64_t d = 0; d < rank_; ++d) {
      if (Coin()) axes.push_back(d);
    }
    return axes.empty() ? Shape{Axis()} : axes;
  }
  Shape Each(int64_t low, int64_t high) {
    Shape values;
    for (int64_t d = 0; d < rank_; ++d) values.push_back(Pick(low, high));
    return values;
  }
  TensorData Values(const Shape& shape, ir::DType dtype, const std::function<double()>& value) {
    std::vector<double> values;
    for (int64_t i = 0; i < Product(shape); ++i) values.push_back(value());
    return FromDoubles(values, shape, dtype);
  }
  // Values in [-1, 1] whose sums are exact in any order. Some tensors have many equal elements, of
  // which an operator may take the first.
  TensorData F32(const Shape& shape) {
    const int64_t steps = Coin() ? 2 : 64;
    return Values(shape, ir::DType::kF32, [&] {
      return static_cast<double>(Pick(-steps, steps)) / static_cast<double>(steps);
    });
  }
  TensorData Ints(const Shape& shape, int64_t low, int64_t high, ir::DType dtype) {
    return Values(shape, dtype, [&] { return static_cast<double>(Pick(low, high)); });
  }
  TensorData Flags(const Shape& shape) {
    const Shape bits = ToInts(Indices(shape, 2));
    return FromDoubles({bits.begin(), bits.end()}, shape, ir::DType::kBool);
  }
  TensorData Indices(const Shape& shape, int64_t extent) {
    return Ints(shape, -extent, extent - 1, ir::DType::kI64);
  }
  Shape With(int64_t axis, int64_t extent) const {
    Shape shape = x_;
    shape[axis] = extent;
    return shape;
  }

  // The number and the types of operands are the first that the operator takes. Some operands are
  // broadcast.
  std::optional<Use> Elementwise(const OpDef& op) {
    Use use;
    for (const AttrSpec& spec : op.attrs) {
      if (!spec.required) continue;
      const bool text = std::holds_alternative<std::string>(spec.fallback);
      use.attrs[std::string(spec.name)] = text ? Attr(std::string("f64")) : Attr(0.5);
    }
    for (size_t n = 1; n <= 3; ++n) {
      for (const ir::DType dtype : {ir::DType::kF32, ir::DType::kBool}) {
        std::vector<TensorType> types(n, {dtype, x_});
        if (n == 3) types[0].dtype = ir::DType::kBool;
        if (!InferType(op.kind, types, use.attrs).ok()) continue;
        const auto full = static_cast<size_t>(Pick(0, static_cast<int64_t>(n) - 1));
        for (size_t i = 0; i < n; ++i) {
          Shape& shape = types[i].shape;
          if (i != full && Coin()) shape.erase(shape.begin(), shape.begin() + Pick(0, rank_));
          for (int64_t& extent : shape) {
            if (i != full && Pick(0, 3) == 0) extent = 1;
          }
          use.in.push_back(types[i].dtype == ir::DType::kBool ? Ints(shape, 0, 1, ir::DType::kBool)
                                                              : F32(shape));
        }
        return use;
      }
    }
    return std::nullopt;
  }

  Use Reduction(const OpDef& op) {
    const bool arg = op.kind == OpKind::kArgMax || op.kind == OpKind::kArgMin;
    return {{F32(x_)}, {{"axes", arg ? Shape{Axis()} : Axes()}, {"keepdims", int64_t{Coin()}}}};
  }

  Use Pool() {
    const int64_t n = rank_ - 2;
    const auto spatial = [&](int64_t count, int64_t low, int64_t high) {
      Shape values = Each(low, high);
      values.resize(count, low);
      return values;
    };
    return {{F32(x_)},
            {{"kernel", spatial(n, 2, 3)},
             {"strides", spatial(n, 1, 2)},
             {"pads", spatial(2 * n, 0, 1)},
             {"ceil_mode", int64_t{Coin()}}}};
  }

  std::optional<Use> Other(OpKind kind) {
    const int64_t axis = Axis();
    switch (kind) {
      case OpKind::kSoftmax:
      case OpKind::kLogSoftmax:
      case OpKind::kHardmax:
      case OpKind::kNormalize:
        return Use{{F32(x_)}, {{"axes", Axes()}}};
      case OpKind::kLrn:
        return Use{{F32(x_)}, {{"size", int64_t{3}}, {"alpha", 0.5}}};
      case OpKind::kCumProd:
      case OpKind::kCumSum:
        return Use{{F32(x_)},
                   {{"axis", axis}, {"exclusive", int64_t{Coin()}}, {"reverse", int64_t{Coin()}}}};
      case OpKind::kConcat: {
        const int64_t part = x_[axis] + kBlock * Pick(0, 1) + (Coin() ? 1 : 0);
        return Use{{F32(x_), F32(With(axis, part)), F32(x_)}, {{"axis", axis}}};
      }
      case OpKind::kSlice: {
        Shape starts = Each(0, 2), steps = Each(1, 2), sizes;
        for (int64_t d = 0; d < rank_; ++d) {
          if (Coin()) starts[d] = 0, steps[d] = 1;
          starts[d] = std::min(starts[d], x_[d] - 1);
          sizes.push_back((x_[d] - 1 - starts[d]) / steps[d] + 1);
        }
        return Use{{F32(x_)}, {{"starts", starts}, {"steps", steps}, {"sizes", sizes}}};
      }
      case OpKind::kPad: {
        constexpr std::string_view kModes[] = {"constant", "edge", "reflect"};
        Shape begin = Each(0, 1), end = Each(0, 1);
        if (Coin()) begin[1] = end[1] = 0;
        Use use{{F32(x_)},
                {{"begin", begin}, {"end", end}, {"mode", std::string(kModes[Pick(0, 2)])}}};
        if (Coin()) use.in.push_back(F32({}));
        return use;
      }
      case OpKind::kExpand: {
        Shape from = x_;
        for (int64_t& extent : from) {
          if (Coin()) extent = 1;
        }
        if (Coin()) from.erase(from.begin(), from.begin() + Pick(1, 2));
        return Use{{F32(from)}, {{"shape", x_}}};
      }
      case OpKind::kTile:
        return Use{{F32(x_)}, {{"repeats", Each(1, 2)}}};
      case OpKind::kTrilu:
        return Use{{F32(x_)}, {{"k", Pick(-1, 1)}, {"upper", int64_t{Coin()}}}};
      case OpKind::kReshape: {
        Shape to(x_.begin(), x_.end() - 1);
        to.back() *= x_.back();
        return Use{{F32(x_)}, {{"shape", to}}};
      }
      case OpKind::kTranspose: {
        Shape perm(rank_);
        std::iota(perm.begin(), perm.end(), 0);
        std::swap(perm[axis], perm[(axis + 1) % rank_]);
        return Use{{F32(x_)}, {{"perm", perm}}};
      }
      case OpKind::kGather:
        return Use{{F32(x_), Indices(Coin() ? Shape{6} : Shape{6, 9}, x_[axis])}, {{"axis", axis}}};
      case OpKind::kGatherElements:
        return Use{{F32(x_), Indices(With(axis, 6), x_[axis])}, {{"axis", axis}}};
      case OpKind::kGatherNd:
        return Use{{F32(x_), Indices({6, Pick(1, 2)}, 2)}, {}};
      case OpKind::kOneHot:
        return Use{{Indices(x_, 6), F32({2})}, {{"axis", Pick(0, rank_)}, {"depth", int64_t{6}}}};
      case OpKind::kReverseSequence:
        return Use{{F32(x_), Ints({x_[(axis + 1) % rank_]}, 1, x_[axis], ir::DType::kI64)},
                   {{"time_axis", axis}, {"batch_axis", (axis + 1) % rank_}}};
      case OpKind::kScatterElements:
        return Use{{F32(x_), Indices(With(axis, 6), x_[axis]), F32(With(axis, 6))},
                   {{"axis", axis}, {"reduction", std::string(Coin() ? "add" : "none")}}};
      case OpKind::kScatterNd:
        return Use{{F32(x_), Indices({6, 1}, 2), F32(With(0, 6))}, {}};
      case OpKind::kTopK:
        return Use{{F32(x_)}, {{"axis", axis}, {"k", Pick(1, 2)}, {"largest", int64_t{Coin()}}}};
      case OpKind::kSuppress:
        return Use{{F32({2, 8, 4}), Flags({2, 8}), F32({})}, {}};
      case OpKind::kRandomBits:
        return Use{{Ints({}, 0, 99, ir::DType::kI64), Ints({}, 0, 99, ir::DType::kI64)},
                   {{"shape", x_}, {"bits", int64_t{24}}}};
      case OpKind::kGridSample:
        return Use{{F32({2, 4, 3, 5}), F32({2, 6, 7, 2})}, {}};
      case OpKind::kMatmul:
        return Use{{F32(x_), F32({x_.back(), 6})}, {}};
      case OpKind::kForestWalk:
        return Use{{F32({5, 8}), Ints({2, 3, 9}, 0, 4, ir::DType::kI32), F32({2, 3, 9}),
                    Ints({2, 3, 9}, 0, 7, ir::DType::kI32), F32({2, 3, 9, 4})},
                   {{"steps", int64_t{3}}}};
      case OpKind::kForestSelect:
        return Use{{F32({5, 8}), Ints({2, 3, 3}, 0, 4, ir::DType::kI32), F32({2, 3, 3}),
                    F32({2, 3, 4, 1})},
                   {{"depth", int64_t{2}}}};
      case OpKind::kForestRanks:
        return Use{{Ints({5, 8}, 0, 9, ir::DType::kU8), Ints({2, 3, 3, 2}, 0, 4, ir::DType::kU8),
                    Ints({2, 3, 3, 2}, 0, 9, ir::DType::kU8), F32({2, 6, 4, 3})},
                   {}};
      case OpKind::kForestLeaves:
        return Use{{Ints({5, 8}, 0, 9, ir::DType::kU8), Ints({2, 3, 5, 2}, 0, 4, ir::DType::kU8),
                    Ints({2, 3, 5, 2}, 0, 9, ir::DType::kU8),
                    Ints({2, 3, 5, 2}, 0, 5, ir::DType::kU8), F32({2, 6, 6, 3})},
                   {}};
      case OpKind::kDigitize:
        return Use{{F32({2, 4, 6}), F32({4, 3})}, {}};
      case OpKind::kEinsum:
        return Use{{F32({2, 4, 3}), F32({3, 6})},
                   {{"terms", std::string("abc,cd")}, {"result", std::string("abd")}}};
      default:
        return std::nullopt;
    }
  }

  TestRng& rng_;
  int64_t rank_ = 0;
  Shape x_;  // of the first operand; the channels are several blocks
};

// ---- Layouts of data ----

TensorData Moved(OpKind kind, std::string_view attr, const Shape& value, const TensorData& x) {
  return *EvaluateOp(kind, {{std::string(attr), value}}, std::vector{x});
}

// A tensor with channels first in another layout. In the blocked layout, one channel stays one.
TensorData InLayout(Layout layout, const TensorData& x) {
  const auto rank = static_cast<int64_t>(x.type.shape.size());
  Shape dims(rank);
  std::iota(dims.begin(), dims.end(), 0);
  if (layout == Layout::kChannelsLast)
    return Moved(OpKind::kTranspose, "perm", ToLastOrder(dims), x);
  const int64_t block = x.type.shape[1] == 1 ? 1 : kBlock;
  Shape split = x.type.shape;
  split[1] /= block;
  split.insert(split.begin() + 2, block);
  dims.erase(dims.begin() + 2, dims.end());
  for (int64_t d = 3; d <= rank; ++d) dims.push_back(d);
  dims.push_back(2);
  return Moved(OpKind::kTranspose, "perm", dims, Moved(OpKind::kReshape, "shape", split, x));
}

// Whether the expression, given what the rule and the roles say for this layout, computes the
// result in this layout.
bool Moves(const OpDef& op, const Use& use, Layout layout) {
  const TensorData expected = *EvaluateOp(op.kind, use.attrs, use.in);
  const size_t rank = expected.type.shape.size(), first = use.in[0].type.shape.size();
  Use moved{use.in, MovedAttrs(op.attrs, use.attrs, static_cast<int64_t>(first), layout, kBlock)};
  for (size_t i = 0; i < use.in.size(); ++i) {
    TensorData& x = moved.in[i];
    if (op.layout.operands == LayoutRule::Operands::kAligned) {
      if (x.type.shape.size() > rank) return false;
      Shape full(rank - x.type.shape.size(), 1);
      full.insert(full.end(), x.type.shape.begin(), x.type.shape.end());
      x = InLayout(layout, Moved(OpKind::kReshape, "shape", full, x));
    } else if (i == 0) {
      x = InLayout(layout, x);
    }
  }
  const auto got = EvaluateOp(op.kind, moved.attrs, moved.in);
  if (!got.ok()) return false;
  if (rank >= first) return Difference({InLayout(layout, expected)}, {*got}) <= kRuleTolerance;
  // The result has the model's layout, but for channels that are still in blocks.
  const bool flat =
      layout == Layout::kChannelsBlocked && NumElements(got->type) == NumElements(expected.type);
  return Difference({expected}, {flat ? Moved(OpKind::kReshape, "shape", expected.type.shape, *got)
                                      : *got}) <= kRuleTolerance;
}

// Whether the rule offers the layout to this use.
bool Offers(const OpDef& op, const Use& use, Layout layout) {
  std::vector<TensorType> types;
  for (const TensorData& x : use.in) types.push_back(x.type);
  const TensorType out = *InferType(op.kind, types, use.attrs);
  const OpUse of{types, out, {op.attrs, use.attrs}};
  if (!op.layout.last || !op.layout.last(of)) return false;
  return layout == Layout::kChannelsLast || (op.layout.blocked && op.layout.blocked(of, kBlock));
}

// Calls `visit` with many uses of each operator whose form, if there is one, is the node itself.
void ForEachUse(const std::function<void(const OpDef& op, const Use& use)>& visit) {
  for (size_t kind = 0; kind < kNumOpKinds; ++kind) {
    const OpDef& op = Def(static_cast<OpKind>(kind));
    if (op.layout.form) continue;
    TestRng rng(kind);
    for (int i = 0; i < kUses; ++i) {
      if (const auto use = UseDraw(rng).Of(op)) visit(op, *use);
    }
  }
}

// Operators that only the choice of layouts makes.
bool IsMade(OpKind kind) {
  const auto in = [&](const OpKindsByRank& kinds) {
    return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
  };
  return in(kDepthwiseConvolutions) || in(kBlockedConvolutions) ||
         in(kBlockedDepthwiseConvolutions);
}

// As Moves, for an operator without a rule: with either kind of operands.
bool CouldMove(OpDef op, const Use& use) {
  for (const auto operands : {LayoutRule::Operands::kFirst, LayoutRule::Operands::kAligned}) {
    op.layout.operands = operands;
    if (Moves(op, use, Layout::kChannelsLast)) return true;
  }
  return false;
}

TEST(LayoutRule, AnOperatorHasTheFormsThatItsExpressionHas) {
  std::map<OpKind, int> uses, offered, blocked, more;  // more: proved, but not offered
  ForEachUse([&](const OpDef& op, const Use& use) {
    ++uses[op.kind];
    if (Offers(op, use, Layout::kChannelsLast)) {
      ++offered[op.kind];
      EXPECT_TRUE(Moves(op, use, Layout::kChannelsLast)) << Describe(op, use);
    } else {
      more[op.kind] += op.layout.last ? Moves(op, use, Layout::kChannelsLast) : CouldMove(op, use);
    }
    if (Offers(op, use, Layout::kChannelsBlocked)) {
      ++blocked[op.kind];
      EXPECT_TRUE(Moves(op, use, Layout::kChannelsBlocked)) << "blocked: " << Describe(op, use);
    }
  });
  std::set<std::string> narrow, none;
  for (size_t i = 0; i < kNumOpKinds; ++i) {
    const OpDef& op = Def(static_cast<OpKind>(i));
    if (op.layout.form || IsMade(op.kind)) continue;
    EXPECT_EQ(uses[op.kind], kUses) << NameOf(op.kind) << ": add a random use to Draw";
    EXPECT_EQ(op.layout.last != nullptr, offered[op.kind] > 0) << NameOf(op.kind);
    EXPECT_EQ(op.layout.blocked != nullptr, blocked[op.kind] > 0) << NameOf(op.kind);
    if (op.layout.last && more[op.kind] > 0) narrow.insert(NameOf(op.kind));
    if (!op.layout.last && more[op.kind] == kUses) none.insert(NameOf(op.kind));
  }
  // What the expressions would allow and the rules do not offer, because no model has it between
  // operators that prefer channels last: to expand a single element, to gather along a spatial
  // dimension by a matrix of indices, and all uses of some operators.
  constexpr const char* kState = "has a form with channels last: state it in LayoutRule::last";
  EXPECT_THAT(narrow, ::testing::ElementsAre("expand", "gather")) << kState;
  EXPECT_THAT(none, ::testing::ElementsAre("gather_elements", "reverse_sequence",
                                           "scatter_elements", "top_k"))
      << kState;
}

// A planted fault: whichever role or alignment is taken away, some form is wrong.
TEST(LayoutRule, EveryRoleIsNeeded) {
  std::map<std::string, bool> found;
  ForEachUse([&](const OpDef& op, const Use& use) {
    if (!Offers(op, use, Layout::kChannelsLast)) return;
    const auto try_fault = [&](const std::string& name, const OpDef& broken) {
      bool& fault = found[absl::StrCat(NameOf(op.kind), " ", name)];
      fault = fault || !Moves(broken, use, Layout::kChannelsLast);
    };
    for (size_t i = 0; i < op.attrs.size(); ++i) {
      if (op.attrs[i].role == AttrRole::kPlain) continue;
      OpDef broken = op;
      broken.attrs[i].role = AttrRole::kPlain;
      try_fault(std::string(op.attrs[i].name), broken);
    }
    if (op.layout.operands == LayoutRule::Operands::kAligned && use.in.size() > 1) {
      OpDef broken = op;
      broken.layout.operands = LayoutRule::Operands::kFirst;
      try_fault("alignment", broken);
    }
  });
  for (const auto& [fault, is_found] : found) EXPECT_TRUE(is_found) << fault;
  EXPECT_GE(found.size(), 40u);
}

}  // namespace
}  // namespace heddle::graph
