#include "views/compare.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "views/figures.h"
#include "views/format.h"
#include "views/inputs.h"
#include "views/pages.h"

namespace heddle::views {
namespace {

constexpr size_t kMostOptionChars = 200;  // of a value in the table

Html FieldOf(const std::string& name, const std::string& label, const std::string& value,
             const Attributes& more = {}) {
  Attributes attributes = {{"value", value}, {"size", "24"}, {"maxlength", "256"}};
  attributes.insert(attributes.end(), more.begin(), more.end());
  return Field(name, label, attributes);
}

Html Form(const Html& fields, const char* label) {
  return GetForm("/compare", fields + SendButton("compare"), {{"aria-label", label}});
}

Html ChooseJobs(const std::string& a, const std::string& b) {
  return Form(FieldOf("a", "Job", a) + FieldOf("b", "with job", b), "Compare two jobs");
}

Html ChooseDevices(const std::string& a, const std::string& b,
                   const std::vector<std::string>& devices) {
  const Attributes list = {{"list", "devices"}};
  return Form(FieldOf("device_a", "Device key", a, list) +
                  FieldOf("device_b", "with device key", b, list),
              "Compare two devices") +
         Proposals("devices", devices);
}

Html TaskLink(const ComparedTask& task) {
  return Link(absl::StrCat("/records?key=", EncodeUrl(task.key)),
              Text(task.label.empty() ? task.key : Cut(task.label)));
}

// The value of a field as text.
std::string ValueOf(const google::protobuf::Message& message,
                    const google::protobuf::FieldDescriptor* field) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  std::string text;
  if (field->is_repeated()) {
    for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
      std::string one;
      printer.PrintFieldValueToString(message, field, i, &one);
      absl::StrAppend(&text, i == 0 ? "" : ", ", one);
    }
  } else if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_STRING) {
    text = reflection.GetString(message, field);
  } else if (!field->has_presence() || reflection.HasField(message, field)) {
    printer.PrintFieldValueToString(message, field, -1, &text);
  }
  return text;
}

void AddDifferent(const google::protobuf::Message& a, const google::protobuf::Message& b,
                  const std::string& prefix, std::vector<DifferentOption>* found) {
  const google::protobuf::Descriptor& type = *a.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const google::protobuf::FieldDescriptor* field = type.field(i);
    const std::string name = absl::StrCat(prefix, std::string(field->name()));
    if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE &&
        !field->is_repeated()) {
      AddDifferent(a.GetReflection()->GetMessage(a, field), b.GetReflection()->GetMessage(b, field),
                   name + ".", found);
      continue;
    }
    const std::string left = ValueOf(a, field), right = ValueOf(b, field);
    if (left != right)
      found->push_back({name, left.empty() ? "-" : left, right.empty() ? "-" : right});
  }
}

}  // namespace

std::string CompareJobsAddress(const std::string& a, const std::string& b) {
  return absl::StrCat("/compare?a=", EncodeUrl(a), "&b=", EncodeUrl(b));
}
std::string CompareDevicesAddress(const std::string& a, const std::string& b) {
  return absl::StrCat("/compare?device_a=", EncodeUrl(a), "&device_b=", EncodeUrl(b));
}

std::vector<ComparedTask> TasksOf(const v1::Job& a, const v1::Job& b) {
  std::map<std::string, ComparedTask> by_key;
  for (const auto& [job, side] :
       {std::pair{&a, &ComparedTask::a}, std::pair{&b, &ComparedTask::b}}) {
    for (const v1::TaskStatus& task : job->tasks()) {
      if (task.info().weight() == 0) continue;  // of another plan
      ComparedTask& compared = by_key[task.info().key()];
      compared.key = task.info().key();
      compared.label = task.info().label();
      compared.flops = task.info().flops();
      compared.*side = {task.best_ns(), task.trials(), task.info().weight(), ""};
    }
  }
  std::vector<ComparedTask> tasks;
  for (auto& [key, task] : by_key) tasks.push_back(std::move(task));
  const auto cost = [](const ComparedTask& task) {
    return std::max(task.a.ns * task.a.weight, task.b.ns * task.b.weight);
  };
  std::stable_sort(tasks.begin(), tasks.end(),
                   [&](const ComparedTask& x, const ComparedTask& y) { return cost(x) > cost(y); });
  return tasks;
}

void SortByRatio(std::vector<ComparedTask>* tasks) {
  std::sort(tasks->begin(), tasks->end(), [](const ComparedTask& x, const ComparedTask& y) {
    return x.Ratio() != y.Ratio() ? x.Ratio() > y.Ratio() : x.key < y.key;
  });
}

std::vector<ComparedTask> RowsAfter(const std::vector<ComparedTask>& tasks,
                                    const std::string& after, const std::string& address,
                                    Part* part) {
  auto begin = tasks.begin();
  if (!after.empty()) {
    const auto found = std::find_if(tasks.begin(), tasks.end(),
                                    [&](const ComparedTask& task) { return task.key == after; });
    if (found != tasks.end()) begin = found + 1;
  }
  const size_t left = static_cast<size_t>(tasks.end() - begin);
  const size_t shown = std::min(left, kMostCompareRows);
  std::vector<ComparedTask> rows(begin, begin + static_cast<ptrdiff_t>(shown));
  part->all = static_cast<int64_t>(tasks.size());
  if (shown < left) part->next = absl::StrCat(address, "&after=", EncodeUrl(rows.back().key));
  return rows;
}

std::vector<DifferentOption> DifferentOptions(const v1::JobSpec& a, const v1::JobSpec& b) {
  std::vector<DifferentOption> found;
  AddDifferent(a, b, "", &found);
  return found;
}

Html CompareJobsPage(const JobComparison& comparison) {
  const v1::Job& a = comparison.a;
  const v1::Job& b = comparison.b;
  Html page = Element("h1", Text("Jobs ") + JobLink(a.id()) + Text(" and ") + JobLink(b.id()));
  HtmlTable both("Both jobs", {{"what"}, {a.id()}, {b.id()}});
  const auto row = [&](const char* what, const Html& left, const Html& right) {
    both.Add({Text(what), left, right});
  };
  const auto words = [&](const char* what, const std::string& left, const std::string& right) {
    row(what, Text(left.empty() ? "-" : left), Text(right.empty() ? "-" : right));
  };
  words("name", Cut(a.spec().name(), kMostOptionChars), Cut(b.spec().name(), kMostOptionChars));
  row("state", StateAndReason(a), StateAndReason(b));
  row("created", Time(a.created_unix_ns()), Time(b.created_unix_ns()));
  words("device", a.spec().device_key().empty() ? "any" : a.spec().device_key(),
        b.spec().device_key().empty() ? "any" : b.spec().device_key());
  words("target", a.spec().target(), b.spec().target());
  words("trials", fmt::format("{} of {}", a.trials(), a.trials_budget()),
        fmt::format("{} of {}", b.trials(), b.trials_budget()));
  words("stages ran for", HumanDuration(absl::Milliseconds(a.running_ms())),
        HumanDuration(absl::Milliseconds(b.running_ms())));
  words("time of the model", ModelTime(a), ModelTime(b));
  words("gain", ModelGain(a), ModelGain(b));
  Html facts = both.ToHtml("");
  if (const double left = ModelNs(a), right = ModelNs(b); left > 0 && right > 0) {
    facts += Element("p", Text(fmt::format("The model of {} runs {} as fast as that of {}.", b.id(),
                                           FormatRatio(left / right), a.id())));
  }
  page += Live("facts", facts);
  page += Element("h2", Text("Tasks"));
  HtmlTable table("Best times by task, those that cost most first",
                  {{"task"},
                   {absl::StrCat("best of ", a.id()), true},
                   {absl::StrCat("best of ", b.id()), true},
                   {absl::StrCat(b.id(), " is as fast as ", a.id()), true},
                   {absl::StrCat("trials of ", a.id()), true},
                   {absl::StrCat("trials of ", b.id()), true}});
  const auto trials = [](const ComparedTask::Side& side) {
    return Text(side.weight > 0 ? absl::StrCat(side.trials) : "no such task");
  };
  for (const ComparedTask& task : comparison.tasks) {
    table.Add({TaskLink(task), Text(FormatNs(task.a.ns)), Text(FormatNs(task.b.ns)),
               Text(FormatRatio(task.Ratio())), trials(task.a), trials(task.b)});
  }
  page += Live("tasks", table.ToHtml("neither model is imported yet") +
                            PartLine(comparison.part, comparison.tasks.size(), "tasks"));
  page += Element("h2", Text("Options that differ"));
  HtmlTable options("Options of the jobs, by their names in JobSpec",
                    {{"option"}, {a.id()}, {b.id()}});
  for (const DifferentOption& option : DifferentOptions(a.spec(), b.spec())) {
    options.Add({Text(option.name), Text(Cut(option.a, kMostOptionChars)),
                 Text(Cut(option.b, kMostOptionChars))});
  }
  page += options.ToHtml("all options are the same");
  page += Element("h2", Text("Others"));
  return page + ChooseJobs(a.id(), b.id());
}

Html CompareDevicesPage(const DeviceComparison& comparison) {
  Html page = Element("h1", Text(absl::StrCat("Devices ", comparison.a, " and ", comparison.b)));
  if (comparison.part.all > 0) {
    page += Element(
        "p",
        Text(fmt::format("Both have records of {} tasks. {} is faster in {} of them, {} in {}; in "
                         "the geometric mean, {} is {} as fast as {}.",
                         comparison.part.all, comparison.b, comparison.b_faster, comparison.a,
                         comparison.a_faster, comparison.b, FormatRatio(comparison.mean_ratio),
                         comparison.a)));
  }
  HtmlTable table(fmt::format("Best times by task, where {} gains most first", comparison.b),
                  {{"task"},
                   {absl::StrCat("best of ", comparison.a), true},
                   {absl::StrCat("best of ", comparison.b), true},
                   {"ratio", true},
                   {"targets"}});
  for (const ComparedTask& task : comparison.tasks) {
    table.Add({TaskLink(task), Text(FormatNs(task.a.ns)), Text(FormatNs(task.b.ns)),
               Text(FormatRatio(task.Ratio())),
               Text(task.a.target == task.b.target
                        ? task.a.target
                        : absl::StrCat(task.a.target, " and ", task.b.target))});
  }
  for (const std::string& key : comparison.unknown) {
    page += Warning(absl::StrCat(
        "No machine that measures now has the device key \"", key, "\"",
        comparison.devices.empty()
            ? "."
            : absl::StrCat("; there are: ", absl::StrJoin(comparison.devices, ", "), ".")));
  }
  page += table.ToHtml("there is no task of which both have valid records") +
          PartLine(comparison.part, comparison.tasks.size(), "tasks");
  if (comparison.looked_at > 0) {
    page += Warning(fmt::format("Only the first {} tasks, by key, were looked at; there are more.",
                                comparison.looked_at));
  }
  page += Element(
      "p", Link(CompareDevicesAddress(comparison.b, comparison.a), Text("the other way round")));
  page += Element("h2", Text("Others"));
  return page + ChooseDevices(comparison.a, comparison.b, comparison.devices);
}

Html ChooseComparisonPage(const CompareChoice& choice) {
  Html page = Element("h1", Text("Compare"));
  page += Element("h2", Text("Two jobs"));
  page += ChooseJobs(choice.a, choice.b);
  if (!choice.of_same_model.empty()) {
    Html links;
    for (const auto& job : choice.of_same_model) {
      links += Element("li", Link(CompareJobsAddress(choice.a, job->id()),
                                  Text(absl::StrCat(choice.a, " with ", job->id()))) +
                                 Text(absl::StrCat(", ", Cut(job->spec().name()), ", ",
                                                   StateWord(job->state()))));
    }
    page += Element("p", Text(absl::StrCat("Jobs with the same model as ", choice.a, ":"))) +
            Element("ul", links);
  }
  page += Element("h2", Text("Two devices"));
  return page + ChooseDevices(choice.device_a, choice.device_b, choice.devices);
}

}  // namespace heddle::views
