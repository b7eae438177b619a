// Counts what the importer makes of operator tests in the standard's form: folders that hold
// model.onnx and test_data_set_0, as python3 -m onnx.backend.test.cmd_tools generate-data writes
// them. Each case goes through import and the interpreter.
//
//     operator-report [--verbose] FOLDER ..
//
// A folder without model.onnx stands for the folders in it. Prints how many cases of each opset
// passed, were refused, or gave a wrong result, and how many have random results, of which only
// types and shapes are compared; and the same of the cases with a node of ai.onnx.ml alone. Then come
// the reasons of refusals, the most frequent first.
// --verbose also prints a line for each case that did not pass. Exit status 1: some are wrong.
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/passes/evaluate.h"
#include "compiler/measure/compare.h"
#include "compiler/onnx/import.h"
#include "compiler/onnx/node.h"
#include "tests/onnx/random_cases.h"

namespace heddle::graph {
namespace {

namespace fs = std::filesystem;

constexpr int kSecondsPerCase = 60;

struct Outcome {
  char verdict = 'w';  // passed, refused, wrong, skipped, n: random
  int opset = 0;
  std::string message;
  bool classical = false;  // whether a node is of ai.onnx.ml
};

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

std::vector<onnx::TensorProto> ReadTensors(const fs::path& folder, const std::string& prefix) {
  std::vector<onnx::TensorProto> tensors;
  for (int i = 0;; ++i) {
    const fs::path path = folder / absl::StrCat(prefix, "_", i, ".pb");
    if (!fs::exists(path)) return tensors;
    tensors.emplace_back();
    if (!tensors.back().ParseFromString(ReadFile(path))) tensors.back().Clear();
  }
}

// How many inputs, from the last one, become constants: none, all but the first, all.
onnx::ModelProto Bind(const onnx::ModelProto& model, const std::vector<onnx::TensorProto>& data,
                      int first_bound) {
  onnx::ModelProto bound = model;
  auto* graph = bound.mutable_graph();
  graph->clear_input();
  for (int i = 0; i < model.graph().input_size(); ++i) {
    const auto& type = model.graph().input(i).type();
    const bool tensor = i < static_cast<int>(data.size()) && type.has_tensor_type() &&
                        type.tensor_type().elem_type() == data[i].data_type();
    if (!tensor || i < first_bound) {
      *graph->add_input() = model.graph().input(i);
      if (!tensor) continue;
      auto* shape = graph->mutable_input(graph->input_size() - 1)
                        ->mutable_type()
                        ->mutable_tensor_type()
                        ->mutable_shape();
      shape->clear_dim();
      for (const int64_t d : data[i].dims()) shape->add_dim()->set_dim_value(d);
      continue;
    }
    auto* initializer = graph->add_initializer();
    *initializer = data[i];
    initializer->set_name(model.graph().input(i).name());
  }
  return bound;
}

// Strings as bytes, cut or with zeros behind them.
TensorData Texts(const onnx::TensorProto& strings, const TensorType& type) {
  const auto width = static_cast<size_t>(type.shape.back());
  std::string bytes;
  for (const std::string& text : strings.string_data()) {
    std::string element = text.substr(0, width);
    element.resize(width, '\0');
    bytes += element;
  }
  return {type, SharedBytes::Of(std::move(bytes))};
}

// Runs one data set; returns what is wrong, or nothing.
std::string Run(const Graph& graph, const onnx::ModelProto& model,
                const std::vector<onnx::TensorProto>& inputs,
                const std::vector<onnx::TensorProto>& outputs, bool random) {
  std::vector<TensorData> fed;
  for (size_t k = 0; k < graph.inputs.size(); ++k) {
    const ValueId v = graph.inputs[k];
    for (int i = 0; i < model.graph().input_size(); ++i) {
      if (model.graph().input(i).name() != graph.values[v].name) continue;
      if (i >= static_cast<int>(inputs.size())) return "an input without data";
      if (graph.tables.inputs[k].text) {
        fed.push_back(Texts(inputs[i], graph.values[v].type));
        continue;
      }
      auto data = FromOnnxTensor(inputs[i]);
      if (!data.ok()) return absl::StrCat("data: ", data.status().message());
      fed.push_back(*std::move(data));
    }
  }
  if (random) fed.resize(graph.inputs.size(), Repeated(FromInts({1}), {}));  // the seed
  if (fed.size() != graph.inputs.size()) return "inputs have other names";
  const auto results = EvaluateGraph(graph, fed);
  if (!results.ok()) return absl::StrCat("evaluation: ", results.status().message());
  if (results->size() != outputs.size()) return "another number of outputs";
  for (size_t k = 0; k < outputs.size(); ++k) {
    const auto expected = FromOnnxTensor(outputs[k]);
    if (!expected.ok()) return absl::StrCat("expected data: ", expected.status().message());
    const TensorData& got = (*results)[k];
    if (got.type != expected->type)
      return absl::StrCat("output ", k, " is ", ToText(got.type), ", expected ",
                          ToText(expected->type));
    if (random) continue;
    const std::vector<double> a = ToDoubles(got), b = ToDoubles(*expected);
    // As the standard's own runner: two units in the last place of bfloat16.
    runtime::Tolerance tolerance = runtime::kDirectTolerance;
    if (got.type.dtype == ir::DType::kBF16) tolerance.relative = 0x1p-6;
    for (size_t i = 0; i < a.size(); ++i) {
      if (!Same(got.type.dtype, a[i], b[i], tolerance))
        return absl::StrCat("output ", k, "[", i, "] = ", a[i], ", expected ", b[i]);
    }
  }
  return "";
}

Outcome RunCase(const fs::path& path) {
  onnx::ModelProto model;
  if (!model.ParseFromString(ReadFile(path / "model.onnx"))) return {'w', 0, "cannot be read"};
  Outcome out{'s', 0, "no data"};
  for (const auto& node : model.graph().node()) out.classical |= node.domain() == onnx::kMlDomain;
  const bool random = onnx_cases::IsRandomCase(path.filename().string());
  for (const auto& opset : model.opset_import()) {
    if (opset.domain().empty() || opset.domain() == "ai.onnx")
      out.opset = static_cast<int>(opset.version());
  }
  for (int set = 0; fs::exists(path / absl::StrCat("test_data_set_", set)); ++set) {
    const fs::path data = path / absl::StrCat("test_data_set_", set);
    const auto inputs = ReadTensors(data, "input"), outputs = ReadTensors(data, "output");
    absl::Status refused;
    // A compiler for fixed shapes has to know the values that decide shapes, which the official
    // models feed at run time.
    for (const int first_bound : {model.graph().input_size(), 1, 0}) {
      const auto graph = ImportOnnx(Bind(model, inputs, first_bound).SerializeAsString());
      if (!graph.ok()) {
        refused = graph.status();  // what remains if more is constant
        if (!absl::IsUnimplemented(graph.status())) break;
        continue;
      }
      refused = absl::OkStatus();
      const std::string wrong = Run(*graph, model, inputs, outputs, random);
      if (!wrong.empty()) return {'w', out.opset, wrong, out.classical};
      break;
    }
    if (!refused.ok()) return {'r', out.opset, std::string(refused.message()), out.classical};
    out.verdict = random ? 'n' : 'p', out.message = "";
  }
  return out;
}

// A child runs the case, so that one that crashes or hangs costs only itself.
Outcome RunApart(const fs::path& path) {
  int ends[2];
  if (pipe(ends) != 0) return {'w', 0, "no pipe"};
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(kSecondsPerCase);
    const Outcome o = RunCase(path);
    FILE* out = fdopen(ends[1], "w");
    std::fprintf(out, "%c %d %d %s", o.verdict, o.opset, o.classical ? 1 : 0,
                 absl::StrReplaceAll(o.message, {{"\n", " "}}).c_str());
    std::fflush(out);
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(got));
  close(ends[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  std::istringstream line(text);
  Outcome o;
  if (!(line >> o.verdict >> o.opset >> o.classical)) return {'w', 0, "crashed or hung"};
  line.get();
  std::getline(line, o.message);
  return o;
}

void Collect(const fs::path& path, std::vector<fs::path>& cases) {
  if (fs::exists(path / "model.onnx")) return cases.push_back(path);
  for (const auto& entry : fs::directory_iterator(path)) {
    if (entry.is_directory()) Collect(entry.path(), cases);
  }
}

// A refusal without what is particular to the case: names and numbers of the model.
std::string Reason(const std::string& message) {
  static const std::regex quoted("'[^']*'"), node(" \\(node '[^)]*\\)");
  return std::regex_replace(std::regex_replace(message, node, ""), quoted, "'..'").substr(0, 150);
}

int Main(int argc, char** argv) {
  bool verbose = false;
  std::vector<fs::path> cases;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--verbose") {
      verbose = true;
    } else if (fs::is_directory(argument)) {
      Collect(argument, cases);
    } else {
      std::fprintf(stderr, "operator-report: '%s' is no folder\n", argv[i]);
      return 2;
    }
  }
  std::sort(cases.begin(), cases.end());
  std::map<int, std::map<char, int>> per_opset;
  std::map<char, int> all, classical;
  std::map<std::string, int> reasons;
  for (const fs::path& path : cases) {
    const Outcome o = RunApart(path);
    ++per_opset[o.opset][o.verdict];
    ++all[o.verdict];
    if (o.classical) ++classical[o.verdict];
    if (o.verdict == 'r') ++reasons[Reason(o.message)];
    if (verbose && o.verdict != 'p' && o.verdict != 'n')
      std::printf("%s %s: %s\n",
                  o.verdict == 'w'   ? "WRONG"
                  : o.verdict == 'r' ? "refused"
                                     : "skipped",
                  path.filename().c_str(), o.message.c_str());
  }
  std::printf("opset  passed refused  wrong\n");
  for (auto& [opset, counts] : per_opset)
    std::printf("%5d %7d %7d %6d\n", opset, counts['p'], counts['r'], counts['w']);
  std::printf(
      "  all %7d %7d %6d   of %zu cases (%d without data, %d with random results: only types "
      "and shapes are compared)\n",
      all['p'], all['r'], all['w'], cases.size(), all['s'], all['n']);
  int of_classical = 0;
  for (const auto& [verdict, count] : classical) of_classical += count;
  if (of_classical > 0)
    std::printf("   ml %7d %7d %6d   of %d cases with nodes of ai.onnx.ml\n", classical['p'],
                classical['r'], classical['w'], of_classical);
  std::vector<std::pair<int, std::string>> sorted;
  for (const auto& [reason, count] : reasons) sorted.emplace_back(-count, reason);
  std::sort(sorted.begin(), sorted.end());
  std::printf("\nrefused because\n");
  for (const auto& [count, reason] : sorted) std::printf("%5d  %s\n", -count, reason.c_str());
  return all['w'] == 0 ? 0 : 1;
}

}  // namespace
}  // namespace heddle::graph

int main(int argc, char** argv) { return heddle::graph::Main(argc, argv); }
