// Loads a module, fills its inputs with ones (numbers of type f32; zeros otherwise), runs it, and
// prints the largest value of each output. Usage: run_module MODULE.heddle
#include <heddle.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

void Check(int result, const std::string& what) {
  if (result != 0) throw std::runtime_error(what + ": " + heddle_last_error());
}

// Owns a loaded model. One thread uses it at a time.
class Model {
 public:
  explicit Model(const std::string& path) {
    heddle_model* model = nullptr;
    Check(heddle_load(path.c_str(), /*threads=*/0, &model), path);
    model_.reset(model);
  }
  int Inputs() const { return heddle_num_inputs(model_.get()); }
  int Outputs() const { return heddle_num_outputs(model_.get()); }
  heddle_tensor_info Input(int index) const {
    heddle_tensor_info info;
    Check(heddle_input_info(model_.get(), index, &info), "an input");
    return info;
  }
  heddle_tensor_info Output(int index) const {
    heddle_tensor_info info;
    Check(heddle_output_info(model_.get(), index, &info), "an output");
    return info;
  }
  void SetInput(int index, const std::vector<char>& bytes) {
    Check(heddle_set_input(model_.get(), index, bytes.data(), bytes.size()), Input(index).name);
  }
  void Run() { Check(heddle_run(model_.get()), "run"); }
  // The shape and the bytes of an output after a run.
  std::pair<std::vector<int64_t>, std::vector<char>> Take(int index) const {
    const heddle_tensor_info info = Output(index);
    std::vector<int64_t> shape(static_cast<size_t>(info.rank));
    size_t size = 0;
    Check(heddle_output_shape(model_.get(), index, shape.data(), &size), info.name);
    std::vector<char> bytes(size);
    Check(heddle_get_output(model_.get(), index, bytes.data(), size), info.name);
    return {std::move(shape), std::move(bytes)};
  }

 private:
  struct Free {
    void operator()(heddle_model* model) const { heddle_free(model); }
  };
  std::unique_ptr<heddle_model, Free> model_;
};

std::string Describe(const heddle_tensor_info& info, const int64_t* shape) {
  std::string text = std::string(info.name) + ": " + info.dtype;
  for (int i = 0; i < info.rank; ++i) text += (i == 0 ? " " : "x") + std::to_string(shape[i]);
  return text;
}

void RunModule(const std::string& path) {
  Model model(path);
  for (int i = 0; i < model.Inputs(); ++i) {
    const heddle_tensor_info info = model.Input(i);
    std::vector<char> bytes(info.bytes);
    if (std::string(info.dtype) == "f32") {
      auto* values = reinterpret_cast<float*>(bytes.data());
      std::fill(values, values + bytes.size() / sizeof(float), 1.0f);
    }
    model.SetInput(i, bytes);
    std::cout << Describe(info, info.shape) << "\n";
  }
  model.Run();
  for (int i = 0; i < model.Outputs(); ++i) {
    const heddle_tensor_info info = model.Output(i);
    const auto [shape, bytes] = model.Take(i);
    std::cout << Describe(info, shape.data());
    if (std::string(info.dtype) == "f32" && !bytes.empty()) {
      const auto* values = reinterpret_cast<const float*>(bytes.data());
      const auto* largest = std::max_element(values, values + bytes.size() / sizeof(float));
      std::cout << ", the largest value " << *largest << " at " << largest - values;
    }
    std::cout << "\n";
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: run_module MODULE.heddle\n";
    return 2;
  }
  try {
    RunModule(argv[1]);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "run_module: " << error.what() << "\n";
    return 1;
  }
}
