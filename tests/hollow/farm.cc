#include "tests/hollow/farm.h"

#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "bench/common/usage.h"
#include "proto/grpc_util.h"

extern char** environ;

namespace heddle::hollow {
namespace {

constexpr absl::Duration kStartLimit = absl::Seconds(60);
constexpr absl::Duration kCallLimit = absl::Seconds(30);
constexpr int kJobsOfUser = 1000;  // half of what one user may have

absl::StatusOr<int> ReadPort(const std::string& file, const Process& process) {
  const absl::Time give_up = MonotonicNow() + kStartLimit;
  for (int port = 0; MonotonicNow() < give_up && process.Alive();) {
    std::ifstream(file) >> port;
    if (port > 0) return port;
    absl::SleepFor(absl::Milliseconds(20));
  }
  return absl::UnavailableError(absl::StrCat("nothing writes its port to ", file));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Process>> Process::Start(std::vector<std::string> command,
                                                        int output) {
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  if (output >= 0) posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, arguments[0], &files, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) return absl::UnavailableError(absl::StrCat("cannot start ", command[0]));
  return std::unique_ptr<Process>(new Process(pid));
}

Process::~Process() {
  kill(pid_, SIGTERM);
  waitpid(pid_, nullptr, 0);
}

bool Process::Alive() const {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == 0;
}

double Process::CpuSeconds() const { return bench::CpuSeconds(pid_); }
double Process::ResidentMib() const { return bench::MemoryMib(pid_, "VmRSS"); }
double Process::PeakMib() const { return bench::MemoryMib(pid_, "VmHWM"); }

absl::StatusOr<std::unique_ptr<Farm>> Farm::Start(const std::string& programs,
                                                  const std::string& data) {
  std::unique_ptr<Farm> farm(new Farm);
  farm->data_ = data;
  std::filesystem::create_directories(data);
  const std::string tracker_port = data + "/tracker.port", port_file = data + "/port";
  HEDDLE_ASSIGN_OR_RETURN(
      farm->tracker_,
      Process::Start({programs + "/heddle-tracker", "--listen", "127.0.0.1:0", "--port-file",
                      tracker_port, "--log-file", data + "/tracker.log"}));
  HEDDLE_ASSIGN_OR_RETURN(const int port, ReadPort(tracker_port, *farm->tracker_));
  farm->tracker_address_ = absl::StrCat("127.0.0.1:", port);
  HEDDLE_ASSIGN_OR_RETURN(
      farm->scheduler_,
      Process::Start({programs + "/heddle-scheduler", "--listen", "127.0.0.1:0", "--port-file",
                      port_file, "--tracker", farm->tracker_address_, "--data", data + "/data",
                      "--log-file", data + "/scheduler.log"}));
  HEDDLE_ASSIGN_OR_RETURN(const int served, ReadPort(port_file, *farm->scheduler_));
  farm->jobs_ = v1::JobService::NewStub(
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", served), grpc::InsecureChannelCredentials()));
  return farm;
}

Farm::~Farm() {
  scheduler_.reset();
  tracker_.reset();
  std::error_code ignored;
  std::filesystem::remove_all(data_, ignored);
}

absl::StatusOr<std::string> Farm::Submit(int number, int trials_per_task) {
  grpc::ClientContext context;
  SetDeadline(&context, kCallLimit);
  v1::SubmitResponse response;
  auto writer = jobs_->Submit(&context, &response);
  v1::SubmitRequest request;
  v1::JobSpec& spec = *request.mutable_spec();
  spec.set_name(absl::StrCat("hollow ", number));
  spec.set_user(absl::StrCat("user", number / kJobsOfUser));
  spec.set_target("llvm -mcpu=x");
  spec.set_trials_per_task(trials_per_task);
  spec.set_plan_search("off");
  spec.set_no_transfer(true);
  writer->Write(request);
  request.Clear();
  request.mutable_chunk()->set_name("model");
  request.mutable_chunk()->set_data(absl::StrCat("hollow model ", number));
  request.mutable_chunk()->set_last(true);
  writer->Write(request);
  writer->WritesDone();
  const grpc::Status status = writer->Finish();
  if (!status.ok()) return FromGrpc(status);
  return response.job();
}

absl::StatusOr<v1::Job> Farm::Get(const std::string& job) {
  grpc::ClientContext context;
  SetDeadline(&context, kCallLimit);
  v1::GetJobRequest request;
  request.set_job(job);
  v1::Job response;
  const grpc::Status status = jobs_->GetJob(&context, request, &response);
  if (!status.ok()) return FromGrpc(status);
  return response;
}

}  // namespace heddle::hollow
