#include "compiler/schedule/rules/rules.h"

#include <algorithm>

#include "base/status_macros.h"

namespace heddle::schedule {

int Knobs::Add(std::string what, std::vector<int64_t> values, int64_t preferred) {
  Knob knob{std::move(what), std::move(values), 0};
  auto it = std::find(knob.values.begin(), knob.values.end(), preferred);
  if (it != knob.values.end()) knob.preferred = static_cast<int32_t>(it - knob.values.begin());
  knobs_.push_back(std::move(knob));
  return static_cast<int>(knobs_.size()) - 1;
}

absl::Status Recorder::Do(Primitive primitive, std::vector<std::string> names,
                          std::vector<int64_t> ints) {
  return Do(Step{primitive, std::move(names), std::move(ints)});
}

absl::Status Recorder::Do(Step step) {
  if (known_ != nullptr) {
    Replayer::State* next = known_->Next(at_, step);
    HEDDLE_RETURN_IF_ERROR(next->status);
    at_ = next;
  } else {
    HEDDLE_ASSIGN_OR_RETURN(program_, ApplyStep(program_, step));
  }
  trace_.steps.push_back(std::move(step));
  return absl::OkStatus();
}

absl::StatusOr<std::string> Recorder::Accumulate(const std::string& reduction,
                                                 const std::string& epilogue) {
  if (epilogue.empty()) {
    HEDDLE_RETURN_IF_ERROR(Do(Primitive::kCacheWrite, {reduction, "local"}));
    return reduction + ".copy";
  }
  HEDDLE_RETURN_IF_ERROR(Do(Primitive::kSetScope, {reduction, "local"}));
  return epilogue;
}

int64_t LanesOf(const machine::TargetInfo& target, ir::DType dtype) {
  return std::max<int64_t>(1, target.vector_bytes / ir::SizeOf(dtype));
}

}  // namespace heddle::schedule
