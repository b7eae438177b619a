#include "tests/codegen/cuda/tensor_programs.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/backend.h"
#include "compiler/graph/core/operator.h"
#include "compiler/graph/fusion/fuse.h"
#include "compiler/ir/text.h"
#include "compiler/ir/verify/verifier.h"
#include "compiler/schedule/trace.h"

namespace heddle::testing {

using ir::DType;

ir::Program Product(const Shape& s) {
  const std::string type(ir::Name(s.type));
  const bool half = s.type != DType::kF32;
  const std::string result = s.half_result ? type : "f32";
  const auto single = [&](const std::string& load) { return half ? "f32(" + load + ")" : load; };
  const std::string sum = "max((s[x2, z2] + c[z2]), 0.0)";
  const std::string text = absl::StrCat(
      "program p(a: ", type, "[", s.a_transposed ? s.k : s.m, ", ", s.a_transposed ? s.m : s.k,
      "], b: ", type, "[", s.b_transposed ? s.n : s.k, ", ", s.b_transposed ? s.k : s.n,
      "] const, c: f32[", s.n, "]) -> (y: ", result, "[", s.m, ", ", s.n, "]) {\n alloc s: f32[",
      s.m, ", ", s.n, "] global {\n for i in ", s.m, " { for j in ", s.n, " { for r in ", s.k,
      " { block dot(x < ", s.m, " spatial = i, z < ", s.n, " spatial = j, q < ", s.k,
      " reduce = r) sum init 0.0 { s[x, z] = (", single(s.a_transposed ? "a[q, x]" : "a[x, q]"),
      " * ", single(s.b_transposed ? "b[z, q]" : "b[q, z]"), ") } } } }\n for i2 in ", s.m,
      " { for j2 in ", s.n, " { block add(x2 < ", s.m, " spatial = i2, z2 < ", s.n,
      " spatial = j2) { y[x2, z2] = ", s.half_result ? type + "(" + sum + ")" : sum, " } } } } }");
  auto program = ir::Parse(text);
  EXPECT_TRUE(program.ok()) << program.status() << text;
  EXPECT_TRUE(ir::Verify(*program).ok()) << ir::Verify(*program);
  return *program;
}

ir::Program Convolution(const Image& c) {
  const std::vector<graph::TensorType> types = {
      {c.type, {1, c.size, c.size, c.inputs}}, {c.type, {c.kernel, c.kernel, c.inputs, c.outputs}}};
  const int64_t pad = c.kernel / 2;
  const graph::Attrs attrs = {{"layout", std::string("channels_last")},
                              {"strides", std::vector<int64_t>{c.stride, c.stride}},
                              {"pads", std::vector<int64_t>{pad, pad, pad, pad}}};
  graph::Graph graph;
  graph.values = {{"x", types[0]},
                  {"w", types[1]},
                  {"y", graph::InferType(graph::OpKind::kConv2d, types, attrs).value()}};
  graph.inputs = {0};
  graph.constants[1] = {types[1], nullptr};
  graph.outputs = {2};
  graph.nodes = {{graph::OpKind::kConv2d, "conv2d", {0, 1}, {2}, attrs}};
  const auto fused = graph::Fuse(std::move(graph));
  EXPECT_TRUE(fused.ok()) << fused.status();
  return *ir::Parse(fused->groups[0].workload);
}

machine::TargetInfo Tf32Target() {
  return *codegen::DescribeTarget(*ParseTarget("cuda -arch=sm_90 -tf32=on"));
}

bool HasTensorLoop(const ir::Program& program) {
  return ir::Print(program).find(" tensor {") != std::string::npos;
}

ir::Program Default(const Shape& shape) {
  const ir::Program naive = Product(shape);
  const auto trace = schedule::DefaultTrace(naive, Tf32Target());
  EXPECT_TRUE(trace.ok()) << trace.status();
  auto lowered = LowerForGpu(naive, *trace);
  EXPECT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_TRUE(HasTensorLoop(*lowered)) << ir::Print(*lowered);
  return *lowered;
}

std::vector<HostTensor> FineInputs(const ir::Program& program) {
  std::vector<HostTensor> inputs = MakeInputs(program, 1);
  uint32_t state = 1;
  for (HostTensor& tensor : inputs) {
    for (int64_t i = 0; i < tensor.size(); ++i) {
      state = state * 1664525 + 1013904223;
      tensor.Set(i, static_cast<double>(state >> 8) / (1 << 23) - 1);
    }
  }
  return inputs;
}

}  // namespace heddle::testing
