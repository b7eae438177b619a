// heddle-bench-onednn: oneDNN's best kernel for one operator, as a side of `bench/run.sh operators`.
//   {"do": "open", "name": "C2", "winograd": true} -> {"implementation": ".."}   tries what it has,
//   keeps the fastest
//   {"do": "round"} -> {"samples_ns": [..]}
// Activations and weights lie in the layouts the kernel asks for; bringing them there is not timed.
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
        using Forward = dnnl::convolution_forward;
        TryAll<Forward>([&] {
          return Forward::desc(dnnl::prop_kind::forward_inference, algorithm, {source, kF32, tag},
                               {weights, kF32, Tag::any}, {result, kF32, tag}, stride, begin, end);
        });
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
      TryAll<dnnl::matmul>([&] {
        return dnnl::matmul::desc(source, {dims(op.k, op.n), kF32, tag}, result);
      });
    }
    if (batched) return;
    using Forward = dnnl::inner_product_forward;
    TryAll<Forward>([&] {
      return Forward::desc(dnnl::prop_kind::forward_inference, source,
                           {Dims{op.n, op.k}, kF32, Tag::any}, result);
    });
  }

  // Measures the implementations of one description; descriptions oneDNN refuses are passed over.
  template <typename Primitive, typename MakeDesc>
  void TryAll(const MakeDesc& make) {
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    try {
      const auto description = make();  // lives as long as next_impl() reads it
      typename Primitive::primitive_desc desc(description, attr, engine_);
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

  // One that fails says nothing of the next.
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

  // Any values will do in any layout, but for the padding of blocked ones: that is zero already and
  // stays so, since a reorder writes it.
  memory Filled(const memory::desc& layout) {
    Dims strides(layout.dims().size(), 1);
    for (size_t d = strides.size() - 1; d > 0; --d) strides[d - 1] = strides[d] * layout.dims()[d];
    memory plain(memory::desc(layout.dims(), kF32, strides), engine_);
    std::mt19937 random(7);
    std::uniform_real_distribution<float> unit(-1, 1);
    float* data = static_cast<float*>(plain.get_data_handle());
    const size_t count = plain.get_desc().get_size() / sizeof(float);
    for (size_t i = 0; i < count; ++i) data[i] = unit(random);
    memory filled(layout, engine_);
    dnnl::reorder(plain, filled).execute(stream_, plain, filled);
    stream_.wait();
    return filled;
  }

  runtime::Timing Time(Kernel& kernel, const runtime::TimingOptions& options) {
    return runtime::TimeCalls(
        [&] {
          kernel.primitive.execute(stream_, kernel.operands);
          stream_.wait();
        },
        options);
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
  });
  return 0;
}
