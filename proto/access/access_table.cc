#include "proto/access/access_table.h"

#include "absl/strings/str_cat.h"

namespace heddle {
namespace {

constexpr Roles kNone = 0;
constexpr Roles kUsers = Of(Role::kUser);
constexpr Roles kReaders = Of(Role::kReadOnly) | Of(Role::kOperator);
constexpr Roles kOperators = Of(Role::kOperator);
constexpr Roles kPeople = kUsers | kReaders;
constexpr Roles kWorkers = Of(Role::kWorker);
constexpr Roles kSchedulers = Of(Role::kScheduler);
constexpr Roles kEverybody = kPeople | kWorkers | kSchedulers | Of(Role::kTracker);
constexpr bool kAudited = true;

// Role::kLocal may call every method that has a row.
// clang-format off
constexpr AccessRow kTable[] = {
    // method                                             jobs of their own tenant,  of every tenant
    {"heddle.v1.JobService/Submit",                       kUsers,   kOperators,  kAudited},
    {"heddle.v1.JobService/FindMissingBlobs",             kUsers,   kOperators},
    {"heddle.v1.JobService/UploadBlobs",                  kUsers,   kOperators,  kAudited},
    {"heddle.v1.JobService/ListJobs",                     kUsers,   kReaders},
    {"heddle.v1.JobService/GetJob",                       kUsers,   kReaders},
    {"heddle.v1.JobService/WatchJob",                     kUsers,   kReaders},
    {"heddle.v1.JobService/CancelJob",                    kUsers,   kOperators,  kAudited},
    {"heddle.v1.JobService/PauseJob",                     kUsers,   kOperators,  kAudited},
    {"heddle.v1.JobService/ResumeJob",                    kUsers,   kOperators,  kAudited},
    {"heddle.v1.JobService/PrioritizeJob",                kUsers,   kOperators,  kAudited},
    // A module holds the model's weights.
    {"heddle.v1.JobService/FetchModule",                  kUsers,   kOperators,  kAudited},
    {"heddle.v1.JobService/GetTimeline",                  kUsers,   kReaders},
    {"heddle.v1.JobService/ExplainTask",                  kUsers,   kReaders},
    {"heddle.v1.JobService/ListDevices",                  kNone,    kPeople},
    // Measurements are shared by all tenants. Which job made one is seen by those who may see the job.
    {"heddle.v1.RecordService/QueryRecords",              kUsers,   kReaders},
    {"heddle.v1.RecordService/ImportRecords",             kNone,    kUsers | kOperators, kAudited},
    {"heddle.v1.RecordService/RetractRecords",            kNone,    kOperators,  kAudited},
    {"heddle.v1.StoreService/BackUp",                     kNone,    kOperators,  kAudited},
    {"heddle.v1.StoreService/FetchBlobs",                 kNone,    kOperators,  kAudited},
    {"heddle.v1.StoreService/Check",                      kNone,    kOperators,  kAudited},
    {"heddle.v1.StoreService/Collect",                    kNone,    kOperators,  kAudited},
    // A worker speaks for itself only: its id is the name in its certificate.
    {"heddle.v1.TrackerService/Synchronize",              kNone,    kWorkers},
    // An operator holds slots so that nothing runs there. Only a scheduler can run something with a lease.
    {"heddle.v1.TrackerService/Acquire",                  kNone,    kSchedulers | kOperators},
    {"heddle.v1.TrackerService/RenewAll",                 kNone,    kSchedulers},
    {"heddle.v1.TrackerService/Release",                  kNone,    kSchedulers | kOperators},
    {"heddle.v1.TrackerService/ListWorkers",              kNone,    kSchedulers | kOperators},
    {"heddle.v1.TrackerService/WatchWorkers",             kNone,    kSchedulers | kOperators},
    {"heddle.v1.TrackerService/Appoint",                  kNone,    kSchedulers},
    {"heddle.v1.WorkerService/RunStage",                  kNone,    kSchedulers},
    // gRPC's own.
    {"grpc.health.v1.Health/Check",                       kNone,    kEverybody},
    {"grpc.health.v1.Health/Watch",                       kNone,    kEverybody},
    {"grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", kNone, kOperators},
};
// clang-format on

std::string ListOf(Roles roles) {
  std::string list;
  for (const Role role : {Role::kUser, Role::kReadOnly, Role::kOperator, Role::kWorker,
                          Role::kScheduler, Role::kTracker}) {
    if (Has(roles, role)) absl::StrAppend(&list, list.empty() ? "" : ", ", RoleName(role));
  }
  return list;
}

}  // namespace

std::span<const AccessRow> AccessTable() { return kTable; }

const AccessRow* FindAccessRow(std::string_view method) {
  for (const AccessRow& row : kTable) {
    if (row.method == method) return &row;
  }
  return nullptr;
}

absl::Status CheckMethod(const Identity& caller, std::string_view method) {
  const AccessRow* row = FindAccessRow(method);
  if (row == nullptr)
    return absl::PermissionDeniedError(
        absl::StrCat(std::string(method), " is not open to anybody"));
  if (caller.role == Role::kLocal || Has(row->own | row->any, caller.role)) return absl::OkStatus();
  const std::string may =
      absl::StrCat(std::string(method), " is for the roles: ", ListOf(row->own | row->any));
  if (caller.role == Role::kNobody) {
    return absl::UnauthenticatedError(absl::StrCat(
        may, "; the call shows no identity: give --tls-dir with a certificate, or --token-file"));
  }
  return absl::PermissionDeniedError(absl::StrCat(may, "; the caller is ", ToText(caller)));
}

bool MayUse(const Identity& caller, std::string_view method, std::string_view tenant) {
  const AccessRow* row = FindAccessRow(method);
  if (row == nullptr) return false;
  if (caller.role == Role::kLocal || Has(row->any, caller.role)) return true;
  return Has(row->own, caller.role) && !caller.tenant.empty() && caller.tenant == tenant;
}

}  // namespace heddle
