#include "proto/access/audit_log.h"

#include <fcntl.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "proto/access/access_table.h"
#include "proto/access/listener.h"

namespace heddle {
namespace {

using grpc::experimental::InterceptionHookPoints;

constexpr size_t kMaxMessage = 500;  // of a result; the rest is cut off

std::string TimeText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone());
}

nlohmann::ordered_json LineOf(const Identity& caller, std::string_view method, absl::Time time) {
  return {{"time", TimeText(time)},
          {"role", std::string(RoleName(caller.role))},
          {"name", caller.name},
          {"tenant", caller.tenant},
          {"method", std::string(method.substr(0, kMaxMessage))}};
}

std::string Dump(const nlohmann::ordered_json& line) {
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

// The field `job` of a message of this type; empty if it has none.
std::string JobOf(const void* bytes, const google::protobuf::Descriptor* type) {
  const google::protobuf::FieldDescriptor* field = type->FindFieldByName("job");
  if (bytes == nullptr || field == nullptr || field->is_repeated() ||
      field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_STRING)
    return "";
  const auto* message = static_cast<const google::protobuf::Message*>(bytes);
  return message->GetReflection()->GetString(*message, field);
}

class AuditInterceptor final : public grpc::experimental::Interceptor {
 public:
  AuditInterceptor(AuditLog* log, const TokenFile* tokens, grpc::experimental::ServerRpcInfo* call,
                   const google::protobuf::MethodDescriptor* method)
      : log_(log), tokens_(tokens), call_(call), method_(method) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    // Only single messages have a job: the request of Submit is a stream of a spec and chunks.
    if (!method_->client_streaming() &&
        methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_MESSAGE)) {
      KeepJob(methods->GetRecvMessage(), method_->input_type());
    }
    if (!method_->server_streaming() &&
        methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_MESSAGE)) {
      KeepJob(methods->GetSendMessage(), method_->output_type());
    }
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      log_->Call(CallerOf(*call_->server_context(), tokens_),
                 absl::StrCat(method_->service()->full_name(), "/", method_->name()), job_,
                 methods->GetSendStatus());
    }
    methods->Proceed();
  }

 private:
  void KeepJob(const void* message, const google::protobuf::Descriptor* type) {
    if (job_.empty()) job_ = JobOf(message, type);
  }

  AuditLog* const log_;
  const TokenFile* const tokens_;
  grpc::experimental::ServerRpcInfo* const call_;
  const google::protobuf::MethodDescriptor* const method_;
  std::string job_;
};

class AuditFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  AuditFactory(AuditLog* log, const TokenFile* tokens) : log_(log), tokens_(tokens) {}
  // Null, and thus no cost, for what is not audited.
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* call) override {
    std::string name = call->method() == nullptr ? "" : call->method();
    if (name.starts_with('/')) name.erase(0, 1);
    const AccessRow* row = FindAccessRow(name);
    if (row == nullptr || !row->audited) return nullptr;
    name.replace(name.find('/'), 1, ".");
    const auto* method = google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(name);
    return method == nullptr ? nullptr : new AuditInterceptor(log_, tokens_, call, method);
  }

 private:
  AuditLog* const log_;
  const TokenFile* const tokens_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RotatingLog>> RotatingLog::Open(const std::string& folder,
                                                               const std::string& name,
                                                               Limits limits) {
  std::unique_ptr<RotatingLog> log(new RotatingLog(folder, name, limits));
  absl::MutexLock lock(&log->mutex_);
  HEDDLE_RETURN_IF_ERROR(log->Reopen());
  return log;
}

RotatingLog::~RotatingLog() {
  if (file_ >= 0) close(file_);
}

std::string RotatingLog::Path(int age) const {
  return age == 0 ? absl::StrCat(folder_, "/", name_, ".jsonl")
                  : absl::StrCat(folder_, "/", name_, ".", age, ".jsonl");
}

absl::Status RotatingLog::Reopen() {
  if (file_ >= 0) close(file_);
  file_ = open(Path(0).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  struct stat info = {};
  if (file_ < 0 || fstat(file_, &info) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(Path(0), ": cannot be written: ", std::strerror(errno)));
  }
  bytes_ = info.st_size;
  return absl::OkStatus();
}

void RotatingLog::Add(const std::string& line) {
  const std::string text = line + "\n";
  absl::MutexLock lock(&mutex_);
  if (bytes_ > 0 && bytes_ + static_cast<int64_t>(text.size()) > limits_.file_bytes) {
    for (int age = limits_.files - 1; age > 0; --age)
      std::rename(Path(age - 1).c_str(), Path(age).c_str());
    if (const absl::Status opened = Reopen(); !opened.ok())
      spdlog::warn("{}", std::string(opened.message()));
  }
  const ssize_t written = file_ < 0 ? -1 : write(file_, text.data(), text.size());
  const bool whole = written == static_cast<ssize_t>(text.size());
  if (written > 0) bytes_ += written;
  if (!whole && !warned_) spdlog::warn("{}: a line is lost: {}", Path(0), std::strerror(errno));
  warned_ = !whole;
  if (!whole) ++lost_;
}

absl::StatusOr<std::unique_ptr<AuditLog>> AuditLog::Open(const std::string& folder) {
  return Open(folder, Options());
}

absl::StatusOr<std::unique_ptr<AuditLog>> AuditLog::Open(const std::string& folder,
                                                         Options options) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return absl::InvalidArgumentError(absl::StrCat(folder, ": ", std::strerror(errno)));
  HEDDLE_ASSIGN_OR_RETURN(auto calls, RotatingLog::Open(folder, "calls", options.files));
  HEDDLE_ASSIGN_OR_RETURN(auto refused, RotatingLog::Open(folder, "refused", options.files));
  return std::unique_ptr<AuditLog>(
      new AuditLog(std::move(options), std::move(calls), std::move(refused)));
}

AuditLog::~AuditLog() {
  absl::MutexLock lock(&mutex_);
  for (File* file : {&calls_, &refused_}) BeginMinute(file, options_.now());
}

void AuditLog::Call(const Identity& caller, std::string_view method, const std::string& job,
                    const grpc::Status& result, const std::string& detail) {
  Add(&calls_, caller, method, job, static_cast<absl::StatusCode>(result.error_code()),
      result.error_message(), detail);
}

void AuditLog::Refused(const Identity& caller, std::string_view method, const absl::Status& why) {
  Add(&refused_, caller, method, "", why.code(), std::string(why.message()), "");
}

void AuditLog::Add(File* file, const Identity& caller, std::string_view method,
                   const std::string& job, absl::StatusCode code, std::string_view message,
                   const std::string& detail) {
  const absl::Time now = options_.now();
  nlohmann::ordered_json line = LineOf(caller, method, now);
  nlohmann::ordered_json key = line;
  key.erase("time");
  // Whoever is refused may have made up the method's name. Such calls count together.
  if (file == &refused_ && FindAccessRow(method) == nullptr) key["method"] = "unknown";
  {
    absl::MutexLock lock(&mutex_);
    if (absl::ToUnixSeconds(now) / 60 != file->minute) BeginMinute(file, now);
    if (++file->calls[Dump(key)] > options_.lines) return;
  }
  if (!job.empty()) line["job"] = job;
  if (!detail.empty()) line["detail"] = detail.substr(0, kMaxMessage);
  line["result"] = absl::StatusCodeToString(code);
  if (!message.empty()) line["message"] = std::string(message.substr(0, kMaxMessage));
  file->log->Add(Dump(line));
}

void AuditLog::BeginMinute(File* file, absl::Time now) {
  for (const auto& [key, calls] : file->calls) {
    if (calls <= options_.lines) continue;
    nlohmann::ordered_json line = {{"time", TimeText(now)}};
    line.update(nlohmann::ordered_json::parse(key));
    line["left_out"] = calls - options_.lines;
    file->log->Add(Dump(line));
  }
  file->calls.clear();
  file->minute = absl::ToUnixSeconds(now) / 60;
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> AuditLog::Interceptor(
    const TokenFile* tokens) {
  return std::make_unique<AuditFactory>(this, tokens);
}

}  // namespace heddle
