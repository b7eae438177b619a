// Random inputs: a walk through random tables goes down trees, as a real one does.
#include "compiler/measure/random_input.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/fusion/fuse.h"
#include "compiler/ir/text.h"

namespace heddle::internal {
namespace {

using graph::TensorType;
using graph::ValueId;

constexpr int64_t kColumns = 28, kRecords = 200, kTrees = 5;

// The kernel of a forest. Its inputs are p0: records, p1: columns, p2: thresholds, p3: left children, p4: values.
ir::Program Walk(int64_t nodes, int64_t steps) {
  graph::GraphBuilder b;
  const auto constant = [&](const char* name, ir::DType dtype, std::vector<int64_t> shape) {
    const TensorType type{dtype, std::move(shape)};
    std::string zeros(static_cast<size_t>(NumElements(type) * ir::SizeOf(dtype)), '\0');
    return b.Constant(name, {type, SharedBytes::Of(std::move(zeros))});
  };
  const std::vector<int64_t> table{1, kTrees, nodes};
  const std::vector<ValueId> inputs{b.Input("x", {ir::DType::kF32, {kColumns, kRecords}}),
                                    constant("columns", ir::DType::kI32, table),
                                    constant("thresholds", ir::DType::kF32, table),
                                    constant("left", ir::DType::kI32, table),
                                    constant("values", ir::DType::kF32, {1, kTrees, nodes, 1})};
  const ValueId y = b.Add(graph::OpKind::kForestWalk, inputs, {{"steps", steps}}, "y").value();
  return graph::Fuse(b.Build({{"y", y}}).value()).value().groups.at(0).naive;
}

const ir::Buffer& InputOf(const ir::Program& program, std::string_view name) {
  for (const ir::BufferRef& buffer : program.inputs) {
    if (buffer->name == name) return *buffer;
  }
  ADD_FAILURE() << "no input " << name;
  return *program.inputs[0];
}

class Filled {
 public:
  Filled(const ir::Program& program, uint64_t seed) {
    SplitMix random(seed);
    for (const ir::BufferRef& buffer : program.inputs) {
      std::string& bytes = bytes_[buffer->name];
      bytes.resize(static_cast<size_t>(buffer->SizeBytes()));
      FillInput(program, *buffer, bytes.data(), random);
    }
  }
  template <typename T>
  T At(const std::string& name, int64_t element) const {
    T value;
    std::memcpy(&value, bytes_.at(name).data() + static_cast<size_t>(element) * sizeof(T),
                sizeof(T));
    return value;
  }

 private:
  std::map<std::string, std::string> bytes_;
};

// Takes all walks, and calls see(step, from, to) for each step.
template <typename See>
void TakeWalks(const Filled& filled, int64_t nodes, int64_t steps, const See& see) {
  for (int64_t tree = 0; tree < kTrees; ++tree) {
    for (int64_t record = 0; record < kRecords; ++record) {
      int64_t at = 0;
      for (int64_t step = 0; step < steps; ++step) {
        const int64_t entry = tree * nodes + at;
        const auto column = filled.At<int32_t>("p1", entry);
        ASSERT_GE(column, 0);
        ASSERT_LT(column, kColumns);
        const bool right =
            filled.At<float>("p2", entry) <= filled.At<float>("p0", column * kRecords + record);
        const int64_t to = filled.At<int32_t>("p3", entry) + (right ? 1 : 0);
        ASSERT_GE(to, 0);
        ASSERT_LT(to, nodes);
        see(step, at, to);
        at = to;
      }
    }
  }
}

TEST(FillInput, AWalkGoesDownACompleteTreeAndHalfTheTimeRight) {
  for (const int64_t steps : {2, 3, 6, 8}) {
    const int64_t nodes = int64_t{2} << steps;  // and one behind the last leaf
    const ir::Program program = Walk(nodes, steps);
    const Filled filled(program, static_cast<uint64_t>(steps));
    double right = 0, all = 0;
    TakeWalks(filled, nodes, steps, [&](int64_t step, int64_t from, int64_t to) {
      EXPECT_GE(from, (int64_t{1} << step) - 1);
      EXPECT_LT(from, (int64_t{2} << step) - 1) << "not a node of level " << step;
      EXPECT_TRUE(to == 2 * from + 1 || to == 2 * from + 2) << from << " to " << to;
      right += to == 2 * from + 2;
      ++all;
    });
    EXPECT_NEAR(right / all, 0.5, 0.1);
  }
}

TEST(FillInput, AWalkLongerThanTheTreeStaysInItAndNeverTurnsBack) {
  for (const int64_t nodes : {4, 5, 21, 128}) {
    const ir::Program program = Walk(nodes, 12);
    // What lies behind the last node that may be a left child leads back to that.
    TakeWalks(Filled(program, 1), nodes, 12,
              [&](int64_t, int64_t from, int64_t to) { EXPECT_GE(to, std::min(from, nodes - 2)); });
  }
}

TEST(FillInput, ColumnsAreSpreadOverTheirRange) {
  const int64_t nodes = 128;
  const ir::Program program = Walk(nodes, 6);
  const Filled filled(program, 3);
  std::map<int32_t, int> seen;
  for (int64_t i = 0; i < kTrees * nodes; ++i) ++seen[filled.At<int32_t>("p1", i)];
  EXPECT_EQ(seen.size(), static_cast<size_t>(kColumns));
}

TEST(LinkDimension, OnlyATableThatSaysWhereItIsReadNextIsWalked) {
  const ir::Program walk = Walk(64, 5);
  EXPECT_EQ(LinkDimension(walk, InputOf(walk, "p3")), 2);
  EXPECT_EQ(LinkDimension(walk, InputOf(walk, "p1")), -1);
  const ir::Program one_step = Walk(64, 1);
  EXPECT_EQ(LinkDimension(one_step, InputOf(one_step, "p3")), -1);
  const auto of_text = [](const std::string& value) {
    const auto program = ir::Parse(
        "program p(a: i32[8] < 8, b: i32[8] < 8) -> (y: i32[8]) { "
        "for i in 8 { y[i] = " +
        value + " } }");
    EXPECT_TRUE(program.ok()) << program.status();
    return LinkDimension(*program, *program->inputs[0]);
  };
  EXPECT_EQ(of_text("a[i64(a[i])]"), 0);
  EXPECT_EQ(of_text("a[i64(select((b[i] < 3i32), a[i], 0i32))]"), 0);
  EXPECT_EQ(of_text("b[i64(a[i])]"), -1);
  EXPECT_EQ(of_text("a[i64(b[i64(a[i])])]"), -1) << "an element of b is no element of a";
  EXPECT_EQ(of_text("a[i64(select((a[i] < 3i32), 1i32, 0i32))]"), -1) << "a only chooses";
}

}  // namespace
}  // namespace heddle::internal
