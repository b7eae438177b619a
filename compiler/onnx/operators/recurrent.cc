// Translation of RNN, GRU and LSTM. The recurrence is unrolled over time, because sequences have a
// fixed length. One matrix product computes the input's part of all steps. Each step multiplies the
// state by a matrix and then does arithmetic on slices of both products, which fuses.
#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "compiler/onnx/node.h"
#include "compiler/onnx/operators/formulas.h"
#include "compiler/onnx/slices.h"

namespace heddle::graph {
namespace {

// An activation of a cell, with its parameters.
struct Activation {
  std::string name;
  double alpha = 0, beta = 0;
};

// What the standard defines for cells. Most are operators of their own.
struct KnownActivation {
  const char* name;
  int parameters;      // alpha, then beta
  double alpha, beta;  // if the node leaves them out
};
constexpr KnownActivation kActivations[] = {
    {"Relu", 0, 0, 0},         {"Tanh", 0, 0, 0},
    {"Sigmoid", 0, 0, 0},      {"Affine", 2, 1, 0},
    {"LeakyRelu", 1, 0.01, 0}, {"ThresholdedRelu", 1, 1, 0},
    {"ScaledTanh", 2, 1, 1},   {"HardSigmoid", 2, 0.2, 0.5},
    {"Elu", 1, 1, 0},          {"Softsign", 0, 0, 0},
    {"Softplus", 0, 0, 0},
};

bool SameWord(const std::string& a, const std::string& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) ==
           std::tolower(static_cast<unsigned char>(y));
  });
}

// The weights of one direction. `from_x` is the product of the inputs of all steps with their
// matrix, plus every bias that can be added this early: [time * batch, G*H]. `r` is the matrix that
// the state is multiplied by: [H, G*H]. Parts that a cell does not have are -1.
struct Direction {
  ValueId from_x = -1, r = -1;
  ValueId r_scale = -1;  // of quantised weights
  // GRU with linear_before_reset: bias of the product that the reset gate scales, [H]
  ValueId reset_bias = -1;
  ValueId peephole = -1;                // LSTM
  std::vector<Activation> activations;  // f, g and h of the standard
  bool reverse = false;
};

// The state of a cell, [batch, H] each. -1 stands for zeros.
struct State {
  ValueId h = -1, c = -1;
};

class Recurrence {
 public:
  Recurrence(NodeImport& n, int gates, bool quantised = false)
      : n_(n), gates_(gates), quantised_(quantised) {}

  void Run() {
    if (!Parse()) return;
    std::vector<std::vector<ValueId>> outputs(length_);
    std::vector<ValueId> last_h, last_c;
    for (int d = 0; d < directions_ && n_.ok(); ++d) {
      const Direction p = ParseDirection(d);
      State s = Initial(d);
      std::vector<ValueId> hs(length_);
      for (int64_t step = 0; step < length_ && n_.ok(); ++step) {
        const int64_t t = p.reverse ? length_ - 1 - step : step;
        const State next = Step(p, Rows(t), s);
        const ValueId runs = Runs(t);
        s = {While(runs, next.h, s.h), While(runs, next.c, s.c)};
        hs[t] = While(runs, next.h, -1);
      }
      for (int64_t t = 0; t < length_; ++t) outputs[t].push_back(hs[t]);
      last_h.push_back(s.h);
      last_c.push_back(s.c);
    }
    if (!n_.ok()) return;
    std::vector<ValueId> steps;
    for (const auto& per_direction : outputs)
      steps.push_back(Stack(per_direction, {1, int64_t{directions_}, batch_, hidden_}));
    ValueId y = Concat(n_, steps, 0);
    const Shape final_shape{int64_t{directions_}, batch_, hidden_};
    ValueId h = Stack(last_h, final_shape);
    const bool batch_first = n_.Int("layout") != 0;
    if (batch_first) {
      y = n_.Transpose(y, {2, 0, 1, 3});
      h = n_.Transpose(h, {1, 0, 2});
    }
    n_.Set(0, y);
    n_.Set(1, h);
    if (!n_.Wants(2)) return;
    const ValueId c = Stack(last_c, final_shape);
    n_.Set(2, batch_first ? n_.Transpose(c, {1, 0, 2}) : c);
  }

 private:
  bool Parse() {
    n_.Ignore({"output_sequence"});  // the first opset's; outputs are there or not
    if (n_.HasAttr("clip")) clip_ = n_.Float("clip");
    coupled_ = gates_ == 4 && n_.Int("input_forget") != 0;
    x_ = n_.In(0);
    const ValueId w = n_.In(1);
    if (!n_.ok()) return false;
    if (n_.Rank(x_) != 3 || n_.Rank(w) != 3) n_.Fail("needs an input and weights of rank 3");
    const bool batch_first = n_.ok() && n_.Int("layout") != 0;
    if (batch_first) x_ = n_.Transpose(x_, {1, 0, 2});
    if (!n_.ok()) return false;
    batch_first_ = batch_first;
    length_ = n_.ShapeOf(x_)[0];
    batch_ = n_.ShapeOf(x_)[1];
    directions_ = static_cast<int>(n_.ShapeOf(w)[0]);
    hidden_ = n_.ShapeOf(w)[quantised_ ? 2 : 1] / gates_;
    if (n_.HasAttr("hidden_size") && n_.Int("hidden_size") != hidden_)
      n_.Fail(absl::StrCat("hidden_size is ", n_.Int("hidden_size"), ", but the weights have ",
                           hidden_));
    direction_ = n_.OneOf("direction", {"forward", "reverse", "bidirectional"});
    if (directions_ != (direction_ == "bidirectional" ? 2 : 1)) {
      n_.Fail(absl::StrCat("weights of ", directions_, " directions, but it is ", direction_));
    }
    ParseActivations();
    if (length_ > kLongestSequence)
      n_.Unsupported(
          absl::StrCat("a sequence of ", length_, " steps (at most ", kLongestSequence, ")"));
    if (n_.Has(4)) {
      const ValueId lengths = n_.In(4);
      if (n_.ok() && n_.ShapeOf(lengths) != Shape{batch_})
        n_.Fail("needs one sequence length for each sample");
      const TensorData* known = n_.ConstantData(lengths);
      const Shape values = known == nullptr ? Shape{} : ToInts(*known);
      const bool whole = known != nullptr && std::all_of(values.begin(), values.end(),
                                                         [&](int64_t l) { return l == length_; });
      // ONNX Runtime quantises by the range of the longest sequence.
      if (!whole && quantised_) n_.Unsupported("sequence_lens other than the whole length");
      if (!whole) lengths_ = n_.Reshape(n_.Cast(lengths, ir::DType::kI64), {batch_, 1});
    }
    return n_.ok();
  }

  // The activations of all directions, one after the other. Parameters belong, in this order, to the
  // activations that take them.
  void ParseActivations() {
    const std::vector<std::string> usual =
        gates_ == 1   ? std::vector<std::string>{"Tanh"}
        : gates_ == 3 ? std::vector<std::string>{"Sigmoid", "Tanh"}
                      : std::vector<std::string>{"Sigmoid", "Tanh", "Tanh"};
    // The standard's default for RNN names both directions, even if there is only one.
    std::vector<std::string> names;
    if (n_.HasAttr("activations")) names = n_.Strings("activations");
    if (directions_ == 1 && names.size() == 2 * usual.size()) names.resize(usual.size());
    if (names.empty()) {
      for (int d = 0; d < directions_; ++d) names.insert(names.end(), usual.begin(), usual.end());
    }
    if (names.size() != usual.size() * static_cast<size_t>(directions_))
      return n_.Fail(absl::StrCat("has ", names.size(), " activations, needs ",
                                  usual.size() * static_cast<size_t>(directions_)));
    const std::vector<double> alphas = n_.Floats("activation_alpha"),
                              betas = n_.Floats("activation_beta");
    size_t next_alpha = 0, next_beta = 0;
    activations_.resize(static_cast<size_t>(directions_));
    for (size_t i = 0; i < names.size(); ++i) {
      const auto* known =
          std::find_if(std::begin(kActivations), std::end(kActivations),
                       [&](const KnownActivation& k) { return SameWord(k.name, names[i]); });
      if (known == std::end(kActivations))
        return n_.Fail(absl::StrCat("has no activation '", names[i], "'"));
      Activation a{known->name, known->alpha, known->beta};
      if (known->parameters > 0 && next_alpha < alphas.size()) a.alpha = alphas[next_alpha++];
      if (known->parameters > 1 && next_beta < betas.size()) a.beta = betas[next_beta++];
      activations_[i / usual.size()].push_back(a);
    }
  }

  Direction ParseDirection(int d) {
    Direction p;
    p.reverse = direction_ == "reverse" || d == 1;
    p.activations = activations_[static_cast<size_t>(d)];
    const ValueId rows = n_.ok() ? n_.Reshape(x_, {length_ * batch_, n_.ShapeOf(x_).back()}) : -1;
    if (quantised_) {
      p.r = FromZero(2, 11, d);
      p.r_scale = At(n_, n_.In(10), 0, d);
      p.from_x = DynamicProduct(n_, rows, FromZero(1, 9, d), At(n_, n_.In(8), 0, d));
    } else {
      p.r = n_.Transpose(At(n_, n_.In(2), 0, d), {1, 0});
      p.from_x = n_.Emit(OpKind::kMatmul, {rows, n_.Transpose(At(n_, n_.In(1), 0, d), {1, 0})});
    }
    if (n_.Has(3)) {
      const ValueId b = At(n_, n_.In(3), 0, d);
      const ValueId of_x = Part(n_, b, 0, 0, gates_ * hidden_);
      ValueId of_h = Part(n_, b, 0, gates_ * hidden_, 2 * gates_ * hidden_);
      if (gates_ == 3 && n_.Int("linear_before_reset") != 0) {
        p.reset_bias = Gate(of_h, 2);
        const ValueId nothing = n_.Fill({n_.Type(of_h).dtype, {hidden_}}, 0);
        of_h = n_.Emit(OpKind::kConcat, {Part(n_, of_h, 0, 0, 2 * hidden_), nothing},
                       {{"axis", int64_t{0}}});
      }
      p.from_x = Add(p.from_x, Add(of_x, of_h));
    }
    if (gates_ == 4 && n_.Has(7)) p.peephole = At(n_, n_.In(7), 0, d);
    return p;
  }

  // Quantised weights of direction d, in i32, minus their zero points.
  ValueId FromZero(int weights, int zero, int d) {
    const ValueId w = n_.Cast(At(n_, n_.In(weights), 0, d), ir::DType::kI32);
    return n_.Emit(OpKind::kSub, {w, n_.Cast(At(n_, n_.In(zero), 0, d), ir::DType::kI32)});
  }

  ValueId InitialOf(int input, int d) {
    if (!n_.Has(input)) return -1;
    ValueId v = n_.In(input);
    if (batch_first_) v = n_.Transpose(v, {1, 0, 2});
    return At(n_, v, 0, d);
  }

  State Initial(int d) { return {InitialOf(5, d), gates_ == 4 ? InitialOf(6, d) : -1}; }

  ValueId Stack(const std::vector<ValueId>& parts, const Shape& shape) {
    Shape one = shape;
    one[shape.size() - 3] = 1;
    std::vector<ValueId> reshaped;
    for (ValueId v : parts) reshaped.push_back(n_.Reshape(v, one));
    return reshaped.size() == 1 ? reshaped[0]
                                : n_.Emit(OpKind::kConcat, reshaped,
                                          {{"axis", static_cast<int64_t>(shape.size()) - 3}});
  }

  // The columns of gate g in a [batch, G*H] matrix or a bias.
  ValueId Gate(ValueId v, int g) {
    if (!n_.ok() || v < 0) return -1;
    return Part(n_, v, n_.Rank(v) - 1, g * hidden_, (g + 1) * hidden_);
  }
  // Gate g of the input's product at one step; `step` holds the numbers of its rows. The row
  // numbers are data and not an attribute, so every step is the same kernel. Each gate has its own
  // gather, which fuses into the arithmetic that reads it.
  ValueId InputGate(const Direction& p, ValueId step, int g) {
    if (length_ == 1) return Gate(p.from_x, g);
    return Gate(n_.Emit(OpKind::kGather, {p.from_x, step}, {{"axis", int64_t{0}}}), g);
  }
  // The numbers of the rows of step t in the input's product.
  ValueId Rows(int64_t t) {
    Shape rows(batch_);
    std::iota(rows.begin(), rows.end(), t * batch_);
    return n_.Constant(FromInts(rows));
  }
  // The product of state and matrix, or -1 (zeros) if the state is.
  ValueId Product(ValueId h, ValueId matrix) {
    return h < 0 ? -1 : n_.Emit(OpKind::kMatmul, {h, matrix});
  }
  ValueId Add(ValueId a, ValueId b) {
    return a < 0 ? b : b < 0 ? a : n_.Emit(OpKind::kAdd, {a, b});
  }
  ValueId Mul(ValueId a, ValueId b) { return a < 0 || b < 0 ? -1 : n_.Emit(OpKind::kMul, {a, b}); }

  // Activation `which` of the cell, of a sum that is clipped before.
  ValueId Clipped(ValueId a) {
    return clip_ > 0 ? n_.Emit(OpKind::kClip, {a}, {{"min", -clip_}, {"max", clip_}}) : a;
  }
  ValueId Activated(const Direction& p, size_t which, ValueId a) {
    const Activation& how = p.activations[which];
    const Attrs alpha{{"alpha", how.alpha}};
    const auto scaled = [&](ValueId v, double by) {
      return n_.Emit(OpKind::kMul, {v, n_.ScalarLike(by, v)});
    };
    if (how.name == "Relu") return n_.Emit(OpKind::kRelu, {a});
    if (how.name == "Tanh") return n_.Emit(OpKind::kTanh, {a});
    if (how.name == "Sigmoid") return n_.Emit(OpKind::kSigmoid, {a});
    if (how.name == "Softsign") return n_.Emit(OpKind::kSoftsign, {a});
    if (how.name == "Softplus") return n_.Emit(OpKind::kSoftplus, {a});
    if (how.name == "LeakyRelu") return n_.Emit(OpKind::kLeakyRelu, {a}, alpha);
    if (how.name == "ThresholdedRelu") return n_.Emit(OpKind::kThresholdedRelu, {a}, alpha);
    if (how.name == "Elu") return n_.Emit(OpKind::kElu, {a}, alpha);
    if (how.name == "HardSigmoid")
      return n_.Emit(OpKind::kHardSigmoid, {a}, {{"alpha", how.alpha}, {"beta", how.beta}});
    if (how.name == "ScaledTanh")
      return scaled(n_.Emit(OpKind::kTanh, {scaled(a, how.beta)}), how.alpha);
    const ValueId slope = scaled(a, how.alpha);  // Affine
    return n_.Emit(OpKind::kAdd, {slope, n_.ScalarLike(how.beta, slope)});
  }

  // Which samples have a step t: [batch, 1], or -1 if all have.
  ValueId Runs(int64_t t) {
    if (lengths_ < 0) return -1;
    return n_.Emit(OpKind::kLess, {n_.ScalarLike(static_cast<double>(t), lengths_), lengths_});
  }
  // `next` where the step runs, else `before` (-1: zeros).
  ValueId While(ValueId runs, ValueId next, ValueId before) {
    if (runs < 0 || next < 0) return next;
    return n_.Emit(OpKind::kWhere, {runs, next, before < 0 ? n_.ScalarLike(0, next) : before});
  }

  State Step(const Direction& p, ValueId t, const State& s) {
    if (gates_ == 1) {
      const ValueId sum = Add(InputGate(p, t, 0), Product(s.h, p.r));
      return {Activated(p, 0, Clipped(sum)), -1};
    }
    return gates_ == 3 ? GruStep(p, t, s) : LstmStep(p, t, s);
  }

  // The gates are z, r, h.
  State GruStep(const Direction& p, ValueId t, const State& s) {
    const bool linear = n_.Int("linear_before_reset") != 0;
    const ValueId matrix = linear ? p.r : n_.ok() ? Part(n_, p.r, 1, 0, 2 * hidden_) : -1;
    const ValueId from_h = Product(s.h, matrix);
    const ValueId z = Activated(p, 0, Clipped(Add(InputGate(p, t, 0), Gate(from_h, 0))));
    const ValueId r = Activated(p, 0, Clipped(Add(InputGate(p, t, 1), Gate(from_h, 1))));
    const ValueId recurrent =
        linear ? Mul(r, Add(Gate(from_h, 2), p.reset_bias)) : Product(Mul(r, s.h), Gate(p.r, 2));
    const ValueId candidate = Activated(p, 1, Clipped(Add(InputGate(p, t, 2), recurrent)));
    const ValueId kept = n_.Emit(OpKind::kSub, {n_.ScalarLike(1, z), z});
    return {Add(Mul(kept, candidate), Mul(z, s.h)), -1};
  }

  // The gates are i, o, f, c; the peepholes are i, o, f.
  State LstmStep(const Direction& p, ValueId t, const State& s) {
    const ValueId from_h = !quantised_ ? Product(s.h, p.r)
                           : s.h < 0   ? -1
                                       : DynamicProduct(n_, s.h, p.r, p.r_scale);
    const auto sum = [&](int g) { return Add(InputGate(p, t, g), Gate(from_h, g)); };
    const auto gate = [&](int g, ValueId cell) {
      return Activated(p, 0, Clipped(Add(sum(g), Mul(Gate(p.peephole, g), cell))));
    };
    const ValueId i = gate(0, s.c);
    const ValueId f = coupled_ ? n_.Emit(OpKind::kSub, {n_.ScalarLike(1, i), i}) : gate(2, s.c);
    const ValueId c = Add(Mul(f, s.c), Mul(i, Activated(p, 1, Clipped(sum(3)))));
    return {Mul(gate(1, c), Activated(p, 2, c)), c};
  }

  NodeImport& n_;
  const int gates_;
  const bool quantised_;
  ValueId x_ = -1;  // [time, batch, in]
  int64_t length_ = 0, batch_ = 0, hidden_ = 0;
  int directions_ = 1;
  bool batch_first_ = false;
  std::string direction_;
  std::vector<std::vector<Activation>> activations_;  // of each direction
  double clip_ = 0;                                   // limits what activations get; 0: not
  bool coupled_ = false;  // the forget gate is what the input gate leaves
  ValueId lengths_ = -1;  // [batch, 1], unless all sequences have the whole length
};

void Rnn(NodeImport& n) { Recurrence(n, 1).Run(); }
void Gru(NodeImport& n) { Recurrence(n, 3).Run(); }
void Lstm(NodeImport& n) { Recurrence(n, 4).Run(); }
// The weights are integers, and not transposed. What they multiply is quantised by its range.
void DynamicQuantizeLstm(NodeImport& n) { Recurrence(n, 4, true).Run(); }

}  // namespace

void AddRecurrentTranslations(TranslationTable& table) {
  constexpr const char* kLimits = "sequences of more than 8192 steps";
  table["RNN"] = {Rnn, kLimits};
  table["GRU"] = {Gru, kLimits};
  table["LSTM"] = {Lstm, kLimits};
  table["com.microsoft.DynamicQuantizeLSTM"] = {
      DynamicQuantizeLstm,
      "sequences of more than 8192 steps; sequence_lens other than the whole length"};
}

}  // namespace heddle::graph
