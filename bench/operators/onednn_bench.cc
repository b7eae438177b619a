// heddle-bench-onednn: oneDNN's best kernel for one operator, as a side of `bench/run.sh
// operators`.
//   {"do": "open", "name": "C2", "winograd": true} -> {"implementation": ".."}   the fastest
//   of those that oneDNN offers
//   {"do": "round"} -> {"samples_ns": [..]}
//   {"do": "overhead"} -> {"ns": 120}   of a call that computes next to nothing
// Activations and weights are in the layouts that the kernel prefers; conversion is not timed.
#include <algorithm>
#include <dnnl.hpp>
#include <iostream>
#include <memory>
#include <random>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "bench/common/line_server.h"
#include "bench/common/operator_table.h"

namespace heddle::bench {
namespace {

using dnnl::memory;
using Dims = memory::dims;
using Tag = memory::format_tag;

constexpr auto kF32 = memory::data_type::f32;
// How far down oneDNN's list of implementations to look; the list is sorted by expected speed.
constexpr int kImplementations = 6;
constexpr int kCallsAtOnce = 64;
constexpr double kAtOnceNs = 2e6;

Dims DimsOf(const memory::desc& layout) {
#if DNNL_VERSION_MAJOR >= 3
  return layout.get_dims();
#else
  return layout.dims();
#endif
}

// A primitive with its operands.
struct Kernel {
  std::string implementation;
  dnnl::primitive primitive;
  std::unordered_map<int, memory> operands;
};

class OneDnn {
 public:
  absl::StatusOr<nlohmann::json> Open(const nlohmann::json& request) {
    const auto op = FindOperator(request.at("name"));
    if (!op.has_value()) return absl::NotFoundError("no such operator");
    best_.reset();
    best_ns_ = 0;
    if (op->kind == OperatorKind::kMatrixProduct) {
      TryMatrixProducts(*op);
    } else {
      TryConvolutions(*op, request.value("winograd", true));
    }
    if (best_ == nullptr) return absl::UnimplementedError("oneDNN has no kernel for it");
    return nlohmann::json{{"implementation", best_->implementation}};
  }

  absl::StatusOr<nlohmann::json> Overhead() {
    const memory::desc layout({1, 16}, kF32, Tag::ab);
    const memory from(layout, engine_), to(layout, engine_);
    Kernel kernel{"", dnnl::reorder(from, to), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}};
    return nlohmann::json{{"ns", Time(kernel, RoundTiming()).MedianNs()}};
  }

  absl::StatusOr<nlohmann::json> Round() {
    if (best_ == nullptr) return absl::FailedPreconditionError("no operator is open");
    return RoundAnswer(Time(*best_, RoundTiming()));
  }

 private:
  void TryConvolutions(const Operator& op, bool winograd) {
    const bool depthwise = op.kind == OperatorKind::kDepthwise;
    const Dims source = {1, op.inputs, op.size, op.size};
    const Dims result = {1, op.outputs, op.OutSize(), op.OutSize()};
    const Dims weights = depthwise ? Dims{op.inputs, 1, 1, op.kernel, op.kernel}
                                   : Dims{op.outputs, op.inputs, op.kernel, op.kernel};
    const Dims stride = {op.stride, op.stride};
    const Dims begin = {op.PadBegin(), op.PadBegin()}, end = {op.PadEnd(), op.PadEnd()};
    std::vector<dnnl::algorithm> algorithms = {dnnl::algorithm::convolution_direct};
    if (winograd) algorithms.push_back(dnnl::algorithm::convolution_winograd);
    for (const auto algorithm : algorithms) {
      for (const Tag tag : {Tag::any, Tag::nhwc}) {
        TryAll<dnnl::convolution_forward>(dnnl::prop_kind::forward_inference, algorithm,
                                          memory::desc(source, kF32, tag),
                                          memory::desc(weights, kF32, Tag::any),
                                          memory::desc(result, kF32, tag), stride, begin, end);
      }
    }
  }

  void TryMatrixProducts(const Operator& op) {
    const bool batched = op.batch > 0;
    const auto dims = [&](int64_t rows, int64_t columns) {
      return batched ? Dims{op.batch, rows, columns} : Dims{rows, columns};
    };
    const Tag plain = batched ? Tag::abc : Tag::ab;
    const memory::desc source(dims(op.m, op.k), kF32, plain);
    const memory::desc result(dims(op.m, op.n), kF32, plain);
    std::vector<Tag> weight_tags = {plain};
    if (!batched) weight_tags.push_back(Tag::any);
    for (const Tag tag : weight_tags) {
      TryAll<dnnl::matmul>(source, memory::desc(dims(op.k, op.n), kF32, tag), result);
    }
    if (batched) return;
    TryAll<dnnl::inner_product_forward>(dnnl::prop_kind::forward_inference, source,
                                        memory::desc({op.n, op.k}, kF32, Tag::any), result);
  }

  // Measures the implementations of an operation with these parameters. Refused ones are skipped.
  template <typename Primitive, typename... Parameters>
  void TryAll(const Parameters&... parameters) {
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    try {
#if DNNL_VERSION_MAJOR >= 3
      typename Primitive::primitive_desc desc(engine_, parameters..., attr);
#else
      const typename Primitive::desc description(parameters...);  // next_impl() reads it
      typename Primitive::primitive_desc desc(description, attr, engine_);
#endif
      for (int i = 0; i < kImplementations; ++i) {
        const std::string name = desc.impl_info_str();
        // The reference loops are a hundred times slower than anything else.
        if (name.rfind("ref", 0) != 0) TryOne<Primitive>(desc, name);
        if (!desc.next_impl()) return;
      }
    } catch (const dnnl::error&) {
      return;
    }
  }

  // After a failure the next one is still tried.
  template <typename Primitive, typename Desc>
  void TryOne(const Desc& desc, const std::string& name) {
    try {
      Consider(MakeKernel<Primitive>(desc, name));
    } catch (const dnnl::error&) {
    }
  }

  template <typename Primitive, typename Desc>
  Kernel MakeKernel(const Desc& desc, const std::string& name) {
    Kernel kernel{name, Primitive(desc), {}};
    kernel.operands[DNNL_ARG_SRC] = Filled(desc.src_desc());
    kernel.operands[DNNL_ARG_WEIGHTS] = Filled(desc.weights_desc());
    kernel.operands[DNNL_ARG_DST] = memory(desc.dst_desc(), engine_);
    kernel.operands[DNNL_ARG_SCRATCHPAD] = memory(desc.scratchpad_desc(), engine_);
    return kernel;
  }

  // Values do not matter, except the padding of blocked layouts. A reorder writes zeros there.
  memory Filled(const memory::desc& layout) {
    const Dims dims = DimsOf(layout);
    Dims strides(dims.size(), 1);
    for (size_t d = strides.size() - 1; d > 0; --d) strides[d - 1] = strides[d] * dims[d];
    memory plain(memory::desc(dims, kF32, strides), engine_);
    std::mt19937 random(7);
    std::uniform_real_distribution<float> unit(-1, 1);
    float* data = plain.map_data<float>();
    const size_t count = plain.get_desc().get_size() / sizeof(float);
    for (size_t i = 0; i < count; ++i) data[i] = unit(random);
    plain.unmap_data(data);
    memory filled(layout, engine_);
    dnnl::reorder(plain, filled).execute(stream_, plain, filled);
    stream_.wait();
    return filled;
  }

  // Up to kCallsAtOnce calls are submitted before the stream is waited for: a library that is built on
  // SYCL executes behind a queue, and waiting for each call would count the way there and back. Others
  // execute at once, and it makes no difference.
  runtime::Timing Time(Kernel& kernel, const runtime::TimingOptions& options) {
    const auto run = [&](int calls) {
      for (int i = 0; i < calls; ++i) kernel.primitive.execute(stream_, kernel.operands);
      stream_.wait();
    };
    runtime::TimingOptions once;
    once.repeats = 2;
    once.min_repeat = absl::ZeroDuration();
    const double ns = runtime::TimeCalls([&] { run(1); }, once).MinNs();
    const int calls = static_cast<int>(std::clamp(kAtOnceNs / ns, 1.0, double{kCallsAtOnce}));
    runtime::Timing timing = runtime::TimeCalls([&] { run(calls); }, options);
    for (double& sample : timing.samples_ns) sample /= calls;
    return timing;
  }

  void Consider(Kernel kernel) {
    runtime::TimingOptions quick;
    quick.repeats = 7;
    quick.min_repeat = absl::Milliseconds(5);
    const double ns = Time(kernel, quick).MedianNs();
    if (best_ != nullptr && ns >= best_ns_) return;
    best_ns_ = ns;
    best_ = std::make_unique<Kernel>(std::move(kernel));
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::unique_ptr<Kernel> best_;
  double best_ns_ = 0;
};

}  // namespace
}  // namespace heddle::bench

int main() {
  heddle::bench::OneDnn side;
  heddle::bench::ServeLines({
      {"version",
       [](const nlohmann::json&) {
         const dnnl_version_t* v = dnnl_version();
         return nlohmann::json{
             {"version", absl::StrCat("oneDNN ", v->major, ".", v->minor, ".", v->patch)}};
       }},
      {"open", [&](const nlohmann::json& request) { return side.Open(request); }},
      {"round", [&](const nlohmann::json&) { return side.Round(); }},
      {"overhead", [&](const nlohmann::json&) { return side.Overhead(); }},
  });
  return 0;
}
