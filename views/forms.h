// Pages with forms. A form submits a model, changes a job's priority, or takes a machine out of use. The
// forms are sent to the addresses in scheduler/page/page.h.
#pragma once

#include <string>
#include <vector>

#include "proto/jobs.pb.h"
#include "proto/tracker.pb.h"
#include "views/html.h"

namespace heddle::views {

struct SubmitForm {
  std::vector<std::string> targets;  // of the machines that there are; the first is proposed
  std::string key;                   // the same for all sends of this form
  // What stands in the fields; an empty target is the proposed one.
  std::string target, trials = "64", priority = "0";
  std::string problem;  // why what was sent is refused; empty: nothing was
};
Html SubmitPage(const SubmitForm& form);
// Leads there.
Html SubmitLink();

// Asks whether the action is meant. `job` as it is now.
Html ConfirmPage(const v1::Job& job, const std::string& action);
Html PriorityPage(const v1::Job& job);

// Asks whether the machine is to be taken out of use ("drain"), or given back ("resume").
Html MachinePage(const v1::WorkerStatus& machine, const std::string& action);
// A table of the machines. Each row tells how many slots of the machine are held by people, and links to the
// pages that drain and resume it.
Html MachineActions(const v1::ListWorkersResponse& machines);

}  // namespace heddle::views
