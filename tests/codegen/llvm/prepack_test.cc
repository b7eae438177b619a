// What is computed when a module is made: the split itself, and that both halves together compute
// what the whole does, interpreted and as machine code, whatever the schedule.
#include "compiler/pass/hoist_constants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/codegen/backend.h"
#include "compiler/ir/text.h"
#include "compiler/ir/verify/verifier.h"
#include "compiler/pass/lower.h"
#include "compiler/schedule/space.h"
#include "compiler/tensor/expression.h"
#include "tests/codegen/kernel_runner.h"
#include "tests/schedule/workloads.h"

namespace heddle::pass {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::HostTensor;

ir::Program Parsed(const std::string& text) {
  absl::StatusOr<ir::Program> program = ir::Parse(text);
  EXPECT_TRUE(program.ok()) << program.status();
  return *program;
}

std::vector<std::string> Names(const std::vector<ir::BufferRef>& buffers) {
  std::vector<std::string> names;
  for (const ir::BufferRef& buffer : buffers) names.push_back(buffer->name);
  return names;
}

using Runner = std::function<absl::Status(const ir::Program&, const std::vector<HostTensor>&,
                                          std::vector<HostTensor>&)>;

absl::Status Interpret(const ir::Program& program, const std::vector<HostTensor>& inputs,
                       std::vector<HostTensor>& outputs) {
  return testing::RunInterpreter(program, inputs, outputs);
}

// Runs `prepack`, then `kernel`, which find their inputs by name.
absl::StatusOr<std::vector<HostTensor>> RunBoth(const HoistedProgram& hoisted,
                                                const ir::Program& whole,
                                                const std::vector<HostTensor>& inputs,
                                                const Runner& run) {
  std::map<std::string, HostTensor> memory;
  for (size_t i = 0; i < inputs.size(); ++i) memory.emplace(whole.inputs[i]->name, inputs[i]);
  std::vector<HostTensor> made;
  for (const ir::Program* program :
       {hoisted.prepack ? &*hoisted.prepack : nullptr, &hoisted.kernel}) {
    if (program == nullptr) continue;
    HEDDLE_RETURN_IF_ERROR(ir::Verify(*program));
    std::vector<HostTensor> given;
    for (const ir::BufferRef& input : program->inputs) {
      // Not a copy of the tensor: that would not be aligned.
      const std::byte* bytes = memory.at(input->name).data();
      std::copy(bytes, bytes + input->SizeBytes(), given.emplace_back(*input).data());
    }
    made = testing::MakeOutputs(*program);
    HEDDLE_RETURN_IF_ERROR(run(*program, given, made));
    for (size_t i = 0; i < made.size(); ++i) memory.emplace(program->outputs[i]->name, made[i]);
  }
  return made;
}

// Largest difference of the first outputs, relative to the largest expected magnitude.
double Difference(const HostTensor& expected, const HostTensor& found) {
  double difference = 0, scale = 1e-30;
  for (int64_t i = 0; i < expected.size(); ++i) {
    if (!std::isfinite(found.Get(i))) return INFINITY;
    difference = std::max(difference, std::fabs(expected.Get(i) - found.Get(i)));
    scale = std::max(scale, std::fabs(expected.Get(i)));
  }
  return difference / scale;
}

// A tenth of what numerics.h allows Winograd's form: sums here are short.
constexpr double kDifference = 1e-4;
constexpr int kTries = 400;

machine::TargetInfo Native(int threads) {
  Target target;
  target.threads = threads;
  return codegen::DescribeTarget(codegen::ResolveTarget(target).value()).value();
}

// Points of each form of the space, of which the first `forms` are looked at.
void CheckPoints(const std::string& workload, int threads, int points_per_form) {
  SCOPED_TRACE(absl::StrCat(workload, " with threads ", threads));
  const ir::Program naive = schedule::MakeWorkload(workload).value();
  const std::vector<HostTensor> inputs = testing::MakeInputs(naive, 3);
  std::vector<HostTensor> expected = testing::MakeOutputs(naive);
  ASSERT_TRUE(testing::RunInterpreter(naive, inputs, expected).ok());
  const auto space = schedule::MakeSpace(naive, Native(threads)).value();
  const bool has_forms = space->Describe(0) == "form";
  std::map<int, int> checked;  // by form
  schedule::Rng rng(7);
  for (int k = 0; k < kTries; ++k) {
    const schedule::Point point = space->Random(rng);
    const int form = has_forms ? point[0] : 0;
    if (checked[form] == points_per_form) continue;
    const auto trace = space->Expand(point);
    if (!trace.ok()) continue;
    SCOPED_TRACE(ToText(*trace));
    const ir::Program scheduled = schedule::Replay(naive, *trace).value();
    const HoistedProgram hoisted = HoistConstants(scheduled);
    EXPECT_TRUE(form == 0 || hoisted.prepack) << "a transformed weight is a constant";
    ++checked[form];
    const auto interpreted = RunBoth(hoisted, naive, inputs, Interpret);
    ASSERT_TRUE(interpreted.ok()) << interpreted.status();
    std::vector<HostTensor> whole = testing::MakeOutputs(naive);
    ASSERT_TRUE(testing::RunInterpreter(scheduled, inputs, whole).ok());
    EXPECT_EQ(Difference(whole[0], (*interpreted)[0]), 0) << "the same operations, in two parts";
    EXPECT_LT(Difference(expected[0], (*interpreted)[0]), kDifference);
    const auto compiled = RunBoth(
        hoisted, naive, inputs, [&](const ir::Program& program, const auto& given, auto& made) {
          testing::LlvmRun run;
          run.workers = threads;
          run.target = absl::StrCat("llvm -mcpu=native -threads=", threads);
          return testing::RunLlvm(program, given, made, run);
        });
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    EXPECT_LT(Difference(expected[0], (*compiled)[0]), kDifference);
  }
  EXPECT_EQ(static_cast<int>(checked.size()), has_forms ? space->Choices(0) : 1);
  for (const auto& [form, count] : checked) EXPECT_EQ(count, points_per_form) << "form " << form;
}

TEST(Prepack, RandomPointsOfConvolutions) {
  CheckPoints("9x16-16k3s1", 1, 1);
  CheckPoints("7x5-32k3s1", 2, 1);    // no vector of input channels
  CheckPoints("10x16-24k3s2", 1, 2);  // no Winograd form
  CheckPoints("6x32-64k1s1", 2, 3);
}

TEST(Prepack, RandomPointsOfAProduct) {
  tensor::Builder b("product");
  const tensor::Tensor x = b.Input("x", ir::DType::kF32, {5, 96});
  const tensor::Tensor w = b.Input("w", ir::DType::kF32, {96, 80}, true);
  const tensor::Tensor y =
      b.Reduce("y", {5, 80}, {96}, ir::ReduceOp::kSum,
               [&](tensor::Iters s, tensor::Iters r) { return x(s[0], r[0]) * w(r[0], s[1]); });
  const ir::Program naive = tensor::LowerToLoops(b.Build({y}).value()).value();
  const auto space = schedule::MakeSpace(naive, Native(1)).value();
  const std::vector<HostTensor> inputs = testing::MakeInputs(naive, 3);
  schedule::Rng rng(5);
  int packed = 0, kept = 0;
  for (int k = 0; k < 60; ++k) {
    const auto trace = space->Expand(space->Random(rng));
    if (!trace.ok()) continue;
    const ir::Program scheduled = schedule::Replay(naive, *trace).value();
    const HoistedProgram hoisted = HoistConstants(scheduled);
    const bool packs = ToText(*trace).find("pack y w") != std::string::npos;
    EXPECT_EQ(hoisted.prepack.has_value(), packs);
    ++(packs ? packed : kept);
    std::vector<HostTensor> whole = testing::MakeOutputs(naive);
    ASSERT_TRUE(testing::RunInterpreter(scheduled, inputs, whole).ok());
    const auto both = RunBoth(hoisted, naive, inputs, Interpret);
    ASSERT_TRUE(both.ok()) << both.status();
    EXPECT_EQ(Difference(whole[0], (*both)[0]), 0);
    if (packs) {
      EXPECT_THAT(Names(hoisted.kernel.inputs), ElementsAre("x", "w.pack_buf"));
    }
  }
  EXPECT_GT(packed, 5);
  EXPECT_GT(kept, 5);
}

// t = c * 2 and u = t + d are known ahead; v = u + x is not.
constexpr char kChain[] =
    R"(program chain(a: f32[8]%s, x: f32[8], c: f32[8] const, d: f32[8] const, e: f32[8] const)
    -> (y: f32[8], z: f32[8]) {
  alloc t: f32[8] global { alloc u: f32[8] global { alloc v: f32[8] global {
    for i0 in 8 { block b0(v0 < 8 spatial = i0) { t[v0] = (c[v0] * 2.0) } }
    for i1 in 8 { block b1(v1 < 8 spatial = i1) { v[v1] = (x[v1] + e[v1]) } }
    for i2 in 8 { block b2(v2 < 8 spatial = i2) { u[v2] = (t[v2] + d[v2]) } }
    for i3 in 8 { block b3(v3 < 8 spatial = i3) { y[v3] = ((v[v3] + u[v3]) + d[v3]) } }
    for i4 in 8 { block b4(v4 < 8 spatial = i4) { z[v4] = (d[v4] + a[v4]) } }
  } } }
})";

ir::Program Chain(const char* first) {
  std::string text = kChain;
  return Parsed(text.replace(text.find("%s"), 2, first));
}

TEST(HoistConstants, SplitsAtWhatInputsDecide) {
  const ir::Program whole = Chain("");
  const HoistedProgram hoisted = HoistConstants(whole);
  ASSERT_TRUE(hoisted.prepack.has_value());
  // Inputs that are not const, const ones it still reads, prepacked ones; outputs as before.
  EXPECT_THAT(Names(hoisted.kernel.inputs), ElementsAre("a", "x", "d", "e", "u"));
  EXPECT_THAT(Names(hoisted.kernel.outputs), ElementsAre("y", "z"));
  EXPECT_EQ(hoisted.kernel.name, "chain");
  EXPECT_THAT(Names(hoisted.prepack->inputs), ElementsAre("c", "d"));
  EXPECT_THAT(Names(hoisted.prepack->outputs), ElementsAre("u"));
  EXPECT_EQ(hoisted.prepack->name, "chain.prepack");
  EXPECT_TRUE(hoisted.kernel.inputs.back()->constant);
  EXPECT_FALSE(hoisted.prepack->outputs[0]->constant);
  EXPECT_THAT(ir::Print(*hoisted.prepack), HasSubstr("alloc t"));
  EXPECT_THAT(ir::Print(hoisted.kernel), HasSubstr("alloc v"));
  const std::vector<HostTensor> inputs = testing::MakeInputs(whole, 1);
  std::vector<HostTensor> expected = testing::MakeOutputs(whole);
  ASSERT_TRUE(testing::RunInterpreter(whole, inputs, expected).ok());
  const auto both = RunBoth(hoisted, whole, inputs, Interpret);
  ASSERT_TRUE(both.ok()) << both.status();
  for (size_t k = 0; k < 2; ++k) EXPECT_EQ(Difference(expected[k], (*both)[k]), 0);
}

// An output may be nothing but constants: it stays, for the kernel has to write it.
TEST(HoistConstants, OutputsStay) {
  const HoistedProgram hoisted = HoistConstants(Chain(" const"));
  ASSERT_TRUE(hoisted.prepack.has_value());
  EXPECT_THAT(Names(hoisted.kernel.inputs), ElementsAre("a", "x", "d", "e", "u"));
  EXPECT_THAT(ir::Print(hoisted.kernel), HasSubstr("block b4"));
}

TEST(HoistConstants, NothingWithoutConstInputs) {
  std::string text = ir::Print(Chain(""));
  for (size_t at; (at = text.find(" const")) != std::string::npos;) text.erase(at, 6);
  const ir::Program whole = Parsed(text);
  const HoistedProgram hoisted = HoistConstants(whole);
  EXPECT_FALSE(hoisted.prepack.has_value());
  EXPECT_EQ(ir::Print(hoisted.kernel), text);
  const ir::Program winograd =
      schedule::Replay(Parsed([] {
                         std::string naive = ir::Print(schedule::MakeWorkload("6x4-4k3s1").value());
                         for (size_t at; (at = naive.find(" const")) != std::string::npos;) {
                           naive.erase(at, 6);
                         }
                         return naive;
                       }()),
                       schedule::ParseTrace("winograd conv2d 2\n").value())
          .value();
  EXPECT_FALSE(HoistConstants(winograd).prepack.has_value());
}

// Half of t is made of what is known, half of x: neither writer moves, nor does what reads t.
TEST(HoistConstants, BuffersWithOtherWritersStay) {
  const ir::Program whole = Parsed(R"(program two(x: f32[4], c: f32[4] const) -> (y: f32[8]) {
    alloc t: f32[8] global { alloc u: f32[8] global {
      for i0 in 4 { block b0(v0 < 4 spatial = i0) { t[v0] = c[v0] } }
      for i1 in 4 { block b1(v1 < 4 spatial = i1) { t[(v1 + 4)] = x[v1] } }
      for i2 in 8 { block b2(v2 < 8 spatial = i2) { u[v2] = (t[v2] * 2.0) } }
      for i3 in 8 { block b3(v3 < 8 spatial = i3) { y[v3] = u[v3] } }
    } }
  })");
  ASSERT_TRUE(ir::Verify(whole).ok()) << ir::Verify(whole);
  const HoistedProgram hoisted = HoistConstants(whole);
  EXPECT_FALSE(hoisted.prepack.has_value());
  EXPECT_EQ(ir::Print(hoisted.kernel), ir::Print(whole));
}

// t and u are made of c alone; u is too large to keep, t is not.
TEST(HoistConstants, WhatGrowsTooMuchStaysAlone) {
  const int64_t n = 4 * (kMaxPrepackGrowth + 1);
  const ir::Program whole = Parsed(absl::StrCat(
      "program grow(c: f32[4] const, x: f32[", n, "]) -> (y: f32[", n,
      "]) { alloc t: f32[4] global { alloc u: f32[", n,
      "] global { for i in 4 { block a(v < 4 spatial = i) { t[v] = (c[v] * 2.0) } } for j in ", n,
      " { block b(w < ", n, " spatial = j) { u[w] = t[(w % 4)] } } for k in ", n, " { block d(z < ",
      n, " spatial = k) { y[z] = (u[z] + x[z]) } } } } }"));
  const HoistedProgram hoisted = HoistConstants(whole);
  ASSERT_TRUE(hoisted.prepack.has_value());
  EXPECT_THAT(Names(hoisted.prepack->outputs), ElementsAre("t"));
  EXPECT_THAT(ir::Print(hoisted.kernel), HasSubstr("alloc u"));
}

TEST(HoistConstants, RefusesToGrowTooMuch) {
  const auto hoists = [](int64_t times) {
    const int64_t n = 4 * times;
    return HoistConstants(Parsed(absl::StrCat("program grow(c: f32[4] const, x: f32[", n,
                                              "]) -> (y: f32[", n, "]) { alloc t: f32[", n,
                                              "] global { for i in ", n, " { block b(v < ", n,
                                              " spatial = i) { t[v] = c[(v % 4)] } } for j in ", n,
                                              " { block d(w < ", n,
                                              " spatial = j) { y[w] = (t[w] + x[w]) } } } }")))
        .prepack.has_value();
  };
  EXPECT_TRUE(hoists(1));
  EXPECT_TRUE(hoists(kMaxPrepackGrowth));
  EXPECT_FALSE(hoists(kMaxPrepackGrowth + 1));
}

}  // namespace
}  // namespace heddle::pass
