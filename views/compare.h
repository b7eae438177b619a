// The pages that compare two jobs, or the records of two devices.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "proto/jobs.pb.h"
#include "views/html.h"
#include "views/parts.h"

namespace heddle::views {

// Rows on one page of a comparison.
inline constexpr size_t kMostCompareRows = 100;

// What two jobs, or two devices, have of one task.
struct ComparedTask {
  std::string key, label;
  double flops = 0;
  struct Side {
    double ns = 0;         // the best time; 0: there is none
    int trials = 0;        // of a job
    int weight = 0;        // uses in the model of a job; 0: the job does not have the task
    std::string target{};  // of a device's record
  };
  Side a, b;
  // How many times as fast b is as a; 0: one of them has no time.
  double Ratio() const { return a.ns > 0 && b.ns > 0 ? a.ns / b.ns : 0; }
};

// Those that cost more time in one of the models come first; of equal ones, the smaller key.
std::vector<ComparedTask> TasksOf(const v1::Job& a, const v1::Job& b);
// The largest ratios first; of equal ones, the smaller key.
void SortByRatio(std::vector<ComparedTask>* tasks);
// The kMostCompareRows tasks behind the one of that key, all from the first if it is empty or not there.
// `part` gets their number and the address of the rest: `address` and "&after=KEY".
std::vector<ComparedTask> RowsAfter(const std::vector<ComparedTask>& tasks,
                                    const std::string& after, const std::string& address,
                                    Part* part);

// A field of JobSpec that the jobs have differently, as its name and both values; "-" for one that is not
// set. Fields of messages inside have names such as "options.rows".
struct DifferentOption {
  std::string name, a, b;
};
std::vector<DifferentOption> DifferentOptions(const v1::JobSpec& a, const v1::JobSpec& b);

struct JobComparison {
  v1::Job a, b;
  std::vector<ComparedTask> tasks;  // a page of them
  Part part;
};
Html CompareJobsPage(const JobComparison& comparison);

struct DeviceComparison {
  std::string a, b;  // device keys
  std::vector<ComparedTask> tasks;
  Part part;
  int64_t b_faster = 0, a_faster = 0;  // of all tasks
  double mean_ratio = 0;               // geometric, of all tasks; 0: there is none
  std::vector<std::string> devices;    // keys that can be chosen
  std::vector<std::string>
      unknown;            // of a and b: those that explain why there is nothing to compare
  int64_t looked_at = 0;  // tasks, where there are more than were looked at; 0: all were
};
Html CompareDevicesPage(const DeviceComparison& comparison);

// Asks what to compare. What is known already stands in the fields.
struct CompareChoice {
  std::string a, b;                  // jobs
  std::vector<std::string> devices;  // keys that can be chosen
  std::string device_a, device_b;
  // Jobs that have the same model as `a`, the newest first.
  std::vector<std::shared_ptr<const v1::Job>> of_same_model;
};
Html ChooseComparisonPage(const CompareChoice& choice);

// "/compare?a=j1&b=j2"
std::string CompareJobsAddress(const std::string& a, const std::string& b);
std::string CompareDevicesAddress(const std::string& a, const std::string& b);

}  // namespace heddle::views
