#include "absl/strings/str_cat.h"
#include "client/zoo/models.h"

namespace heddle::zoo {

void WriteMlp(ModelWriter& m) {
  std::string x = m.Input("input", {1, 784});
  x = m.Relu(m.Dense(x, "fc1", 784, 512), "relu1");
  x = m.Relu(m.Dense(x, "fc2", 512, 256), "relu2");
  x = m.Softmax(m.Dense(x, "fc3", 256, 10), "softmax");
  m.Output(x, "probabilities", {1, 10});
}

// Howard et al., "MobileNets", table 1, width 1.0; ReLU6 as in the authors' implementation.
void WriteMobilenetV1(ModelWriter& m) {
  std::string x = m.Input("input", {1, 3, 224, 224});
  x = m.Relu6(m.ConvBn(x, "conv1", 3, 32, 3, 2), "conv1.relu6");
  struct Block {
    int64_t out, stride;
  };
  const Block blocks[] = {{64, 1},  {128, 2}, {128, 1}, {256, 2}, {256, 1},  {512, 2}, {512, 1},
                          {512, 1}, {512, 1}, {512, 1}, {512, 1}, {1024, 2}, {1024, 1}};
  int64_t channels = 32;
  for (size_t i = 0; i < std::size(blocks); ++i) {
    const std::string name = absl::StrCat("block", i + 1);
    x = m.Relu6(m.ConvBn(x, name + ".depthwise", channels, channels, 3, blocks[i].stride, channels),
                name + ".depthwise.relu6");
    x = m.Relu6(m.ConvBn(x, name + ".pointwise", channels, blocks[i].out, 1, 1),
                name + ".pointwise.relu6");
    channels = blocks[i].out;
  }
  x = m.Softmax(m.Dense(m.GlobalPoolFlatten(x), "fc", 1024, 1000), "softmax");
  m.Output(x, "probabilities", {1, 1000});
}

// Sandler et al., "MobileNetV2", table 2, width 1.0.
void WriteMobilenetV2(ModelWriter& m) {
  std::string x = m.Input("input", {1, 3, 224, 224});
  x = m.Relu6(m.ConvBn(x, "conv1", 3, 32, 3, 2), "conv1.relu6");
  struct Stage {
    int64_t expansion, out, repeats, stride;
  };
  const Stage stages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                          {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
  int64_t channels = 32;
  int index = 0;
  for (const Stage& stage : stages) {
    for (int64_t repeat = 0; repeat < stage.repeats; ++repeat) {
      const std::string name = absl::StrCat("block", ++index);
      const int64_t stride = repeat == 0 ? stage.stride : 1, hidden = channels * stage.expansion;
      std::string y = x;
      if (stage.expansion != 1) {
        y = m.Relu6(m.ConvBn(y, name + ".expand", channels, hidden, 1, 1), name + ".expand.relu6");
      }
      y = m.Relu6(m.ConvBn(y, name + ".depthwise", hidden, hidden, 3, stride, hidden),
                  name + ".depthwise.relu6");
      y = m.ConvBn(y, name + ".project", hidden, stage.out, 1, 1);
      x = stride == 1 && channels == stage.out ? m.Add(y, x, name + ".add") : y;
      channels = stage.out;
    }
  }
  x = m.Relu6(m.ConvBn(x, "conv2", 320, 1280, 1, 1), "conv2.relu6");
  m.Output(m.Dense(m.GlobalPoolFlatten(x), "fc", 1280, 1000), "logits", {1, 1000});
}

// Mnih et al., "Human-level control through deep reinforcement learning", methods; all 18 actions.
void WriteDqn(ModelWriter& m) {
  std::string x = m.Input("frames", {1, 4, 84, 84});
  x = m.Relu(m.ConvBias(x, "conv1", {4, 32, 8, 8, 4}), "relu1");
  x = m.Relu(m.ConvBias(x, "conv2", {32, 64, 4, 4, 2}), "relu2");
  x = m.Relu(m.ConvBias(x, "conv3", {64, 64, 3, 3, 1}), "relu3");
  x = m.Flatten(x, "flatten");
  x = m.Relu(m.Dense(x, "fc1", 64 * 7 * 7, 512), "relu4");
  m.Output(m.Dense(x, "fc2", 512, 18), "values", {1, 18});
}

// Radford et al., "Unsupervised representation learning with deep convolutional generative
// adversarial networks", figure 1, with the 4x4 kernels that tile without overlap gaps.
void WriteDcgan(ModelWriter& m) {
  constexpr int64_t kKernel = 4, kStride = 2;
  std::string x = m.Input("noise", {1, 100});
  x = m.Dense(x, "project", 100, 1024 * 4 * 4);
  x = m.Op("Reshape", "reshape", {x, m.Ints("reshape.shape", {1, 1024, 4, 4})});
  x = m.Relu(m.BatchNorm(x, "project.bn", 1024), "project.relu");
  const int64_t channels[] = {1024, 512, 256, 128, 3};
  for (int i = 0; i < 4; ++i) {
    const std::string name = absl::StrCat("deconv", i + 1);
    const int64_t in = channels[i], out = channels[i + 1];
    // Each output meets a quarter of the taps.
    const std::string weight = m.RectifierWeight(name + ".weight", {in, out, kKernel, kKernel},
                                                 in * kKernel * kKernel / (kStride * kStride));
    x = m.Op("ConvTranspose", name, {x, weight},
             {{"kernel_shape", ModelWriter::Dims{kKernel, kKernel}},
              {"pads", ModelWriter::Dims{1, 1, 1, 1}},
              {"strides", ModelWriter::Dims{kStride, kStride}}});
    if (i < 3) x = m.Relu(m.BatchNorm(x, name + ".bn", out), name + ".relu");
  }
  m.Output(m.Op("Tanh", "tanh", {x}), "image", {1, 3, 64, 64});
}

}  // namespace heddle::zoo
