// The C API on top of Executor. No exception leaves it.
#include <algorithm>
#include <cstring>
#include <exception>
#include <string>

#include "absl/strings/str_cat.h"
#include "compiler/runtime/executor.h"
#include "compiler/runtime/heddle.h"

using heddle::runtime::Executor;
using heddle::runtime::Manifest;
using heddle::runtime::Module;
using heddle::runtime::TensorSpec;

namespace {

// The names of a tensor as C has them; the manifest owns the characters.
struct Names {
  std::vector<const char*> columns, labels;
};

}  // namespace

struct heddle_model {
  std::unique_ptr<Executor> executor;
  std::vector<Names> input_names, output_names;
};

namespace {

thread_local std::string last_error;

int Fail(std::string message) {
  last_error = std::move(message);
  return 1;
}

int Fail(const absl::Status& status) { return Fail(std::string(status.message())); }

// Runs `body`, which returns the C status. Exceptions of the standard library (out of memory)
// become errors.
template <typename Body>
int Guarded(Body body) {
  try {
    return body();
  } catch (const std::exception& e) {
    return Fail(e.what());
  }
}

std::vector<Names> NamesOf(const std::vector<TensorSpec>& tensors) {
  std::vector<Names> all;
  for (const TensorSpec& tensor : tensors) {
    Names& names = all.emplace_back();
    for (const std::string& column : tensor.columns) names.columns.push_back(column.c_str());
    for (const std::string& label : tensor.labels) names.labels.push_back(label.c_str());
  }
  return all;
}

int Create(absl::StatusOr<Module> module, int32_t threads, heddle_model** model) {
  if (!module.ok()) return Fail(module.status());
  Executor::Options options;
  options.threads = threads;
  auto executor = Executor::Create(*std::move(module), options);
  if (!executor.ok()) return Fail(executor.status());
  const Manifest& manifest = (*executor)->manifest();
  std::vector<Names> inputs = NamesOf(manifest.inputs), outputs = NamesOf(manifest.outputs);
  *model = new heddle_model{*std::move(executor), std::move(inputs), std::move(outputs)};
  return 0;
}

// The tensor, or null with the error set if there is no such tensor.
const TensorSpec* Find(const std::vector<TensorSpec>& tensors, const char* what, int32_t index) {
  if (index >= 0 && static_cast<size_t>(index) < tensors.size()) return &tensors[index];
  Fail(absl::StrCat("no ", what, " ", index, ": the model has ", tensors.size()));
  return nullptr;
}

int Describe(const TensorSpec* tensor, heddle_tensor_info* info) {
  if (tensor == nullptr) return 1;
  *info = {tensor->name.c_str(), tensor->dtype.c_str(), tensor->shape.data(),
           static_cast<int32_t>(tensor->shape.size()), static_cast<size_t>(tensor->SizeBytes())};
  return 0;
}

int DescribeNames(const TensorSpec* tensor, const std::vector<Names>& all, int32_t index,
                  heddle_tensor_names* names) {
  if (tensor == nullptr) return 1;
  const Names& of = all[static_cast<size_t>(index)];
  *names = {tensor->text ? 1 : 0, of.columns.data(), static_cast<int32_t>(of.columns.size()),
            of.labels.data(), static_cast<int32_t>(of.labels.size())};
  return 0;
}

// Zero if `size` is the `wanted` one of the tensor; otherwise sets the error.
int CheckSize(const TensorSpec& tensor, size_t wanted, size_t size) {
  if (size == wanted) return 0;
  return Fail(absl::StrCat("tensor '", tensor.name, "' has ", wanted, " bytes, not ", size));
}

const TensorSpec* FindOutput(const heddle_model* model, int32_t index) {
  const Manifest& manifest = model->executor->manifest();
  if (index < 0 || index < manifest.NumResults()) return Find(manifest.outputs, "output", index);
  Fail(absl::StrCat("no output ", index, ": the model has ", manifest.NumResults()));
  return nullptr;
}

}  // namespace

const char* heddle_last_error(void) { return last_error.c_str(); }

int heddle_load(const char* path, int32_t threads, heddle_model** model) {
  return Guarded([&] { return Create(heddle::runtime::ReadModuleFile(path), threads, model); });
}

int heddle_load_memory(const void* data, size_t size, int32_t threads, heddle_model** model) {
  return Guarded([&] {
    const std::string_view bytes(static_cast<const char*>(data), size);
    return Create(heddle::runtime::ParseModule(bytes), threads, model);
  });
}

void heddle_free(heddle_model* model) { delete model; }

int32_t heddle_num_inputs(const heddle_model* model) {
  return static_cast<int32_t>(model->executor->manifest().inputs.size());
}

int32_t heddle_num_outputs(const heddle_model* model) {
  return model->executor->manifest().NumResults();
}

int heddle_input_info(const heddle_model* model, int32_t index, heddle_tensor_info* info) {
  return Guarded(
      [&] { return Describe(Find(model->executor->manifest().inputs, "input", index), info); });
}

int heddle_output_info(const heddle_model* model, int32_t index, heddle_tensor_info* info) {
  return Guarded([&] { return Describe(FindOutput(model, index), info); });
}

int heddle_input_names(const heddle_model* model, int32_t index, heddle_tensor_names* names) {
  return Guarded([&] {
    const TensorSpec* tensor = Find(model->executor->manifest().inputs, "input", index);
    return DescribeNames(tensor, model->input_names, index, names);
  });
}

int heddle_output_names(const heddle_model* model, int32_t index, heddle_tensor_names* names) {
  return Guarded(
      [&] { return DescribeNames(FindOutput(model, index), model->output_names, index, names); });
}

int heddle_set_input(heddle_model* model, int32_t index, const void* data, size_t size) {
  return Guarded([&] {
    const TensorSpec* tensor = Find(model->executor->manifest().inputs, "input", index);
    if (tensor == nullptr) return 1;
    if (CheckSize(*tensor, model->executor->InputBytes(index), size) != 0) return 1;
    const absl::Status status = model->executor->BindInput(index, nullptr);
    if (!status.ok()) return Fail(status);
    if (size != 0) std::memcpy(model->executor->InputData(index), data, size);
    return 0;
  });
}

int heddle_bind_input(heddle_model* model, int32_t index, const void* data, size_t size) {
  return Guarded([&] {
    const TensorSpec* tensor = Find(model->executor->manifest().inputs, "input", index);
    if (tensor == nullptr) return 1;
    if (data != nullptr && CheckSize(*tensor, model->executor->InputBytes(index), size) != 0)
      return 1;
    const absl::Status status = model->executor->BindInput(index, data);
    return status.ok() ? 0 : Fail(status);
  });
}

int heddle_bind_output(heddle_model* model, int32_t index, void* data, size_t size) {
  return Guarded([&] {
    const TensorSpec* tensor = FindOutput(model, index);
    if (tensor == nullptr) return 1;
    if (data != nullptr && CheckSize(*tensor, static_cast<size_t>(tensor->SizeBytes()), size) != 0)
      return 1;
    const absl::Status status = model->executor->BindOutput(index, data);
    return status.ok() ? 0 : Fail(status);
  });
}

int heddle_run(heddle_model* model) {
  return Guarded([&] {
    const absl::Status status = model->executor->Run();
    return status.ok() ? 0 : Fail(status);
  });
}

int32_t heddle_rows_are_independent(const heddle_model* model) {
  return model->executor->manifest().independent_rows ? 1 : 0;
}

int heddle_run_rows(heddle_model* model, int64_t rows, const void* const* inputs,
                    void* const* outputs) {
  return Guarded([&] {
    const absl::Status status = model->executor->RunRows(rows, inputs, outputs);
    return status.ok() ? 0 : Fail(status);
  });
}

int heddle_output_shape(const heddle_model* model, int32_t index, int64_t* shape, size_t* bytes) {
  return Guarded([&] {
    const TensorSpec* tensor = FindOutput(model, index);
    if (tensor == nullptr) return 1;
    const std::vector<int64_t>& found = model->executor->OutputShape(index);
    std::copy(found.begin(), found.end(), shape);
    *bytes = model->executor->OutputBytes(index);
    return 0;
  });
}

int heddle_get_output(const heddle_model* model, int32_t index, void* data, size_t size) {
  return Guarded([&] {
    const TensorSpec* tensor = FindOutput(model, index);
    if (tensor == nullptr) return 1;
    if (CheckSize(*tensor, model->executor->OutputBytes(index), size) != 0) return 1;
    model->executor->CopyOutput(index, static_cast<char*>(data));
    return 0;
  });
}
