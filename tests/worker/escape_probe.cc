// A stage child that tries to get out. The target of its stage names the attempt, then its argument:
// "read_file /etc/shadow". It warns "blocked: WHY" or "escaped: WHAT". With --list it prints
// the names of all attempts.
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "worker/child/stage_child.h"
#include "worker/slots.h"

namespace heddle::worker {
namespace {

// What was reached; empty if the attempt was blocked, for the reason in errno.
using Attempt = std::string (*)(const std::string& argument);

std::string If(bool reached, const std::string& what) { return reached ? what : ""; }

pid_t Pid(const std::string& argument) { return static_cast<pid_t>(atoi(argument.c_str())); }

// Files.

std::string ReadFile(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY);
  char byte = 0;
  return If(file >= 0 && read(file, &byte, 1) >= 0, "read " + path);
}

std::string ListFolder(const std::string& path) {
  return If(open(path.c_str(), O_RDONLY | O_DIRECTORY) >= 0, "listed " + path);
}

std::string OpenToWrite(const std::string& path) {
  return If(open(path.c_str(), O_WRONLY) >= 0, "could write " + path);
}

std::string MakeFile(const std::string& path) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT, 0644);
  if (file >= 0) unlink(path.c_str());
  return If(file >= 0, "made " + path);
}

std::string MakeLink(const std::string&) {
  return If(symlink("/etc/passwd", "tmp/link") == 0, "made a symbolic link");
}

std::string MakePipe(const std::string&) {
  return If(mkfifo("tmp/pipe", 0600) == 0, "made a named pipe");
}

std::string ChangeMode(const std::string& path) {
  return If(chmod(path.c_str(), 0666) == 0, "changed the mode of " + path);
}

std::string WatchFiles(const std::string&) {
  return If(inotify_init1(0) >= 0, "may be told of changes of files");
}

std::string MountFiles(const std::string&) {
  const bool mounted = mount("none", "tmp", "tmpfs", 0, nullptr) == 0;
  if (mounted) umount("tmp");
  return If(mounted, "mounted a file system");
}

std::string ChangeRoot(const std::string&) { return If(chroot("tmp") == 0, "changed the root"); }

// Processes.

std::string Execute(const std::string& program) {
  char* arguments[] = {const_cast<char*>(program.c_str()), nullptr};
  char* environment[] = {nullptr};
  execve(program.c_str(), arguments, environment);
  return "";  // the test sees that the process has become another one
}

std::string Fork(const std::string&) {
  const pid_t pid = fork();
  if (pid == 0) _exit(0);
  if (pid > 0) waitpid(pid, nullptr, 0);
  return If(pid > 0, "started a process");
}

std::string Clone3(const std::string&) {
  constexpr int kExitSignal = 4;  // a field of struct clone_args, after flags and three addresses
  uint64_t arguments[8] = {};
  arguments[kExitSignal] = SIGCHLD;
  const auto pid = syscall(SYS_clone3, arguments, sizeof(arguments));
  if (pid == 0) _exit(0);
  if (pid > 0) waitpid(static_cast<pid_t>(pid), nullptr, 0);
  return If(pid > 0, "started a process by another call");
}

// A daemon in a session of its own, which the kill of a group does not reach. It ends by itself.
std::string Daemonise(const std::string& file) {
  constexpr unsigned kSeconds = 3;
  const pid_t pid = fork();
  if (pid < 0) return "";
  if (pid == 0) {
    setsid();
    const pid_t second = fork();
    if (second != 0) _exit(0);
    FILE* out = fopen(file.c_str(), "w");
    if (out != nullptr) {
      fprintf(out, "%d\n", getpid());
      fclose(out);
    }
    for (int fd = 0; fd < 16; ++fd) close(fd);
    sleep(kSeconds);
    _exit(0);
  }
  waitpid(pid, nullptr, 0);
  return "left a process in another session";
}

std::string Outlive(const std::string&) {
  return If(prctl(PR_SET_PDEATHSIG, 0) == 0, "need not end with the worker");
}

// A thread whose descriptors are not those of the process.
std::string OwnDescriptors(const std::string&) {
  static char stack[65536];
  constexpr int kFlags = CLONE_VM | CLONE_FS | CLONE_SIGHAND | CLONE_SYSVSEM | CLONE_THREAD;
  const int thread = clone([](void*) { return 0; }, stack + sizeof(stack), kFlags, nullptr);
  const int error = errno;
  usleep(10'000);  // it uses the stack
  errno = error;
  return If(thread > 0, "started a thread with descriptors of its own");
}

std::string UnshareDescriptors(const std::string&) {
  constexpr unsigned kNone = 1000;  // nothing is closed
  constexpr unsigned kUnshare = 2;
  return If(syscall(SYS_close_range, kNone, kNone, kUnshare) == 0,
            "has taken descriptors for one thread alone");
}

std::string Kill(const std::string& victim) {
  return If(kill(Pid(victim), SIGTERM) == 0, "killed another process");
}

std::string QueueSignal(const std::string& victim) {
  sigval value{};
  return If(sigqueue(Pid(victim), SIGTERM, value) == 0, "killed another process by sigqueue");
}

std::string SignalByPidfd(const std::string& victim) {
  const auto file = syscall(SYS_pidfd_open, Pid(victim), 0);
  return If(file >= 0 && syscall(SYS_pidfd_send_signal, file, SIGTERM, nullptr, 0) == 0,
            "killed another process by its descriptor");
}

// The kernel sends the signal once the pipe has something. The test looks whether it arrived.
std::string SignalByOwner(const std::string& victim) {
  int ends[2];
  if (pipe(ends) != 0) return "";  // the filter has no pipes either
  if (fcntl(ends[0], F_SETOWN, Pid(victim)) != 0 || fcntl(ends[0], F_SETSIG, SIGTERM) != 0 ||
      fcntl(ends[0], F_SETFL, O_ASYNC) != 0)
    return "";
  [[maybe_unused]] const ssize_t n = write(ends[1], "x", 1);
  usleep(100'000);
  return "";
}

std::string Trace(const std::string& victim) {
  const bool traced = ptrace(PTRACE_SEIZE, Pid(victim), nullptr, nullptr) == 0;
  if (traced) ptrace(PTRACE_DETACH, Pid(victim), nullptr, nullptr);
  return If(traced, "traced another process");
}

std::string ReadMemory(const std::string& victim) {
  char byte = 0;
  iovec here{.iov_base = &byte, .iov_len = 1};
  iovec there{.iov_base = nullptr, .iov_len = 1};
  const ssize_t n = process_vm_readv(Pid(victim), &here, 1, &there, 1, 0);
  return If(n >= 0 || errno == EFAULT, "could read the memory of another process");
}

std::string OpenMemory(const std::string& victim) {
  return If(open(("/proc/" + victim + "/mem").c_str(), O_RDWR) >= 0,
            "opened the memory of another process");
}

std::string ReadEnvironment(const std::string& victim) {
  return ReadFile("/proc/" + victim + "/environ");
}

std::string ReadCommand(const std::string& victim) {
  return ReadFile("/proc/" + victim + "/cmdline");
}

std::string SlowDown(const std::string& victim) {
  return If(setpriority(PRIO_PROCESS, static_cast<id_t>(Pid(victim)), 10) == 0,
            "changed the priority of another process");
}

std::string LimitOther(const std::string& victim) {
  const rlimit limit{64, 64};
  return If(prlimit(Pid(victim), RLIMIT_NOFILE, &limit, nullptr) == 0, "limited another process");
}

std::string MoveOther(const std::string& victim) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(UsableCores().front(), &cores);
  return If(sched_setaffinity(Pid(victim), sizeof(cores), &cores) == 0,
            "moved another process to another core");
}

// The network.

sockaddr_in Loopback(const std::string& port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(atoi(port.c_str())));
  return address;
}

std::string ConnectTcp(const std::string& port) {
  const sockaddr_in address = Loopback(port);
  const int file = socket(AF_INET, SOCK_STREAM, 0);
  return If(
      file >= 0 && connect(file, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0,
      "connected by TCP");
}

std::string ListenTcp(const std::string&) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  const int file = socket(AF_INET, SOCK_STREAM, 0);
  return If(file >= 0 &&
                bind(file, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
                listen(file, 1) == 0,
            "listened on a port");
}

std::string SendUdp(const std::string& port) {
  const sockaddr_in address = Loopback(port);
  const int file = socket(AF_INET, SOCK_DGRAM, 0);
  return If(file >= 0 && sendto(file, "x", 1, 0, reinterpret_cast<const sockaddr*>(&address),
                                sizeof(address)) == 1,
            "sent a datagram");
}

// A name that begins with '@' is abstract.
std::string ConnectUnix(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() >= sizeof(address.sun_path)) return "";
  memcpy(address.sun_path, name.data(), name.size());
  if (name.front() == '@') address.sun_path[0] = '\0';
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size() +
                                           (name.front() == '@' ? 0 : 1));
  const int file = socket(AF_UNIX, SOCK_STREAM, 0);
  return If(file >= 0 && connect(file, reinterpret_cast<const sockaddr*>(&address), size) == 0,
            "connected to " + name);
}

std::string OpenNetlink(const std::string&) {
  constexpr int kRoute = 0;
  return If(socket(AF_NETLINK, SOCK_RAW, kRoute) >= 0, "talks to the kernel's network");
}

// Parts of the kernel that have had holes, and that no stage needs.

std::string NewUserSpace(const std::string&) {
  return If(unshare(CLONE_NEWUSER) == 0, "became root of a namespace");
}

std::string BecomeRoot(const std::string&) {
  return If(syscall(SYS_setresuid, 0, 0, 0) == 0, "became root");
}

std::string Keyrings(const std::string&) {
  return If(syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 1) >= 0,
            "reached the session's keys");
}

std::string Bpf(const std::string&) {
  // Creates an array of one element of four bytes.
  struct {
    uint32_t type, key_size, value_size, max_entries, flags, rest[16];
  } attributes{2, 4, 4, 1, 0, {}};
  return If(syscall(SYS_bpf, 0, &attributes, sizeof(attributes)) >= 0, "made a map for BPF");
}

std::string PerfEvents(const std::string&) {
  // The clock of this process (PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK).
  struct {
    uint32_t type, size;
    uint64_t config, rest[14];
  } attributes{1, sizeof(attributes), 0, {}};
  return If(syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0) >= 0, "opened a counter");
}

std::string IoUring(const std::string&) {
  uint32_t parameters[64] = {};
  return If(syscall(SYS_io_uring_setup, 4, parameters) >= 0, "made a ring of operations");
}

std::string UserFaults(const std::string&) {
  constexpr int kUserModeOnly = 1;
  return If(syscall(SYS_userfaultfd, kUserModeOnly) >= 0, "handles page faults");
}

std::string Personality(const std::string&) {
  return If(personality(ADDR_NO_RANDOMIZE) >= 0, "switched off randomised addresses");
}

// The descriptor is no terminal, so the kernel's own refusal would be another one.
std::string TypeIntoTerminal(const std::string&) {
  const char letter = 'x';
  const bool reached = ioctl(STDIN_FILENO, TIOCSTI, &letter) == 0 || errno != EPERM;
  return If(reached, "reached the terminal");
}

std::string SharedMemory(const std::string&) {
  constexpr size_t kBytes = 4096;
  const int id = shmget(IPC_PRIVATE, kBytes, 0600);
  if (id >= 0) shmctl(id, IPC_RMID, nullptr);
  return If(id >= 0, "shares memory");
}

// What it was given.

std::string Environment(const std::string& name) {
  return If(getenv(name.c_str()) != nullptr, "has the worker's " + name);
}

// Pipes to the supervisor, and descriptors that name a place and open nothing (O_PATH), are its own.
std::string Descriptors(const std::string&) {
  constexpr int kMost = 1024;
  for (int fd = 3; fd < kMost; ++fd) {
    const int flags = fcntl(fd, F_GETFL);
    struct stat info;
    if (flags < 0 || (flags & O_PATH) != 0 || fstat(fd, &info) != 0 || S_ISFIFO(info.st_mode))
      continue;
    return "has descriptor " + std::to_string(fd);
  }
  errno = EBADF;
  return "";
}

// Bombs, which go on until something stops them. Those of bytes end by themselves at twice what a stage may
// have, so that a test that fails harms nobody. They keep that for a while first, so that it must be found.

constexpr size_t kBombFileBytes = size_t{64} << 20;
constexpr int kBombFiles = 32;

// Calls `take` with a number for each file; it takes kBombFileBytes, or returns false.
template <typename Take>
std::string TakeBytes(const Take& take) {
  for (int number = 0; number < kBombFiles; ++number)
    if (!take(number)) return "";
  constexpr unsigned kSeconds = 3;
  sleep(kSeconds);
  return "took twice the bytes that a stage may have";
}

bool Fill(int file) {
  constexpr size_t kBlock = size_t{4} << 20;
  const std::vector<char> block(kBlock, 'x');
  for (size_t written = 0; written < kBombFileBytes; written += kBlock)
    if (write(file, block.data(), block.size()) < 0) return false;
  return true;
}

int NewFile(const std::string& folder, int number) {
  return open((folder + "/" + std::to_string(number)).c_str(), O_RDWR | O_CREAT, 0600);
}

// Closes the file, which lives on by one page of it that is mapped.
bool KeepByOnePage(int file) {
  const bool kept = mmap(nullptr, 1, PROT_READ, MAP_SHARED, file, 0) != MAP_FAILED;
  close(file);
  return kept;
}

std::string FillDisk(const std::string&) {
  return TakeBytes([](int number) {
    const int file = NewFile("tmp", number);
    const bool filled = file >= 0 && Fill(file);
    close(file);
    return filled;
  });
}

// In a folder that its user may write, but not list.
std::string FillShutFolder(const std::string&) {
  if (mkdir("tmp/shut", 0300) != 0) return "";
  return TakeBytes([](int number) {
    const int file = NewFile("tmp/shut", number);
    const bool filled = file >= 0 && Fill(file);
    close(file);
    return filled;
  });
}

std::string FillMemoryFiles(const std::string&) {
  return TakeBytes([](int) {
    const int file = memfd_create("bomb", 0);
    return file >= 0 && Fill(file);
  });
}

// The first thread ends before the others.
std::string FillWithoutLeader(const std::string&) {
  pthread_t thread;
  const auto fill = [](void*) -> void* {
    FillMemoryFiles("");
    _exit(0);
  };
  if (pthread_create(&thread, nullptr, fill, nullptr) != 0) return "";
  syscall(SYS_exit, 0);
  return "";
}

std::string HideMemoryFiles(const std::string&) {
  return TakeBytes([](int) {
    const int file = memfd_create("bomb", 0);
    return file >= 0 && Fill(file) && KeepByOnePage(file);
  });
}

std::string HideFiles(const std::string&) {
  return TakeBytes([](int number) {
    const int file = NewFile("tmp", number);
    return file >= 0 && unlink(("tmp/" + std::to_string(number)).c_str()) == 0 && Fill(file) &&
           KeepByOnePage(file);
  });
}

std::string HideSharedMemory(const std::string&) {
  return TakeBytes([](int) {
    constexpr size_t kPage = 65536;  // or several
    void* bytes =
        mmap(nullptr, kBombFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED) return false;
    memset(bytes, 'x', kBombFileBytes);
    return munmap(static_cast<char*>(bytes) + kPage, kBombFileBytes - kPage) == 0;
  });
}

// 63 processes, which have the name that the test looks for and end by themselves.
std::string ForkBomb(const std::string& name) {
  constexpr int kGenerations = 6;
  constexpr unsigned kSeconds = 30;
  const pid_t first = getpid();
  bool started = false;
  for (int generation = 0; generation < kGenerations; ++generation) {
    const pid_t pid = fork();
    if (pid == 0) prctl(PR_SET_NAME, name.c_str());
    started |= pid > 0;
  }
  if (getpid() != first) {
    sleep(kSeconds);
    _exit(0);
  }
  return If(started, "started processes that start processes");
}

std::string ManyFiles(const std::string&) {
  for (int number = 0;; ++number) {
    const int file = open(("tmp/" + std::to_string(number)).c_str(), O_WRONLY | O_CREAT, 0600);
    if (file < 0) return "";
    close(file);
  }
}

std::string DeepFolders(const std::string&) {
  std::string path = "tmp";
  constexpr int kLevels = 40;
  for (int level = 0; level < kLevels; ++level) {
    path += "/d";
    if (mkdir(path.c_str(), 0700) != 0) return "";
  }
  while (true) sleep(1);
}

std::string ManyThreads(const std::string&) {
  constexpr size_t kStack = size_t{64} << 10;
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, kStack);
  pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
  int made = 0;
  while (true) {
    pthread_t thread;
    const auto sleep_on = [](void*) -> void* {
      while (true) pause();
    };
    constexpr int kPause = 64;  // keeps a host with one core alive
    if (pthread_create(&thread, &small, sleep_on, nullptr) != 0) usleep(1000);
    if (++made % kPause == 0) usleep(1000);
  }
}

std::string Wait(const std::string&) {
  while (true) pause();
}

std::string OtherCores(const std::string&) {
  cpu_set_t all;
  memset(&all, 0xff, sizeof(all));
  if (sched_setaffinity(0, sizeof(all), &all) != 0) return "";
  while (true) usleep(1000);
}

const std::map<std::string, Attempt>& Attempts() {
  static const auto* const attempts = new std::map<std::string, Attempt>{
      {"read_file", ReadFile},
      {"list_folder", ListFolder},
      {"open_to_write", OpenToWrite},
      {"make_file", MakeFile},
      {"make_link", MakeLink},
      {"make_pipe", MakePipe},
      {"change_mode", ChangeMode},
      {"watch_files", WatchFiles},
      {"mount", MountFiles},
      {"change_root", ChangeRoot},
      {"execute", Execute},
      {"fork", Fork},
      {"clone3", Clone3},
      {"daemonise", Daemonise},
      {"outlive", Outlive},
      {"own_descriptors", OwnDescriptors},
      {"unshare_descriptors", UnshareDescriptors},
      {"kill", Kill},
      {"queue_signal", QueueSignal},
      {"signal_by_pidfd", SignalByPidfd},
      {"signal_by_owner", SignalByOwner},
      {"trace", Trace},
      {"read_memory", ReadMemory},
      {"open_memory", OpenMemory},
      {"read_environment", ReadEnvironment},
      {"read_command", ReadCommand},
      {"slow_down", SlowDown},
      {"limit_other", LimitOther},
      {"move_other", MoveOther},
      {"connect_tcp", ConnectTcp},
      {"listen_tcp", ListenTcp},
      {"send_udp", SendUdp},
      {"connect_unix", ConnectUnix},
      {"open_netlink", OpenNetlink},
      {"new_user_space", NewUserSpace},
      {"become_root", BecomeRoot},
      {"keyrings", Keyrings},
      {"bpf", Bpf},
      {"perf_events", PerfEvents},
      {"io_uring", IoUring},
      {"user_faults", UserFaults},
      {"personality", Personality},
      {"type_into_terminal", TypeIntoTerminal},
      {"shared_memory", SharedMemory},
      {"environment", Environment},
      {"descriptors", Descriptors},
      {"fill_disk", FillDisk},
      {"fill_shut_folder", FillShutFolder},
      {"fill_memory_files", FillMemoryFiles},
      {"fill_without_leader", FillWithoutLeader},
      {"hide_memory_files", HideMemoryFiles},
      {"hide_files", HideFiles},
      {"hide_shared_memory", HideSharedMemory},
      {"fork_bomb", ForkBomb},
      {"many_files", ManyFiles},
      {"deep_folders", DeepFolders},
      {"many_threads", ManyThreads},
      {"other_cores", OtherCores},
      {"wait", Wait},
  };
  return *attempts;
}

absl::Status Run(const v1::StageStart& start, StageIo& io) {
  const std::string& order = start.target();
  const size_t space = order.find(' ');
  const auto attempt = Attempts().find(order.substr(0, space));
  if (attempt == Attempts().end()) return absl::InvalidArgumentError("no such attempt: " + order);
  const std::string argument = space == std::string::npos ? "" : order.substr(space + 1);
  errno = 0;
  const std::string reached = attempt->second(argument);
  const std::string why = strerror(errno);
  io.Warn(reached.empty() ? "blocked: " + why : "escaped: " + reached);
  return absl::OkStatus();
}

}  // namespace
}  // namespace heddle::worker

int main(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], "--list") == 0) {
    for (const auto& [name, attempt] : heddle::worker::Attempts()) puts(name.c_str());
    return 0;
  }
  return heddle::worker::StageChildMain(argc, argv, heddle::worker::Run);
}
