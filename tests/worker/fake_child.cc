// A stage child whose candidates say in their trace what to do to it. With --worker TRACKER it is a
// whole worker with such children, so that tests can kill one.
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <string>
#include <vector>

#include "worker/child/stage_child.h"
#include "worker/slots.h"
#include "worker/supervisor/worker_server.h"

namespace heddle::worker {
namespace {

// A sanitizer's handler would turn the signal into an exit.
void Die(int signal_number) {
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

bool poisoned = false;  // by an earlier candidate of this process

void Eat() {
  std::vector<char*> blocks;
  constexpr size_t kBlock = 16 << 20;
  while (true) {
    blocks.push_back(new char[kBlock]);
    memset(blocks.back(), 1, kBlock);
    usleep(1000);
  }
}

// Something of the child's own that would outlive it, were its group not killed. Its pid goes where
// the test looks for it.
void LeaveGrandchild(const std::string& pid_file) {
  const pid_t pid = fork();
  if (pid == 0) {
    while (true) pause();
  }
  FILE* file = fopen(pid_file.c_str(), "w");
  fprintf(file, "%d\n", pid);
  fclose(file);
}

void Babble() {
  // Frames go to the highest descriptors; garbage to all of them reaches the supervisor's pipe.
  const char text[] = "this is no protobuf at all, and much longer than four bytes\xff\xff\xff\xff";
  for (int fd = 3; fd < 16; ++fd) {
    [[maybe_unused]] const ssize_t n = write(fd, text, sizeof(text));
  }
  while (true) pause();
}

v1::Outcome Obey(const std::string& trace) {
  if (trace == "segv" || poisoned) {
    fprintf(stderr, "about to crash\n");
    Die(SIGSEGV);
  }
  if (trace == "abort") Die(SIGABRT);
  if (trace == "hang") {
    while (true) pause();
  }
  if (trace == "eat") Eat();
  if (trace == "garbage") Babble();
  if (trace == "exit") _exit(7);
  if (trace == "print") printf("a library that prints\n");
  if (trace == "poison") poisoned = true;
  if (trace.rfind("grandchild ", 0) == 0) LeaveGrandchild(trace.substr(11));
  if (trace == "wrong") return v1::OUTCOME_WRONG_RESULT;
  return v1::OUTCOME_OK;
}

absl::Status Candidates(const v1::StageStart& start, StageIo& io) {
  const bool build = start.kind() == v1::STAGE_BUILD;
  const std::string workload = build ? start.build().workload() : start.profile().workload();
  if (workload == "crash at start") Die(SIGSEGV);
  if (workload == "malformed") return absl::InvalidArgumentError("malformed\nworkload");
  if (workload == "lazy") return absl::OkStatus();
  v1::StageInput input;
  while (io.Read(&input)) {
    const v1::Candidate candidate = build ? input.build().candidate() : input.profile().candidate();
    v1::StageEvent event;
    event.mutable_candidate_started()->set_candidate(candidate.id());
    io.Write(event);
    const v1::Outcome outcome = Obey(candidate.trace());
    if (build) {
      event.mutable_built()->set_candidate(candidate.id());
      event.mutable_built()->mutable_artifact()->set_shared_object(candidate.trace());
    } else {
      event.mutable_profiled()->set_candidate(candidate.id() +
                                              (candidate.trace() == "other id" ? 1 : 0));
      v1::Measurement* measurement = event.mutable_profiled()->mutable_measurement();
      measurement->set_outcome(outcome);
      measurement->mutable_evidence()->set_times_measured(1);
      if (candidate.trace() == "noisy")
        measurement->mutable_evidence()->set_disturbance("somebody else measured here");
      if (outcome == v1::OUTCOME_OK)
        measurement->add_samples_ns(getpid());  // tells the test which process ran it
      if (candidate.trace() == "nan") measurement->set_samples_ns(0, std::nan(""));
      if (candidate.trace() == "wrong")
        measurement->set_message("\x1b[2Ja line\nand " + std::string(10'000, 'x'));
    }
    io.Write(event);
  }
  return absl::OkStatus();
}

// Chunks go back as they came; "confined" tells of limits instead.
absl::Status Echo(const v1::StageStart& start, StageIo& io) {
  const std::string strategy = start.propose().search().strategy();
  if (strategy == "confined") {
    rlimit core{};
    getrlimit(RLIMIT_CORE, &core);
    std::string text = "cores";
    for (int core_number : UsableCores()) text += " " + std::to_string(core_number);
    text += core.rlim_max == 0 ? ", no core dumps" : ", core dumps";
    text += getpgrp() == getpid() ? ", own group" : ", foreign group";
    io.Warn(text);
  }
  if (strategy != "confined") Obey(strategy);
  v1::StageInput input;
  while (io.Read(&input)) {
    v1::StageEvent event;
    *event.mutable_chunk() = input.chunk();
    io.Write(event);
  }
  return strategy == "fault" ? absl::UnavailableError("no luck today") : absl::OkStatus();
}

absl::Status Run(const v1::StageStart& start, StageIo& io) {
  if (start.kind() == v1::STAGE_BUILD || start.kind() == v1::STAGE_PROFILE)
    return Candidates(start, io);
  if (start.kind() == v1::STAGE_IMPORT) Obey(start.target());
  return Echo(start, io);
}

int Serve(const std::string& tracker) {
  WorkerOptions options;
  options.tracker = tracker;
  options.id = "fake";
  options.slots = {{"profile", true, {UsableCores().front()}}};
  options.device_key = "key";
  options.target = "llvm -mcpu=x";
  options.runner.child_command = {"/proc/self/exe", kStageChildFlag};
  const auto server = WorkerServer::Start(options);
  if (!server.ok()) return 1;
  while (true) pause();
}

}  // namespace
}  // namespace heddle::worker

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[1], "--worker") == 0) return heddle::worker::Serve(argv[2]);
  return heddle::worker::StageChildMain(argc, argv, heddle::worker::Run);
}
