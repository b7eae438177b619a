#include "absl/strings/str_cat.h"
#include "client/zoo/models.h"

namespace heddle::zoo {
namespace {

// The first layers of all models in this file: 7x7 convolution and pooling.
std::string Stem(ModelWriter& m) {
  const std::string x = m.Input("input", {1, 3, 224, 224});
  return m.MaxPool(m.Relu(m.ConvBn(x, "conv1", 3, 64, 7, 2), "relu1"), "maxpool", 3, 2, 1);
}

// 50 layers of bottleneck blocks; the 3x3 convolution has `groups` groups and width << stage
// channels. It also has the stride, not the 1x1 convolution before it, as in current frameworks.
void Bottlenecks(ModelWriter& m, int64_t groups, int64_t width) {
  std::string x = Stem(m);
  constexpr int kBlocks[] = {3, 4, 6, 3};
  int64_t channels = 64;
  for (int stage = 0; stage < 4; ++stage) {
    const int64_t out = int64_t{256} << stage, middle = width << stage;
    for (int block = 0; block < kBlocks[stage]; ++block) {
      const std::string name = absl::StrCat("layer", stage + 1, ".", block);
      const int64_t stride = stage > 0 && block == 0 ? 2 : 1;
      std::string y = m.Relu(m.ConvBn(x, name + ".conv1", channels, middle, 1, 1), name + ".relu1");
      y = m.Relu(m.ConvBn(y, name + ".conv2", middle, middle, 3, stride, groups), name + ".relu2");
      y = m.ConvBn(y, name + ".conv3", middle, out, 1, 1);
      // A projection where the shape changes, else the identity.
      if (block == 0) x = m.ConvBn(x, name + ".downsample", channels, out, 1, stride);
      x = m.Relu(m.Add(y, x, name + ".add"), name + ".relu3");
      channels = out;
    }
  }
  m.Output(m.Dense(m.GlobalPoolFlatten(x), "fc", 2048, 1000), "logits", {1, 1000});
}

}  // namespace

// He et al., "Deep Residual Learning for Image Recognition", table 1, 18 layers.
void WriteResnet18(ModelWriter& m) {
  std::string x = Stem(m);
  int64_t channels = 64;
  for (int stage = 0; stage < 4; ++stage) {
    const int64_t out = int64_t{64} << stage;
    for (int block = 0; block < 2; ++block) {
      const std::string name = absl::StrCat("layer", stage + 1, ".", block);
      const int64_t stride = stage > 0 && block == 0 ? 2 : 1;
      std::string y =
          m.Relu(m.ConvBn(x, name + ".conv1", channels, out, 3, stride), name + ".relu1");
      y = m.ConvBn(y, name + ".conv2", out, out, 3, 1);
      if (stride != 1) x = m.ConvBn(x, name + ".downsample", channels, out, 1, stride);
      x = m.Relu(m.Add(y, x, name + ".add"), name + ".relu2");
      channels = out;
    }
  }
  m.Output(m.Dense(m.GlobalPoolFlatten(x), "fc", 512, 1000), "logits", {1, 1000});
}

// The same table, 50 layers.
void WriteResnet50(ModelWriter& m) { Bottlenecks(m, 1, 64); }

// Xie et al., "Aggregated Residual Transformations for Deep Neural Networks", table 1, 32x4d.
void WriteResnext50(ModelWriter& m) { Bottlenecks(m, 32, 128); }

}  // namespace heddle::zoo
