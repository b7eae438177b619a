#include "views/forms.h"

#include "absl/strings/str_cat.h"
#include "base/vocabulary/job_limits.h"
#include "proto/people_slots.h"
#include "views/inputs.h"
#include "views/pages.h"
#include "views/parts.h"

namespace heddle::views {
namespace {

std::string MachineAddress(const std::string& action, const std::string& machine) {
  return absl::StrCat("/machines/", action, "?machine=", EncodeUrl(machine));
}

}  // namespace

Html SubmitPage(const SubmitForm& form) {
  Html page = Element("h1", Text("Submit a model"));
  if (!form.problem.empty()) {
    page += Element("p", Text(absl::StrCat("Not submitted: ", form.problem)),
                    {{"class", "bad"}, {"role", "alert"}});
    page += Element("p", Text("What was entered is kept, but for the file: choose it once more."));
  }
  page += Element(
      "p", Text("An ONNX file with its weights in it, or a file of XGBoost or LightGBM. For all "
                "options, and for weights in files of their own, use `heddle submit`."));
  const std::string proposed = form.targets.empty() ? "" : form.targets.front();
  Html fields = Hidden("key", form.key);
  fields += Field("target", "Target",
                  {{"size", "40"},
                   {"maxlength", "1024"},
                   {"list", "targets"},
                   {"value", form.target.empty() ? proposed : form.target},
                   {"required", "required"}});
  fields += Proposals("targets", form.targets);
  fields += NumberField("trials", "Trials per task", form.trials, 1, kMaxTrialsPerTask);
  fields += NumberField("priority", "Priority among your jobs", form.priority, kMinPriority,
                        kMaxPriority);
  // The last, so that all else is known when it begins.
  fields += Field("model", "Model", {{"type", "file"}, {"required", "required"}});
  fields += Buttons("submit", "/");
  page += PostForm("/submit", fields, {{"enctype", "multipart/form-data"}});
  if (form.targets.empty()) {
    page += Warning(
        "No machine measures now, so no target is proposed: write one such as \"llvm "
        "-mcpu=znver5\".");
  }
  return page;
}

Html SubmitLink() { return Element("p", ButtonLink("/submit", "submit a model")); }

Html ConfirmPage(const v1::Job& job, const std::string& action) {
  const std::string what = absl::StrCat(action, " job ", job.id());
  Html page = Element("h1", Text(absl::StrCat("Really ", what, "?")));
  page += Facts({{"name", Text(job.spec().name())},
                 {"state", StateAndReason(job)},
                 {"trials", TrialsOf(job)}});
  if (action == "cancel")
    page += Element("p", Text("Its measurements stay; the job cannot be taken up again."));
  page += PostForm(
      absl::StrCat(JobAddress(job.id()), "/", action),
      Field("reason", "Reason, for others to see", {{"maxlength", "500"}, {"size", "40"}}) +
          Buttons(what, JobAddress(job.id())));
  return page;
}

Html PriorityPage(const v1::Job& job) {
  Html page = Element("h1", Text(absl::StrCat("Priority of job ", job.id())));
  page += Facts({{"name", Text(job.spec().name())},
                 {"priority now", Text(absl::StrCat(job.spec().priority()))}});
  page += Element("p", Text(absl::StrCat("From ", kMinPriority, " to ", kMaxPriority,
                                         ". Among the jobs of one user, those with a larger number "
                                         "go first. Stages that run are not stopped.")));
  page += PostForm(absl::StrCat(JobAddress(job.id()), "/priority"),
                   NumberField("priority", "New priority", absl::StrCat(job.spec().priority()),
                               kMinPriority, kMaxPriority) +
                       Buttons("set priority", JobAddress(job.id())));
  return page;
}

Html MachinePage(const v1::WorkerStatus& machine, const std::string& action) {
  const std::string what = absl::StrCat(action, " ", machine.worker());
  Html page = Element("h1", Text(absl::StrCat("Really ", what, "?")));
  page +=
      Facts({{"slots", Text(absl::StrCat(machine.slots_size()))},
             {"held by people", Text(absl::StrCat(SlotsOfPeople(machine, /*slot=*/"").size()))}});
  Html fields = Hidden("machine", machine.worker());
  if (action == "drain") {
    page += Element("p", Text("No stage begins there until the time is over or the machine is "
                              "resumed. Stages that run are finished."));
    fields += NumberField("minutes", "Minutes", "30", 1, 60);
  } else {
    page += Element("p", Text("All slots that people hold are given back, and take jobs again."));
  }
  fields += Buttons(what, "/machines");
  return page + PostForm(absl::StrCat("/machines/", action), fields);
}

Html MachineActions(const v1::ListWorkersResponse& machines) {
  HtmlTable table("Machines that people take out of use",
                  {{"machine"}, {"slots", true}, {"held by people", true}, {"actions"}});
  for (const v1::WorkerStatus& machine : machines.workers()) {
    Html links;
    for (const char* action : {"drain", "resume"}) {
      links += ButtonLink(MachineAddress(action, machine.worker()), action,
                          {{"aria-label", absl::StrCat(action, " ", machine.worker())}});
      links += Text(" ");
    }
    table.Add({Text(machine.worker()), Text(absl::StrCat(machine.slots_size())),
               Text(absl::StrCat(SlotsOfPeople(machine, /*slot=*/"").size())), links});
  }
  return machines.workers().empty() ? Html{} : table.ToHtml("");
}

}  // namespace heddle::views
