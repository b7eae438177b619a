// Tracker, worker and scheduler as processes of their own on loopback, to be killed and started
// again by a test.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace heddle {

// A program with its output in a file. Dies with the test, however that ends.
class Process {
 public:
  Process() = default;
  ~Process() { Kill(); }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void Start(const std::vector<std::string>& command, const std::string& log_file);
  bool Running();
  // Live processes it has started.
  std::vector<pid_t> Children() const;
  // SIGKILL, and waits for it.
  void Kill();
  // SIGTERM; its exit status, or -1 where it did not end in time or by a signal.
  int Terminate();
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
};

bool Alive(pid_t pid);

class MiniCluster {
 public:
  MiniCluster();
  ~MiniCluster();

  // Each may be called again after its process was killed: same address, same data, same id.
  void StartTracker();
  void StartWorker();
  void StartScheduler();

  std::string tracker_address() const { return tracker_address_; }
  std::string scheduler_address() const { return scheduler_address_; }
  // A path in the cluster's own folder: "worker.log".
  std::string File(const std::string& name) const { return folder_ + "/" + name; }
  // The last lines of every log, for failure messages.
  std::string Logs() const;

  Process tracker;
  Process worker;
  Process scheduler;

 private:
  // Waits for the file that a daemon writes once it listens; the address on loopback, empty when it
  // does not come.
  std::string AddressFrom(const std::string& port_file, Process& process) const;

  std::string folder_;
  std::string tracker_address_ = "127.0.0.1:0";
  std::string scheduler_address_ = "127.0.0.1:0";
};

}  // namespace heddle
