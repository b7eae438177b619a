// heddle inspect MODEL.onnx --explain-layout: which operator works in which layout, and why.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "client/commands/commands.h"
#include "client/commands/model_options.h"
#include "client/modules/model_file.h"
#include "client/views/json.h"
#include "compiler/driver/model_layout.h"

namespace heddle::client {
namespace {

const char* LayoutWords(graph::Layout layout) {
  switch (layout) {
    case graph::Layout::kChannelsFirst:
      return "channels first";
    case graph::Layout::kChannelsLast:
      return "channels last";
    case graph::Layout::kChannelsBlocked:
      return "channels blocked";
  }
  return "";
}

bool HasBlocked(const graph::LayoutPlan::Operator& op) {
  return op.cost.ns.blocked_ns < graph::LayoutProblem::kNever;
}

std::string ShapeOf(const graph::TensorType& type) {
  return fmt::format("{}", fmt::join(type.shape, "x"));
}

void PrintLayoutJson(const graph::LayoutPlan& plan) {
  nlohmann::json object = {{"schema_version", kJsonSchemaVersion},
                           {"ns", plan.ns},
                           {"all_channels_first_ns", plan.first_ns},
                           {"all_channels_last_ns", plan.last_ns},
                           {"block", plan.block},
                           {"operators", nlohmann::json::array()},
                           {"transposes", nlohmann::json::array()}};
  for (const graph::LayoutPlan::Operator& op : plan.operators) {
    if (!op.free) continue;
    nlohmann::json row = {{"name", op.name},
                          {"operator", graph::NameOf(op.kind)},
                          {"shape", op.type.shape},
                          {"layout", LayoutWords(op.layout)},
                          {"channels_first_ns", op.cost.ns.first_ns},
                          {"channels_last_ns", op.cost.ns.last_ns},
                          {"measured", op.cost.measured}};
    if (HasBlocked(op)) row["channels_blocked_ns"] = op.cost.ns.blocked_ns;
    object["operators"].push_back(std::move(row));
  }
  for (const graph::LayoutPlan::Move& move : plan.moves) {
    object["transposes"].push_back({{"value", move.value},
                                    {"shape", move.type.shape},
                                    {"to", LayoutWords(move.to)},
                                    {"ns", move.ns}});
  }
  fmt::print("{}\n", object.dump());
}

}  // namespace

int ExplainLayout(const GlobalOptions& global, const std::string& path, const ModelFlags& flags) {
  const absl::StatusOr<ModelFile> model = OpenModelShown(path, CanAnimate(global.output));
  if (!model.ok()) return Fail(model.status());
  const absl::StatusOr<v1::ModelOptions> options = MakeModelOptions(flags);
  if (!options.ok()) return Fail(options.status());
  const absl::StatusOr<graph::LayoutPlan> plan =
      ExplainLayouts(model->onnx, FromProto(*options, &*model), {});
  if (!plan.ok()) return Fail(plan.status());
  if (global.output.json) {
    PrintLayoutJson(*plan);
    return kDone;
  }
  Table table({"operator", "result", "layout", "first", "last", "blocked", "by"});
  for (const graph::LayoutPlan::Operator& op : plan->operators) {
    if (!op.free) continue;
    table.Add({graph::NameOf(op.kind), ShapeOf(op.type), LayoutWords(op.layout),
               FormatNs(static_cast<double>(op.cost.ns.first_ns)),
               FormatNs(static_cast<double>(op.cost.ns.last_ns)),
               HasBlocked(op) ? FormatNs(static_cast<double>(op.cost.ns.blocked_ns)) : "-",
               op.cost.measured ? "record" : "estimate"});
  }
  fmt::print("{}\n", table.ToText(global.output.plain));
  Table moves({"transpose", "shape", "to", "cost"});
  for (const graph::LayoutPlan::Move& move : plan->moves) {
    moves.Add({move.value, ShapeOf(move.type), LayoutWords(move.to),
               FormatNs(static_cast<double>(move.ns))});
  }
  fmt::print("{}\n", moves.ToText(global.output.plain));
  fmt::print("chosen {}, all channels first {}, all channels last {}; {} transposes left\n",
             FormatNs(static_cast<double>(plan->ns)), FormatNs(static_cast<double>(plan->first_ns)),
             FormatNs(static_cast<double>(plan->last_ns)), plan->moves.size());
  if (plan->block > 0) fmt::print("a block of channels is {}\n", plan->block);
  fmt::print("for this machine and one thread: other targets may get other layouts\n");
  return kDone;
}

}  // namespace heddle::client
