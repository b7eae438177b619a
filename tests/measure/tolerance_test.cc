// The tolerances of runtime/numerics.h against what single precision really does to convolutions and to long sums.
#include "compiler/measure/compare.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <optional>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/common/operator_table.h"
#include "bench/common/workloads.h"
#include "compiler/codegen/backend.h"
#include "compiler/driver/compile.h"
#include "compiler/measure/loaded_kernel.h"
#include "compiler/runtime/aligned_buffer.h"
#include "compiler/runtime/kernel_library.h"
#include "compiler/runtime/thread_pool.h"

namespace heddle {
namespace {

// Kernels take memory that is aligned as abi.h says.
runtime::AlignedBuffer Aligned(const std::vector<float>& values) {
  runtime::AlignedBuffer memory =
      runtime::AlignedBuffer::Allocate(static_cast<int64_t>(values.size() * sizeof(float)));
  std::memcpy(memory.data(), values.data(), values.size() * sizeof(float));
  return memory;
}

std::vector<float> Uniform(int64_t count, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(rng);
  return values;
}

// A 3 x 3 convolution of stride 1 with one row of padding, in double precision.
std::vector<double> Exact(const bench::Operator& op, const std::vector<float>& x,
                          const std::vector<float>& w) {
  const int64_t size = op.size, inputs = op.inputs, outputs = op.outputs;
  std::vector<double> y(size * size * outputs, 0.0);
  for (int64_t row = 0; row < size; ++row) {
    for (int64_t column = 0; column < size; ++column) {
      double* out = y.data() + (row * size + column) * outputs;
      for (int64_t tap = 0; tap < 9; ++tap) {
        const int64_t r = row + tap / 3 - 1, c = column + tap % 3 - 1;
        if (r < 0 || c < 0 || r >= size || c >= size) continue;
        for (int64_t i = 0; i < inputs; ++i) {
          const double value = x[(r * size + c) * inputs + i];
          const float* weights = w.data() + (tap * inputs + i) * outputs;
          for (int64_t o = 0; o < outputs; ++o) out[o] += value * weights[o];
        }
      }
    }
  }
  return y;
}

struct Errors {
  double of_largest = 0;    // largest difference, relative to the largest element
  double of_tolerance = 0;  // largest difference, as a share of what its element is allowed
};

class WinogradErrors : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    op_ = *bench::FindOperator(GetParam());
    workload_ = bench::FindWorkloads(GetParam())->at(0).text;
    x_ = Uniform(op_.size * op_.size * op_.inputs, 1);
    w_ = Uniform(9 * op_.inputs * op_.outputs, 2);
    exact_ = Exact(op_, x_, w_);
  }

  // Of the naive loops of the program behind `trace`.
  Errors Measure(const std::string& trace) {
    const auto artifact =
        BuildCandidate(workload_, ScheduleChoice::kTrace, trace, *codegen::ResolveTarget(Target()));
    EXPECT_TRUE(artifact.ok()) << artifact.status();
    EXPECT_EQ(artifact->numerics.winograd, !trace.empty());
    const auto library = runtime::KernelLibrary::Load(artifact->shared_object);
    EXPECT_TRUE(library.ok()) << library.status();
    const runtime::ThreadPool host(1);
    const runtime::AlignedBuffer x = Aligned(x_), w = Aligned(w_);
    const runtime::AlignedBuffer result = Aligned(std::vector<float>(exact_.size()));
    internal::MemoryByName memory;
    memory["p0"] = {x.data(), static_cast<int64_t>(x_.size() * 4)};
    memory["p1"] = {w.data(), static_cast<int64_t>(w_.size() * 4)};
    std::vector<internal::LoadedKernel> loaded;
    for (size_t k = artifact->kernels.size(); k-- > 0;) {  // prepack, if any, comes first
      if (k == 0) {
        memory[artifact->kernels[0].arguments.back().name] = {
            result.data(), static_cast<int64_t>(exact_.size() * 4)};
      }
      loaded.push_back(
          k == 0 ? *internal::LoadedKernel::Load(**library, artifact->kernels[0], memory)
                 : *internal::LoadedKernel::LoadPrepack(**library, artifact->kernels[k], &memory));
      loaded.back().Call(host.host());
    }
    Errors errors;
    double largest = 0;
    const runtime::Tolerance tolerance = artifact->numerics.Allowed();
    const auto* y = reinterpret_cast<const float*>(result.data());
    for (size_t i = 0; i < exact_.size(); ++i) {
      const double difference = std::fabs(y[i] - exact_[i]);
      largest = std::max(largest, std::fabs(exact_[i]));
      errors.of_largest = std::max(errors.of_largest, difference);
      const double allowed = tolerance.absolute + tolerance.relative * std::fabs(exact_[i]);
      errors.of_tolerance = std::max(errors.of_tolerance, difference / allowed);
    }
    errors.of_largest /= largest;
    std::printf("%s %-18s %.1e of the largest, %2.0f %% of what is allowed\n", GetParam(),
                trace.empty() ? "direct" : trace.c_str(), errors.of_largest,
                100 * errors.of_tolerance);
    return errors;
  }

  bench::Operator op_;
  std::string workload_;
  std::vector<float> x_, w_;
  std::vector<double> exact_;
};

TEST_P(WinogradErrors, StayWithinTheTolerance) {
  const Errors direct = Measure("");
  EXPECT_LE(direct.of_largest, runtime::kDirectTolerance.relative);
  EXPECT_LE(direct.of_tolerance, 1);
  double before = 0;
  for (const int m : {2, 4, 6}) {
    const Errors errors = Measure(absl::StrCat("winograd conv2d ", m));
    EXPECT_LE(errors.of_largest, runtime::kWinogradTolerance.relative) << m;
    EXPECT_LE(errors.of_tolerance, 1) << m;
    // Larger tiles are less exact; if they were not, the form would not be Winograd's.
    EXPECT_GT(errors.of_largest, before) << m;
    before = errors.of_largest;
  }
}

// ---- Sums of any length

// K terms, products of numbers in [-1, 1], that cancel: each comes with either sign, in random order.
std::vector<float> CancellingTerms(int64_t k, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> terms(k);
  for (int64_t i = 0; i < k; i += 2) {
    terms[i] = uniform(rng) * uniform(rng);
    terms[i + 1] = -terms[i];
  }
  std::shuffle(terms.begin(), terms.end(), rng);
  return terms;
}

double RoundedSum(const std::vector<float>& terms) {
  float sum = 0;
  for (const float term : terms) sum += term;
  return sum;
}

// As tensor cores add: eight terms at once, cut off towards zero.
double CutSum(const std::vector<float>& terms) {
  float sum = 0;
  for (size_t i = 0; i < terms.size(); i += 8) {
    double exact = sum;
    for (size_t j = i; j < i + 8; ++j) exact += terms[j];
    sum = static_cast<float>(exact);
    if (std::fabs(sum) > std::fabs(exact)) sum = std::nextafterf(sum, 0);
  }
  return sum;
}

// The largest of sums that should be zero.
double WorstSum(int64_t k, double (*sum)(const std::vector<float>&)) {
  double worst = 0;
  for (uint64_t seed = 0; seed < 64; ++seed)
    worst = std::max(worst, std::fabs(sum(CancellingTerms(k, seed))));
  return worst;
}

// However long a sum is, a tolerance that grew otherwise would refuse it or be far too wide.
TEST(LongSums, ErrorsGrowAsTheToleranceDoes) {
  for (const int64_t k : {8192, 65536, 524288}) {
    const double rounded = WorstSum(k, RoundedSum), cut = WorstSum(k, CutSum);
    const double direct = runtime::DirectTolerance(k).absolute;
    const double tensor = runtime::TensorCoreTolerance(k).absolute;
    std::printf("%lld terms: rounded %.1e of %.1e, cut off %.1e of %.1e\n",
                static_cast<long long>(k), rounded, direct, cut, tensor);
    EXPECT_LE(rounded, direct / 2) << k << ": the definition may be off by as much";
    EXPECT_GT(rounded, direct / 30) << k;
    EXPECT_LE(cut, tensor) << k;
    EXPECT_GT(cut, tensor / 30) << k;
    if (k > 10'000) {
      EXPECT_GT(cut, direct / 2) << k << ": the two need tolerances of their own";
    }
  }
}

// From some ten thousand terms on, the worst case allows that one is left out.
TEST(LongSums, ATermThatIsLeftOutIsFound) {
  for (const int64_t k : {1024, 8192, 65536}) {
    std::vector<float> terms = CancellingTerms(k, 1);
    const auto largest = std::max_element(terms.begin(), terms.end());
    *largest = 0;
    runtime::Numerics numerics{.sum_terms = k};
    EXPECT_FALSE(Close(RoundedSum(terms), 0, numerics.Allowed())) << k;
    numerics.tensor_cores = true;
    EXPECT_FALSE(Close(CutSum(terms), 0, numerics.Allowed())) << k;
  }
}

TEST(LongSums, ApproximationsOnlyAddToATolerance) {
  for (const int64_t k : {1, 100, 4608, 1'000'000}) {
    const runtime::Tolerance direct = runtime::Numerics{.sum_terms = k}.Allowed();
    for (const runtime::Numerics& more :
         {runtime::Numerics{.winograd = true, .sum_terms = k},
          runtime::Numerics{.tf32 = true, .sum_terms = k},
          runtime::Numerics{.tensor_cores = true, .sum_terms = k}}) {
      EXPECT_GE(more.Allowed().absolute, direct.absolute) << k;
      EXPECT_GE(more.Allowed().relative, direct.relative) << k;
      EXPECT_EQ((more | runtime::Numerics{.sum_terms = k}), more) << k;
    }
  }
  EXPECT_EQ(runtime::Numerics{}.Allowed().absolute, runtime::kDirectTolerance.absolute);
  EXPECT_LE(runtime::DirectTolerance(int64_t{1} << 62).absolute, 2) << "tolerances are bounded";
  EXPECT_STREQ((runtime::Numerics{.tensor_cores = true, .sum_terms = 4096}.Reason()), "");
  EXPECT_STREQ((runtime::Numerics{.tensor_cores = true, .sum_terms = 65536}.Reason()),
               "tensor-core");
}

INSTANTIATE_TEST_SUITE_P(Layers, WinogradErrors, ::testing::Values("C2", "C6", "C9", "C12"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace heddle
