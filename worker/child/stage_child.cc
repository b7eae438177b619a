#include "worker/child/stage_child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <new>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/one_line.h"
#include "worker/confine/confine.h"
#include "worker/frame.h"

namespace heddle::worker {
namespace {

// Address space allowed beyond the memory limit: code, stacks and reserved arenas are mapped
// without being used. The supervisor watches the memory in use; this limit catches growth that is
// faster than its checks.
constexpr int64_t kAddressHeadroomBytes = int64_t{2} << 30;

void Limit(int resource, rlim_t value) {
  const rlimit limit{value, value};
  setrlimit(static_cast<__rlimit_resource_t>(resource), &limit);
}

void OutOfMemory() {
  static constexpr char kText[] = "out of memory\n";
  [[maybe_unused]] const ssize_t n = write(STDERR_FILENO, kText, sizeof(kText) - 1);
  abort();
}

bool Prepare(int64_t memory_limit_bytes, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) return false;  // the parent died before the call above
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  Limit(RLIMIT_CORE, 0);
#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // sanitizers reserve terabytes of addresses
  if (memory_limit_bytes > 0) Limit(RLIMIT_AS, memory_limit_bytes + kAddressHeadroomBytes);
#endif
  std::set_new_handler(OutOfMemory);
  return true;
}

absl::Status ConfineTo(const v1::StageStart& start, const confine::Confinement& confinement) {
  // One file may have what all together may have, which the supervisor adds up.
  Limit(RLIMIT_FSIZE, static_cast<rlim_t>(confine::MaxFileBytes(start)));
  Limit(RLIMIT_NOFILE,
        static_cast<rlim_t>(confine::MaxOpenFiles(!confine::DeviceOf(start).empty())));
  std::error_code error;
  const std::string folder = std::filesystem::current_path(error).string();
  if (error) return absl::UnavailableError("the stage has no folder");
  return confine::Confine(confine::PolicyOf(start, folder), confinement);
}

class PipeIo final : public StageIo {
 public:
  PipeIo(int in, int out) : in_(in), out_(out) {}

  bool Read(v1::StageInput* input) override {
    const absl::StatusOr<bool> more = ReadFrame(in_, input);
    if (!more.ok()) Die(more.status());
    return *more;
  }
  void Write(const v1::StageEvent& event) override {
    const absl::Status status = WriteFrame(out_, event);
    if (!status.ok()) Die(status);
  }
  void Warn(const std::string& line) override { finished.add_warnings(line); }

  v1::StageFinished finished;

 private:
  // Ends the process: the supervisor is gone or does not follow the protocol.
  [[noreturn]] static void Die(const absl::Status& status) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    _exit(3);
  }

  const int in_;
  const int out_;
};

}  // namespace

v1::Fault ToFault(const absl::Status& status) {
  v1::Fault fault;
  if (status.ok()) return fault;
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnimplemented:
      fault.set_kind(v1::FAULT_USER);
      break;
    default:
      fault.set_kind(v1::FAULT_INFRASTRUCTURE);
  }
  fault.set_message(OneLine(status));
  return fault;
}

int StageChildMain(int argc, char** argv, const StageFunction& run) {
  int64_t memory_limit_bytes = 0;
  pid_t parent = 0;
  absl::StatusOr<confine::Confinement> confinement =
      confine::ParseConfinement(argc == 5 ? argv[4] : "");
  if (!confinement.ok() || !absl::SimpleAtoi(argv[2], &memory_limit_bytes) ||
      !absl::SimpleAtoi(argv[3], &parent)) {
    std::fprintf(stderr, "%s is started by the worker only\n", kStageChildFlag);
    return 2;
  }
  if (!Prepare(memory_limit_bytes, parent)) return 3;
  // Frames use separate descriptors, so that a library that prints cannot damage them.
  const int in = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
  const int out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (in < 0 || out < 0 || null < 0 || dup2(null, STDIN_FILENO) < 0 ||
      dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
    return 3;
  close(null);

  PipeIo io(in, out);
  v1::StageInput first;
  if (!io.Read(&first) || !first.has_start()) {
    std::fprintf(stderr, "the input does not begin with a start\n");
    return 3;
  }
  const absl::Status confined = ConfineTo(first.start(), *confinement);
  const absl::Status status = confined.ok()
                                  ? run(first.start(), io)
                                  : absl::UnavailableError(absl::StrCat(
                                        "this stage cannot be confined: ", confined.message()));
  if (!status.ok()) *io.finished.mutable_fault() = ToFault(status);
  v1::StageEvent last;
  *last.mutable_finished() = io.finished;
  io.Write(last);
  // Exit without destructors: foreign code may have damaged what they use, and the memory is freed
  // anyway.
  _exit(0);
}

}  // namespace heddle::worker
