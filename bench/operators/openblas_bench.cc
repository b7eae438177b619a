// heddle-bench-openblas: OpenBLAS on one matrix product, as a side of `bench/run.sh operators`.
//   {"do": "open", "name": "128x768x768"} -> {"implementation": "sgemm .."}
//   {"do": "round"} -> {"samples_ns": [..]}
#include <cblas.h>

#include <algorithm>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/common/line_server.h"
#include "bench/common/operator_table.h"
#include "compiler/runtime/aligned_buffer.h"

namespace heddle::bench {
namespace {

using runtime::AlignedBuffer;

float* Floats(const AlignedBuffer& buffer) { return reinterpret_cast<float*>(buffer.data()); }

class OpenBlas {
 public:
  absl::StatusOr<nlohmann::json> Open(const nlohmann::json& request) {
    const auto op = FindOperator(request.at("name"));
    if (!op.has_value() || op->kind != OperatorKind::kMatrixProduct) {
      return absl::NotFoundError("OpenBLAS has matrix products only");
    }
    op_ = *op;
    const int64_t batch = std::max<int64_t>(op_.batch, 1);
    a_ = Filled(batch * op_.m * op_.k);
    b_ = Filled(batch * op_.k * op_.n);
    c_ = Filled(batch * op_.m * op_.n);
    return nlohmann::json{{"implementation", op_.m == 1 ? "sgemv" : "sgemm"}};
  }

  absl::StatusOr<nlohmann::json> Round() {
    if (op_.m == 0) return absl::FailedPreconditionError("no operator is open");
    return RoundAnswer(runtime::TimeCalls([this] { Call(); }, RoundTiming()));
  }

 private:
  static AlignedBuffer Filled(int64_t count) {
    AlignedBuffer buffer = AlignedBuffer::Allocate(count * sizeof(float));
    std::mt19937 random(7);
    std::uniform_real_distribution<float> unit(-1, 1);
    float* data = Floats(buffer);
    for (int64_t i = 0; i < count; ++i) data[i] = unit(random);
    return buffer;
  }

  void Call() {
    const int m = op_.m, n = op_.n, k = op_.k;
    const float* a = Floats(a_);
    const float* b = Floats(b_);
    float* c = Floats(c_);
    if (m == 1) {
      cblas_sgemv(CblasRowMajor, CblasTrans, k, n, 1, b, n, a, 1, 0, c, 1);
      return;
    }
    for (int64_t i = 0; i < std::max<int64_t>(op_.batch, 1); ++i) {
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, n, k, 1, a + i * m * k, k,
                  b + i * k * n, n, 0, c + i * m * n, n);
    }
  }

  Operator op_{};
  AlignedBuffer a_, b_, c_;
};

}  // namespace
}  // namespace heddle::bench

int main() {
  heddle::bench::OpenBlas side;
  heddle::bench::ServeLines({
      {"version",
       [](const nlohmann::json&) {
         // The core type is part of it: a wrong guess costs most of the speed.
         return nlohmann::json{{"version", absl::StrCat(openblas_get_config(), ", kernels for ",
                                                        openblas_get_corename())}};
       }},
      {"open", [&](const nlohmann::json& request) { return side.Open(request); }},
      {"round", [&](const nlohmann::json&) { return side.Round(); }},
  });
  return 0;
}
