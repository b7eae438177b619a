// The methods of our services by their full names, as the access table has them: who may see a page may call what gives its data.
#pragma once

#include <string_view>

namespace heddle::scheduler {

inline constexpr std::string_view kListJobs = "heddle.v1.JobService/ListJobs";
inline constexpr std::string_view kGetJob = "heddle.v1.JobService/GetJob";
inline constexpr std::string_view kGetTimeline = "heddle.v1.JobService/GetTimeline";
inline constexpr std::string_view kExplainTask = "heddle.v1.JobService/ExplainTask";
inline constexpr std::string_view kListDevices = "heddle.v1.JobService/ListDevices";
inline constexpr std::string_view kSubmit = "heddle.v1.JobService/Submit";
inline constexpr std::string_view kQueryRecords = "heddle.v1.RecordService/QueryRecords";
// Draining a machine is holding its slots.
inline constexpr std::string_view kAcquire = "heddle.v1.TrackerService/Acquire";
inline constexpr std::string_view kRelease = "heddle.v1.TrackerService/Release";

}  // namespace heddle::scheduler
