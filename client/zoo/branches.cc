#include "absl/strings/str_cat.h"
#include "client/zoo/models.h"

namespace heddle::zoo {

// Iandola et al., "SqueezeNet", table 1: version 1.0, without the bypasses.
void WriteSqueezenet(ModelWriter& m) {
  std::string x = m.Input("input", {1, 3, 224, 224});
  x = m.Relu(m.ConvBias(x, "conv1", {3, 96, 7, 7, 2}), "conv1.relu");
  x = m.MaxPool(x, "maxpool1", 3, 2, 0, true);
  constexpr int64_t kSqueezed[] = {16, 16, 32, 32, 48, 48, 64, 64};
  int64_t channels = 96;
  for (int i = 0; i < 8; ++i) {
    const std::string name = absl::StrCat("fire", i + 2);
    const int64_t squeezed = kSqueezed[i], expanded = 4 * squeezed;
    const std::string s =
        m.Relu(m.ConvBias(x, name + ".squeeze", {channels, squeezed}), name + ".squeeze.relu");
    const std::string one =
        m.Relu(m.ConvBias(s, name + ".expand1", {squeezed, expanded}), name + ".expand1.relu");
    const std::string three =
        m.Relu(m.ConvBias(s, name + ".expand3", {squeezed, expanded, 3, 3, 1, 1, 1}),
               name + ".expand3.relu");
    x = m.Concat({one, three}, name + ".concat", 1);
    if (i == 2 || i == 6) x = m.MaxPool(x, absl::StrCat("maxpool", i + 2), 3, 2, 0, true);
    channels = 2 * expanded;
  }
  x = m.Relu(m.ConvBias(x, "conv10", {512, 1000}), "conv10.relu");
  m.Output(m.GlobalPoolFlatten(x), "logits", {1, 1000});
}

namespace {

// Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", figures 5 to 7 and
// table 1, in the dimensions of the authors' implementation; without the auxiliary classifier.
class Inception {
 public:
  explicit Inception(ModelWriter& m) : m_(m) {}

  void Write() {
    x_ = m_.Input("input", {1, 3, 299, 299});
    channels_ = 3;
    Stem();
    for (int64_t pooled : {32, 64, 64}) Thirty(pooled);
    ReduceToSeventeen();
    for (int64_t middle : {128, 160, 160, 192}) Seventeen(middle);
    ReduceToEight();
    Eight();
    Eight();
    m_.Output(m_.Dense(m_.GlobalPoolFlatten(x_), "fc", channels_, 1000), "logits", {1, 1000});
  }

 private:
  struct Value {
    std::string name;
    int64_t channels;
  };

  // Convolution, batch normalisation, rectifier.
  Value Layer(const Value& x, int64_t out, int64_t kernel_h, int64_t kernel_w, int64_t stride = 1,
              bool padded = true) {
    const std::string name = absl::StrCat("block", block_, ".conv", ++layer_);
    const std::string y = m_.Conv(x.name, name,
                                  {x.channels, out, kernel_h, kernel_w, stride,
                                   padded ? kernel_h / 2 : 0, padded ? kernel_w / 2 : 0});
    return {m_.Relu(m_.BatchNorm(y, name + ".bn", out, 1e-3f), name + ".relu"), out};
  }
  Value Square(const Value& x, int64_t out, int64_t kernel) {
    return Layer(x, out, kernel, kernel);
  }
  Value Halved(const Value& x, int64_t out) { return Layer(x, out, 3, 3, 2, false); }
  Value Pooled() {
    return {m_.AveragePool(x_, absl::StrCat("block", block_, ".pool"), 3, 1, 1), channels_};
  }
  Value Now() const { return {x_, channels_}; }

  void Join(const std::vector<Value>& parts) {
    std::vector<std::string> names;
    channels_ = 0;
    for (const Value& part : parts) {
      names.push_back(part.name);
      channels_ += part.channels;
    }
    x_ = m_.Concat(names, absl::StrCat("block", block_, ".concat"), 1);
    ++block_;
    layer_ = 0;
  }

  void Stem() {
    Value x = Layer(Now(), 32, 3, 3, 2, false);
    x = Square(Layer(x, 32, 3, 3, 1, false), 64, 3);
    x.name = m_.MaxPool(x.name, "stem.pool1", 3, 2, 0);
    x = Layer(Square(x, 80, 1), 192, 3, 3, 1, false);
    x_ = m_.MaxPool(x.name, "stem.pool2", 3, 2, 0);
    channels_ = 192;
    block_ = 1;
    layer_ = 0;
  }

  void Thirty(int64_t pooled) {
    const Value one = Square(Now(), 64, 1);
    const Value five = Square(Square(Now(), 48, 1), 64, 5);
    const Value threes = Square(Square(Square(Now(), 64, 1), 96, 3), 96, 3);
    Join({one, five, threes, Square(Pooled(), pooled, 1)});
  }

  void ReduceToSeventeen() {
    const Value three = Halved(Now(), 384);
    const Value threes = Halved(Square(Square(Now(), 64, 1), 96, 3), 96);
    Join({three, threes, {m_.MaxPool(x_, "reduce1.pool", 3, 2, 0), channels_}});
  }

  void Seventeen(int64_t middle) {
    const Value one = Square(Now(), 192, 1);
    const Value seven = Layer(Layer(Square(Now(), middle, 1), middle, 1, 7), 192, 7, 1);
    Value sevens = Layer(Layer(Square(Now(), middle, 1), middle, 7, 1), middle, 1, 7);
    sevens = Layer(Layer(sevens, middle, 7, 1), 192, 1, 7);
    Join({one, seven, sevens, Square(Pooled(), 192, 1)});
  }

  void ReduceToEight() {
    const Value three = Halved(Square(Now(), 192, 1), 320);
    const Value seven = Halved(Layer(Layer(Square(Now(), 192, 1), 192, 1, 7), 192, 7, 1), 192);
    Join({three, seven, {m_.MaxPool(x_, "reduce2.pool", 3, 2, 0), channels_}});
  }

  void Eight() {
    const Value one = Square(Now(), 320, 1), three = Square(Now(), 384, 1);
    const Value three_a = Layer(three, 384, 1, 3), three_b = Layer(three, 384, 3, 1);
    const Value threes = Square(Square(Now(), 448, 1), 384, 3);
    const Value threes_a = Layer(threes, 384, 1, 3), threes_b = Layer(threes, 384, 3, 1);
    Join({one, three_a, three_b, threes_a, threes_b, Square(Pooled(), 192, 1)});
  }

  ModelWriter& m_;
  std::string x_;
  int64_t channels_ = 0;
  int block_ = 0, layer_ = 0;
};

// Zoph et al., "Learning Transferable Architectures for Scalable Image Recognition", figures 2 and
// 4: NASNet-A with 44 filters (1056 at the end) and one normal cell a stage where the paper's
// mobile network has four.
class Nasnet {
 public:
  explicit Nasnet(ModelWriter& m) : m_(m) {}

  void Write() {
    const std::string input = m_.Input("input", {1, 3, 224, 224});
    const Value stem{m_.BatchNorm(m_.Conv(input, "stem", {3, 32, 3, 3, 2}), "stem.bn", 32), 32,
                     111};
    constexpr int64_t kFilters = 44;
    const Value reduced1 = Reduction(stem, stem, kFilters / 4);
    const Value reduced2 = Reduction(reduced1, stem, kFilters / 2);
    Value before = reduced1, now = reduced2;
    for (int64_t filters : {kFilters, 2 * kFilters, 4 * kFilters}) {
      if (filters != kFilters) {
        const Value reduced = Reduction(now, before, filters);
        before = now;
        now = reduced;
      }
      const Value cell = Normal(now, before, filters);
      before = now;
      now = cell;
    }
    const std::string pooled = m_.GlobalPoolFlatten(m_.Relu(now.name, "relu"));
    m_.Output(m_.Dense(pooled, "fc", now.channels, 1000), "logits", {1, 1000});
  }

 private:
  struct Value {
    std::string name;
    int64_t channels, extent;
  };

  std::string Name(const std::string& what) { return absl::StrCat("cell", cell_, ".", what); }

  // 1x1 convolution to the cell's number of filters.
  std::string Squeeze(const Value& x, const std::string& what, int64_t filters) {
    const std::string name = Name(what);
    return m_.ConvBn(m_.Relu(x.name, name + ".relu"), name, x.channels, filters, 1, 1);
  }

  // The result of the cell before the last, in the shape of the last one's: two 1x1 convolutions
  // over every second pixel, one of them shifted by one.
  std::string Fitted(const Value& x, const Value& like, int64_t filters) {
    if (x.extent == like.extent) {
      return x.channels == filters ? x.name : Squeeze(x, "fit", filters);
    }
    const std::string name = Name("fit"), rectified = m_.Relu(x.name, name + ".relu");
    const std::string even = m_.AveragePool(rectified, name + ".pool1", 1, 2, 0);
    const std::string padded =
        m_.Op("Pad", name + ".pad", {rectified, m_.Ints(name + ".pads", {0, 0, 0, 0, 0, 0, 1, 1})});
    const std::string shifted =
        m_.Op("Slice", name + ".shift",
              {padded, m_.Ints(name + ".starts", {1, 1}),
               m_.Ints(name + ".ends", {1 << 20, 1 << 20}), m_.Ints(name + ".axes", {2, 3})});
    const std::string odd = m_.AveragePool(shifted, name + ".pool2", 1, 2, 0);
    const std::string a = m_.Conv(even, name + ".conv1", {x.channels, filters / 2});
    const std::string b = m_.Conv(odd, name + ".conv2", {x.channels, filters - filters / 2});
    return m_.BatchNorm(m_.Concat({a, b}, name + ".concat", 1), name + ".bn", filters);
  }

  // Twice: rectifier, depthwise and pointwise convolution, batch normalisation.
  std::string Separable(const std::string& x, int64_t filters, int64_t kernel, int64_t stride) {
    const std::string name = Name(absl::StrCat("separable", ++layer_));
    std::string y = x;
    for (int i = 1; i <= 2; ++i) {
      const std::string part = absl::StrCat(name, ".", i);
      y = m_.Conv(
          m_.Relu(y, part + ".relu"), part + ".depthwise",
          {filters, filters, kernel, kernel, i == 1 ? stride : 1, kernel / 2, kernel / 2, filters});
      y = m_.BatchNorm(m_.Conv(y, part + ".pointwise", {filters, filters}), part + ".bn", filters);
    }
    return y;
  }
  std::string Average(const std::string& x, int64_t stride) {
    return m_.AveragePool(x, Name(absl::StrCat("average", ++layer_)), 3, stride, 1);
  }
  std::string Sum(const std::string& a, const std::string& b) {
    return m_.Add(a, b, Name(absl::StrCat("add", ++layer_)));
  }

  Value Normal(const Value& now, const Value& before, int64_t filters) {
    Begin();
    const std::string p = Fitted(before, now, filters), h = Squeeze(now, "squeeze", filters);
    const std::string h5 = Separable(h, filters, 5, 1), p3 = Separable(p, filters, 3, 1);
    const std::string p5 = Separable(p, filters, 5, 1), q3 = Separable(p, filters, 3, 1);
    const std::string h3 = Separable(h, filters, 3, 1);
    const std::string ha = Average(h, 1), pa = Average(p, 1), pb = Average(p, 1);
    const std::string b1 = Sum(h5, p3), b2 = Sum(p5, q3), b3 = Sum(ha, p), b4 = Sum(pa, pb),
                      b5 = Sum(h3, h);
    return {m_.Concat({p, b1, b2, b3, b4, b5}, Name("concat"), 1), 6 * filters, now.extent};
  }

  Value Reduction(const Value& now, const Value& before, int64_t filters) {
    Begin();
    const std::string p = Fitted(before, now, filters), h = Squeeze(now, "squeeze", filters);
    const std::string h5 = Separable(h, filters, 5, 2), p7 = Separable(p, filters, 7, 2);
    const std::string q7 = Separable(p, filters, 7, 2), p5 = Separable(p, filters, 5, 2);
    const std::string largest = m_.MaxPool(h, Name("max"), 3, 2, 1), ha = Average(h, 2);
    const std::string b1 = Sum(h5, p7), b2 = Sum(largest, q7), b3 = Sum(ha, p5);
    const std::string b1a = Average(b1, 1), b4 = Sum(b1a, b2);
    const std::string b13 = Separable(b1, filters, 3, 1), b5 = Sum(b13, largest);
    return {m_.Concat({b2, b3, b4, b5}, Name("concat"), 1), 4 * filters, (now.extent + 1) / 2};
  }

  void Begin() {
    ++cell_;
    layer_ = 0;
  }

  ModelWriter& m_;
  int cell_ = 0, layer_ = 0;
};

}  // namespace

void WriteInceptionV3(ModelWriter& m) { Inception(m).Write(); }
void WriteNasnetA(ModelWriter& m) { Nasnet(m).Write(); }

}  // namespace heddle::zoo
