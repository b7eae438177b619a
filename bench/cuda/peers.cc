#include "bench/cuda/peers.h"

#include <dlfcn.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/ir/arithmetic.h"
#include "compiler/runtime/cuda/timing.h"

namespace heddle::bench {
namespace {

using runtime::CudaDevice;
using runtime::DeviceMemory;

// The first of `names` that loads.
absl::StatusOr<void*> Open(const std::vector<const char*>& names) {
  for (const char* name : names) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_GLOBAL)) return library;
  }
  return absl::NotFoundError(absl::StrCat("no ", names.front(), " on this machine"));
}

template <typename F>
absl::Status Find(void* library, const char* name, F* function) {
  *function = reinterpret_cast<F>(dlsym(library, name));
  if (*function != nullptr) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("the library has no ", name));
}

absl::Status Check(int result, const char* what) {
  if (result == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(what, " gives error ", result));
}

// Memory of a call's operands; what it holds does not matter to the time (zeros would: they draw
// less power).
absl::StatusOr<DeviceMemory> Operand(CudaDevice& device, int64_t elements, bool half = false) {
  std::vector<float> values(static_cast<size_t>(elements));
  std::vector<uint16_t> halves(half ? values.size() : 0);
  uint32_t state = 1;
  for (size_t i = 0; i < values.size(); ++i) {
    state = state * 1664525 + 1013904223;
    values[i] = static_cast<float>(state >> 8) / (1 << 23) - 1;
    if (half) halves[i] = ir::HalfBits(values[i], ir::DType::kF16);
  }
  const void* data = half ? static_cast<const void*>(halves.data()) : values.data();
  const int64_t bytes = elements * (half ? 2 : 4);
  HEDDLE_ASSIGN_OR_RETURN(DeviceMemory memory, device.Allocate(bytes));
  HEDDLE_RETURN_IF_ERROR(device.Upload(memory.address(), data, bytes));
  HEDDLE_RETURN_IF_ERROR(device.Synchronize());
  return memory;
}

void* Pointer(const DeviceMemory& memory) { return reinterpret_cast<void*>(memory.address()); }

// ---- cuBLAS

struct Cublas {
  using Handle = void*;
  int (*create)(Handle*) = nullptr;
  int (*version)(Handle, int*) = nullptr;
  int (*set_stream)(Handle, runtime::CuStream) = nullptr;
  int (*sgemm)(Handle, int, int, int, int, int, const float*, const void*, int, long long,
               const void*, int, long long, const float*, void*, int, long long, int) = nullptr;
  int (*gemm)(Handle, int, int, int, int, int, const void*, const void*, int, int, const void*, int,
              int, const void*, void*, int, int, int, int) = nullptr;
  Handle handle = nullptr;  // lives as long as the process
  DeviceMemory x, w, y;
  float one = 1, zero = 0;
};

// ---- cuDNN

struct Cudnn {
  using Handle = void*;
  size_t (*version)() = nullptr;
  int (*create)(Handle*) = nullptr;
  int (*set_stream)(Handle, runtime::CuStream) = nullptr;
  int (*create_tensor)(Handle*) = nullptr;
  int (*create_filter)(Handle*) = nullptr;
  int (*create_convolution)(Handle*) = nullptr;
  int (*set_tensor)(Handle, int format, int type, int n, int c, int h, int w) = nullptr;
  int (*set_filter)(Handle, int type, int format, int k, int c, int h, int w) = nullptr;
  int (*set_convolution)(Handle, int pad_h, int pad_w, int stride_h, int stride_w, int dilation_h,
                         int dilation_w, int mode, int type) = nullptr;
  int (*set_groups)(Handle, int) = nullptr;
  int (*set_math)(Handle, int) = nullptr;
  int (*workspace)(Handle, Handle x, Handle w, Handle convolution, Handle y, int algorithm,
                   size_t*) = nullptr;
  int (*forward)(Handle, const void* alpha, Handle x_type, const void* x, Handle w_type,
                 const void* w, Handle convolution, int algorithm, void* space, size_t space_bytes,
                 const void* beta, Handle y_type, void* y) = nullptr;
  Handle handle = nullptr, x_type = nullptr, w_type = nullptr, y_type = nullptr, shape = nullptr;
  DeviceMemory x, w, y, space;
  float one = 1, zero = 0;

  absl::Status Load(void* library) {
    HEDDLE_RETURN_IF_ERROR(Find(library, "cudnnGetVersion", &version));
    HEDDLE_RETURN_IF_ERROR(Find(library, "cudnnCreate", &create));
    HEDDLE_RETURN_IF_ERROR(Find(library, "cudnnSetStream", &set_stream));
    HEDDLE_RETURN_IF_ERROR(Find(library, "cudnnCreateTensorDescriptor", &create_tensor));
    HEDDLE_RETURN_IF_ERROR(Find(library, "cudnnCreateFilterDescriptor", &create_filter));
    HEDDLE_RETURN_IF_ERROR(Find(library, "cudnnCreateConvolutionDescriptor", &create_convolution));
    HEDDLE_RETURN_IF_ERROR(Find(library, "cudnnSetTensor4dDescriptor", &set_tensor));
    HEDDLE_RETURN_IF_ERROR(Find(library, "cudnnSetFilter4dDescriptor", &set_filter));
    HEDDLE_RETURN_IF_ERROR(Find(library, "cudnnSetConvolution2dDescriptor", &set_convolution));
    HEDDLE_RETURN_IF_ERROR(Find(library, "cudnnSetConvolutionGroupCount", &set_groups));
    HEDDLE_RETURN_IF_ERROR(Find(library, "cudnnSetConvolutionMathType", &set_math));
    HEDDLE_RETURN_IF_ERROR(Find(library, "cudnnGetConvolutionForwardWorkspaceSize", &workspace));
    return Find(library, "cudnnConvolutionForward", &forward);
  }
  absl::Status Call(int number) {
    return Check(
        forward(handle, &one, x_type, Pointer(x), w_type, Pointer(w), shape, number, Pointer(space),
                static_cast<size_t>(space.size()), &zero, y_type, Pointer(y)),
        "cudnnConvolutionForward");
  }
};

// cudaDataType, cublasComputeType_t, cublasGemmAlgo_t.
constexpr int kHalf = 2, kSumsInSingle = 68, kDefaultAlgorithm = -1;

// cudnnTensorFormat_t, cudnnDataType_t, cudnnConvolutionMode_t, cudnnMathType_t.
constexpr int kNchw = 0, kNhwc = 1, kFloat = 0, kCrossCorrelation = 1, kFmaMath = 3;
constexpr int kAlgorithms = 8;
constexpr size_t kMaxWorkspace = size_t{2} << 30;

}  // namespace

absl::StatusOr<PeerCall> OpenCublas(CudaDevice& device, const Operator& op) {
  HEDDLE_ASSIGN_OR_RETURN(void* library,
                          Open({"libcublas.so.13", "libcublas.so.12", "libcublas.so.11",
                                "/usr/local/cuda/lib64/libcublas.so"}));
  auto blas = std::make_shared<Cublas>();
  HEDDLE_RETURN_IF_ERROR(Find(library, "cublasCreate_v2", &blas->create));
  HEDDLE_RETURN_IF_ERROR(Find(library, "cublasGetVersion_v2", &blas->version));
  HEDDLE_RETURN_IF_ERROR(Find(library, "cublasSetStream_v2", &blas->set_stream));
  HEDDLE_RETURN_IF_ERROR(Find(library, "cublasSgemmStridedBatched", &blas->sgemm));
  HEDDLE_RETURN_IF_ERROR(Find(library, "cublasGemmEx", &blas->gemm));
  HEDDLE_RETURN_IF_ERROR(Check(blas->create(&blas->handle), "cublasCreate"));
  HEDDLE_RETURN_IF_ERROR(Check(blas->set_stream(blas->handle, device.stream()), "cublasSetStream"));
  int version = 0;
  blas->version(blas->handle, &version);
  const int64_t batch = std::max<int64_t>(op.batch, 1);
  HEDDLE_ASSIGN_OR_RETURN(blas->x, Operand(device, batch * op.m * op.k, op.half));
  HEDDLE_ASSIGN_OR_RETURN(blas->w, Operand(device, batch * op.k * op.n, op.half));
  HEDDLE_ASSIGN_OR_RETURN(blas->y, Operand(device, batch * op.m * op.n, op.half));
  PeerCall peer;
  peer.name = absl::StrCat("cuBLAS ", version);
  peer.keeps = blas;
  // Row-major y = x w is column-major y' = w' x'.
  peer.call = [b = blas.get(), op, batch] {
    const int m = static_cast<int>(op.m), n = static_cast<int>(op.n), k = static_cast<int>(op.k);
    if (op.half) {
      return Check(
          b->gemm(b->handle, 0, 0, n, m, k, &b->one, Pointer(b->w), kHalf, n, Pointer(b->x), kHalf,
                  k, &b->zero, Pointer(b->y), kHalf, n, kSumsInSingle, kDefaultAlgorithm),
          "cublasGemmEx");
    }
    return Check(
        b->sgemm(b->handle, 0, 0, n, m, k, &b->one, Pointer(b->w), n, op.k * op.n, Pointer(b->x), k,
                 op.m * op.k, &b->zero, Pointer(b->y), n, op.m * op.n, static_cast<int>(batch)),
        "cublasSgemmStridedBatched");
  };
  return peer;
}

absl::StatusOr<PeerCall> OpenCudnn(CudaDevice& device, const Operator& op) {
  HEDDLE_ASSIGN_OR_RETURN(
      void* library, Open({"libcudnn.so.9", "libcudnn.so.8", "/usr/local/cuda/lib64/libcudnn.so"}));
  const int groups = op.kind == OperatorKind::kDepthwise ? static_cast<int>(op.inputs) : 1;
  const int outputs = static_cast<int>(groups > 1 ? op.inputs : op.outputs);
  const int inputs = static_cast<int>(op.inputs), size = static_cast<int>(op.size);
  const int kernel = static_cast<int>(op.kernel), out = static_cast<int>(op.OutSize());
  // Padding is symmetric there; where ours is not, the larger side gives outputs of the same size.
  const int pad = static_cast<int>(op.PadEnd()), stride = static_cast<int>(op.stride);
  PeerCall best;
  double best_ns = 0;
  for (const int format : {kNchw, kNhwc}) {
    auto dnn = std::make_shared<Cudnn>();
    HEDDLE_RETURN_IF_ERROR(dnn->Load(library));
    HEDDLE_RETURN_IF_ERROR(Check(dnn->create(&dnn->handle), "cudnnCreate"));
    HEDDLE_RETURN_IF_ERROR(Check(dnn->set_stream(dnn->handle, device.stream()), "cudnnSetStream"));
    const bool described =
        dnn->create_tensor(&dnn->x_type) == 0 && dnn->create_tensor(&dnn->y_type) == 0 &&
        dnn->create_filter(&dnn->w_type) == 0 && dnn->create_convolution(&dnn->shape) == 0 &&
        dnn->set_tensor(dnn->x_type, format, kFloat, 1, inputs, size, size) == 0 &&
        dnn->set_tensor(dnn->y_type, format, kFloat, 1, outputs, out, out) == 0 &&
        dnn->set_filter(dnn->w_type, kFloat, format, outputs, inputs / groups, kernel, kernel) ==
            0 &&
        dnn->set_convolution(dnn->shape, pad, pad, stride, stride, 1, 1, kCrossCorrelation,
                             kFloat) == 0 &&
        dnn->set_groups(dnn->shape, groups) == 0 && dnn->set_math(dnn->shape, kFmaMath) == 0;
    if (!described) continue;
    HEDDLE_ASSIGN_OR_RETURN(dnn->x, Operand(device, int64_t{1} * inputs * size * size));
    HEDDLE_ASSIGN_OR_RETURN(
        dnn->w, Operand(device, int64_t{1} * outputs * inputs / groups * kernel * kernel));
    HEDDLE_ASSIGN_OR_RETURN(dnn->y, Operand(device, int64_t{1} * outputs * out * out));
    for (int algorithm = 0; algorithm < kAlgorithms; ++algorithm) {
      size_t bytes = 0;
      if (dnn->workspace(dnn->handle, dnn->x_type, dnn->w_type, dnn->shape, dnn->y_type, algorithm,
                         &bytes) != 0 ||
          bytes > kMaxWorkspace) {
        continue;
      }
      if (static_cast<int64_t>(bytes) > dnn->space.size()) {
        HEDDLE_ASSIGN_OR_RETURN(dnn->space, device.Allocate(static_cast<int64_t>(bytes)));
      }
      if (!dnn->Call(algorithm).ok()) continue;  // workspaces are told for some that are not there
      runtime::TimingOptions quick;
      quick.repeats = 3;
      quick.min_repeat = absl::Milliseconds(2);
      HEDDLE_ASSIGN_OR_RETURN(const runtime::Timing timing,
                              runtime::TimeOnDevice(
                                  device, [&] { return dnn->Call(algorithm); }, quick));
      if (best_ns > 0 && timing.MedianNs() >= best_ns) continue;
      best_ns = timing.MedianNs();
      best.name = absl::StrCat("cuDNN ", dnn->version(), format == kNhwc ? " NHWC" : " NCHW",
                               " algorithm ", algorithm);
      best.keeps = dnn;
      best.call = [d = dnn.get(), algorithm] { return d->Call(algorithm); };
    }
  }
  if (best_ns > 0) return best;
  return absl::NotFoundError("cuDNN has no algorithm for it");
}

}  // namespace heddle::bench
