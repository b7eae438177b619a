// Attempts to get out of a stage, made by a real child (escape_probe.cc), with each mechanism of
// confinement alone and with all of them. A table says which mechanisms stop which attempt; without
// any of them the attempt must succeed, so that the table means something. Run as root and as another
// user, whom other mechanisms stop.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/files/blob_store.h"
#include "base/sha256.h"
#include "tests/places.h"
#include "worker/confine/landlock.h"
#include "worker/confine/mechanisms.h"
#include "worker/confine/stage_folder.h"
#include "worker/process/stage_cgroup.h"
#include "worker/slots.h"
#include "worker/supervisor/stage_runner.h"

namespace heddle::worker {
namespace {

using confine::Confinement;
using ::testing::HasSubstr;

// What may stop an attempt.
constexpr unsigned kUser = 1;
constexpr unsigned kNamespaces = 2;
constexpr unsigned kLandlock = 4;
constexpr unsigned kFilter = 8;
// Any mechanism: then the process has no capabilities.
constexpr unsigned kAny = 16;
// The kernel, or the supervisor, without any mechanism.
constexpr unsigned kAlways = 32;
// Landlock from the version on that knows connections, or signals and abstract sockets.
constexpr unsigned kLandlock4 = 64;
constexpr unsigned kLandlock6 = 128;

struct Row {
  const char* attempt;
  const char* argument;  // %V: the pid of a victim; %P: a folder that all may use; %T, %U: ports
  unsigned stopped_for_root;
  unsigned stopped_for_users;
  // Kernels may lack the call or restrict it, so that nothing needs to stop it.
  bool may_be_missing = false;
};

constexpr Row kRows[] = {
    // Files.
    {"read_file", "%P/secret", kUser | kNamespaces | kLandlock, kNamespaces | kLandlock},
    {"read_file", "%P/public", kNamespaces | kLandlock, kNamespaces | kLandlock},
    {"read_file", "/etc/shadow", kUser | kNamespaces | kLandlock, kAlways},
    {"read_file", "/etc/passwd", kNamespaces | kLandlock, kNamespaces | kLandlock},
    {"list_folder", "%P", kNamespaces | kLandlock, kNamespaces | kLandlock},
    {"list_folder", "/proc/1", kNamespaces | kLandlock, kNamespaces | kLandlock},
    {"make_file", "%P/made", kNamespaces | kLandlock, kNamespaces | kLandlock},
    {"make_file", "%C/0001.code", kNamespaces | kLandlock, kNamespaces | kLandlock},
    {"open_to_write", "%P/database", kUser | kNamespaces | kLandlock, kNamespaces | kLandlock},
    {"open_to_write", "%B", kUser | kNamespaces | kLandlock, kNamespaces | kLandlock},
    {"open_to_write", "/proc/sys/kernel/hostname", kUser | kNamespaces | kLandlock, kAlways},
    {"change_mode", "%P/public", kUser | kNamespaces | kFilter, kNamespaces | kFilter},
    {"make_link", "", kLandlock | kFilter, kLandlock | kFilter},
    {"make_pipe", "", kLandlock | kFilter, kLandlock | kFilter},
    {"watch_files", "", kFilter, kFilter},
    {"mount", "", kAny, kAlways},
    {"change_root", "", kAny, kAlways},
    // Processes.
    {"execute", "/usr/bin/true", kNamespaces | kLandlock | kFilter,
     kNamespaces | kLandlock | kFilter},
    {"fork", "", kFilter, kFilter},
    {"clone3", "", kFilter, kFilter},
    {"daemonise", "%P/daemon", kFilter, kFilter},
    {"outlive", "", kFilter, kFilter},
    {"own_descriptors", "", kFilter, kFilter},
    {"unshare_descriptors", "", kFilter, kFilter, true},
    {"kill", "%V", kUser | kFilter | kLandlock6, kFilter | kLandlock6},
    {"queue_signal", "%V", kUser | kFilter | kLandlock6, kFilter | kLandlock6},
    {"signal_by_pidfd", "%V", kUser | kFilter | kLandlock6, kFilter | kLandlock6},
    {"signal_by_owner", "%V", kUser | kFilter | kLandlock6, kFilter | kLandlock6},
    {"trace", "%V", kAny, kNamespaces | kLandlock | kFilter, true},
    {"read_memory", "%V", kAny, kNamespaces | kLandlock | kFilter, true},
    {"open_memory", "%V", kAny, kNamespaces | kLandlock, true},
    {"read_environment", "%V", kAny, kNamespaces | kLandlock, true},
    {"read_command", "%V", kNamespaces | kLandlock, kNamespaces | kLandlock},
    {"slow_down", "%V", kAny, kFilter},
    {"limit_other", "%V", kUser | kFilter, kFilter},
    {"move_other", "%V", kAny, kFilter},
    // The network.
    {"connect_tcp", "%T", kNamespaces | kFilter | kLandlock4, kNamespaces | kFilter | kLandlock4},
    {"listen_tcp", "", kFilter | kLandlock4, kFilter | kLandlock4},
    {"send_udp", "%U", kNamespaces | kFilter, kNamespaces | kFilter},
    {"connect_unix", "%P/socket", kNamespaces | kFilter, kNamespaces | kFilter},
    {"connect_unix", "@heddle-escape-%S", kNamespaces | kFilter | kLandlock6,
     kNamespaces | kFilter | kLandlock6},
    {"open_netlink", "", kFilter, kFilter},
    // Parts of the kernel that no stage needs.
    {"new_user_space", "", kFilter, kFilter, true},
    {"become_root", "", kUser | kFilter, kAlways},
    {"keyrings", "", kFilter, kFilter, true},
    {"bpf", "", kFilter, kFilter, true},
    {"perf_events", "", kFilter, kFilter, true},
    {"io_uring", "", kFilter, kFilter, true},
    {"user_faults", "", kFilter, kFilter, true},
    {"personality", "", kFilter, kFilter},
    {"type_into_terminal", "", kFilter, kFilter},
    {"shared_memory", "", kFilter, kFilter, true},
    // What it was given.
    {"environment", "HEDDLE_TEST_SECRET", kAlways, kAlways},
    {"descriptors", "", kAlways, kAlways},
};

unsigned StopsOf(const Confinement& confinement) {
  const int landlock = confinement.landlock ? confine::LandlockVersion() : 0;
  return kAlways | (confinement.any() ? kAny : 0) | (confinement.user ? kUser : 0) |
         (confinement.namespaces ? kNamespaces : 0) | (landlock > 0 ? kLandlock : 0) |
         (landlock >= 4 ? kLandlock4 : 0) | (landlock >= 6 ? kLandlock6 : 0) |
         (confinement.filter ? kFilter : 0);
}

bool Alive(pid_t pid) {
  std::ifstream stat(absl::StrCat("/proc/", pid, "/stat"));
  std::string line;
  return std::getline(stat, line) && line.find(") Z") == std::string::npos;
}

// A process of this user that waits to be killed, and ends with this one.
class Victim {
 public:
  Victim() : pid_(fork()) {
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (true) pause();
  }
  ~Victim() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  bool alive() const { return Alive(pid_); }

 private:
  const pid_t pid_;
};

// What a command prints, and its exit status.
std::string Output(const std::string& command, int* status) {
  std::string text;
  FILE* pipe = popen(command.c_str(), "r");
  char line[512];
  while (fgets(line, sizeof(line), pipe) != nullptr) text += line;
  const int ended = pclose(pipe);
  *status = WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
  return text;
}

class SilentCaller final : public StageCaller {
 public:
  bool Read(v1::StageInput* input) override {
    if (next_ == inputs.size()) return false;
    *input = inputs[next_++];
    return true;
  }
  bool InputEnded() override { return next_ == inputs.size(); }
  bool Gone() override { return false; }
  bool Write(const v1::StageEvent&, const std::function<void()>&) override { return true; }

  std::vector<v1::StageInput> inputs;

 private:
  size_t next_ = 0;
};

int Listen(int family, const sockaddr* address, socklen_t size, int type) {
  const int file = socket(family, type | SOCK_CLOEXEC, 0);
  EXPECT_GE(file, 0);
  EXPECT_EQ(bind(file, address, size), 0) << std::strerror(errno);
  if (type == SOCK_STREAM) {
    EXPECT_EQ(listen(file, 16), 0);
  }
  return file;
}

int ListenOnLoopback(int type, int* port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int file = Listen(AF_INET, reinterpret_cast<sockaddr*>(&address), sizeof(address), type);
  socklen_t size = sizeof(address);
  getsockname(file, reinterpret_cast<sockaddr*>(&address), &size);
  *port = ntohs(address.sin_port);
  return file;
}

int ListenOnUnix(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  EXPECT_LT(name.size(), sizeof(address.sun_path));
  std::memcpy(address.sun_path, name.data(), name.size());
  const bool abstract = name.front() == '@';
  if (abstract) address.sun_path[0] = '\0';
  return Listen(
      AF_UNIX, reinterpret_cast<sockaddr*>(&address),
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size() + (abstract ? 0 : 1)),
      SOCK_STREAM);
}

class EscapeTest : public ::testing::Test {
 protected:
  EscapeTest() {
    signal(SIGPIPE, SIG_IGN);
    setenv("HEDDLE_TEST_SECRET", "a token", 1);
    place_ = NewFolder(0777);
    own_ = NewFolder(0755);
    for (const auto& [name, mode] :
         std::map<std::string, mode_t>{{"secret", 0600}, {"database", 0600}, {"public", 0644}}) {
      std::ofstream(place_ + "/" + name) << "what others must not know";
      chmod((place_ + "/" + name).c_str(), mode);
    }
    files_.push_back(ListenOnLoopback(SOCK_STREAM, &tcp_port_));
    files_.push_back(ListenOnLoopback(SOCK_DGRAM, &udp_port_));
    files_.push_back(ListenOnUnix(place_ + "/socket"));
    chmod((place_ + "/socket").c_str(), 0777);
    files_.push_back(ListenOnUnix(absl::StrCat("@heddle-escape-", getpid())));
    files_.push_back(open((place_ + "/secret").c_str(), O_RDONLY));  // without O_CLOEXEC
    cache_ = BlobCache::Open(own_ + "/cache", 1 << 20).value();
    mkdir(Code().c_str(), 0755);
    const Confinement wanted = confine::ParseConfinement("all").value();
    const std::vector<confine::Feature> features = confine::ProbeConfinement(wanted);
    all_ = confine::Available(wanted, features);
    for (const confine::Feature& feature : features)
      if (!feature.available) std::cerr << confine::Describe(feature) << "\n";
    options_.child_command = {std::string(HEDDLE_BIN_DIR) + "/heddle-escape-probe",
                              "--stage-child"};
    options_.cores = {UsableCores().front()};
    options_.blobs = cache_.get();
    options_.code_cache = Code();
  }
  ~EscapeTest() override {
    for (const int file : files_) close(file);
    cache_.reset();
    std::filesystem::remove_all(place_);
    std::filesystem::remove_all(own_);
  }
  static std::string NewFolder(mode_t mode) {
    std::string path = (std::filesystem::temp_directory_path() / "heddle-escape-XXXXXX").string();
    EXPECT_NE(mkdtemp(path.data()), nullptr) << path;
    chmod(path.c_str(), mode);
    return path;
  }
  std::string Code() const { return own_ + "/code"; }

  // "blocked: why", "escaped: what", or the fault of a stage that did not live to tell.
  std::string Try(const std::string& order, const Confinement& confinement) {
    SilentCaller caller;
    v1::StageStart start;
    start.set_kind(options_.gpu.empty() ? v1::STAGE_PROPOSE : v1::STAGE_COMPARE);
    start.set_job("j1");
    start.set_target(order);
    start.set_time_limit_ms(60'000);
    const std::string content = "abc";
    v1::BlobRef& blob = *start.add_blobs();
    blob.set_sha256(Sha256Hex(content));
    blob.set_bytes(static_cast<int64_t>(content.size()));
    if (!sent_) {
      v1::StageInput input;
      input.mutable_chunk()->set_name(blob.sha256());
      input.mutable_chunk()->set_data(content);
      input.mutable_chunk()->set_last(true);
      caller.inputs.push_back(input);
      sent_ = true;
    }
    options_.confinement = confinement;
    StageSession session;
    const v1::StageFinished finished = StageRunner(start, options_, caller, session).Run();
    return finished.warnings_size() > 0 ? finished.warnings(0)
                                        : "fault: " + finished.fault().message();
  }

  std::string Fill(const std::string& pattern, const Victim& victim,
                   const Confinement& confinement) const {
    std::string text;
    for (size_t i = 0; i < pattern.size(); ++i) {
      if (pattern[i] != '%') {
        text += pattern[i];
        continue;
      }
      switch (pattern[++i]) {
        case 'P':
          text += place_;
          break;
        case 'V':
          absl::StrAppend(&text, victim.pid());
          break;
        case 'S':
          absl::StrAppend(&text, getpid());
          break;
        case 'T':
          absl::StrAppend(&text, tcp_port_);
          break;
        case 'U':
          absl::StrAppend(&text, udp_port_);
          break;
        case 'B':
          text += BlobPath("blobs", Sha256Hex("abc"));
          break;
        case 'C':
          text += confine::JobCodeFolder(Code(), "another job", 0, confinement);
          break;
        default:
          ADD_FAILURE() << pattern;
      }
    }
    return text;
  }

  void CheckTable(const Confinement& confinement) {
    const unsigned stops = StopsOf(confinement);
    for (const Row& row : kRows) {
      const Victim victim;
      const std::string order =
          absl::StrCat(row.attempt, " ", Fill(row.argument, victim, confinement));
      const std::string outcome = Try(order, confinement);
      const bool blocked = outcome.starts_with("blocked: ") && victim.alive();
      const unsigned stopped_by = geteuid() == 0 ? row.stopped_for_root : row.stopped_for_users;
      const std::string what =
          absl::StrCat(order, ", confined by ", confine::ToText(confinement), ": ", outcome,
                       victim.alive() ? "" : "; the victim is dead");
      if ((stopped_by & stops) != 0) {
        EXPECT_TRUE(blocked) << what;
      } else if (!row.may_be_missing) {
        EXPECT_FALSE(blocked) << what << "\nIt is stopped by more than the table says.";
      }
    }
  }

  std::string place_;  // of others; all may use it
  std::string own_;    // of the worker; has the folders of stages
  int tcp_port_ = 0;
  int udp_port_ = 0;
  bool sent_ = false;
  std::vector<int> files_;
  std::unique_ptr<BlobCache> cache_;
  Confinement all_;  // what this host offers
  RunnerOptions options_;
};

TEST_F(EscapeTest, TheTableHasEveryAttempt) {
  std::set<std::string> in_table;
  for (const Row& row : kRows) in_table.insert(row.attempt);
  // Bombs have tests of their own.
  in_table.insert({"fill_disk", "fill_memory_files", "fill_without_leader", "fill_shut_folder",
                   "hide_memory_files", "hide_files", "hide_shared_memory", "fork_bomb",
                   "many_files", "deep_folders", "many_threads", "other_cores", "wait"});
  int status = 0;
  const std::vector<std::string> made = absl::StrSplit(
      Output(options_.child_command[0] + " --list", &status), '\n', absl::SkipEmpty());
  EXPECT_EQ(std::set<std::string>(made.begin(), made.end()), in_table);
  EXPECT_GE(std::size(kRows), 30u);
}

TEST_F(EscapeTest, AllMechanisms) { CheckTable(all_); }

TEST_F(EscapeTest, WithoutAnyMechanismTheyEscape) { CheckTable({}); }

TEST_F(EscapeTest, WithoutLandlock) {
  Confinement confinement = all_;
  confinement.landlock = false;
  CheckTable(confinement);
}

TEST_F(EscapeTest, WithoutNamespaces) {
  Confinement confinement = all_;
  confinement.namespaces = false;
  CheckTable(confinement);
}

TEST_F(EscapeTest, WithoutFilter) {
  Confinement confinement = all_;
  confinement.filter = false;
  CheckTable(confinement);
}

TEST_F(EscapeTest, WithoutAnotherUser) {
  if (!all_.user) GTEST_SKIP() << "the worker has no other user anyway";
  Confinement confinement = all_;
  confinement.user = false;
  CheckTable(confinement);
}

TEST_F(EscapeTest, EachMechanismAlone) {
  for (bool Confinement::*const mechanism : {&Confinement::filter, &Confinement::landlock,
                                             &Confinement::namespaces, &Confinement::user}) {
    if (!(all_.*mechanism)) continue;
    Confinement confinement;
    confinement.*mechanism = true;
    CheckTable(confinement);
  }
}

// The driver of a GPU may do more, and no attempt gets further by that.
TEST_F(EscapeTest, OnAGpu) {
  options_.gpu = "cuda:0";
  Confinement confinement;
  confinement.filter = all_.filter;
  CheckTable(confinement);
  CheckTable(all_);
}

// With all mechanisms of this host together, whatever they are, nothing but what needs a mechanism
// that is missing may escape.
TEST_F(EscapeTest, NothingEscapesWhereAllIsOffered) {
  if (!all_.namespaces || !all_.landlock || !all_.filter) GTEST_SKIP() << "this host lacks some";
  for (const Row& row : kRows) {
    const Victim victim;
    const std::string order = absl::StrCat(row.attempt, " ", Fill(row.argument, victim, all_));
    EXPECT_THAT(Try(order, all_), HasSubstr("blocked: ")) << order;
    EXPECT_TRUE(victim.alive()) << order;
  }
}

// The supervisor watches what no mechanism limits.
TEST_F(EscapeTest, BombsAreStopped) {
  for (const auto& [order, why] : std::map<std::string, std::string>{
           {"fill_disk", "filled more than 1024 MiB with files"},
           {"fill_memory_files", "filled more than 1024 MiB with files"},
           {"fill_without_leader", "filled more than 1024 MiB with files"},
           {"fill_shut_folder", "filled more than 1024 MiB with files"},
           {"many_files", "filled more than 1024 MiB with files"},
           {"deep_folders", "filled more than 1024 MiB with files"},
           {"many_threads", "had more than 1024 threads"}}) {
    EXPECT_THAT(Try(order, all_), HasSubstr(why)) << order;
  }
  // No folder of a stage is left.
  for (const auto& left : std::filesystem::directory_iterator(cache_->folder()))
    EXPECT_THAT(left.path().filename().string(), ::testing::Not(HasSubstr("stage"))) << left;
}

// Files that have neither a name nor a descriptor, of which one page is mapped. Whoever may ask for their
// size adds it up; others take none of them.
TEST_F(EscapeTest, HiddenFilesAreFound) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer hides a file itself (child_watch.cc)";
#endif
  for (const char* order : {"hide_memory_files", "hide_files", "hide_shared_memory"}) {
    EXPECT_THAT(Try(order, all_),
                ::testing::AnyOf(HasSubstr("filled more than 1024 MiB with files"),
                                 HasSubstr("hid a file")))
        << order;
  }
}

// Processes that start processes: with the filter there is none, and without it none is left after the
// stage.
TEST_F(EscapeTest, AForkBombIsStopped) {
  const std::string name = absl::StrCat("bomb", getpid());
  const auto any_left = [&name] {
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      std::string line;
      std::ifstream comm(entry.path() / "comm");
      if (std::getline(comm, line) && line == name &&
          Alive(std::atoi(entry.path().filename().c_str())))
        return true;
    }
    return false;
  };
  Confinement without = all_;
  without.filter = false;
  for (const Confinement& confinement : {all_, without}) {
    const Victim victim;
    EXPECT_THAT(Try("fork_bomb " + name, confinement),
                HasSubstr(confinement.filter ? "blocked: " : "escaped: "));
    const absl::Time limit = MonotonicNow() + absl::Seconds(10);
    while (any_left() && MonotonicNow() < limit) absl::SleepFor(absl::Milliseconds(10));
    EXPECT_FALSE(any_left()) << "confined by " << confine::ToText(confinement);
    EXPECT_TRUE(victim.alive());
  }
}

// Limits that cannot be watched are no limits. Root in a container may be unable to look at another user's
// processes.
TEST_F(EscapeTest, AStageThatCannotBeWatchedDoesNotRun) {
  if (geteuid() != 0) GTEST_SKIP() << "the worker's stages are of its own user";
  options_.longest_stage = absl::Seconds(20);
  const pid_t pid = fork();
  if (pid == 0) {
    __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
    syscall(SYS_capget, &header, data);
    data[0].effective &= ~(1u << CAP_SYS_PTRACE);
    data[0].permitted &= ~(1u << CAP_SYS_PTRACE);
    syscall(SYS_capset, &header, data);
    const Confinement user{.user = true};
    const std::string outcome = Try("wait", user);
    const confine::Feature offered = confine::ProbeConfinement(user).back();
    std::cerr << outcome << "\n" << confine::Describe(offered) << "\n";
    const bool refused = outcome.find("cannot be watched") != std::string::npos;
    const bool told = !offered.available && offered.remedy.find("SYS_PTRACE") != std::string::npos;
    _exit(!refused ? 1 : !told ? 2 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0) << "exit status " << WEXITSTATUS(status);
}

TEST_F(EscapeTest, AStageStaysOnItsCores) {
  if (UsableCores().size() < 2) GTEST_SKIP() << "there is one core only";
  EXPECT_THAT(Try("other_cores", all_), HasSubstr("a core that is not its slot's"));
}

// The worker's limits hold whatever the caller asks for.
TEST_F(EscapeTest, CallersLimitsAreCapped) {
  options_.longest_stage = absl::Milliseconds(300);
  EXPECT_THAT(Try("wait", all_), HasSubstr("longer than its limit of 300ms"));
}

TEST_F(EscapeTest, TheWorkerSaysWhatIsOffered) {
  const std::string worker = std::string(HEDDLE_BIN_DIR) + "/heddle-worker";
  std::string expected;
  const std::vector<confine::Feature> features =
      confine::ProbeConfinement(confine::ParseConfinement("all").value());
  for (const confine::Feature& feature : features)
    absl::StrAppend(&expected, confine::Describe(feature), "\n");
  int status = 0;
  EXPECT_EQ(Output(worker + " --check", &status), expected);
  EXPECT_EQ(status == 0, confine::RequireAll(features).ok());
  EXPECT_THAT(Output(worker + " --require-confinement --confine=filter 2>&1", &status),
              HasSubstr("stages cannot be confined by landlock: it is switched off"));
  EXPECT_EQ(status, 2);
  EXPECT_THAT(Output(worker + " --confine=wishes 2>&1", &status), HasSubstr("'wishes'"));
  EXPECT_EQ(status, 2);
}

// A stage may leave its session where there is no filter. Its control group ends it all the same, and nothing
// of the group is left.
TEST_F(EscapeTest, AControlGroupEndsWhatHasLeftTheSession) {
  const confine::Confinement wanted{.cgroup = true};
  const std::vector<confine::Feature> features = confine::ProbeConfinement(wanted);
  if (!confine::Available(wanted, features).cgroup) {
    for (const confine::Feature& feature : features)
      if (feature.name == "cgroup") GTEST_SKIP() << confine::Describe(feature);
  }
  const auto left_alive = [&](const Confinement& confinement) {
    const std::string place = NewFolder(0777);
    EXPECT_THAT(Try("daemonise " + place + "/daemon", confinement), HasSubstr("escaped: "));
    // It is told its number after it has left, and may end before it writes that.
    pid_t daemon = 0;
    const absl::Time limit = MonotonicNow() + absl::Seconds(2);
    while (daemon == 0 && MonotonicNow() < limit) {
      absl::SleepFor(absl::Milliseconds(10));
      std::ifstream(place + "/daemon") >> daemon;
    }
    std::filesystem::remove_all(place);
    return daemon > 0 && Alive(daemon);
  };
  EXPECT_TRUE(left_alive({})) << "the attempt works";
  EXPECT_FALSE(left_alive(wanted));
  const absl::StatusOr<std::string> groups = StageCgroup::Place();
  ASSERT_TRUE(groups.ok()) << groups.status();
  for (const auto& entry : std::filesystem::directory_iterator(*groups)) {
    EXPECT_FALSE(absl::StartsWith(entry.path().filename().string(),
                                  absl::StrCat("heddle-stage-", getpid(), "-")))
        << entry.path();
  }
}

// More threads than the supervisor could count in time.
TEST_F(EscapeTest, AControlGroupLimitsThreads) {
  const auto group = StageCgroup::Make(1);
  if (!group.ok()) GTEST_SKIP() << group.status().message();
  if (!(*group)->limits_threads())
    GTEST_SKIP() << "groups here have no limit of threads (pids.max)";
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    close(ends[1]);
    char end = 0;
    while (read(ends[0], &end, 1) > 0) continue;  // until it is in the group
    const pid_t second = fork();
    if (second == 0) _exit(0);
    _exit(second < 0 && errno == EAGAIN ? 0 : 1);
  }
  EXPECT_TRUE((*group)->Add(pid).ok());
  close(ends[0]);
  close(ends[1]);
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0) << "it could start a second one";
}

// What was a process of the stage, in whatever session, is gone when the stage has ended: with the
// filter there never was one.
TEST_F(EscapeTest, NothingOutlivesAStage) {
  if (!all_.filter) GTEST_SKIP() << "this host has no filter";
  Try("daemonise " + place_ + "/daemon", all_);
  absl::SleepFor(absl::Milliseconds(200));
  EXPECT_FALSE(std::filesystem::exists(place_ + "/daemon"));
}

}  // namespace
}  // namespace heddle::worker
