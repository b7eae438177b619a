#include "bench/common/fork_map.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bench/common/line_server.h"

namespace heddle::bench {
namespace {

using Result = absl::StatusOr<std::string>;
using Work = std::function<Result(int)>;

// What a child writes before the text of a result.
struct Header {
  int32_t code;  // absl::StatusCode; of a failure, `size` bytes of its message follow
  uint32_t size;
};
constexpr uint32_t kMaxResultBytes = 64 << 20;

bool WriteAll(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t wrote = write(fd, data, size);
    if (wrote <= 0) return false;
    data += wrote;
    size -= static_cast<size_t>(wrote);
  }
  return true;
}

bool WriteResult(int fd, const Result& result) {
  const std::string text = result.ok() ? *result : std::string(result.status().message());
  const Header header{static_cast<int32_t>(result.status().code()),
                      static_cast<uint32_t>(text.size())};
  return WriteAll(fd, reinterpret_cast<const char*>(&header), sizeof(header)) &&
         WriteAll(fd, text.data(), text.size());
}

// The child of one core set, as its parent sees it.
class Child {
 public:
  Child(int first, int step, std::vector<int> cpus)
      : next_(first), step_(step), cpus_(std::move(cpus)) {}
  ~Child() { Stop(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  bool Done(int n) const { return next_ >= n; }
  int fd() const { return fd_; }
  absl::Time deadline() const { return deadline_; }

  void Start(int n, absl::Duration limit, const Work& work) {
    int ends[2];
    if (pipe(ends) != 0) return;
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ == 0) {
      close(ends[0]);
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      ConfineTo(cpus_);
      for (int i = next_; i < n; i += step_) {
        const Result result = work(i);
        if (!WriteResult(ends[1], result)) _exit(1);
        if (absl::IsAborted(result.status())) break;
      }
      _exit(0);
    }
    close(ends[1]);
    fd_ = ends[0];
    deadline_ = absl::Now() + limit;
  }

  // Reads the child's output. If the child is gone, the current item fails.
  void Read(absl::Duration limit, std::vector<Result>& results) {
    char chunk[1 << 16];
    const ssize_t got = read(fd_, chunk, sizeof(chunk));
    if (got <= 0) {
      return Fail(absl::AbortedError("crashed"), results);
    }
    buffer_.append(chunk, static_cast<size_t>(got));
    Header header;
    while (buffer_.size() >= sizeof(header)) {
      std::memcpy(&header, buffer_.data(), sizeof(header));
      if (header.size > kMaxResultBytes) {
        return Fail(absl::AbortedError("wrote nonsense"), results);
      }
      if (buffer_.size() < sizeof(header) + header.size) return;
      const std::string text = buffer_.substr(sizeof(header), header.size);
      buffer_.erase(0, sizeof(header) + header.size);
      const auto code = static_cast<absl::StatusCode>(header.code);
      results[next_] = code == absl::StatusCode::kOk ? Result(text) : absl::Status(code, text);
      next_ += step_;
      deadline_ = absl::Now() + limit;
      if (code == absl::StatusCode::kAborted) return Stop();
    }
  }

  // Cancels the current item and all after it.
  void Cancel(std::vector<Result>& results) {
    for (; !Done(static_cast<int>(results.size())); next_ += step_)
      results[next_] = absl::CancelledError("no time was left");
    Stop();
  }

  // The current item fails with `why`.
  void Fail(const absl::Status& why, std::vector<Result>& results) {
    results[next_] = why;
    next_ += step_;
    Stop();
  }

  void Stop() {
    if (fd_ < 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    close(fd_);
    fd_ = -1;
    buffer_.clear();
  }

 private:
  int next_;  // the item being done
  int step_;
  std::vector<int> cpus_;
  pid_t pid_ = -1;
  int fd_ = -1;  // the pipe from the child; -1 while there is none
  std::string buffer_;
  absl::Time deadline_;
};

}  // namespace

std::vector<Result> ForkMap(int n, const std::vector<std::vector<int>>& core_sets,
                            absl::Duration limit, const Work& work, absl::Time end) {
  std::vector<Result> results(n, absl::UnknownError("not done"));
  std::vector<std::unique_ptr<Child>> children;
  for (size_t k = 0; k < core_sets.size(); ++k) {
    children.push_back(
        std::make_unique<Child>(k, static_cast<int>(core_sets.size()), core_sets[k]));
  }
  while (true) {
    std::vector<pollfd> waiting;
    std::vector<Child*> child_of;
    absl::Time first = end;
    const bool over = absl::Now() >= end;
    for (const auto& child : children) {
      if (over) child->Cancel(results);
      if (child->Done(n)) continue;
      if (child->fd() < 0) child->Start(n, limit, work);
      if (child->fd() < 0) return results;  // no more processes: the rest stays "not done"
      waiting.push_back({child->fd(), POLLIN, 0});
      child_of.push_back(child.get());
      first = std::min(first, child->deadline());
    }
    if (waiting.empty()) return results;
    const int64_t left_ms = absl::ToInt64Milliseconds(first - absl::Now());
    poll(waiting.data(), waiting.size(), static_cast<int>(std::max<int64_t>(left_ms + 1, 0)));
    for (size_t k = 0; k < waiting.size(); ++k) {
      Child& child = *child_of[k];
      if (waiting[k].revents != 0) {
        child.Read(limit, results);
      } else if (absl::Now() > child.deadline()) {
        child.Fail(absl::DeadlineExceededError(
                       absl::StrCat("took longer than ", absl::FormatDuration(limit))),
                   results);
      }
      if (child.Done(n)) child.Stop();
    }
  }
}

}  // namespace heddle::bench
