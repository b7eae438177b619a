// From a decision to what the worker is sent.
#pragma once

#include "scheduler/ledger/job_ledger.h"
#include "scheduler/service/stage_runner.h"

namespace heddle::scheduler {

// `choice` matters for compile stages only. Reads known records from the store where a stage needs
// them (warm start, compile); what the store cannot give is left out: the search starts afresh, the
// task falls back to this job's own best.
StageOrder MakeOrder(const Dispatcher& dispatcher, const JobLedger& book, RecordStore* store,
                     const StartStage& start, v1::ScheduleChoice choice);
// What a profile stage is fed for one built candidate.
v1::StageInput MakeProfileInput(const JobLedger& book, JobId job, CandidateId candidate);

}  // namespace heddle::scheduler
