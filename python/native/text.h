// Strings and errors on their way to Python.
#pragma once

#include <pybind11/pybind11.h>

#include <string_view>

namespace heddle::python {

// What is no UTF-8, in names that others chose, becomes replacement characters.
inline pybind11::str Text(std::string_view bytes) {
  PyObject* text =
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace");
  if (text == nullptr) throw pybind11::error_already_set();
  return pybind11::reinterpret_steal<pybind11::str>(text);
}

// Raises the error of python/heddle/errors.py for an exit status of the command line.
[[noreturn]] inline void Raise(int exit_status, std::string_view message) {
  const pybind11::object error =
      pybind11::module_::import("heddle.errors").attr("error_of")(exit_status, Text(message));
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw pybind11::error_already_set();
}

}  // namespace heddle::python
