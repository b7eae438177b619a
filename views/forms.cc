#include "views/forms.h"

#include "absl/strings/str_cat.h"
#include "base/job_limits.h"
#include "proto/people_slots.h"
#include "views/pages.h"

namespace heddle::views {
namespace {

// <input id="..">. The name of the field is its id.
Html Input(const Attributes& attributes) {
  Html input{"<input"};
  for (const auto& [name, value] : attributes)
    absl::StrAppend(&input.markup, " ", name, "=\"", Escape(value), "\"");
  input.markup += "/>";
  return input;
}

// A field with its label above it.
Html Field(const std::string& name, const std::string& label, Attributes attributes) {
  attributes.emplace_back("id", name);
  attributes.emplace_back("name", name);
  return Element("div", Element("label", Text(label), {{"for", name}}) + Input(attributes));
}

Html NumberField(const std::string& name, const std::string& label, int value, int least,
                 int most) {
  return Field(name, label,
               {{"type", "number"},
                {"value", absl::StrCat(value)},
                {"min", absl::StrCat(least)},
                {"max", absl::StrCat(most)},
                {"required", "required"}});
}

Html Hidden(const std::string& name, const std::string& value) {
  return Input({{"type", "hidden"}, {"name", name}, {"value", value}});
}

// The button that does it, and the way back.
Html Buttons(const std::string& what, const std::string& back) {
  return Element("button", Text(what), {{"type", "submit"}}) +
         Element("a", Text("go back"), {{"class", "button"}, {"href", back}});
}

Html PostForm(const std::string& address, const Html& content, Attributes attributes = {}) {
  attributes.emplace_back("class", "row");
  attributes.emplace_back("method", "post");
  attributes.emplace_back("action", address);
  return Element("form", content, attributes);
}

std::string MachineAddress(const std::string& action, const std::string& machine) {
  return absl::StrCat("/machines/", action, "?machine=", EncodeUrl(machine));
}

}  // namespace

Html SubmitPage(const SubmitForm& form) {
  Html page = Element("h1", Text("Submit a model"));
  page += Element(
      "p", Text("An ONNX file with its weights in it. For all options, and for weights in files of "
                "their own, use `heddle submit`."));
  Html options;
  for (const std::string& target : form.targets)
    options += Element("option", Text(target), {{"value", target}});
  Html fields = Hidden("key", form.key);
  fields += Field("target", "Target",
                  {{"size", "40"},
                   {"maxlength", "1024"},
                   {"list", "targets"},
                   {"value", form.targets.empty() ? "" : form.targets.front()},
                   {"required", "required"}});
  fields += Element("datalist", options, {{"id", "targets"}});
  fields += NumberField("trials", "Trials per task", 64, 1, kMaxTrialsPerTask);
  fields += NumberField("priority", "Priority among your jobs", 0, kMinPriority, kMaxPriority);
  // The last, so that all else is known when it begins.
  fields += Field("model", "Model", {{"type", "file"}, {"required", "required"}});
  fields += Buttons("submit", "/");
  page += PostForm("/submit", fields, {{"enctype", "multipart/form-data"}});
  if (form.targets.empty()) {
    page += Element("p",
                    Text("No machine measures now, so no target is proposed: write one such as "
                         "\"llvm -mcpu=znver5\"."),
                    {{"class", "warn"}});
  }
  return page;
}

Html SubmitLink() {
  return Element("p",
                 Element("a", Text("submit a model"), {{"class", "button"}, {"href", "/submit"}}));
}

Html PriorityPage(const v1::Job& job) {
  Html page = Element("h1", Text(absl::StrCat("Priority of job ", job.id())));
  page += Facts({{"name", Text(job.spec().name())},
                 {"priority now", Text(absl::StrCat(job.spec().priority()))}});
  page += Element("p", Text(absl::StrCat("From ", kMinPriority, " to ", kMaxPriority,
                                         ". Among the jobs of one user, those with a larger number "
                                         "go first. Stages that run are not stopped.")));
  page += PostForm(
      absl::StrCat(JobAddress(job.id()), "/priority"),
      NumberField("priority", "New priority", job.spec().priority(), kMinPriority, kMaxPriority) +
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
    fields += NumberField("minutes", "Minutes", 30, 1, 60);
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
      links += Element("a", Text(action),
                       {{"class", "button"},
                        {"aria-label", absl::StrCat(action, " ", machine.worker())},
                        {"href", MachineAddress(action, machine.worker())}});
      links += Text(" ");
    }
    table.Add({Text(machine.worker()), Text(absl::StrCat(machine.slots_size())),
               Text(absl::StrCat(SlotsOfPeople(machine, /*slot=*/"").size())), links});
  }
  return machines.workers().empty() ? Html{} : table.ToHtml("");
}

}  // namespace heddle::views
