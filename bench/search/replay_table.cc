#include "bench/search/replay_table.h"

#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/ir/text.h"
#include "cost_model/blob.h"
#include "cost_model/features/features.h"

namespace heddle::bench {
namespace {

using nlohmann::json;

constexpr size_t kMaxTextBytes = size_t{1} << 30;  // of a table, unpacked: a damaged file ends here
constexpr const char* kOrigins[] = {"default", "random", "mutation"};

absl::StatusOr<std::string> Unzip(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) return absl::NotFoundError(path + ": cannot be read");
  std::string text;
  std::vector<char> chunk(1 << 16);
  int got = 0;
  while ((got = gzread(file, chunk.data(), static_cast<unsigned>(chunk.size()))) > 0) {
    text.append(chunk.data(), static_cast<size_t>(got));
    if (text.size() > kMaxTextBytes) break;
  }
  const bool whole = got == 0 && gzeof(file) != 0;
  gzclose(file);
  if (!whole) return absl::InvalidArgumentError(path + ": damaged");
  return text;
}

absl::Status Write(const std::string& path, const char* mode, const std::string& text) {
  gzFile file = gzopen(path.c_str(), mode);
  if (file == nullptr) return absl::InvalidArgumentError(path + ": cannot be written");
  const int wrote = gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  const int closed = gzclose(file);
  if (wrote != static_cast<int>(text.size()) || closed != Z_OK) {
    return absl::InvalidArgumentError(path + ": cannot be written");
  }
  return absl::OkStatus();
}

machine::TargetInfo TargetOf(const json& from) {
  machine::TargetInfo info;
  const absl::StatusOr<Target> target = ParseTarget(from.at("target").get<std::string>());
  if (!target.ok()) throw std::invalid_argument(std::string(target.status().message()));
  info.target = *target;
  info.vector_bytes = from.at("vector_bytes");
  info.vector_registers = from.at("vector_registers");
  info.l1_bytes = from.at("l1_bytes");
  info.l2_bytes = from.at("l2_bytes");
  return info;
}

ReplayHeader HeaderOf(const json& from) {
  if (from.at("schema_version") != kReplaySchema) {
    throw std::invalid_argument(absl::StrCat("not of schema ", kReplaySchema));
  }
  ReplayHeader header;
  header.name = from.at("name");
  header.workload = from.at("workload");
  header.target = TargetOf(from);
  header.device_key = from.at("device_key");
  header.command = from.at("command");
  header.flops = from.at("flops");
  header.reference_ns = from.at("reference_ns");
  for (const json& d : from.at("decisions")) header.decisions.push_back({d.at(0), d.at(1)});
  return header;
}

ReplayRow RowOf(const json& from, const ReplayHeader& header) {
  ReplayRow row;
  row.point = from.at("point").get<schedule::Point>();
  row.trace = from.at("trace");
  const std::string origin = from.at("origin");
  const auto known = std::find(std::begin(kOrigins), std::end(kOrigins), origin);
  if (known == std::end(kOrigins)) throw std::invalid_argument("no origin '" + origin + "'");
  row.origin = static_cast<ReplayOrigin>(known - std::begin(kOrigins));
  if (from.contains("ns")) {
    row.seconds = from.at("ns").get<double>() * 1e-9;
    if (!(row.seconds > 0)) throw std::invalid_argument("a time that is not positive");
  } else {
    row.error = from.at("error");
  }
  bool fits = row.point.size() == header.decisions.size();
  for (size_t d = 0; fits && d < row.point.size(); ++d) {
    fits = row.point[d] >= 0 && row.point[d] < header.decisions[d].choices;
  }
  row.checked = from.value("checked", false);
  if (!fits) throw std::invalid_argument("not a point of the table's space");
  return row;
}

double BestOf(std::span<const ReplayRow> rows) {
  double best = 0;
  for (const ReplayRow& row : rows) {
    if (row.seconds > 0 && (best == 0 || row.seconds < best)) best = row.seconds;
  }
  return best;
}

}  // namespace

double ReplayTable::BestSeconds() const { return BestOf(rows); }

double ReplayTable::BestFoundSeconds() const {
  return BestOf(std::span(rows).subspan(rows.empty() ? 0 : 1));
}

absl::StatusOr<ReplayTable> ReadReplayTable(const std::string& path) {
  HEDDLE_ASSIGN_OR_RETURN(const std::string text, Unzip(path));
  ReplayTable table;
  std::set<std::string> traces;
  int number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    ++number;
    try {
      const json line = json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                    text.begin() + static_cast<std::ptrdiff_t>(end));
      if (number == 1) {
        table.header = HeaderOf(line);
      } else {
        table.rows.push_back(RowOf(line, table.header));
        if (!traces.insert(table.rows.back().trace).second) {
          throw std::invalid_argument("a trace for the second time");
        }
      }
    } catch (const std::exception& error) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ":", number, ": ", error.what(), "; make the table again"));
    }
    begin = end + 1;
  }
  if (number == 0) return absl::InvalidArgumentError(path + ": empty; make the table again");
  return table;
}

absl::Status StartReplayTable(const std::string& path, const ReplayHeader& header) {
  json decisions = json::array();
  for (const ReplayDecision& d : header.decisions) decisions.push_back({d.what, d.choices});
  const json line = {{"schema_version", kReplaySchema},
                     {"name", header.name},
                     {"workload", header.workload},
                     {"target", ToText(header.target.target)},
                     {"vector_bytes", header.target.vector_bytes},
                     {"vector_registers", header.target.vector_registers},
                     {"l1_bytes", header.target.l1_bytes},
                     {"l2_bytes", header.target.l2_bytes},
                     {"device_key", header.device_key},
                     {"command", header.command},
                     {"flops", header.flops},
                     {"reference_ns", header.reference_ns},
                     {"decisions", decisions}};
  return Write(path, "wb9", line.dump() + "\n");
}

absl::Status AppendRows(const std::string& path, const std::vector<ReplayRow>& rows) {
  std::string text;
  for (const ReplayRow& row : rows) {
    json line = {{"point", row.point},
                 {"trace", row.trace},
                 {"origin", kOrigins[static_cast<size_t>(row.origin)]}};
    if (row.seconds > 0) {
      line["ns"] = std::round(row.seconds * 1e10) / 10;
    } else {
      line["error"] = row.error;
    }
    if (row.checked) line["checked"] = true;
    text += line.dump() + "\n";
  }
  return Write(path, "ab9", text);
}

absl::Status WriteReplayTable(const std::string& path, const ReplayTable& table) {
  const std::string fresh = path + ".new";
  HEDDLE_RETURN_IF_ERROR(StartReplayTable(fresh, table.header));
  HEDDLE_RETURN_IF_ERROR(AppendRows(fresh, table.rows));
  std::error_code failed;
  std::filesystem::rename(fresh, path, failed);
  if (failed) return absl::InvalidArgumentError(path + ": cannot be written");
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ReplayProblem>> ReplayProblem::Make(ReplayTable table) {
  std::unique_ptr<ReplayProblem> problem(new ReplayProblem);
  HEDDLE_ASSIGN_OR_RETURN(problem->naive_, ir::Parse(table.header.workload));
  problem->features_ = std::make_shared<cost_model::KnownFeatures>();
  ReplayTable& kept = problem->table_;
  kept.header = std::move(table.header);
  for (ReplayRow& row : table.rows) {
    absl::StatusOr<cost_model::Evaluated> evaluated =
        cost_model::EvaluateTrace(problem->naive_, kept.header.target, row.trace);
    if (!evaluated.ok()) {
      if (kept.rows.empty()) {
        return absl::FailedPreconditionError(
            absl::StrCat(kept.header.name, ": the default schedule no longer replays (",
                         std::string(evaluated.status().message()), "); make the table again"));
      }
      ++problem->left_out_;
      continue;
    }
    row.trace = schedule::ToText(*schedule::ParseTrace(row.trace));  // it replayed, so it parses
    if (!problem->seconds_.emplace(row.trace, row.seconds).second) continue;
    problem->features_->emplace(evaluated->hash, std::move(evaluated->features));
    kept.rows.push_back(std::move(row));
  }
  if (kept.rows.empty()) {
    return absl::FailedPreconditionError(kept.header.name + ": an empty table; make it again");
  }
  if (static_cast<size_t>(problem->left_out_) * kMaxLeftOut > table.rows.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat(kept.header.name, ": ", problem->left_out_, " of ", table.rows.size(),
                     " candidates no longer replay; make the table again"));
  }
  problem->neighbours_ = FindNeighbours(kept);
  return problem;
}

absl::StatusOr<double> ReplayProblem::Seconds(const std::string& trace) const {
  const auto found = seconds_.find(trace);
  if (found == seconds_.end()) {
    return absl::NotFoundError(table_.header.name + ": a trace that the table does not have");
  }
  return found->second;
}

cost_model::Task ReplayProblem::MakeTask() const {
  cost_model::Task task;
  task.naive = naive_;
  task.target = table_.header.target;
  task.space = MakeReplaySpace(table_, neighbours_);
  task.default_trace = *schedule::ParseTrace(table_.rows[0].trace);
  task.identity = cost_model::HashBytes(table_.header.workload);
  task.known_features = features_;
  return task;
}

void ReplayProblem::SeeKnobs(std::map<std::string, size_t>* columns) {
  // Decisions of a form are named "FORM: WHAT", forms in the order of their choices; those of other
  // forms than a candidate's do not matter to it. Without forms there is the direct one alone.
  std::vector<std::string> forms;
  std::vector<int32_t> form_of;
  std::vector<size_t> column_of;
  for (const ReplayDecision& decision : table_.header.decisions) {
    const size_t colon = decision.what.find(": ");
    const std::string form = colon == std::string::npos ? "" : decision.what.substr(0, colon);
    if (!form.empty() && (forms.empty() || forms.back() != form)) forms.push_back(form);
    form_of.push_back(form.empty() ? -1 : static_cast<int32_t>(forms.size()) - 1);
    const bool direct = form == "direct";
    const std::string name = direct ? decision.what.substr(colon + 2) : decision.what;
    column_of.push_back(columns->emplace(name, columns->size()).first->second);
  }
  auto knobs = std::make_shared<cost_model::KnownFeatures>();
  for (const ReplayRow& row : table_.rows) {
    std::vector<float> values(cost_model::FeatureTable().size(), -1);
    for (size_t d = 0; d < row.point.size(); ++d) {
      if (form_of[d] >= 0 && form_of[d] != row.point[0]) continue;
      if (column_of[d] < values.size()) values[column_of[d]] = static_cast<float>(row.point[d]);
    }
    knobs->emplace(cost_model::HashBytes(row.trace), std::move(values));
  }
  features_ = std::move(knobs);
}

const std::vector<float>& ReplayProblem::FeaturesOf(size_t row) const {
  return features_->at(cost_model::HashBytes(table_.rows[row].trace));
}

}  // namespace heddle::bench
