// RNN, GRU, LSTM, unrolled over time: sequences have a fixed length here.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/graph/onnx_node.h"

namespace heddle::graph {
namespace {

// Unrolling makes some twenty nodes a step.
constexpr int64_t kLongestSequence = 512;

// elements [begin, end) of dimension `axis`
ValueId Part(NodeImport& n, ValueId v, int axis, int64_t begin, int64_t end) {
  if (!n.ok()) return -1;
  Shape starts(n.Rank(v), 0), sizes = n.ShapeOf(v);
  starts[axis] = begin;
  sizes[axis] = end - begin;
  return sizes == n.ShapeOf(v)
             ? v
             : n.Emit("slice", {v},
                      {{"starts", starts}, {"steps", Shape(n.Rank(v), 1)}, {"sizes", sizes}});
}

// Element `index` of dimension 0, without that dimension.
ValueId At(NodeImport& n, ValueId v, int64_t index) {
  const ValueId part = Part(n, v, 0, index, index + 1);
  return n.ok() ? n.Reshape(part, Shape(n.ShapeOf(v).begin() + 1, n.ShapeOf(v).end())) : -1;
}

// One direction's parameters: matrices ready to multiply from the right, [in, G*H] and [H, G*H];
// biases [G*H] or -1.
struct Direction {
  ValueId w = -1, r = -1, wb = -1, rb = -1, peephole = -1;
  bool reverse = false;
};

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
        s = Step(p, At(n_, x_, t), s);
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
    ValueId y = steps.size() == 1 ? steps[0] : n_.Emit("concat", steps, {{"axis", int64_t{0}}});
    const Shape final_shape{int64_t{directions_}, batch_, hidden_};
    ValueId h = Stack(last_h, final_shape);
    const bool batch_first = n_.Int("layout", 0) != 0;
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
    for (const char* name : {"activations", "clip", "activation_alpha", "activation_beta"}) {
      if (n_.HasAttr(name)) n_.Unsupported(absl::StrCat("the attribute ", name));
    }
    if (n_.Int("input_forget", 0) != 0) n_.Unsupported("the attribute input_forget");
    x_ = n_.In(0);
    const ValueId w = n_.In(1);
    if (!n_.ok()) return false;
    if (n_.Rank(x_) != 3 || n_.Rank(w) != 3) n_.Fail("needs an input and weights of rank 3");
    const bool batch_first = n_.ok() && n_.Int("layout", 0) != 0;
    if (batch_first) x_ = n_.Transpose(x_, {1, 0, 2});
    if (!n_.ok()) return false;
    batch_first_ = batch_first;
    length_ = n_.ShapeOf(x_)[0];
    batch_ = n_.ShapeOf(x_)[1];
    directions_ = static_cast<int>(n_.ShapeOf(w)[0]);
    hidden_ = n_.ShapeOf(w)[1] / gates_;
    const std::string direction = n_.String("direction", "forward");
    if (directions_ != (direction == "bidirectional" ? 2 : 1)) {
      n_.Fail(absl::StrCat("weights of ", directions_, " directions, but it is ", direction));
    }
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

  Direction ParseDirection(int d) {
    Direction p;
    p.reverse = n_.String("direction", "forward") == "reverse" || d == 1;
    p.w = n_.Transpose(At(n_, n_.In(1), d), {1, 0});
    p.r = n_.Transpose(At(n_, n_.In(2), d), {1, 0});
    if (n_.Has(3)) {
      const ValueId b = At(n_, n_.In(3), d);
      p.wb = Part(n_, b, 0, 0, gates_ * hidden_);
      p.rb = Part(n_, b, 0, gates_ * hidden_, 2 * gates_ * hidden_);
    }
    if (gates_ == 4 && n_.Has(7)) p.peephole = At(n_, n_.In(7), d);
    return p;
  }

  ValueId InitialOf(int input, int d) {
    if (!n_.Has(input)) return n_.Fill({n_.Type(x_).dtype, {batch_, hidden_}}, 0);
    ValueId v = n_.In(input);
    if (batch_first_) v = n_.Transpose(v, {1, 0, 2});
    return At(n_, v, d);
  }

  State Initial(int d) { return {InitialOf(5, d), gates_ == 4 ? InitialOf(6, d) : -1}; }

  ValueId Stack(const std::vector<ValueId>& parts, const Shape& shape) {
    Shape one = shape;
    one[shape.size() - 3] = 1;
    std::vector<ValueId> reshaped;
    for (ValueId v : parts) reshaped.push_back(n_.Reshape(v, one));
    return reshaped.size() == 1
               ? reshaped[0]
               : n_.Emit("concat", reshaped, {{"axis", static_cast<int64_t>(shape.size()) - 3}});
  }

  // Columns of gate g of [batch, G*H], or of a bias.
  ValueId Gate(ValueId v, int g) {
    return n_.ok() ? Part(n_, v, n_.Rank(v) - 1, g * hidden_, (g + 1) * hidden_) : -1;
  }
  ValueId Product(ValueId x, ValueId matrix, ValueId bias) {
    const ValueId y = n_.Emit("matmul", {x, matrix});
    return bias < 0 ? y : n_.Emit("add", {y, bias});
  }
  ValueId Add(ValueId a, ValueId b) { return n_.Emit("add", {a, b}); }
  ValueId Mul(ValueId a, ValueId b) { return n_.Emit("mul", {a, b}); }
  ValueId Sigmoid(ValueId a) { return n_.Emit("sigmoid", {a}); }
  ValueId Tanh(ValueId a) { return n_.Emit("tanh", {a}); }

  State Step(const Direction& p, ValueId x, const State& s) {
    const ValueId from_x = Product(x, p.w, p.wb);
    if (gates_ == 1) return {Tanh(Add(from_x, Product(s.h, p.r, p.rb))), -1};
    return gates_ == 3 ? GruStep(p, from_x, s) : LstmStep(p, from_x, s);
  }

  // Gates z, r, h.
  State GruStep(const Direction& p, ValueId from_x, const State& s) {
    const ValueId from_h = Product(s.h, p.r, p.rb);
    const ValueId z = Sigmoid(Add(Gate(from_x, 0), Gate(from_h, 0)));
    const ValueId r = Sigmoid(Add(Gate(from_x, 1), Gate(from_h, 1)));
    ValueId recurrent;
    if (n_.Int("linear_before_reset", 0) != 0) {
      recurrent = Mul(r, Gate(from_h, 2));
    } else {
      recurrent = Product(Mul(r, s.h), Gate(p.r, 2), p.rb < 0 ? -1 : Gate(p.rb, 2));
    }
    const ValueId candidate = Tanh(Add(Gate(from_x, 2), recurrent));
    const ValueId kept = n_.Emit("sub", {n_.ScalarLike(1, z), z});
    return {Add(Mul(kept, candidate), Mul(z, s.h)), -1};
  }

  // Gates i, o, f, c; peepholes i, o, f.
  State LstmStep(const Direction& p, ValueId from_x, const State& s) {
    const ValueId all = Add(from_x, Product(s.h, p.r, p.rb));
    const auto gate = [&](int g, ValueId cell) {
      ValueId v = Gate(all, g);
      if (p.peephole >= 0) v = Add(v, Mul(Gate(p.peephole, g), cell));
      return Sigmoid(v);
    };
    const ValueId i = gate(0, s.c), f = gate(2, s.c);
    const ValueId c = Add(Mul(f, s.c), Mul(i, Tanh(Gate(all, 3))));
    return {Mul(gate(1, c), Tanh(c)), c};
  }

  NodeImport& n_;
  const int gates_;
  ValueId x_ = -1;  // [time, batch, in]
  int64_t length_ = 0, batch_ = 0, hidden_ = 0;
  int directions_ = 1;
  bool batch_first_ = false;
};

void Rnn(NodeImport& n) { Recurrence(n, 1).Run(); }
void Gru(NodeImport& n) { Recurrence(n, 3).Run(); }
void Lstm(NodeImport& n) { Recurrence(n, 4).Run(); }

}  // namespace

void AddRecurrentTranslations(TranslationTable& table) {
  table["RNN"] = Rnn;
  table["GRU"] = Gru;
  table["LSTM"] = Lstm;
}

}  // namespace heddle::graph
