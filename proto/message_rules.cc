#include "proto/message_rules.h"

#include <set>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/quantiles.h"
#include "base/status_macros.h"
#include "base/vocabulary/workload_key.h"
#include "proto/check_message.h"

namespace heddle {
namespace {

constexpr int kRecordSchema = 1;

absl::Status BadStart(const std::string& what) { return absl::InvalidArgumentError(what); }

// Whether the stage gets the model of its job.
bool HasModel(v1::StageKind kind) {
  return kind == v1::STAGE_IMPORT || kind == v1::STAGE_PLAN || kind == v1::STAGE_COMPILE;
}

bool Searches(v1::StageKind kind) { return kind == v1::STAGE_PROPOSE || kind == v1::STAGE_UPDATE; }

// The spec that a stage of this kind needs.
v1::StageStart::SpecCase SpecOf(v1::StageKind kind) {
  switch (kind) {
    case v1::STAGE_IMPORT:
      return v1::StageStart::kImport;
    case v1::STAGE_PROPOSE:
      return v1::StageStart::kPropose;
    case v1::STAGE_BUILD:
      return v1::StageStart::kBuild;
    case v1::STAGE_PROFILE:
      return v1::StageStart::kProfile;
    case v1::STAGE_UPDATE:
      return v1::StageStart::kUpdate;
    case v1::STAGE_COMPILE:
      return v1::StageStart::kCompile;
    case v1::STAGE_COMPARE:
      return v1::StageStart::kCompare;
    case v1::STAGE_PLAN:
      return v1::StageStart::kPlan;
    default:
      return v1::StageStart::SPEC_NOT_SET;
  }
}

// `known`: keys of tasks that come without their workload. A task's key is the name of its record, so a wrong one would give the
// records of one workload to another.
absl::Status CheckTasks(const std::string& what,
                        const google::protobuf::RepeatedPtrField<v1::TaskInfo>& tasks,
                        const std::set<std::string>& known) {
  std::set<std::string_view> keys;
  for (int i = 0; i < tasks.size(); ++i) {
    const v1::TaskInfo& task = tasks[i];
    const std::string name = absl::StrCat(what, ".tasks[", i, "]");
    if (task.key().empty()) return BadStart(absl::StrCat(name, " has no key"));
    const bool hashed = !task.workload().empty() && task.key() == WorkloadKey(task.workload());
    if (!hashed && !(task.workload().empty() && known.count(task.key()) > 0))
      return BadStart(
          absl::StrCat(name, ".key is ", task.key(), ", not that of the workload's text"));
    if (!keys.insert(task.key()).second)
      return BadStart(absl::StrCat(name, ".key is ", task.key(), " like that of a task before it"));
  }
  return absl::OkStatus();
}

// What became of a candidate. Nobody reports a candidate as lost: that follows from a missing answer.
absl::Status CheckMeasurement(const std::string& what, const v1::Measurement& measured) {
  if (measured.outcome() == v1::OUTCOME_UNSPECIFIED)
    return BadStart(absl::StrCat(what, ".outcome is missing"));
  const bool ok = measured.outcome() == v1::OUTCOME_OK;
  if (ok == measured.samples_ns().empty()) {
    return BadStart(absl::StrCat(what, " has the outcome ", v1::Outcome_Name(measured.outcome()),
                                 ok ? " without" : " with", " samples_ns"));
  }
  return absl::OkStatus();
}

absl::Status CheckAnswer(const std::string& what, const v1::Measurement& measured) {
  if (measured.outcome() == v1::OUTCOME_LOST)
    return BadStart(
        absl::StrCat(what, ".outcome is OUTCOME_LOST, which is not for workers to tell"));
  return CheckMeasurement(what, measured);
}

absl::Status CheckGain(const std::string& what, const v1::Gain& gain) {
  if (gain.low() <= gain.ratio() && gain.ratio() <= gain.high()) return absl::OkStatus();
  return BadStart(absl::StrCat(what, ".ratio is ", gain.ratio(), ", outside its interval ",
                               gain.low(), "..", gain.high()));
}

absl::Status CheckCompared(const v1::CompareResult& result) {
  HEDDLE_RETURN_IF_ERROR(CheckGain("compared.gain", result.gain()));
  HEDDLE_RETURN_IF_ERROR(CheckGain("compared.other_gain", result.other_gain()));
  HEDDLE_RETURN_IF_ERROR(CheckGain("compared.other_over_default", result.other_over_default()));
  for (int i = 0; i < result.tasks_size(); ++i) {
    const std::string name = absl::StrCat("compared.tasks[", i, "]");
    if (result.tasks(i).workload_key().empty())
      return BadStart(absl::StrCat(name, ".workload_key is missing"));
    HEDDLE_RETURN_IF_ERROR(CheckGain(absl::StrCat(name, ".gain"), result.tasks(i).gain()));
  }
  return absl::OkStatus();
}

absl::Status CheckWanted(const v1::StageStart& start, const v1::BlobList& wanted) {
  std::multiset<std::string_view> offered;
  for (const v1::BlobRef& blob : start.blobs()) offered.insert(blob.sha256());
  for (int i = 0; i < wanted.blobs_size(); ++i) {
    const auto found = offered.find(wanted.blobs(i).sha256());
    if (found == offered.end()) {
      return BadStart(absl::StrCat("wanted.blobs[", i,
                                   "] is none of the stage's blobs, or is wanted ", "twice"));
    }
    offered.erase(found);
  }
  return absl::OkStatus();
}

absl::Status CheckCandidates(const v1::StageStart& start, const v1::CandidateList& list) {
  if (list.candidates_size() > start.propose().count()) {
    return BadStart(absl::StrCat("candidates has ", list.candidates_size(), " items; ",
                                 start.propose().count(), " were asked for"));
  }
  std::set<std::string_view> traces;
  for (int i = 0; i < list.candidates_size(); ++i) {
    const std::string name = absl::StrCat("candidates.candidates[", i, "]");
    if (list.candidates(i).id() != 0)
      return BadStart(absl::StrCat(name, ".id is set; the scheduler sets it"));
    if (!traces.insert(list.candidates(i).trace()).second)
      return BadStart(absl::StrCat(name, ".trace is like that of a candidate before it"));
  }
  return absl::OkStatus();
}

}  // namespace

bool MayEmit(const v1::StageStart& start, v1::StageEvent::EventCase event) {
  using E = v1::StageEvent;
  const v1::StageKind kind = start.kind();
  switch (event) {
    case E::kFinished:
      return true;
    case E::kWanted:
      return !start.blobs().empty();
    case E::kProgress:
      return HasModel(kind);
    case E::kImport:
      return kind == v1::STAGE_IMPORT;
    case E::kPlanned:
      return kind == v1::STAGE_PLAN;
    case E::kCompared:
      return kind == v1::STAGE_COMPARE;
    case E::kCandidates:
      return kind == v1::STAGE_PROPOSE;
    case E::kTransferModel:
      return Searches(kind);
    case E::kChunk:
      return Searches(kind) || kind == v1::STAGE_COMPILE;
    case E::kReport:
    case E::kTransferSamples:
      return kind == v1::STAGE_UPDATE;
    case E::kCandidateStarted:
      return kind == v1::STAGE_BUILD || kind == v1::STAGE_PROFILE;
    case E::kBuilt:
      return kind == v1::STAGE_BUILD;
    case E::kProfiled:
      return kind == v1::STAGE_PROFILE;
    default:
      return false;
  }
}

absl::Status CheckStart(const v1::StageStart& start) {
  HEDDLE_RETURN_IF_ERROR(CheckMessage(start));
  if (start.kind() == v1::STAGE_UNSPECIFIED) return BadStart("kind is missing");
  if (start.spec_case() != SpecOf(start.kind()))
    return BadStart(absl::StrCat(v1::StageKind_Name(start.kind()), " comes without its spec"));
  if (!start.blob_folder().empty()) return BadStart("blob_folder is set; the worker sets it");
  return absl::OkStatus();
}

absl::Status CheckEvent(const v1::StageStart& start, const v1::StageEvent& event) {
  HEDDLE_RETURN_IF_ERROR(CheckMessage(event));
  if (!MayEmit(start, event.event_case())) {
    const auto* field = v1::StageEvent::descriptor()->FindFieldByNumber(event.event_case());
    return BadStart(absl::StrCat(field == nullptr ? std::string("an empty event") : field->name(),
                                 " is not for ", v1::StageKind_Name(start.kind()), " to send"));
  }
  switch (event.event_case()) {
    case v1::StageEvent::kWanted:
      return CheckWanted(start, event.wanted());
    case v1::StageEvent::kImport:
      return CheckTasks("import", event.import().tasks(), {});
    case v1::StageEvent::kPlanned: {
      std::set<std::string> known;
      for (const v1::PlanSpec::KernelTime& time : start.plan().times())
        known.insert(time.workload_key());
      return CheckTasks("planned", event.planned().tasks(), known);
    }
    case v1::StageEvent::kCandidates:
      return CheckCandidates(start, event.candidates());
    case v1::StageEvent::kCompared:
      return CheckCompared(event.compared());
    case v1::StageEvent::kBuilt:
      if (event.built().has_artifact() == event.built().has_failure())
        return BadStart("built needs either an artifact or a failure");
      if (event.built().has_artifact()) return absl::OkStatus();
      if (event.built().failure().outcome() == v1::OUTCOME_OK)
        return BadStart("built.failure.outcome is OUTCOME_OK");
      return CheckAnswer("built.failure", event.built().failure());
    case v1::StageEvent::kProfiled:
      return CheckAnswer("profiled.measurement", event.profiled().measurement());
    default:
      return absl::OkStatus();
  }
}

absl::Status CheckRecord(const v1::Record& record) {
  if (record.schema_version() != kRecordSchema) {
    return BadStart(absl::StrCat("schema_version is ", record.schema_version(),
                                 ", this service knows ", kRecordSchema));
  }
  HEDDLE_RETURN_IF_ERROR(CheckMessage(record));
  if (record.workload_key().empty()) return BadStart("workload_key is missing");
  if (!record.workload().empty() && record.workload_key() != WorkloadKey(record.workload()))
    return BadStart("workload_key is not that of the workload's text");
  if (record.target().empty()) return BadStart("target is missing");
  if (record.device_key().empty()) return BadStart("device_key is missing");
  const v1::Measurement& measured = record.measurement();
  HEDDLE_RETURN_IF_ERROR(CheckMeasurement("measurement", measured));
  const double median = Median({measured.samples_ns().begin(), measured.samples_ns().end()});
  if (record.median_ns() != 0 && record.median_ns() != median) {
    return BadStart(
        absl::StrCat("median_ns is ", record.median_ns(), ", but that of samples_ns is ", median));
  }
  return absl::OkStatus();
}

}  // namespace heddle
