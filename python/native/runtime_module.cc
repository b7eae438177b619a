// heddle._runtime: modules that run, over the C API of the runtime and nothing else of ours. The package's
// module.py checks what people give, and allocates; this file moves memory and calls.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/runtime/heddle.h"
#include "python/native/text.h"

namespace heddle::python {
namespace {

namespace py = pybind11;

// Exit statuses of the command line.
constexpr int kInternal = 1;
constexpr int kUsage = 2;

// The memory of a C-contiguous array, for as long as this object lives.
class View {
 public:
  View(py::handle array, bool writable) {
    const int flags = PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(array.ptr(), &view_, flags) != 0) throw py::error_already_set();
  }
  View(const View&) = delete;
  View& operator=(const View&) = delete;
  ~View() { PyBuffer_Release(&view_); }
  void* data() const { return view_.buf; }
  size_t bytes() const { return static_cast<size_t>(view_.len); }

 private:
  Py_buffer view_;
};

// A deque, since a view stays where it is.
using Views = std::deque<View>;

py::tuple Words(const char* const* words, int32_t count) {
  py::tuple all(count);
  for (int32_t i = 0; i < count; ++i) all[static_cast<size_t>(i)] = Text(words[i]);
  return all;
}

using InfoFunction = int (*)(const heddle_model*, int32_t, heddle_tensor_info*);
using NamesFunction = int (*)(const heddle_model*, int32_t, heddle_tensor_names*);

// (name, dtype, shape, text, columns, labels) of each tensor.
py::list Describe(const heddle_model* model, int32_t count, InfoFunction info_of,
                  NamesFunction names_of) {
  py::list all;
  for (int32_t i = 0; i < count; ++i) {
    heddle_tensor_info info;
    heddle_tensor_names names;
    if (info_of(model, i, &info) != 0 || names_of(model, i, &names) != 0)
      Raise(kInternal, heddle_last_error());
    py::tuple shape(info.rank);
    for (int32_t d = 0; d < info.rank; ++d) shape[static_cast<size_t>(d)] = info.shape[d];
    all.append(py::make_tuple(Text(info.name), Text(info.dtype), shape, names.text != 0,
                              Words(names.columns, names.num_columns),
                              Words(names.labels, names.num_labels)));
  }
  return all;
}

// A loaded module. One thread uses it at a time, in the process that loaded it.
class Model {
 public:
  static std::unique_ptr<Model> FromFile(const std::string& path, int threads) {
    auto model = std::make_unique<Model>();
    py::gil_scoped_release unlocked;
    if (heddle_load(path.c_str(), threads, &model->model_) != 0) model->FailToLoad();
    return model;
  }
  static std::unique_ptr<Model> FromBytes(const py::bytes& bytes, int threads) {
    auto model = std::make_unique<Model>();
    const std::string_view data = bytes;  // `bytes` outlives the call, and never changes
    py::gil_scoped_release unlocked;
    if (heddle_load_memory(data.data(), data.size(), threads, &model->model_) != 0)
      model->FailToLoad();
    return model;
  }
  Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  // A forked child has the memory, but not the threads, which heddle_free waits for.
  ~Model() {
    if (process_ == getpid()) heddle_free(model_);
  }

  py::list Inputs() const {
    return Describe(model_, heddle_num_inputs(model_), heddle_input_info, heddle_input_names);
  }
  py::list Outputs() const {
    return Describe(model_, heddle_num_outputs(model_), heddle_output_info, heddle_output_names);
  }
  bool RowsAreIndependent() const { return heddle_rows_are_independent(model_) != 0; }

  // Runs the module: reads these arrays and writes those, all C-contiguous and as large as its tensors.
  // Memory at a multiple of 64 bytes is used where it is, other is copied. Returns the numbers of the
  // inputs that were copied, those of the outputs, and the shapes of the outputs. An output that was not
  // copied has the layout of its largest shape, otherwise that of its shape, at the front.
  py::tuple Run(const py::list& inputs, const py::list& outputs) {
    CheckProcess();
    Views from, to;
    for (const py::handle array : inputs) from.emplace_back(array, false);
    for (const py::handle array : outputs) to.emplace_back(array, true);
    CheckCount(from.size(), heddle_num_inputs(model_), "inputs");
    CheckCount(to.size(), heddle_num_outputs(model_), "outputs");
    std::vector<int> copied_inputs, copied_outputs;
    std::vector<std::vector<int64_t>> shapes(to.size());
    std::string error;
    {
      py::gil_scoped_release unlocked;
      if (!RunOn(from, to, &copied_inputs, &copied_outputs, &shapes)) error = heddle_last_error();
      // Whatever happened, the model keeps no address of an array.
      for (size_t i = 0; i < from.size(); ++i)
        heddle_bind_input(model_, static_cast<int32_t>(i), nullptr, 0);
      for (size_t i = 0; i < to.size(); ++i)
        heddle_bind_output(model_, static_cast<int32_t>(i), nullptr, 0);
    }
    if (!error.empty()) Raise(kInternal, error);
    return py::make_tuple(copied_inputs, copied_outputs, shapes);
  }

  // Runs a module of independent rows on `rows` rows, which the arrays have from their row `begin` on.
  void RunRows(int64_t begin, int64_t rows, const py::list& inputs, const py::list& outputs) {
    CheckProcess();
    if (begin < 0 || rows < 0) Raise(kInternal, "rows are counted from 0 on");
    Views from, to;
    for (const py::handle array : inputs) from.emplace_back(array, false);
    for (const py::handle array : outputs) to.emplace_back(array, true);
    CheckCount(from.size(), heddle_num_inputs(model_), "inputs");
    CheckCount(to.size(), heddle_num_outputs(model_), "outputs");
    std::vector<const void*> in;
    std::vector<void*> out;
    for (size_t i = 0; i < from.size(); ++i)
      in.push_back(RowsAt(from[i], heddle_input_info, static_cast<int32_t>(i), begin, rows));
    for (size_t i = 0; i < to.size(); ++i)
      out.push_back(RowsAt(to[i], heddle_output_info, static_cast<int32_t>(i), begin, rows));
    std::string error;
    {
      py::gil_scoped_release unlocked;
      if (heddle_run_rows(model_, rows, in.data(), out.data()) != 0) error = heddle_last_error();
    }
    if (!error.empty()) Raise(kInternal, error);
  }

 private:
  // Takes the interpreter's lock.
  [[noreturn]] static void FailToLoad() {
    const std::string error = heddle_last_error();
    py::gil_scoped_acquire locked;
    Raise(kUsage, error);
  }

  void CheckProcess() const {
    if (process_ != getpid()) {
      Raise(kUsage,
            "this module was loaded before the process forked, and its threads are not here; load "
            "it again in this process");
    }
  }

  static void CheckCount(size_t given, int32_t wanted, const char* what) {
    if (given != static_cast<size_t>(wanted))
      Raise(kInternal,
            std::to_string(given) + " " + what + " where there are " + std::to_string(wanted));
  }

  // False: heddle_last_error says why.
  bool RunOn(const Views& from, const Views& to, std::vector<int>* copied_inputs,
             std::vector<int>* copied_outputs, std::vector<std::vector<int64_t>>* shapes) {
    for (size_t i = 0; i < from.size(); ++i) {
      const auto index = static_cast<int32_t>(i);
      const View& view = from[i];
      if (view.bytes() == 0) {
        if (heddle_set_input(model_, index, nullptr, 0) != 0) return false;
      } else if (heddle_bind_input(model_, index, view.data(), view.bytes()) != 0) {
        if (heddle_set_input(model_, index, view.data(), view.bytes()) != 0) return false;
        copied_inputs->push_back(index);
      }
    }
    for (size_t i = 0; i < to.size(); ++i) {
      const auto index = static_cast<int32_t>(i);
      const View& view = to[i];
      if (view.bytes() != 0 && heddle_bind_output(model_, index, view.data(), view.bytes()) != 0)
        copied_outputs->push_back(index);
    }
    if (heddle_run(model_) != 0) return false;
    for (size_t i = 0; i < to.size(); ++i) {
      heddle_tensor_info info;
      size_t bytes = 0;
      if (heddle_output_info(model_, static_cast<int32_t>(i), &info) != 0) return false;
      std::vector<int64_t>& shape = (*shapes)[i];
      shape.resize(static_cast<size_t>(info.rank));
      if (heddle_output_shape(model_, static_cast<int32_t>(i), shape.data(), &bytes) != 0)
        return false;
    }
    for (int index : *copied_outputs) {
      std::vector<int64_t> shape = (*shapes)[static_cast<size_t>(index)];
      size_t bytes = 0;
      if (heddle_output_shape(model_, index, shape.data(), &bytes) != 0) return false;
      const View& view = to[static_cast<size_t>(index)];
      // A wrong size is refused here, before a byte is written.
      if (heddle_get_output(model_, index, view.data(), std::min(bytes, view.bytes())) != 0)
        return false;
    }
    return true;
  }

  // Where rows begin in an array, which must have all of them.
  void* RowsAt(const View& view, InfoFunction info_of, int32_t index, int64_t begin,
               int64_t rows) const {
    heddle_tensor_info info;
    if (info_of(model_, index, &info) != 0) Raise(kInternal, heddle_last_error());
    if (info.rank == 0 || info.shape[0] == 0)
      Raise(kUsage, "the rows of this model depend on each other: run it as it is");
    const size_t row = info.bytes / static_cast<size_t>(info.shape[0]);
    const size_t last = static_cast<size_t>(begin) + static_cast<size_t>(rows);
    if (row != 0 && last > view.bytes() / row)
      Raise(kInternal, std::string("tensor '") + info.name + "' has fewer rows than are wanted");
    return static_cast<char*>(view.data()) + static_cast<size_t>(begin) * row;
  }

  heddle_model* model_ = nullptr;
  const pid_t process_ = getpid();
};

}  // namespace

PYBIND11_MODULE(_runtime, m) {
  m.doc() = "Modules that run. Use heddle.Module, which checks what it is given.";
  py::class_<Model>(m, "Model")
      .def_static("from_file", &Model::FromFile, py::arg("path"), py::arg("threads"))
      .def_static("from_bytes", &Model::FromBytes, py::arg("data"), py::arg("threads"))
      .def("inputs", &Model::Inputs)
      .def("outputs", &Model::Outputs)
      .def("rows_are_independent", &Model::RowsAreIndependent)
      .def("run", &Model::Run, py::arg("inputs"), py::arg("outputs"))
      .def("run_rows", &Model::RunRows, py::arg("begin"), py::arg("rows"), py::arg("inputs"),
           py::arg("outputs"));
}

}  // namespace heddle::python
