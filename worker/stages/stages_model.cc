// import and compile: the stages that see the model.
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/blob_store.h"
#include "base/mapped_file.h"
#include "base/status_macros.h"
#include "compiler/driver/compile.h"
#include "compiler/graph/core/graph.h"
#include "compiler/graph/fusion/fuse.h"
#include "compiler/onnx/parts.h"
#include "worker/frame.h"
#include "worker/stages/chunks.h"
#include "worker/stages/machine_of.h"
#include "worker/stages/stages.h"

namespace heddle::worker {
namespace {

// Weights that passes rearrange lie beside the model's parts.
void PrepareForParts(const v1::StageStart& start) {
  if (!start.blob_folder().empty()) KeepLargeBytesIn(start.blob_folder());
}

// Maps the model's parts, which the supervisor has stored.
graph::ExternalLoader PartLoader(const v1::StageStart& start) {
  std::map<std::string, SharedBytes> mapped;
  for (const v1::BlobRef& blob : start.blobs()) mapped[blob.sha256()] = nullptr;
  return [mapped, folder = start.blob_folder()](
             const onnx::TensorPlace& place) mutable -> absl::StatusOr<SharedBytes> {
    const auto part = mapped.find(onnx::PartDigest(place.location));
    if (part == mapped.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor '", place.tensor, "' is stored in the file '", place.location,
                       "', which was not submitted; `heddle submit` sends such files, too"));
    }
    if (part->second == nullptr) {
      HEDDLE_ASSIGN_OR_RETURN(part->second, MapFile(BlobPath(folder, part->first)));
    }
    return part->second;
  };
}

ModelOptions FromProto(const v1::ModelOptions& options, const v1::StageStart& start, StageIo& io) {
  ModelOptions result;
  result.machine = MachineOf(start, io);
  result.import.external = PartLoader(start);
  for (const v1::ModelOptions::Shape& shape : options.shapes()) {
    result.import.shapes[shape.input()].assign(shape.extents().begin(), shape.extents().end());
  }
  for (const v1::ModelOptions::InputValue& value : options.input_values())
    result.import.input_values[value.input()] = value.value();
  for (const std::string& pass : options.disabled_passes()) result.passes.disabled.insert(pass);
  return result;
}

absl::StatusOr<std::string> ReadModel(StageIo& io) {
  HEDDLE_ASSIGN_OR_RETURN(std::optional<std::string> model, ReadChunks(io, "model"));
  if (!model.has_value()) return absl::InvalidArgumentError("the stage came without a model");
  return *std::move(model);
}

std::string Signature(const graph::Graph& graph, graph::ValueId id) {
  const graph::Value& value = graph.values[id];
  return absl::StrCat(value.name, ": ", graph::ToText(value.type));
}

void Report(StageIo& io, int done, int total, const std::string& message) {
  v1::StageEvent event;
  event.mutable_progress()->set_done(done);
  event.mutable_progress()->set_total(total);
  event.mutable_progress()->set_message(message);
  io.Write(event);
}

}  // namespace

absl::Status RunImport(const v1::StageStart& start, StageIo& io) {
  PrepareForParts(start);
  HEDDLE_ASSIGN_OR_RETURN(const std::string model, ReadModel(io));
  HEDDLE_ASSIGN_OR_RETURN(const Target target, ParseTarget(start.target()));
  plan::Plan plan;
  const ModelOptions options = FromProto(start.import().options(), start, io);
  HEDDLE_ASSIGN_OR_RETURN(const graph::FusedGraph fused,
                          PrepareModel(model, options, target, {}, &plan));
  v1::StageEvent event;
  v1::ImportResult* result = event.mutable_import();
  if (options.machine) result->set_machine(start.machine());
  result->set_plan(plan::ToText(plan));
  for (const graph::Task& task : graph::ExtractTasks(fused)) {
    v1::TaskInfo* info = result->add_tasks();
    info->set_key(task.key);
    info->set_workload(task.workload);
    info->set_label(task.label);
    info->set_flops(task.flops);
    info->set_weight(task.weight);
  }
  for (const graph::ValueId id : fused.graph.inputs) result->add_inputs(Signature(fused.graph, id));
  for (int i = 0; i < fused.graph.NumResults(); ++i)
    result->add_outputs(Signature(fused.graph, fused.graph.outputs[static_cast<size_t>(i)]));
  result->set_kernels(static_cast<int>(fused.groups.size()));
  if (event.ByteSizeLong() > kMaxFrameBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the model has ", result->tasks_size(),
                                                   " tasks, whose text is over ",
                                                   kMaxFrameBytes >> 20, " MiB: split the model"));
  }
  io.Write(event);
  return absl::OkStatus();
}

absl::Status RunCompile(const v1::StageStart& start, StageIo& io) {
  PrepareForParts(start);
  const v1::CompileSpec& spec = start.compile();
  HEDDLE_ASSIGN_OR_RETURN(const std::string model, ReadModel(io));
  HEDDLE_ASSIGN_OR_RETURN(const Target target, ParseTarget(start.target()));
  CompileOptions options;
  options.model_name = spec.model_name();
  if (!spec.plan().empty()) {
    HEDDLE_ASSIGN_OR_RETURN(options.plan, plan::ParsePlan(spec.plan()));
  }
  options.progress = [&io](int done, int total, const std::string& label) {
    Report(io, done, total, label);
  };
  switch (spec.choice()) {
    case v1::SCHEDULE_DEFAULT:
      options.choice = ScheduleChoice::kDefault;
      break;
    case v1::SCHEDULE_NAIVE:
      options.choice = ScheduleChoice::kNaive;
      break;
    default:
      options.choice = ScheduleChoice::kTrace;
  }
  std::map<std::string, BestRecord> best;
  for (const v1::BestTrace& trace : spec.best()) {
    best[trace.workload_key()] = {.trace = trace.trace(), .median_ns = trace.median_ns()};
  }
  std::vector<std::string> warnings;
  const ModelOptions model_options = FromProto(spec.options(), start, io);
  const auto send = [&](const char* name) -> absl::Status {
    ChunkWriter module(io, name);
    const auto write = [&module](std::string_view bytes) {
      module.Append(bytes);
      return absl::OkStatus();
    };
    HEDDLE_RETURN_IF_ERROR(
        WriteCompiledModel(model, model_options, target, best, options, write, &warnings));
    module.End();
    return absl::OkStatus();
  };
  HEDDLE_RETURN_IF_ERROR(send("module"));
  if (spec.with_default()) {
    options.choice = ScheduleChoice::kDefault;
    HEDDLE_RETURN_IF_ERROR(send("default"));
  }
  for (const std::string& warning : warnings) io.Warn(warning);
  return absl::OkStatus();
}

}  // namespace heddle::worker
