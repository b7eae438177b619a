#include "absl/strings/str_cat.h"
#include "client/zoo/models.h"

namespace heddle::zoo {

// Zaremba et al., "Recurrent Neural Network Regularization": the medium language model, 650 units,
// two layers, 10,000 words. Tokens in, logits of the next word of every step out.
void WriteLstmLm(ModelWriter& m) {
  constexpr int64_t kSteps = 20, kHidden = 650, kWords = 10000;
  const std::string tokens = m.Input("tokens", {kSteps, 1}, onnx::TensorProto::INT64);
  const std::string table = m.Uniform("embedding.weight", {kWords, kHidden}, -1, 1);
  std::string x = m.Op("Gather", "embedding", {table, tokens});
  for (int layer = 1; layer <= 2; ++layer) {
    const std::string name = absl::StrCat("lstm", layer);
    const std::string w = m.LinearWeight(name + ".w", {1, 4 * kHidden, kHidden}, kHidden);
    const std::string r = m.LinearWeight(name + ".r", {1, 4 * kHidden, kHidden}, kHidden);
    const std::string b = m.Uniform(name + ".b", {1, 8 * kHidden}, -0.1f, 0.1f);
    const std::string y = m.Op("LSTM", name, {x, w, r, b}, {{"hidden_size", kHidden}});
    // [steps, directions, batch, hidden] without the directions.
    x = m.Op("Squeeze", name + ".squeeze", {y, m.Ints(name + ".axes", {1})});
  }
  x = m.Op("Reshape", "rows", {x, m.Ints("rows.shape", {kSteps, kHidden})});
  m.Output(m.Dense(x, "decoder", kHidden, kWords), "logits", {kSteps, kWords});
}

namespace {

// Zoph and Le, "Neural Architecture Search with Reinforcement Learning", figure 8: the recurrent
// cell found for Penn Treebank. Eight products of the input, eight of the hidden state, joined
// pairwise in a tree; the cell state enters after the first combination.
class NasCell {
 public:
  NasCell(ModelWriter& m, int64_t hidden) : m_(m) {
    for (int i = 0; i < 8; ++i) {
      from_x_.push_back(m_.LinearWeight(absl::StrCat("cell.x", i), {hidden, hidden}, hidden));
      from_h_.push_back(m_.LinearWeight(absl::StrCat("cell.h", i), {hidden, hidden}, hidden));
    }
  }

  void Step(int step, const std::string& x, std::string& h, std::string& c) {
    prefix_ = absl::StrCat("step", step, ".");
    node_ = 0;
    std::vector<std::string> leaf;
    for (int i = 0; i < 8; ++i) {
      const std::string a = Op("MatMul", {x, from_x_[i]}), b = Op("MatMul", {h, from_h_[i]});
      leaf.push_back(Op(i == 3 ? "Mul" : "Add", {a, b}));
    }
    constexpr const char* kLeaf[] = {"Sigmoid", "Relu",    "Sigmoid", "Relu",
                                     "Tanh",    "Sigmoid", "Tanh",    "Sigmoid"};
    for (int i = 0; i < 8; ++i) leaf[i] = Op(kLeaf[i], {leaf[i]});
    const std::string first = Op("Tanh", {Op("Mul", {leaf[0], leaf[1]})});
    const std::string second = Op("Tanh", {Op("Add", {leaf[2], leaf[3]})});
    const std::string third = Op("Tanh", {Op("Mul", {leaf[4], leaf[5]})});
    const std::string fourth = Op("Sigmoid", {Op("Add", {leaf[6], leaf[7]})});
    const std::string injected = Op("Tanh", {Op("Add", {first, c})});
    c = Op("Mul", {injected, second});
    const std::string right = Op("Tanh", {Op("Add", {third, fourth})});
    h = Op("Tanh", {Op("Mul", {c, right})});
  }

 private:
  std::string Op(const char* type, const std::vector<std::string>& inputs) {
    return m_.Op(type, absl::StrCat(prefix_, type, ++node_), inputs);
  }

  ModelWriter& m_;
  std::vector<std::string> from_x_, from_h_;
  std::string prefix_;
  int node_ = 0;
};

}  // namespace

// The cell unrolled over a sequence; the last hidden state and cell out.
void WriteNasRnn(ModelWriter& m) {
  constexpr int64_t kSteps = 10, kHidden = 512;
  const std::string input = m.Input("input", {kSteps, kHidden});
  std::string h = m.Input("hidden", {1, kHidden}), c = m.Input("cell", {1, kHidden});
  const std::vector<std::string> steps =
      m.Ops("Split", "steps", {input}, kSteps, {{"axis", int64_t{0}}});
  NasCell cell(m, kHidden);
  for (int step = 0; step < kSteps; ++step) cell.Step(step, steps[step], h, c);
  m.Output(h, "hidden_out", {1, kHidden});
  m.Output(c, "cell_out", {1, kHidden});
}

namespace {

// Devlin et al., "BERT", base: 12 layers, 768 wide, 12 heads, 30,522 word pieces. Normalisation and
// GELU are spelled out, as exporters of opset 13 write them.
class Bert {
 public:
  explicit Bert(ModelWriter& m) : m_(m) {}

  void Write() {
    constexpr int64_t kPieces = 30522, kPositions = 512, kSegments = 2;
    const std::string ids = m_.Input("input_ids", {1, kTokens}, onnx::TensorProto::INT64);
    const std::string mask = m_.Input("attention_mask", {1, kTokens}, onnx::TensorProto::INT64);
    const std::string segments = m_.Input("token_type_ids", {1, kTokens}, onnx::TensorProto::INT64);
    WriteConstants();
    std::string x = Embedding("embeddings.word", kPieces, ids);
    x = m_.Add(x, Embedding("embeddings.segment", kSegments, segments), "embeddings.add1");
    const std::string positions =
        m_.Op("Slice", "positions",
              {Table("embeddings.position", kPositions), m_.Ints("positions.begin", {0}),
               m_.Ints("positions.end", {kTokens}), m_.Ints("positions.axis", {0})});
    x = Norm(m_.Add(x, positions, "embeddings.add2"), "embeddings.norm");
    const std::string bias = MaskBias(mask);
    for (int layer = 0; layer < kLayers; ++layer) x = Layer(x, bias, absl::StrCat("layer", layer));
    const std::string first =
        m_.Op("Gather", "pooler.first", {x, m_.Ints("pooler.index", {0})}, {{"axis", int64_t{1}}});
    const std::string row =
        m_.Op("Reshape", "pooler.row", {first, m_.Ints("pooler.shape", {1, kWidth})});
    const std::string pooled =
        m_.Op("Tanh", "pooler.tanh", {Linear(row, "pooler.dense", kWidth, kWidth)});
    m_.Output(x, "last_hidden_state", {1, kTokens, kWidth});
    m_.Output(pooled, "pooler_output", {1, kWidth});
  }

 private:
  static constexpr int64_t kTokens = 128, kLayers = 12, kWidth = 768, kHeads = 12,
                           kDepth = kWidth / kHeads, kHidden = 4 * kWidth;

  void WriteConstants() {
    m_.Scalar("one", 1);
    m_.Scalar("two", 2);
    m_.Scalar("half", 0.5f);
    m_.Scalar("epsilon", 1e-12f);
    m_.Scalar("sqrt_two", 1.41421356237f);
    m_.Scalar("sqrt_depth", 8);
    m_.Scalar("masked", -10000);
    m_.Ints("split_heads", {1, kTokens, kHeads, kDepth});
    m_.Ints("join_heads", {1, kTokens, kWidth});
  }

  std::string Table(const std::string& name, int64_t rows) {
    return m_.Uniform(name + ".weight", {rows, kWidth}, -0.05f, 0.05f);
  }
  std::string Embedding(const std::string& name, int64_t rows, const std::string& indices) {
    return m_.Op("Gather", name, {Table(name, rows), indices});
  }

  // 0 where the mask is one, a large negative number elsewhere.
  std::string MaskBias(const std::string& mask) {
    std::string x = m_.Op("Unsqueeze", "mask.heads", {mask, m_.Ints("mask.axes", {1, 2})});
    x = m_.Op("Cast", "mask.cast", {x}, {{"to", int64_t{onnx::TensorProto::FLOAT}}});
    return m_.Op("Mul", "mask.bias", {m_.Op("Sub", "mask.invert", {"one", x}), "masked"});
  }

  std::string Linear(const std::string& x, const std::string& name, int64_t in, int64_t out) {
    const std::string weight = m_.LinearWeight(name + ".weight", {in, out}, in);
    const std::string y = m_.Op("MatMul", name, {x, weight});
    return m_.Add(y, m_.Uniform(name + ".bias", {out}, -0.1f, 0.1f), name + ".add");
  }

  std::string Norm(const std::string& x, const std::string& name) {
    const ModelWriter::Attributes last{{"axes", ModelWriter::Dims{-1}}};
    const std::string mean = m_.Op("ReduceMean", name + ".mean", {x}, last);
    const std::string centred = m_.Op("Sub", name + ".sub", {x, mean});
    const std::string square = m_.Op("Pow", name + ".pow", {centred, "two"});
    const std::string variance = m_.Op("ReduceMean", name + ".variance", {square}, last);
    const std::string deviation =
        m_.Op("Sqrt", name + ".sqrt", {m_.Add(variance, "epsilon", name + ".epsilon")});
    const std::string normal = m_.Op("Div", name + ".div", {centred, deviation});
    const std::string scaled =
        m_.Op("Mul", name + ".mul", {normal, m_.Uniform(name + ".weight", {kWidth}, 0.9f, 1.1f)});
    return m_.Add(scaled, m_.Uniform(name + ".bias", {kWidth}, -0.1f, 0.1f), name + ".add");
  }

  std::string Gelu(const std::string& x, const std::string& name) {
    const std::string erf =
        m_.Op("Erf", name + ".erf", {m_.Op("Div", name + ".div", {x, "sqrt_two"})});
    const std::string product = m_.Op("Mul", name + ".mul", {x, m_.Add(erf, "one", name + ".one")});
    return m_.Op("Mul", name + ".half", {product, "half"});
  }

  // [1, tokens, width] as [1, heads, ..] in the order of `perm`.
  std::string Heads(const std::string& x, const std::string& name, const ModelWriter::Dims& perm) {
    const std::string linear = Linear(x, name, kWidth, kWidth);
    const std::string split = m_.Op("Reshape", name + ".split", {linear, "split_heads"});
    return m_.Op("Transpose", name + ".transpose", {split}, {{"perm", perm}});
  }

  std::string Attention(const std::string& x, const std::string& bias, const std::string& name) {
    const std::string q = Heads(x, name + ".query", {0, 2, 1, 3});
    const std::string k = Heads(x, name + ".key", {0, 2, 3, 1});
    const std::string v = Heads(x, name + ".value", {0, 2, 1, 3});
    const std::string scores =
        m_.Op("Div", name + ".scale", {m_.Op("MatMul", name + ".scores", {q, k}), "sqrt_depth"});
    const std::string weights = m_.Softmax(m_.Add(scores, bias, name + ".mask"), name + ".softmax");
    const std::string mixed =
        m_.Op("Transpose", name + ".transpose", {m_.Op("MatMul", name + ".mix", {weights, v})},
              {{"perm", ModelWriter::Dims{0, 2, 1, 3}}});
    const std::string joined = m_.Op("Reshape", name + ".join", {mixed, "join_heads"});
    return Linear(joined, name + ".output", kWidth, kWidth);
  }

  std::string Layer(const std::string& x, const std::string& bias, const std::string& name) {
    const std::string attention = Attention(x, bias, name + ".attention");
    const std::string y =
        Norm(m_.Add(attention, x, name + ".attention.residual"), name + ".attention.norm");
    const std::string hidden =
        Gelu(Linear(y, name + ".intermediate", kWidth, kHidden), name + ".gelu");
    const std::string out = Linear(hidden, name + ".output", kHidden, kWidth);
    return Norm(m_.Add(out, y, name + ".residual"), name + ".norm");
  }

  ModelWriter& m_;
};

}  // namespace

void WriteBertBase(ModelWriter& m) { Bert(m).Write(); }

}  // namespace heddle::zoo
