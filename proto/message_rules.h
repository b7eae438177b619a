// What a message from another process must hold beyond the rules of its single fields. Every function checks those first
// (proto/check_message.h), and answers InvalidArgument with one line that names what is wrong.
#pragma once

#include "absl/status/status.h"
#include "proto/common.pb.h"
#include "proto/worker.pb.h"

namespace heddle {

// Whether the stage may send this event. Of an event that this program does not know: no.
bool MayEmit(const v1::StageStart& start, v1::StageEvent::EventCase event);

// A stage as its caller starts it: it has the spec of its kind, and leaves to the worker what the worker sets.
absl::Status CheckStart(const v1::StageStart& start);

// An event of the stage that was started like this, as its worker, or the worker's own child, sends it: the stage may send it, tasks have
// the keys of their workloads, once each, and no more candidates come than were asked for, each once. An answer about a candidate is an artifact or
// a typed failure, and samples or a typed failure. Whether the candidate is one of the stage's is up to the caller, who knows what it fed.
absl::Status CheckEvent(const v1::StageStart& start, const v1::StageEvent& event);

// A record as an import brings it: of this schema, with the key of its workload, an outcome, and the median of its samples.
absl::Status CheckRecord(const v1::Record& record);

}  // namespace heddle
