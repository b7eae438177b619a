// The official operator models with random damage: dimensions, attributes, constants, wiring. The
// importer, the passes and fusion refuse or accept them; they do not crash, and what they accept is
// a legal graph.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <random>
#include <sstream>

#include "compiler/graph/fusion/fuse.h"
#include "compiler/graph/passes/passes.h"
#include "compiler/onnx/format/onnx_format.pb.h"
#include "compiler/onnx/import.h"
#include "tests/onnx/onnx_case.h"

namespace heddle::onnx_cases {
namespace {

using Rng = std::mt19937_64;

int64_t OddNumber(Rng& rng) {
  constexpr int64_t kNumbers[] = {
      -1, 0, 1, 2, 3, -2, 7, 1000, 1 << 20, int64_t{1} << 40, INT64_MAX, INT64_MIN, -1000};
  return kNumbers[rng() % std::size(kNumbers)];
}

void DamageAttribute(onnx::NodeProto& node, Rng& rng) {
  if (node.attribute_size() == 0) return;
  auto* a = node.mutable_attribute(static_cast<int>(rng() % node.attribute_size()));
  if (a->has_i()) a->set_i(OddNumber(rng));
  if (a->has_f()) a->set_f(static_cast<float>(OddNumber(rng)));
  if (a->ints_size() > 0 && rng() % 4 == 0)
    a->add_ints(OddNumber(rng));
  else if (a->ints_size() > 0)
    a->set_ints(static_cast<int>(rng() % a->ints_size()), OddNumber(rng));
  if (a->has_s() && rng() % 2) a->set_s("nonsense");
}

void DamageTensor(onnx::TensorProto& t, Rng& rng) {
  if (t.dims_size() > 0 && rng() % 4 == 0)
    t.set_dims(static_cast<int>(rng() % t.dims_size()), OddNumber(rng));
  if (t.data_type() == onnx::TensorProto::INT64 && t.has_raw_data() && t.raw_data().size() >= 8) {
    const int64_t v = OddNumber(rng);
    t.mutable_raw_data()->replace(rng() % (t.raw_data().size() / 8) * 8, 8,
                                  reinterpret_cast<const char*>(&v), 8);
  }
}

void Damage(onnx::ModelProto& m, Rng& rng) {
  auto* graph = m.mutable_graph();
  auto* node = graph->mutable_node(static_cast<int>(rng() % graph->node_size()));
  switch (rng() % 6) {
    case 0:
    case 1:
      return DamageAttribute(*node, rng);
    case 2:
      if (graph->initializer_size() > 0)
        DamageTensor(
            *graph->mutable_initializer(static_cast<int>(rng() % graph->initializer_size())), rng);
      return;
    case 3: {
      if (graph->input_size() == 0) return;
      auto* type = graph->mutable_input(static_cast<int>(rng() % graph->input_size()))
                       ->mutable_type()
                       ->mutable_tensor_type();
      if (type->shape().dim_size() == 0)
        return type->mutable_shape()->add_dim()->set_dim_value(OddNumber(rng));
      return type->mutable_shape()
          ->mutable_dim(static_cast<int>(rng() % type->shape().dim_size()))
          ->set_dim_value(OddNumber(rng));
    }
    case 4:
      if (node->input_size() > 0)
        node->set_input(static_cast<int>(rng() % node->input_size()),
                        rng() % 2                         ? ""
                        : graph->node(0).input_size() > 0 ? graph->node(0).input(0)
                                                          : "x");
      return;
    default:
      if (m.opset_import_size() > 0)
        m.mutable_opset_import(0)->set_version(static_cast<int64_t>(1 + rng() % 17));
  }
}

onnx::ModelProto WithConstants(const std::string& folder, Rng& rng) {
  onnx::ModelProto m;
  std::ifstream file(folder + "/model.onnx", std::ios::binary);
  m.ParseFromIstream(&file);
  // Inputs become constants at random, so that damage reaches shapes and axes too.
  onnx::ModelProto out = m;
  out.mutable_graph()->clear_input();
  for (int i = 0; i < m.graph().input_size(); ++i) {
    std::ifstream data(folder + "/test_data_set_0/input_" + std::to_string(i) + ".pb",
                       std::ios::binary);
    onnx::TensorProto tensor;
    const bool tensor_type = m.graph().input(i).type().has_tensor_type();
    if (rng() % 3 != 0 && tensor_type && tensor.ParseFromIstream(&data)) {
      tensor.set_name(m.graph().input(i).name());
      *out.mutable_graph()->add_initializer() = tensor;
    } else {
      *out.mutable_graph()->add_input() = m.graph().input(i);
    }
  }
  return out;
}

TEST(OnnxDamage, NothingCrashes) {
  const std::vector<std::string> cases = ListCases();
  ASSERT_FALSE(cases.empty()) << "no cases in " << kCaseFolder << ": install libonnx-testdata";
  const char* rounds_text = std::getenv("HEDDLE_DAMAGE_ROUNDS");
  const int rounds = rounds_text != nullptr ? std::atoi(rounds_text) : 3;
  const char* only = std::getenv("HEDDLE_ONNX_CASE");
  int accepted = 0, refused = 0;
  for (int round = 0; round < rounds; ++round) {
    for (const std::string& name : cases) {
      if (only != nullptr && name.find(only) == std::string::npos) continue;
      const uint64_t seed = std::hash<std::string>()(name) + static_cast<uint64_t>(round);
      SCOPED_TRACE(testing::Message() << name << " seed " << seed);
      Rng rng(seed);
      onnx::ModelProto m = WithConstants(std::string(kCaseFolder) + "/" + name, rng);
      if (m.graph().node_size() == 0) continue;
      if (std::getenv("HEDDLE_DAMAGE_VERBOSE") != nullptr)
        std::fprintf(stderr, "%s %d\n", name.c_str(), round);
      for (uint64_t k = 0; k <= rng() % 2; ++k) Damage(m, rng);
      auto graph = graph::ImportOnnx(m.SerializeAsString());
      if (!graph.ok()) {
        ++refused;
        EXPECT_TRUE(absl::IsInvalidArgument(graph.status()) ||
                    absl::IsUnimplemented(graph.status()))
            << graph.status();
        continue;
      }
      ++accepted;
      auto optimized = graph::Optimize(*graph);
      ASSERT_TRUE(optimized.ok()) << optimized.status();
      auto fused = graph::Fuse(*optimized);
      EXPECT_TRUE(fused.ok()) << fused.status();
    }
  }
  EXPECT_GT(accepted + refused, 0) << "no case is named so";
  std::printf("damaged models: %d accepted, %d refused\n", accepted, refused);
}

}  // namespace
}  // namespace heddle::onnx_cases
