#include "scheduler/page/comparisons.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/access/access_table.h"
#include "scheduler/page/methods.h"
#include "views/compare.h"
#include "views/what_if.h"

namespace heddle::scheduler {
namespace {

constexpr size_t kMaxKey = 256;          // bytes of a device key
constexpr size_t kMostNewest = 100;      // jobs that are searched for those of one model
constexpr size_t kMostOfSameModel = 10;  // of these

using Query = std::map<std::string, std::string>;

std::string KeyOf(const Query& query, const std::string& name) {
  const auto found = query.find(name);
  return found == query.end() ? "" : found->second.substr(0, kMaxKey);
}

views::Page PageOf(std::string title, views::Html content) {
  return {.title = std::move(title), .path = {}, .caller = {}, .content = std::move(content)};
}

absl::StatusOr<views::Page> CompareJobs(PageSource* source, const Identity& caller,
                                        const std::string& a, const std::string& b,
                                        const std::string& after) {
  HEDDLE_RETURN_IF_ERROR(CheckMethod(caller, kGetJob));
  HEDDLE_ASSIGN_OR_RETURN(const std::shared_ptr<const v1::Job> left, source->GetJob(caller, a));
  HEDDLE_ASSIGN_OR_RETURN(const std::shared_ptr<const v1::Job> right, source->GetJob(caller, b));
  views::JobComparison comparison;
  comparison.a = *left;
  comparison.b = *right;
  comparison.tasks = views::RowsAfter(views::TasksOf(*left, *right), after,
                                      views::CompareJobsAddress(a, b), &comparison.part);
  return PageOf(absl::StrCat(a, " and ", b), views::CompareJobsPage(comparison));
}

// Device keys of the machines that report now.
std::vector<std::string> DevicesNow(PageSource* source, const Identity& caller) {
  if (!CheckMethod(caller, kListDevices).ok()) return {};
  const absl::StatusOr<v1::ListWorkersResponse> machines = source->ListWorkers();
  if (!machines.ok()) return {};
  std::set<std::string> keys;
  for (const v1::WorkerStatus& worker : machines->workers()) {
    for (const v1::SlotStatus& slot : worker.slots()) {
      if (!slot.slot().device_key().empty()) keys.insert(slot.slot().device_key());
    }
  }
  return {keys.begin(), keys.end()};
}

absl::StatusOr<views::Page> CompareDevices(PageSource* source, const Identity& caller,
                                           const std::string& a, const std::string& b,
                                           const std::string& after) {
  HEDDLE_RETURN_IF_ERROR(CheckMethod(caller, kQueryRecords));
  HEDDLE_ASSIGN_OR_RETURN(const std::shared_ptr<const PageSource::DeviceTable> found,
                          source->CompareDevices(caller, a, b));
  views::DeviceComparison comparison;
  comparison.a = a;
  comparison.b = b;
  comparison.looked_at = found->looked_at;
  comparison.devices = DevicesNow(source, caller);
  if (found->pairs.empty()) {
    const std::vector<std::string>& known = comparison.devices;
    for (const std::string& key : std::set<std::string>{a, b}) {
      if (std::find(known.begin(), known.end(), key) == known.end())
        comparison.unknown.push_back(key);
    }
  }
  std::vector<views::ComparedTask> tasks;
  double sum = 0;  // of logarithms
  for (const DevicePair& pair : found->pairs) {
    views::ComparedTask& task = tasks.emplace_back();
    task.key = pair.name.key;
    task.label = pair.name.label;
    task.flops = pair.name.flops;
    task.a = {.ns = pair.a.median_ns, .target = pair.a.target};
    task.b = {.ns = pair.b.median_ns, .target = pair.b.target};
    if (task.Ratio() <= 0) continue;
    comparison.b_faster += task.Ratio() > 1;
    comparison.a_faster += task.Ratio() < 1;
    sum += std::log(task.Ratio());
  }
  if (!tasks.empty()) comparison.mean_ratio = std::exp(sum / static_cast<double>(tasks.size()));
  views::SortByRatio(&tasks);
  comparison.tasks =
      views::RowsAfter(tasks, after, views::CompareDevicesAddress(a, b), &comparison.part);
  return PageOf("Devices compared", views::CompareDevicesPage(comparison));
}

}  // namespace

absl::StatusOr<views::Page> ComparePage(PageSource* source, const Identity& caller,
                                        const Query& query) {
  views::CompareChoice choice;
  choice.a = KeyOf(query, "a");
  choice.b = KeyOf(query, "b");
  choice.device_a = KeyOf(query, "device_a");
  choice.device_b = KeyOf(query, "device_b");
  const std::string after = KeyOf(query, "after");
  if (!choice.a.empty() && !choice.b.empty())
    return CompareJobs(source, caller, choice.a, choice.b, after);
  if (!choice.device_a.empty() && !choice.device_b.empty())
    return CompareDevices(source, caller, choice.device_a, choice.device_b, after);
  HEDDLE_RETURN_IF_ERROR(CheckMethod(caller, kListJobs));
  choice.devices = DevicesNow(source, caller);
  if (!choice.a.empty()) {
    HEDDLE_RETURN_IF_ERROR(CheckMethod(caller, kGetJob));
    HEDDLE_ASSIGN_OR_RETURN(const std::shared_ptr<const v1::Job> job,
                            source->GetJob(caller, choice.a));
    HEDDLE_ASSIGN_OR_RETURN(const PageSource::JobPart newest,
                            source->ListJobs(caller, "", kMostNewest));
    for (const auto& other : newest.jobs) {
      if (other->id() == job->id() || job->model_digest().empty() ||
          other->model_digest() != job->model_digest() ||
          choice.of_same_model.size() == kMostOfSameModel)
        continue;
      choice.of_same_model.push_back(other);
    }
  }
  return PageOf("Compare", views::ChooseComparisonPage(choice));
}

absl::StatusOr<views::Page> WhatIfPage(PageSource* source, const Identity& caller) {
  HEDDLE_RETURN_IF_ERROR(CheckMethod(caller, kListJobs));
  HEDDLE_ASSIGN_OR_RETURN(const std::shared_ptr<const views::WhatIf> latest,
                          source->WhatIf(caller));
  return PageOf("What if", views::WhatIfPage(latest.get()));
}

}  // namespace heddle::scheduler
