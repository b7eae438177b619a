// Tracker, worker and scheduler as processes of their own on loopback, to be killed and started
// again by a test.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/cluster/tcp_proxy.h"

namespace heddle {

// A program with its output in a file. Dies with the test, however that ends.
class Process {
 public:
  Process() = default;
  ~Process() { Kill(); }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // `environment` ("NAME=value") is added to that of the test.
  void Start(const std::vector<std::string>& command, const std::string& log_file,
             const std::vector<std::string>& environment = {});
  bool Running();
  // Live processes it has started.
  std::vector<pid_t> Children() const;
  // SIGKILL, and waits for it.
  void Kill();
  // SIGSTOP and SIGCONT.
  void Stop();
  void Continue();
  // SIGTERM; its exit status, or -1 where it did not end in time or by a signal.
  int Terminate();
  // The same for a process that ends by itself.
  int WaitForEnd();
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
};

bool Alive(pid_t pid);

// Connections between the processes of a cluster.
struct Links {
  TcpProxy worker_to_tracker, scheduler_to_tracker, scheduler_to_worker, client_to_scheduler;
  TcpProxy worker_to_second_tracker, scheduler_to_second_tracker;
  // Those without a second tracker.
  std::vector<TcpProxy*> all() {
    return {&worker_to_tracker, &scheduler_to_tracker, &scheduler_to_worker, &client_to_scheduler};
  }
};

class MiniCluster {
 public:
  struct Options {
    int lease_s = 0;                         // of the scheduler; 0: its default
    int expiry_s = 0;                        // of workers at the tracker; 0: its default
    bool links = false;                      // every connection goes through a proxy
    std::string tracker_address{};           // of a tracker that the test has itself
    std::string scheduler{};                 // another program for it
    bool standby = false;                    // there are two schedulers, on the same data
    bool two_trackers = false;               // the scheduler appoints one of them
    std::string store{};                     // --store of the scheduler; empty: none
    std::string second_store{};              // the same of the other one
    std::vector<std::string> environment{};  // of all three
  };
  MiniCluster() : MiniCluster(Options()) {}
  explicit MiniCluster(Options options);
  ~MiniCluster();

  // Each may be called again after its process was killed: same address, same data, same id.
  void StartTracker();
  void StartSecondTracker();  // with Options.two_trackers
  void StartWorker();
  void StartScheduler();
  // With Options.standby, the other one; also returns once it stands by.
  void StartSecond();

  std::string tracker_address() const { return tracker_address_; }
  std::string second_tracker_address() const { return second_tracker_address_; }
  // Where clients reach the scheduler.
  std::string scheduler_address() const {
    return links_ ? links_->client_to_scheduler.address() : scheduler_address_;
  }
  std::string second_address() const { return second_address_; }
  Links* links() { return links_.get(); }  // null without Options.links
  // A path in the cluster's own folder: "worker.log".
  std::string File(const std::string& name) const { return folder_ + "/" + name; }
  // The last lines of every log, for failure messages.
  std::string Logs() const;
  // Leaves the folder, with the whole logs and all data, behind for who looks into a failure. Returns its path.
  const std::string& Keep();

  Process tracker, second_tracker;
  Process worker;
  Process scheduler;
  Process second;  // scheduler

 private:
  void StartTrackerAs(const std::string& name, Process* process, std::string* address);
  // For --tracker.
  std::string TrackersFor(TcpProxy Links::*first, TcpProxy Links::*second) const;
  void StartSchedulerAs(const std::string& name, const std::string& store, Process* process,
                        std::string* address);
  // Waits for the file that a daemon writes once it listens; the address on loopback, empty when it
  // does not come.
  std::string AddressFrom(const std::string& port_file, Process& process) const;

  const Options options_;
  std::unique_ptr<Links> links_;
  int worker_port_ = 0;
  std::string folder_;
  bool keep_ = false;
  std::string tracker_address_ = "127.0.0.1:0";
  std::string second_tracker_address_ = "127.0.0.1:0";
  std::string scheduler_address_ = "127.0.0.1:0";
  std::string second_address_ = "127.0.0.1:0";
};

}  // namespace heddle
