// Writes the first inputs of each fuzz target: files that the parsers accept, made by our own programs and tiny. Files that are there
// already are replaced; others stay. Usage: write_seeds FOLDER (tests/fuzz/corpus)
#include <xgboost/c_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/modules/npy.h"
#include "client/views/json.h"
#include "client/zoo/writer.h"
#include "compiler/driver/compile.h"
#include "compiler/graph/fusion/fuse.h"
#include "compiler/ir/text.h"
#include "compiler/machine/measured_machine.h"
#include "compiler/pass/lower.h"
#include "compiler/plan/plan.h"
#include "compiler/runtime/module.h"
#include "compiler/schedule/trace.h"
#include "cost_model/blob.h"
#include "cost_model/features/features.h"
#include "cost_model/model/model.h"
#include "cost_model/search/methods.h"
#include "cost_model/transfer/transfer_samples.h"
#include "proto/chunks.h"
#include "proto/jobs.pb.h"
#include "proto/tracker.pb.h"
#include "proto/worker.pb.h"
#include "tests/driver/forest_text.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/search_task.h"
#include "tests/fuzz/trace_programs.h"
#include "tests/machine/example_machine.h"
#include "worker/frame.h"

namespace heddle::fuzz {
namespace {

namespace fs = std::filesystem;

template <typename T>
T Made(absl::StatusOr<T> value) {
  if (!value.ok()) std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
  Require(value.ok(), "a seed is made");
  return *std::move(value);
}

class Corpus {
 public:
  explicit Corpus(fs::path folder) : folder_(std::move(folder)) {}

  void Add(const std::string& target, const std::string& name, std::string_view bytes) {
    fs::create_directories(folder_ / target);
    std::ofstream(folder_ / target / name, std::ios::binary) << bytes;
    std::printf("%s/%s %zu\n", target.c_str(), name.c_str(), bytes.size());
  }

 private:
  fs::path folder_;
};

std::string WithByte(int byte, std::string_view rest) {
  return std::string(1, static_cast<char>(byte)).append(rest);
}

// ---- Models ----

std::string SmallConvolutions() {
  zoo::ModelWriter m("convolutions", 1);
  std::string x = m.Input("x", {1, 2, 6, 6});
  x = m.Relu(m.ConvBn(x, "c1", 2, 4, 3, 1), "r1");
  x = m.Add(x, m.Relu6(m.ConvBn(x, "c2", 4, 4, 3, 1, 4), "r2"), "add");
  x = m.MaxPool(x, "pool", 2, 2, 0);
  m.Output(m.Softmax(m.Dense(m.GlobalPoolFlatten(x), "fc", 4, 3), "softmax"), "y", {1, 3});
  return Made(m.Finish());
}

std::string SmallDense() {
  zoo::ModelWriter m("dense", 1);
  std::string x = m.Input("x", {2, 6});
  x = m.Relu(m.Dense(x, "fc1", 6, 8), "r1");
  m.Output(m.Dense(x, "fc2", 8, 3), "y", {2, 3});
  return Made(m.Finish());
}

std::string SmallSequence() {
  zoo::ModelWriter m("sequence", 1);
  const std::string ids = m.Input("ids", {1, 4}, onnx::TensorProto::INT64);
  const std::string table = m.Uniform("table", {5, 4}, -1, 1);
  std::string x = m.Op("Gather", "embed", {table, ids});
  x = m.Op("Transpose", "turn", {x}, {{"perm", zoo::ModelWriter::Dims{0, 2, 1}}});
  x = m.Op("Reshape", "flat", {x, m.Ints("shape", {1, -1})});
  x = m.Op("Slice", "slice", {x, m.Ints("starts", {1}), m.Ints("ends", {9}), m.Ints("axes", {1})});
  x = m.Op("ReduceMean", "mean", {m.Concat({x, x}, "twice", 1)},
           {{"axes", zoo::ModelWriter::Dims{1}}, {"keepdims", int64_t{0}}});
  m.Output(m.Op("Tanh", "tanh", {x}), "y", {1});
  return Made(m.Finish());
}

std::string SmallRecurrence() {
  zoo::ModelWriter m("recurrence", 1);
  const std::string x = m.Input("x", {3, 1, 2});
  const std::string w = m.Uniform("w", {1, 8, 2}, -1, 1), r = m.Uniform("r", {1, 8, 2}, -1, 1);
  const auto outputs = m.Ops("LSTM", "lstm", {x, w, r}, 3, {{"hidden_size", int64_t{2}}});
  m.Output(outputs[0], "y", {3, 1, 1, 2});
  return Made(m.Finish());
}

// A tensor that becomes a part, and one that is a part already.
std::string ModelOfParts() {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.mutable_graph()->set_name("parts");
  onnx::TensorProto* large = model.mutable_graph()->add_initializer();
  large->set_name("large");
  large->set_data_type(onnx::TensorProto::UINT8);
  large->add_dims(1 << 16);
  large->set_raw_data(std::string(1 << 16, '\0'));
  onnx::TensorProto* outside = model.mutable_graph()->add_node()->add_attribute()->mutable_t();
  outside->set_name("outside");
  outside->set_data_location(onnx::TensorProto::EXTERNAL);
  for (const auto& [key, value] : {std::pair("location", "weights.bin"),
                                   std::pair("offset", "4096"), std::pair("length", "64")}) {
    auto* entry = outside->add_external_data();
    entry->set_key(key);
    entry->set_value(value);
  }
  return model.SerializeAsString();
}

void AddModels(Corpus& corpus) {
  const std::pair<const char*, std::string> models[] = {{"convolutions", SmallConvolutions()},
                                                        {"dense", SmallDense()},
                                                        {"sequence", SmallSequence()},
                                                        {"recurrence", SmallRecurrence()}};
  for (const auto& [name, bytes] : models) {
    corpus.Add("onnx_model", name, bytes);
    plan::Plan plan;
    const graph::FusedGraph fused = Made(PrepareModel(bytes, {}, {}, {}, &plan));
    corpus.Add("plan_text", name, plan::ToText(plan));
    int number = 0;
    for (const graph::Task& task : graph::ExtractTasks(fused)) {
      if (number < 3) corpus.Add("ir_text", absl::StrCat(name, "-", number), task.workload);
      ++number;
    }
  }
  corpus.Add("onnx_parts", "dense", SmallDense());
  corpus.Add("onnx_parts", "parts", ModelOfParts());
  plan::Plan plan;
  plan.substitutions = {{"a rule", 1, {"node \"1\"", "node\n2"}}, {"another", 0, {}}};
  plan.layouts = graph::FixedLayouts{16, {{"node 3", static_cast<graph::Layout>(1)}}};
  plan.separate = {"value"};
  plan.columns = {"matrix"};
  plan.forests = {{"trees", graph::ForestForm::kSelect}};
  corpus.Add("plan_text", "everything", plan::ToText(plan));
}

// ---- Programs and traces ----

void AddTraces(Corpus& corpus) {
  constexpr int kTraces = 3;
  for (size_t i = 0; i < std::size(kTracePrograms); ++i) {
    const std::string text(kTracePrograms[i]);
    cost_model::SearchOptions options;
    options.strategy = "random";
    const auto search = Made(cost_model::MakeSearch(text, {}, options));
    const std::vector<cost_model::Candidate> proposed = Made(search->Propose(kTraces));
    corpus.Add("ir_text", absl::StrCat("program-", i), text);
    for (size_t k = 0; k < proposed.size(); ++k) {
      const std::string name = absl::StrCat(i, "-", k);
      corpus.Add("trace_text", name, WithByte(static_cast<int>(i), proposed[k].trace));
      const ir::Program scheduled = Made(
          schedule::Replay(Made(ir::Parse(text)), Made(schedule::ParseTrace(proposed[k].trace))));
      corpus.Add("ir_text", absl::StrCat("scheduled-", name), ir::Print(scheduled));
      if (k == 0)
        corpus.Add("ir_text", absl::StrCat("lowered-", name),
                   ir::Print(Made(pass::Lower(scheduled))));
    }
  }
  // A step of each primitive, whether it applies or not.
  const std::string_view steps[] = {"split vi 2 4\n",
                                    "fuse i j\n",
                                    "reorder j i\n",
                                    "compute_at c i1\n",
                                    "reverse_compute_at y i\n",
                                    "compute_inline c\n",
                                    "reverse_compute_inline y\n",
                                    "cache_read x c local\n",
                                    "cache_write c local\n",
                                    "decompose_reduction c k\n",
                                    "rfactor c k\n",
                                    "parallel i\n",
                                    "vectorize j1\n",
                                    "unroll k\n",
                                    "bind i blockIdx.x\n",
                                    "set_scope c local\n",
                                    "pack c w 2 4\n",
                                    "winograd y 4\n",
                                    "tf32 c\n",
                                    "tensorize i\n"};
  std::string all;
  for (const std::string_view step : steps) all += step;
  corpus.Add("trace_text", "primitives", WithByte(0, all));
}

// ---- Forests ----

std::string XgboostModel(const char* format, bool categorical) {
  constexpr int kRows = 60, kColumns = 3;
  const auto check = [](int rc) { Require(rc == 0, XGBGetLastError()); };
  std::vector<float> values, labels;
  for (int r = 0; r < kRows; ++r) {
    const float row[kColumns] = {static_cast<float>(r % 7), static_cast<float>(r) / 10,
                                 static_cast<float>(r % 4)};
    values.insert(values.end(), row, row + kColumns);
    labels.push_back(static_cast<float>((r % 7 > 3) != (r % 4 == 1)));
  }
  DMatrixHandle matrix = nullptr;
  check(XGDMatrixCreateFromMat_omp(values.data(), kRows, kColumns, NAN, &matrix, 1));
  if (categorical) {
    const char* types[] = {"float", "float", "c"};
    check(XGDMatrixSetStrFeatureInfo(matrix, "feature_type", types, kColumns));
  }
  check(XGDMatrixSetFloatInfo(matrix, "label", labels.data(), kRows));
  BoosterHandle booster = nullptr;
  check(XGBoosterCreate(&matrix, 1, &booster));
  for (const auto& [name, value] :
       {std::pair("nthread", "1"), std::pair("max_depth", "3"), std::pair("tree_method", "hist"),
        std::pair("objective", "binary:logistic"), std::pair("verbosity", "0"),
        std::pair("seed", "1")})
    check(XGBoosterSetParam(booster, name, value));
  for (int round = 0; round < 2; ++round) check(XGBoosterUpdateOneIter(booster, round, matrix));
  bst_ulong size = 0;
  const char* bytes = nullptr;
  check(XGBoosterSaveModelToBuffer(booster, absl::StrCat(R"({"format": ")", format, "\"}").c_str(),
                                   &size, &bytes));
  std::string model(bytes, size);
  XGBoosterFree(booster);
  XGDMatrixFree(matrix);
  return model;
}

void AddForests(Corpus& corpus) {
  for (const bool categorical : {false, true}) {
    for (const char* format : {"json", "ubj"})
      corpus.Add("forest_file", absl::StrCat("xgboost-", categorical ? "sets." : "values.", format),
                 XgboostModel(format, categorical));
  }
  for (const int classes : {1, 2, 3})
    corpus.Add("forest_file", absl::StrCat("lightgbm-", classes, ".txt"),
               ForestText(2, 2, 3, classes));
  corpus.Add("forest_file", "document.json",
             R"({"a": [1, 2.5, NaN, null, true, "t\n"], "b": {}, "c": [[], [{}]]})");
}

// ---- Modules ----

void AddModules(Corpus& corpus) {
  const Target target{.cpu = "x86-64"};
  corpus.Add("module_file", "dense.heddle",
             Made(CompileModel(SmallDense(), {}, target, {}, {.model_name = "dense"})));
  ModelOptions rows;
  rows.import.shapes = {{"rows", {1, 4}}};
  corpus.Add("module_file", "trees.heddle",
             Made(CompileModel(ForestText(2, 2, 3), rows, target, {}, {.model_name = "trees"})));
  // A module for GPUs with packed parameters and everything else that a manifest may have.
  runtime::Module module;
  runtime::Manifest& m = module.manifest;
  m.producer = "heddle test";
  m.model = "everything";
  m.model_digest = std::string(64, 'a');
  m.target = "cuda -arch=sm_90";
  m.plan = "plan 1\n";
  m.machine = "machine 1\n";
  m.cpu_features = {"avx2"};
  m.threads = 2;
  m.inputs = {{"x", "f32", {4, 2}}};
  m.inputs[0].columns = {"a", "b"};
  m.outputs = {{"y", "f32", {4, 2}}, {"length of y", "i64", {}}};
  m.outputs[0].lengths = {{0, 1}};
  m.outputs[0].labels = {"no", "yes"};
  m.kernels = {
      {"k", std::string(16, '0'), "add 4x2", 8, 256, "tuned", 0.5, {true, true, true, 7}, 16, {}}};
  m.kernels[0].launches = {
      {"k", {1, 1, 1}, {32, 1, 1}, 64, 128, {{0, 0}, {1, 0}, {2, 0}, {-1, 0}}, 16, 8}};
  m.calls = {{0,
              {{runtime::Place::kInput, 0, 32},
               {runtime::Place::kParam, 0, 4096},
               {runtime::Place::kOutput, 0, 32}}}};
  m.arena_bytes = 64;
  m.workspace_bytes = 256;
  std::string params;
  for (int i = 0; i < 1024; ++i) {
    const float value = static_cast<float>(i % 15 - 7) * 0.5F;
    params.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  std::optional<runtime::PackedParam> packing = runtime::FindPacking(params, "f32", {1024});
  Require(packing.has_value(), "the parameters can be packed");
  m.packed = {*packing};
  module.code = "no code";
  module.params = SharedBytes::Of(std::move(params));
  corpus.Add("module_file", "everything.heddle", runtime::SerializeModule(module));
}

// ---- Searches ----

// The payload of a sealed blob whose magic word has so many bytes.
std::string_view PayloadOf(std::string_view blob, size_t magic) {
  constexpr size_t kVersionBytes = 4, kChecksumBytes = 8;
  blob.remove_prefix(magic + kVersionBytes);
  blob.remove_suffix(kChecksumBytes);
  return blob;
}

void AddSearches(Corpus& corpus) {
  constexpr size_t kStateMagic = 9, kModelMagic = 8;
  const char* strategies[] = {"random", "grid", "genetic", "attention", "annealing"};
  for (int s = 0; s < static_cast<int>(std::size(strategies)); ++s) {
    const auto search = MakeFuzzSearch(strategies[s]);
    for (int round = 0; round < 2; ++round) {
      std::vector<cost_model::Result> results;
      for (const cost_model::Candidate& candidate : Made(search->Propose(3)))
        results.push_back(
            {candidate.trace, results.size() != 2, 1e-3 * static_cast<double>(1 + results.size())});
      Require(search->Update(results).ok(), "a search learns");
      corpus.Add("search_state", absl::StrCat(strategies[s], "-", round),
                 WithByte(s, PayloadOf(search->Save(), kStateMagic)));
      Require(search->Propose(2).ok(), "a search proposes");
    }
  }
  const int models = static_cast<int>(std::size(strategies));
  std::vector<cost_model::Sample> samples;
  for (int i = 0; i < 8; ++i)
    samples.push_back(
        {{static_cast<float>(i), 1, static_cast<float>(i % 3), 0}, static_cast<float>(i) / 8});
  const auto model = cost_model::MakeModel(cost_model::FindMethod("attention")->model, 0);
  Require(model->Fit(samples).ok(), "a model is fitted");
  corpus.Add("search_state", "model", WithByte(models, PayloadOf(model->Serialize(), kModelMagic)));
  corpus.Add(
      "search_state", "samples",
      WithByte(models + 1, PayloadOf(cost_model::PackTransferSamples(FuzzSamples()), kModelMagic)));
}

// ---- Messages ----

v1::Record FullRecord() {
  v1::Record record;
  record.set_schema_version(1);
  record.set_workload_key("0123456789abcdef");
  record.set_target("llvm -mcpu=znver3");
  record.set_device_key("znver3");
  record.set_trace("parallel i\n");
  v1::Measurement& measured = *record.mutable_measurement();
  measured.set_outcome(v1::OUTCOME_OK);
  for (const double ns : {1000.0, 1200.5, 990.0}) measured.add_samples_ns(ns);
  measured.mutable_evidence()->set_worker("local");
  measured.mutable_evidence()->set_slot("cpu0");
  measured.mutable_evidence()->set_cpu_mhz(2450);
  measured.set_build_ns(5000);
  record.set_median_ns(1000);
  record.set_created_unix_ns(1'700'000'000'000'000'000);
  record.set_job("j1");
  record.set_candidate(7);
  record.set_attempt(1);
  record.set_flops(2048);
  record.set_label("matmul \"8x8\"");
  record.set_origin("annealing");
  record.mutable_prediction()->set_score(0.5);
  return record;
}

v1::JobSpec FullJob() {
  v1::JobSpec spec;
  spec.set_target("llvm -mcpu=znver3 -threads=2");
  spec.set_trials_per_task(64);
  spec.set_batch(16);
  spec.set_pipeline_depth(2);
  spec.set_strategy("annealing");
  spec.set_user("someone");
  spec.set_allocation("uniform");
  spec.set_plan_search("joint");
  spec.set_priority(3);
  spec.set_deadline_unix_ns(1'800'000'000'000'000'000);
  spec.set_time_limit_ms(60'000);
  auto* shape = spec.mutable_options()->add_shapes();
  shape->set_input("x");
  shape->add_extents(1);
  return spec;
}

void AddMessages(Corpus& corpus) {
  corpus.Add("record_line", "full", client::ToFileJsonLine(FullRecord()));
  corpus.Add("record_line", "short",
             R"({"schema_version": 1, "workload_key": "0123456789abcdef"})");
  corpus.Add("service_messages", "job", WithByte(0, FullJob().SerializeAsString()));
  corpus.Add("service_messages", "record", WithByte(1, FullRecord().SerializeAsString()));
  v1::TransferModel model;
  model.set_model("model");
  model.set_tasks(2);
  model.set_samples(100);
  model.set_since(50);
  auto* teacher = model.add_teachers();
  teacher->set_workload_key("0123456789abcdef");
  teacher->set_measured(64);
  corpus.Add("service_messages", "model", WithByte(2, model.SerializeAsString()));
  std::string chunks;
  SendChunks("model", "the bytes of a model", [&](const v1::Chunk& chunk) {
    std::string bytes = chunk.SerializeAsString();
    constexpr size_t kUnit = 16;
    // A field that the message does not have fills it up to a whole number of units.
    const size_t units = (bytes.size() + 2 + kUnit - 1) / kUnit;
    const size_t filling = units * kUnit - bytes.size() - 2;
    bytes += '\x7a';
    bytes += static_cast<char>(filling);
    bytes.append(filling, ' ');
    chunks += static_cast<char>(units);
    chunks += bytes;
    return true;
  });
  corpus.Add("service_messages", "chunks", WithByte(3, chunks));

  std::string events, inputs;
  const auto event = [&](const v1::StageEvent& e) { events += Made(worker::EncodeFrame(e)); };
  v1::StageEvent e;
  e.mutable_wanted()->add_blobs()->set_sha256(std::string(64, 'a'));
  event(e);
  e.mutable_candidate_started()->set_candidate(7);
  event(e);
  e.mutable_profiled()->set_candidate(7);
  *e.mutable_profiled()->mutable_measurement() = FullRecord().measurement();
  event(e);
  e.mutable_import()->add_tasks()->set_workload("program");
  event(e);
  e.mutable_finished()->set_wall_ns(1000);
  event(e);
  corpus.Add("stage_frames", "events", WithByte(3, events));
  v1::StageInput i;
  i.mutable_start()->set_job("j1");
  i.mutable_start()->set_target("llvm -mcpu=znver3");
  i.mutable_start()->mutable_propose()->mutable_search()->set_strategy("annealing");
  inputs += Made(worker::EncodeFrame(i));
  i.mutable_chunk()->set_name("state");
  i.mutable_chunk()->set_data("bytes");
  inputs += Made(worker::EncodeFrame(i));
  corpus.Add("stage_frames", "inputs", WithByte(255, inputs));

  const auto checked = [&](int kind, const char* name, const google::protobuf::Message& message) {
    corpus.Add("check_message", name, WithByte(kind, message.SerializeAsString()));
  };
  v1::SubmitRequest submit;
  *submit.mutable_spec() = FullJob();
  submit.set_submit_key("0123");
  checked(0, "submit", submit);
  i.mutable_profile()->mutable_candidate()->set_id(7);
  v1::Artifact& artifact = *i.mutable_profile()->mutable_artifact();
  artifact.set_shared_object("code");
  artifact.add_kernels()->set_symbol("kernel");
  artifact.mutable_seal()->set_attempt_id(1);
  checked(1, "input", i);
  e.mutable_profiled()->set_candidate(7);
  *e.mutable_profiled()->mutable_measurement() = FullRecord().measurement();
  checked(2, "event", e);
  checked(3, "record", FullRecord());
  v1::RecordQuery query;
  query.set_workload_key("0123456789abcdef");
  query.set_limit(10);
  checked(4, "query", query);
  v1::SynchronizeRequest report;
  report.set_worker("w1");
  report.add_slots()->set_name("cpu0");
  report.mutable_slots(0)->add_cores(1);
  report.add_running_leases("lease1");
  report.set_load_average(0.5);
  checked(5, "report", report);
  v1::ListWorkersResponse workers;
  *workers.add_workers()->add_slots()->mutable_slot() = report.slots(0);
  workers.mutable_workers(0)->mutable_slots(0)->set_reason("held by somebody");
  checked(6, "workers", workers);
}

// ---- Tables and texts ----

void AddTables(Corpus& corpus) {
  corpus.Add("csv_table", "numbers", WithByte(0, "1,2,3\n4,5e-3,NA\r\n\n-inf,nan,+7\n"));
  corpus.Add("csv_table", "names", WithByte(1, "income,age,\"co\"\"l,our\",colour\n1,2,3,4\n"));
  corpus.Add("csv_table", "texts", WithByte(2, "\"a \"\"quote\"\"\",two,3\nx,\"y\nz\",4\n"));
  corpus.Add("csv_table", "columns", WithByte(3, "a,b,0,1\n0.5,1,2,3\n1.5,-1,255,0\n"));
  corpus.Add("csv_table", "one-column",
             WithByte(4,
                      "\xef\xbb\xbf"
                      "x\n1\n\n2\n"));
  const std::vector<std::pair<std::string, client::NpyArray>> arrays = {
      {"f32", {"f32", {2, 3}, std::string(24, '\1')}},
      {"i64", {"i64", {2}, std::string(16, '\2')}},
      {"scalar", {"u8", {}, "x"}},
      {"empty", {"bool", {0, 4}, ""}}};
  for (const auto& [name, array] : arrays)
    corpus.Add("npy_file", name, client::SerializeNpy(array));
}

void AddTexts(Corpus& corpus) {
  corpus.Add("target_text", "plain", "llvm -mcpu=znver3");
  corpus.Add("target_text", "all",
             "llvm -mcpu=sapphirerapids -mattr=+avx2,-fma,+amx-tile -triple=x86_64-linux-gnu "
             "-threads=4 -winograd=off");
  corpus.Add("target_text", "gpu", "cuda -arch=sm_90 -tf32=on");
  corpus.Add("machine_text", "four-cores", machine::ToText(machine::ExampleMachine()));
}

}  // namespace
}  // namespace heddle::fuzz

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "write_seeds: give the folder of the corpora, tests/fuzz/corpus\n");
    return 2;
  }
  heddle::fuzz::Corpus corpus(arguments[1]);
  heddle::fuzz::AddModels(corpus);
  heddle::fuzz::AddTraces(corpus);
  heddle::fuzz::AddForests(corpus);
  heddle::fuzz::AddModules(corpus);
  heddle::fuzz::AddSearches(corpus);
  heddle::fuzz::AddMessages(corpus);
  heddle::fuzz::AddTables(corpus);
  heddle::fuzz::AddTexts(corpus);
}
