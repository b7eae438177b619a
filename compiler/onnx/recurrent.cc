// Translation of RNN, GRU and LSTM. The recurrence is unrolled over time, because sequences have a
// fixed length. One matrix product computes the input's part of all steps. Each step multiplies the
// state by a matrix and then does arithmetic on slices of both products, which fuses.
#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "compiler/onnx/node.h"
#include "compiler/onnx/slices.h"

namespace heddle::graph {
namespace {

// Unrolling makes about twenty nodes for each step.
constexpr int64_t kLongestSequence = 512;

// The weights of one direction. `from_x` is the product of the inputs of all steps with their
// matrix, plus every bias that can be added this early: [time * batch, G*H]. `r` is the matrix that
// the state is multiplied by: [H, G*H]. Parts that a cell does not have are -1.
struct Direction {
  ValueId from_x = -1, r = -1;
  // GRU with linear_before_reset: bias of the product that the reset gate scales, [H]
  ValueId reset_bias = -1;
  ValueId peephole = -1;  // LSTM
  bool reverse = false;
};

// The state of a cell, [batch, H] each. -1 stands for zeros.
struct State {
  ValueId h = -1, c = -1;
};

class Recurrence {
 public:
  Recurrence(NodeImport& n, int gates) : n_(n), gates_(gates) {}

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
        s = Step(p, Rows(t), s);
        hs[t] = s.h;
      }
      for (int64_t t = 0; t < length_; ++t) outputs[t].push_back(hs[t]);
      last_h.push_back(s.h);
      last_c.push_back(s.c);
    }
    if (!n_.ok()) return;
    std::vector<ValueId> steps;
    for (const auto& per_direction : outputs)
      steps.push_back(Stack(per_direction, {1, int64_t{directions_}, batch_, hidden_}));
    ValueId y =
        steps.size() == 1 ? steps[0] : n_.Emit(OpKind::kConcat, steps, {{"axis", int64_t{0}}});
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
    for (const char* name : {"clip", "activation_alpha", "activation_beta"}) {
      if (n_.HasAttr(name)) n_.Unsupported(absl::StrCat("the attribute ", name));
    }
    if (n_.Int("input_forget") != 0) n_.Unsupported("the attribute input_forget");
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
    hidden_ = n_.ShapeOf(w)[1] / gates_;
    if (n_.HasAttr("hidden_size") && n_.Int("hidden_size") != hidden_)
      n_.Fail(absl::StrCat("hidden_size is ", n_.Int("hidden_size"), ", but the weights have ",
                           hidden_));
    direction_ = n_.OneOf("direction", {"forward", "reverse", "bidirectional"});
    if (directions_ != (direction_ == "bidirectional" ? 2 : 1)) {
      n_.Fail(absl::StrCat("weights of ", directions_, " directions, but it is ", direction_));
    }
    CheckActivations();
    if (length_ > kLongestSequence)
      n_.Unsupported(
          absl::StrCat("a sequence of ", length_, " steps (at most ", kLongestSequence, ")"));
    if (n_.Has(4)) {
      const Shape lengths = n_.ConstantInts(4);
      if (std::any_of(lengths.begin(), lengths.end(), [&](int64_t l) { return l != length_; })) {
        n_.Unsupported("sequences of several lengths");
      }
    }
    return n_.ok();
  }

  // Exporters often write the activations that a cell has anyway, for each direction.
  void CheckActivations() {
    const std::vector<std::string> usual =
        gates_ == 1   ? std::vector<std::string>{"Tanh"}
        : gates_ == 3 ? std::vector<std::string>{"Sigmoid", "Tanh"}
                      : std::vector<std::string>{"Sigmoid", "Tanh", "Tanh"};
    std::vector<std::string> expected;
    for (int d = 0; d < directions_; ++d)
      expected.insert(expected.end(), usual.begin(), usual.end());
    if (n_.HasAttr("activations") && n_.Strings("activations") != expected)
      n_.Unsupported("other activations than Sigmoid and Tanh");
  }

  Direction ParseDirection(int d) {
    Direction p;
    p.reverse = direction_ == "reverse" || d == 1;
    const ValueId w = n_.Transpose(At(n_, n_.In(1), 0, d), {1, 0});
    p.r = n_.Transpose(At(n_, n_.In(2), 0, d), {1, 0});
    const ValueId rows = n_.ok() ? n_.Reshape(x_, {length_ * batch_, n_.ShapeOf(x_).back()}) : -1;
    p.from_x = n_.Emit(OpKind::kMatmul, {rows, w});
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
  ValueId Sigmoid(ValueId a) { return n_.Emit(OpKind::kSigmoid, {a}); }
  ValueId Tanh(ValueId a) { return n_.Emit(OpKind::kTanh, {a}); }

  State Step(const Direction& p, ValueId t, const State& s) {
    if (gates_ == 1) return {Tanh(Add(InputGate(p, t, 0), Product(s.h, p.r))), -1};
    return gates_ == 3 ? GruStep(p, t, s) : LstmStep(p, t, s);
  }

  // The gates are z, r, h.
  State GruStep(const Direction& p, ValueId t, const State& s) {
    const bool linear = n_.Int("linear_before_reset") != 0;
    const ValueId matrix = linear ? p.r : n_.ok() ? Part(n_, p.r, 1, 0, 2 * hidden_) : -1;
    const ValueId from_h = Product(s.h, matrix);
    const ValueId z = Sigmoid(Add(InputGate(p, t, 0), Gate(from_h, 0)));
    const ValueId r = Sigmoid(Add(InputGate(p, t, 1), Gate(from_h, 1)));
    const ValueId recurrent =
        linear ? Mul(r, Add(Gate(from_h, 2), p.reset_bias)) : Product(Mul(r, s.h), Gate(p.r, 2));
    const ValueId candidate = Tanh(Add(InputGate(p, t, 2), recurrent));
    const ValueId kept = n_.Emit(OpKind::kSub, {n_.ScalarLike(1, z), z});
    return {Add(Mul(kept, candidate), Mul(z, s.h)), -1};
  }

  // The gates are i, o, f, c; the peepholes are i, o, f.
  State LstmStep(const Direction& p, ValueId t, const State& s) {
    const ValueId from_h = Product(s.h, p.r);
    const auto sum = [&](int g) { return Add(InputGate(p, t, g), Gate(from_h, g)); };
    const auto gate = [&](int g, ValueId cell) {
      return Sigmoid(Add(sum(g), Mul(Gate(p.peephole, g), cell)));
    };
    const ValueId i = gate(0, s.c), f = gate(2, s.c);
    const ValueId c = Add(Mul(f, s.c), Mul(i, Tanh(sum(3))));
    return {Mul(gate(1, c), Tanh(c)), c};
  }

  NodeImport& n_;
  const int gates_;
  ValueId x_ = -1;  // [time, batch, in]
  int64_t length_ = 0, batch_ = 0, hidden_ = 0;
  int directions_ = 1;
  bool batch_first_ = false;
  std::string direction_;
};

void Rnn(NodeImport& n) { Recurrence(n, 1).Run(); }
void Gru(NodeImport& n) { Recurrence(n, 3).Run(); }
void Lstm(NodeImport& n) { Recurrence(n, 4).Run(); }

}  // namespace

void AddRecurrentTranslations(TranslationTable& table) {
  constexpr const char* kLimits =
      "other activations, clip, input_forget; sequences of several lengths, of more than 512 steps";
  table["RNN"] = {Rnn, kLimits};
  table["GRU"] = {Gru, kLimits};
  table["LSTM"] = {Lstm, kLimits};
}

}  // namespace heddle::graph
