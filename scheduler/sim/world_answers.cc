// What workers answer: candidates built and measured, and what they truly take.
#include <algorithm>
#include <cmath>

#include "scheduler/sim/world.h"

namespace heddle::sim {

double World::TrueMedian(JobId job, int task, int ordinal) const {
  const Curve& curve =
      scenario_.jobs[static_cast<size_t>(JobIndex(job))].tasks[static_cast<size_t>(task)].curve;
  const double typical =
      curve.floor_ns + (curve.start_ns - curve.floor_ns) * std::exp(-ordinal / curve.trials);
  const uint64_t key =
      Mix({scenario_.seed, static_cast<uint64_t>(job.value), static_cast<uint64_t>(task), 77});
  return curve.noise <= 0 ? typical
                          : Distribution{Distribution::kLognormal, typical, curve.noise, {}}.Draw(
                                key, static_cast<uint64_t>(ordinal));
}

void World::EndCandidates(AttemptId id) {
  const std::vector<CandidateId> working = stages_.at(id).working;
  for (CandidateId candidate : working) {
    if (!stages_.count(id)) return;
    Answer(id, candidate);
  }
  Work(id);
}

void World::Answer(AttemptId id, CandidateId candidate) {
  Stage& stage = stages_.at(id);
  const Faults& faults = scenario_.faults;
  const bool poison = faults.poison > 0 && candidate.value % faults.poison == 7;
  if (poison || Chance(faults.broken))
    return Finish(id, {v1::FAULT_INFRASTRUCTURE, "the worker broke down"});
  const bool build = stage.start.kind == v1::STAGE_BUILD;
  const JobId job = stage.start.job;
  const int task = stage.start.task->value, ordinal = Ordinal(job, candidate);
  // Whether a candidate is at fault, and where, is a property of it.
  const double failures = scenario_.jobs[static_cast<size_t>(JobIndex(job))].failures;
  const uint64_t key = Mix({scenario_.seed, static_cast<uint64_t>(job.value),
                            static_cast<uint64_t>(task), static_cast<uint64_t>(ordinal), 99});
  const bool bad = Unit(key) < failures;
  const bool bad_build = bad && (key & 1) != 0;
  Measured measured;
  measured.fencing_token = stage.token;
  if (options_.durable) {
    measured.measurement.mutable_evidence()->set_worker(stage.start.slot.worker);
    measured.measurement.mutable_evidence()->set_slot(stage.start.slot.slot);
  }
  Event event;
  if (build) {
    CandidateBuilt built{id, candidate, bad_build ? v1::OUTCOME_BUILD_ERROR : v1::OUTCOME_OK,
                         bad_build ? "refused" : ""};
    if (options_.durable && !bad_build) built.artifact = std::make_shared<v1::Artifact>();
    built.measured = std::move(measured);
    event = std::move(built);
  } else {
    double median = TrueMedian(job, task, ordinal);
    if (stage.disturbed_piece) median *= std::max(1.0, stage.stretched / stage.alone);
    if (lying_.count(stage.start.slot)) {
      median /= 100;
      if (++lies_[stage.start.slot] >= 5) {  // the tracker has seen enough
        const SlotId slot = stage.start.slot;
        lies_.erase(slot);
        Later(absl::ZeroDuration(), [this, slot] {
          if (!lying_.erase(slot)) return;
          quarantined_.insert(slot);
          SendSlots();
          At(Between(30, 120), [this, slot] {  // its canary passes again
            quarantined_.erase(slot);
            SendSlots();
          });
        });
      }
    }
    if (options_.durable && !bad) measured.measurement.add_samples_ns(median);
    ++result_.measurements;
    result_.disturbed += stage.disturbed_piece;
    event = CandidateProfiled{id,
                              candidate,
                              bad ? v1::OUTCOME_RUN_CRASH : v1::OUTCOME_OK,
                              bad ? "signal 11" : "",
                              bad ? 0 : median,
                              0,
                              std::move(measured)};
  }
  const int process = stage.process;
  ++stage.candidates;
  if (Chance(faults.lost)) return;
  Feed(process, event);
  if (Chance(faults.duplicated))
    Later(Between(0, 10), [this, process, event] { Feed(process, event); });  // late and twice
}

}  // namespace heddle::sim
