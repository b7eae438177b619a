#include "worker/stage_child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "absl/strings/numbers.h"
#include "base/one_line.h"
#include "worker/frame.h"

namespace heddle::worker {
namespace {

// Address space allowed beyond the memory limit: code, stacks and reserved arenas are mapped
// without being used. The supervisor watches the memory in use; this limit catches growth that is
// faster than its checks.
constexpr int64_t kAddressHeadroomBytes = int64_t{2} << 30;
// Bounds the disk space that a candidate can fill. Only stages with the parts of a model write larger
// files: weights in the form that a kernel wants, which may be padded.
constexpr rlim_t kMaxFileBytes = rlim_t{1} << 30;
constexpr int64_t kFileBytesPerPart = 4;

void Limit(int resource, rlim_t value) {
  const rlimit limit{value, value};
  setrlimit(static_cast<__rlimit_resource_t>(resource), &limit);
}

void OutOfMemory() {
  static constexpr char kText[] = "out of memory\n";
  [[maybe_unused]] const ssize_t n = write(STDERR_FILENO, kText, sizeof(kText) - 1);
  abort();
}

bool Confine(int64_t memory_limit_bytes, pid_t parent) {
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
  fault.set_message(OneLine({status.message().data(), status.message().size()}));
  return fault;
}

int StageChildMain(int argc, char** argv, const StageFunction& run) {
  int64_t memory_limit_bytes = 0;
  pid_t parent = 0;
  if (argc != 4 || !absl::SimpleAtoi(argv[2], &memory_limit_bytes) ||
      !absl::SimpleAtoi(argv[3], &parent)) {
    std::fprintf(stderr, "%s is started by the worker only\n", kStageChildFlag);
    return 2;
  }
  if (!Confine(memory_limit_bytes, parent)) return 3;
  // Frames use separate descriptors, so that a library that prints cannot damage them.
  const int in = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
  const int out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (in < 0 || out < 0 || null < 0 || dup2(null, STDIN_FILENO) < 0 ||
      dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
    return 3;

  PipeIo io(in, out);
  v1::StageInput first;
  if (!io.Read(&first) || !first.has_start()) {
    std::fprintf(stderr, "the input does not begin with a start\n");
    return 3;
  }
  int64_t part_bytes = 0;
  for (const v1::BlobRef& blob : first.start().blobs()) part_bytes += blob.bytes();
  Limit(RLIMIT_FSIZE, std::max<rlim_t>(kMaxFileBytes, kFileBytesPerPart * part_bytes));
  const absl::Status status = run(first.start(), io);
  if (!status.ok()) *io.finished.mutable_fault() = ToFault(status);
  v1::StageEvent last;
  *last.mutable_finished() = io.finished;
  io.Write(last);
  // Exit without destructors: foreign code may have damaged what they use, and the memory is freed
  // anyway.
  _exit(0);
}

}  // namespace heddle::worker
