// heddle-bench-overload: measures a scheduler under overload, by callers that stand still and by ten
// times the usual calls; with --pages N, by N open pages that follow its changes.
//
// Starts a real heddle-scheduler. Its tracker and its worker are in this process and only pretend. Users
// are in a third process. It runs many small jobs, in turns for the same time: with the usual calls of
// users, and with more. More is ten times the calls beside stalled peers; with --pages, it is the pages. Prints the medians of both and
// their ratios: how long a slot waits between two stages (the scheduler's decision and its lease), trials
// a second, how many calls succeeded, what each of the three processes takes of the CPU, and the
// scheduler's peak memory. Exits with 1 where a goal (kMost.., kLeast..) is missed, and names it; pages
// have no goals.
//
// All three share the machine's cores. The CPU time tells what slows the scheduler down: its own work
// for the calls, or the users' processes, which would be elsewhere in a lab.
#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/command_documents.h"
#include "base/quantiles.h"
#include "bench/common/usage.h"
#include "proto/jobs.grpc.pb.h"
#include "tests/scheduler/service/fake_cluster.h"

extern char** environ;

namespace heddle::scheduler {
namespace {

// The goals, under stalled peers and ten times the calls.
constexpr double kMostWait =
    2;  // p99 of a slot's wait between two stages, relative to the usual one
constexpr double kLeastTrials = 0.9;  // a second, relative to the usual ones
constexpr double kMostMib = 1024;     // of the scheduler, at its peak

struct Flags {
  std::string programs;
  std::string data;
  int seconds = 20;
  int stalled = 500;
  int calls = 20;  // a second, of users, in the usual case
  int factor = 10;
  int jobs = 20;
  int pages = 0;  // open pages; 0: stalled peers and more calls instead
  int turns = 3;  // measurements of each kind
  bool json = false;
  int port = 0;  // not 0: this process is the users of the scheduler at this port
  int http = 0;  // port of its page
};

// What the users' process tells.
struct Calls {
  int64_t made = 0, succeeded = 0;
  double p99_ms = 0;
  // Of open pages.
  int ended_pages = 0;
  double page_mb_per_second = 0;
};

// CPU seconds that were taken in the time of a measurement.
struct Cpu {
  double scheduler = 0;
  double users = 0;   // callers and stalled peers
  double worker = 0;  // this process: tracker, worker, and whoever submits the jobs
};

struct Figures {
  double gap_p50_ms = 0, gap_p99_ms = 0;
  double seconds = 0;
  int64_t trials = 0;
  Calls calls;
  Cpu cpu;

  double TrialsPerSecond() const { return static_cast<double>(trials) / seconds; }
};

std::shared_ptr<grpc::Channel> Connect(int port) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection for each peer
  return grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", port),
                                   grpc::InsecureChannelCredentials(), arguments);
}

// Browsers that show a page each: read its events and throw them away.
class OpenPages {
 public:
  // False: not all could be opened.
  bool Open(int http, int count) {
    rlimit files = {};
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = std::min<rlim_t>(files.rlim_max, static_cast<rlim_t>(count) + 256);
    setrlimit(RLIMIT_NOFILE, &files);
    ready_ = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < count; ++i) {
      const int reader = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      sockaddr_in address = {};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      address.sin_port = htons(static_cast<uint16_t>(http));
      // Most look at what changes all the time.
      const std::string page = i % 10 < 4   ? "/"
                               : i % 10 < 7 ? "/jobs"
                               : i % 10 < 8 ? "/machines"
                                            : absl::StrCat("/jobs/j", 1 + i % 20);
      const std::string request =
          absl::StrCat("GET /events?page=", page, " HTTP/1.1\r\nHost: localhost\r\n\r\n");
      epoll_event event = {.events = EPOLLIN, .data = {.fd = reader}};
      if (reader < 0 || connect(reader, reinterpret_cast<sockaddr*>(&address), sizeof(address)) ||
          send(reader, request.data(), request.size(), MSG_NOSIGNAL) < 0 ||
          epoll_ctl(ready_, EPOLL_CTL_ADD, reader, &event) != 0)
        return false;
      sockets_.push_back(reader);
    }
    thread_ = std::thread([this] { Read(); });
    return true;
  }
  ~OpenPages() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    for (const int reader : sockets_) close(reader);
    if (ready_ >= 0) close(ready_);
  }
  // Pages that got an answer, pages whose stream has ended, and bytes, until now.
  int answered() const { return answered_; }
  int ended() const { return ended_; }
  int64_t bytes() const { return bytes_; }

 private:
  void Read() {
    std::set<int> seen;
    std::vector<char> buffer(1 << 18);
    epoll_event events[64];
    while (!stop_) {
      const int count = epoll_wait(ready_, events, 64, /*timeout=*/100);
      for (int i = 0; i < count; ++i) {
        const int reader = events[i].data.fd;
        const ssize_t part = recv(reader, buffer.data(), buffer.size(), 0);
        if (part <= 0) {
          epoll_ctl(ready_, EPOLL_CTL_DEL, reader, nullptr);
          ++ended_;
          continue;
        }
        bytes_ += part;
        if (seen.insert(reader).second) ++answered_;
      }
    }
  }

  int ready_ = -1;
  std::vector<int> sockets_;
  std::thread thread_;
  std::atomic<bool> stop_{false};
  std::atomic<int> answered_{0}, ended_{0};
  std::atomic<int64_t> bytes_{0};
};

// The users. Some call and wait for each answer, some look at pages. The others, the stalled peers, open a
// call and then do nothing.
class Users {
 public:
  explicit Users(const Flags& flags) : port_(flags.port), http_(flags.http) {}

  // Prints a line when all stalled peers have called and all pages are open, then calls for the time of
  // the flags, and prints what came of it. False: nobody listens to the lines any more, or not all pages
  // could be opened.
  bool Run(int stalled, int pages, int calls_per_second, int seconds) {
    OpenPages open;
    if (pages > 0 && !open.Open(http_, pages)) return false;
    for (int i = 0; open.answered() < pages; ++i) {
      if (i == 3000) return false;
      absl::SleepFor(absl::Milliseconds(10));
    }
    const int64_t before = open.bytes();
    std::vector<std::thread> threads;
    if (stalled > 0) threads.emplace_back([this, stalled] { Stall(stalled); });
    while (opened_ < stalled) absl::SleepFor(absl::Milliseconds(10));
    if (stalled > 0) absl::SleepFor(absl::Seconds(3));
    std::printf("begin\n");
    if (std::fflush(stdout) != 0) return false;
    const absl::Time begin = absl::Now();
    std::atomic<int64_t> made{0}, succeeded{0};
    std::vector<std::vector<int64_t>> times(kCallers);
    for (int i = 0; i < kCallers; ++i) {
      threads.emplace_back([&, i] {
        const auto stub = v1::JobService::NewStub(Connect(port_));
        const auto records = v1::RecordService::NewStub(Connect(port_));
        absl::Time next = begin;
        for (int64_t turn = i; !stop_; ++turn) {
          next += absl::Seconds(1.0 * kCallers / calls_per_second);
          absl::SleepFor(next - absl::Now());
          const absl::Time start = absl::Now();
          ++made;
          succeeded += Call(stub.get(), records.get(), turn);
          times[i].push_back(absl::ToInt64Nanoseconds(absl::Now() - start));
        }
      });
    }
    absl::SleepFor(absl::Seconds(seconds + 1));  // longer than it is measured
    stop_ = true;
    for (std::thread& thread : threads) thread.join();
    std::vector<int64_t> all;
    for (const auto& one : times) all.insert(all.end(), one.begin(), one.end());
    std::printf("%lld %lld %g %d %g\n", static_cast<long long>(made.load()),
                static_cast<long long>(succeeded.load()), Quantile(all, 0.99) * 1e-6, open.ended(),
                static_cast<double>(open.bytes() - before) / 1e6 / (seconds + 1));
    return std::fflush(stdout) == 0;
  }

 private:
  static constexpr int kCallers = 8;

  static bool Call(v1::JobService::Stub* jobs, v1::RecordService::Stub* records, int64_t turn) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(2));
    switch (turn % 4) {
      case 0: {
        v1::ListJobsRequest request;
        v1::ListJobsResponse response;
        return jobs->ListJobs(&context, request, &response).ok();
      }
      case 1: {
        v1::RecordQuery query;
        query.set_limit(50);
        auto reader = records->QueryRecords(&context, query);
        v1::Record record;
        while (reader->Read(&record)) continue;
        return reader->Finish().ok();
      }
      default: {
        v1::GetJobRequest request;
        request.set_job("j1");
        v1::Job response;
        return jobs->GetJob(&context, request, &response).ok();
      }
    }
  }

  // Peers that open a call of any long kind and then do nothing with it. Every five seconds a tenth of
  // them begins anew.
  void Stall(int count) {
    struct Peer {
      std::unique_ptr<grpc::ClientContext> context;
      std::unique_ptr<v1::JobService::Stub> jobs;
      std::unique_ptr<v1::RecordService::Stub> records;
      std::unique_ptr<grpc::ClientReader<v1::Job>> watch;
      std::unique_ptr<grpc::ClientReader<v1::Record>> query;
      std::unique_ptr<grpc::ClientReader<v1::Chunk>> module;
      std::unique_ptr<grpc::ClientWriter<v1::SubmitRequest>> submit;
      v1::SubmitResponse response;
    };
    std::vector<std::unique_ptr<Peer>> peers(static_cast<size_t>(count));
    const auto open = [this](size_t i) {
      auto peer = std::make_unique<Peer>();
      const auto channel = Connect(port_);
      peer->context = std::make_unique<grpc::ClientContext>();
      peer->jobs = v1::JobService::NewStub(channel);
      peer->records = v1::RecordService::NewStub(channel);
      switch (i % 4) {
        case 0: {
          v1::WatchJobRequest request;
          request.set_job("j1");
          peer->watch = peer->jobs->WatchJob(peer->context.get(), request);
          break;
        }
        case 1: {
          v1::RecordQuery query;
          query.set_limit(1'000'000);
          query.set_with_workload(true);
          peer->query = peer->records->QueryRecords(peer->context.get(), query);
          break;
        }
        case 2: {
          peer->submit = peer->jobs->Submit(peer->context.get(), &peer->response);
          v1::SubmitRequest request;
          request.mutable_spec()->set_target("llvm -mcpu=x");
          request.mutable_spec()->set_trials_per_task(1);
          peer->submit->Write(request);
          break;
        }
        default: {
          v1::FetchModuleRequest request;
          request.set_job("j1");
          peer->module = peer->jobs->FetchModule(peer->context.get(), request);
        }
      }
      return peer;
    };
    for (size_t i = 0; i < peers.size() && !stop_; ++i, ++opened_) peers[i] = open(i);
    for (size_t at = 0; !stop_; at = (at + 1) % peers.size()) {
      absl::SleepFor(absl::Seconds(50.0 / static_cast<double>(peers.size())));
      peers[at]->context->TryCancel();
      peers[at] = open(at);
    }
    for (const auto& peer : peers) {
      if (peer != nullptr) peer->context->TryCancel();
    }
  }

  const int port_, http_;
  std::atomic<int> opened_{0};  // stalled peers
  std::atomic<bool> stop_{false};
};

// 0, with a line on stderr: it could not be started.
pid_t Spawn(std::vector<std::string> command, const posix_spawn_file_actions_t* files) {
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t pid = 0;
  if (posix_spawn(&pid, arguments[0], files, nullptr, arguments.data(), environ) == 0) return pid;
  std::fprintf(stderr, "cannot start %s\n", arguments[0]);
  return 0;
}

class Bench {
 public:
  explicit Bench(const Flags& flags) : flags_(flags) { cluster_.behaviour.candidate_ms = 1; }
  ~Bench() {
    if (told_ != nullptr) std::fclose(told_);
    if (pid_ == 0) return;
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
  }

  bool Start() {
    std::filesystem::remove_all(flags_.data);
    std::filesystem::create_directories(flags_.data);
    const std::string port_file = flags_.data + "/port";
    std::vector<std::string> command = {flags_.programs + "/heddle-scheduler",
                                        "--listen",
                                        "127.0.0.1:0",
                                        "--tracker",
                                        cluster_.tracker_address(),
                                        "--data",
                                        flags_.data,
                                        "--port-file",
                                        port_file};
    if (flags_.pages > 0) command.insert(command.end(), {"--http", "127.0.0.1:0"});
    int lines[2];
    if (pipe2(lines, O_CLOEXEC) != 0) return false;
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, lines[1], STDOUT_FILENO);
    pid_ = Spawn(command, &files);
    posix_spawn_file_actions_destroy(&files);
    close(lines[1]);
    told_ = fdopen(lines[0], "r");
    if (pid_ == 0) return false;
    if (flags_.pages > 0 && std::fscanf(told_, "page at http://127.0.0.1:%d/", &http_) != 1)
      return false;
    for (int i = 0; i < 600 && port_ == 0; ++i) {
      std::ifstream(port_file) >> port_;
      if (port_ == 0) absl::SleepFor(absl::Milliseconds(50));
    }
    return port_ != 0;
  }

  // Nullopt: the users could not be started, or ended early.
  std::optional<Figures> Measure(int stalled, int pages, int calls_per_second) {
    stop_ = false;
    std::thread submitter([this] { KeepJobs(); });
    absl::SleepFor(absl::Seconds(2));  // until all slots are busy
    const std::optional<Figures> figures = MeasureBusy(stalled, pages, calls_per_second);
    stop_ = true;
    submitter.join();
    return figures;
  }

  // Of the scheduler until now.
  double PeakMib() const { return bench::MemoryMib(pid_, "VmHWM"); }
  bool Alive() const { return waitpid(pid_, nullptr, WNOHANG) == 0; }

 private:
  std::optional<Figures> MeasureBusy(int stalled, int pages, int calls_per_second) {
    std::vector<std::string> command = {"/proc/self/exe",
                                        "--users",
                                        absl::StrCat(port_),
                                        "--page-port",
                                        absl::StrCat(http_),
                                        "--stalled",
                                        absl::StrCat(stalled),
                                        "--pages",
                                        absl::StrCat(pages),
                                        "--calls",
                                        absl::StrCat(calls_per_second),
                                        "--seconds",
                                        absl::StrCat(flags_.seconds)};
    int lines[2];
    if (pipe2(lines, O_CLOEXEC) != 0) return std::nullopt;
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, lines[1], STDOUT_FILENO);
    const pid_t users = Spawn(command, &files);
    posix_spawn_file_actions_destroy(&files);
    close(lines[1]);
    FILE* const told = fdopen(lines[0], "r");
    std::optional<Figures> figures;
    char word[16] = {};
    if (users != 0 && std::fscanf(told, "%15s", word) == 1) {
      figures = MeasureFor(users);
      long long made = 0, succeeded = 0;
      double p99_ms = 0, mb = 0;
      int ended = 0;
      if (std::fscanf(told, "%lld %lld %lf %d %lf", &made, &succeeded, &p99_ms, &ended, &mb) == 5) {
        figures->calls = {made, succeeded, p99_ms, ended, mb};
      } else {
        figures.reset();
      }
    }
    std::fclose(told);
    if (users != 0) waitpid(users, nullptr, 0);
    return figures;
  }

  // While the users call.
  Figures MeasureFor(pid_t users) {
    const auto cpu = [&] {
      return Cpu{bench::CpuSeconds(pid_), bench::CpuSeconds(users), bench::CpuSeconds(getpid())};
    };
    (void)cluster_.worker.TakeGaps();
    const int64_t trials = cluster_.worker.trials;
    const absl::Time begin = absl::Now();
    const Cpu before = cpu();
    absl::SleepFor(absl::Seconds(flags_.seconds));
    const Cpu after = cpu();
    Figures figures;
    figures.seconds = absl::ToDoubleSeconds(absl::Now() - begin);
    figures.trials = cluster_.worker.trials - trials;
    const std::vector<int64_t> gaps = cluster_.worker.TakeGaps();
    figures.gap_p50_ms = Quantile(gaps, 0.5) * 1e-6;
    figures.gap_p99_ms = Quantile(gaps, 0.99) * 1e-6;
    figures.cpu = {after.scheduler - before.scheduler, after.users - before.users,
                   after.worker - before.worker};
    return figures;
  }

  std::string Submit(v1::JobService::Stub* stub, int number) {
    grpc::ClientContext context;
    v1::SubmitResponse response;
    auto writer = stub->Submit(&context, &response);
    v1::SubmitRequest request;
    v1::JobSpec& spec = *request.mutable_spec();
    spec.set_name(absl::StrCat("job", number));
    spec.set_target("llvm -mcpu=x");
    spec.set_trials_per_task(64);
    spec.set_plan_search("off");
    // All jobs have the same tasks, whose records would do for all but the first job.
    spec.set_force(true);
    writer->Write(request);
    request.mutable_chunk()->set_name("model");
    request.mutable_chunk()->set_data(absl::StrCat("model ", number));
    request.mutable_chunk()->set_last(true);
    writer->Write(request);
    writer->WritesDone();
    return writer->Finish().ok() ? response.job() : "";
  }

  // As many unfinished jobs as the flags say, all the time.
  void KeepJobs() {
    const auto stub = v1::JobService::NewStub(Connect(port_));
    while (!stop_) {
      grpc::ClientContext context;
      v1::ListJobsRequest request;
      v1::ListJobsResponse response;
      if (stub->ListJobs(&context, request, &response).ok()) {
        for (int i = response.jobs_size(); i < flags_.jobs && !stop_; ++i)
          Submit(stub.get(), number_++);
      }
      absl::SleepFor(absl::Milliseconds(200));
    }
  }

  const Flags flags_;
  FakeCluster cluster_;
  pid_t pid_ = 0;
  int port_ = 0, http_ = 0;
  std::FILE* told_ = nullptr;  // what the scheduler prints
  int number_ = 1;
  std::atomic<bool> stop_{false};
};

double Median(const std::vector<Figures>& turns, const std::function<double(const Figures&)>& of) {
  std::vector<double> values;
  for (const Figures& figures : turns) values.push_back(of(figures));
  return heddle::Median(std::move(values));
}

// What a call costs the scheduler: its CPU time beyond what the trials cost it when there were few calls,
// in microseconds.
double CallMicroseconds(const std::vector<Figures>& usual, const std::vector<Figures>& storm) {
  const double per_trial = Median(
      usual, [](const Figures& f) { return f.cpu.scheduler / static_cast<double>(f.trials); });
  return Median(storm, [per_trial](const Figures& f) {
    const double calls = static_cast<double>(f.calls.made) * f.seconds / (f.seconds + 1);
    return 1e6 * (f.cpu.scheduler - per_trial * static_cast<double>(f.trials)) / calls;
  });
}

struct Row {
  const char* name;
  std::function<double(const Figures&)> of;
};

std::vector<Row> Rows(bool pages) {
  std::vector<Row> rows = {
      {"trials_per_second", [](const Figures& f) { return f.TrialsPerSecond(); }},
      {"gap_p50_ms", [](const Figures& f) { return f.gap_p50_ms; }},
      {"gap_p99_ms", [](const Figures& f) { return f.gap_p99_ms; }},
      {"scheduler_cpu", [](const Figures& f) { return f.cpu.scheduler / f.seconds; }},
      {"users_cpu", [](const Figures& f) { return f.cpu.users / f.seconds; }},
      {"worker_cpu", [](const Figures& f) { return f.cpu.worker / f.seconds; }},
      {"call_p99_ms", [](const Figures& f) { return f.calls.p99_ms; }},
      {"calls_ok", [](const Figures& f) {
         return static_cast<double>(f.calls.succeeded) /
                static_cast<double>(std::max<int64_t>(1, f.calls.made));
       }}};
  if (pages) {
    rows.push_back(
        {"page_mb_per_second", [](const Figures& f) { return f.calls.page_mb_per_second; }});
    rows.push_back(
        {"ended_pages", [](const Figures& f) { return static_cast<double>(f.calls.ended_pages); }});
  }
  return rows;
}

// The goals that were missed, one line each.
std::vector<std::string> MissedGoals(double wait_ratio, double trials_ratio, double peak_mib) {
  std::vector<std::string> missed;
  if (wait_ratio > kMostWait) {
    missed.push_back(absl::StrCat("gap_p99_ms is ", wait_ratio, " times the usual one; at most ",
                                  kMostWait, " times is the goal"));
  }
  if (trials_ratio < kLeastTrials) {
    missed.push_back(absl::StrCat("trials_per_second is ", trials_ratio,
                                  " of the usual one; at least ", kLeastTrials, " is the goal"));
  }
  if (peak_mib >= kMostMib) {
    missed.push_back(
        absl::StrCat("peak memory is ", peak_mib, " MiB; less than ", kMostMib, " is the goal"));
  }
  return missed;
}

int Main(const Flags& flags) {
  Bench bench(flags);
  if (!bench.Start()) return 1;
  const bool pages = flags.pages > 0;
  std::vector<Figures> usual, storm;
  for (int turn = 0; turn < 2 * flags.turns; ++turn) {
    const bool with = turn % 4 == 1 || turn % 4 == 2;  // without, with, with, without
    const std::optional<Figures> figures =
        !with   ? bench.Measure(0, 0, flags.calls)
        : pages ? bench.Measure(0, flags.pages, flags.calls)
                : bench.Measure(flags.stalled, 0, flags.calls * flags.factor);
    if (!figures || figures->trials == 0 || !bench.Alive()) {
      std::fprintf(stderr, "heddle-bench-overload: %s\n",
                   bench.Alive() ? "nothing was measured" : "the scheduler has ended");
      return 1;
    }
    (with ? storm : usual).push_back(*figures);
  }
  nlohmann::json all;
  for (const Row& row : Rows(pages)) {
    const double without = Median(usual, row.of), with = Median(storm, row.of);
    all[row.name] = {{"usual", without}, {pages ? "pages" : "storm", with}};
    if (without != 0) all[row.name]["ratio"] = with / without;
  }
  const double peak_mib = bench.PeakMib();
  all["peak_mib"] = peak_mib;
  std::vector<std::string> missed;
  if (pages) {
    all["open_pages"] = flags.pages;
  } else {
    const auto ratio = [&all](const char* row) { return all[row].value("ratio", 0.0); };
    missed = MissedGoals(ratio("gap_p99_ms"), ratio("trials_per_second"), peak_mib);
    all["scheduler_us_per_call"] = CallMicroseconds(usual, storm);
    all["missed"] = missed;
  }
  if (flags.json) {
    std::printf("%s\n", all.dump().c_str());
  } else {
    const std::string kind =
        pages ? absl::StrCat(flags.pages, " pages") : absl::StrCat(flags.stalled, " stalled");
    std::printf("%-22s%12s%12s%10s\n", "", "usual", kind.c_str(), "ratio");
    for (const Row& row : Rows(pages)) {
      const nlohmann::json& line = all[row.name];
      std::printf("%-22s%12.3f%12.3f", row.name, line["usual"].get<double>(),
                  line[pages ? "pages" : "storm"].get<double>());
      if (line.contains("ratio")) std::printf("%10.3f", line["ratio"].get<double>());
      std::printf("\n");
    }
    if (!pages) {
      std::printf(
          "%d calls a second, and %d with the stalled peers; one costs the scheduler %.0f us\n",
          flags.calls, flags.calls * flags.factor, all["scheduler_us_per_call"].get<double>());
    }
    std::printf("medians of %d turns each; CPU in cores; peak memory %.0f MiB\n", flags.turns,
                peak_mib);
  }
  for (const std::string& goal : missed)
    std::fprintf(stderr, "heddle-bench-overload: %s\n", goal.c_str());
  return missed.empty() ? 0 : 1;
}

}  // namespace
}  // namespace heddle::scheduler

int main(int argc, char** argv) {
  heddle::scheduler::Flags flags;
  flags.programs = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  flags.data = (std::filesystem::temp_directory_path() / absl::StrCat("heddle-overload-", getpid()))
                   .string();
  CLI::App app(
      "heddle-bench-overload: a scheduler with stalled peers and ten times the usual calls");
  app.add_option("--seconds", flags.seconds, "time of each measurement")
      ->check(CLI::Range(1, 600))
      ->capture_default_str();
  app.add_option("--stalled", flags.stalled, "peers that open a call and then do nothing")
      ->check(CLI::Range(0, 5000))
      ->capture_default_str();
  app.add_option("--calls", flags.calls, "usual calls of users a second")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  app.add_option("--jobs", flags.jobs, "unfinished jobs")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--data", flags.data, "directory for the scheduler's data, removed at the end");
  app.add_option("--pages", flags.pages, "open pages, instead of stalled peers and more calls")
      ->check(CLI::Range(0, 1400));
  app.add_option("--turns", flags.turns, "measurements of each kind")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  app.add_flag("--json", flags.json, "print JSON");
  app.add_option("--users", flags.port, "be the users of the scheduler at this port")->group("");
  app.add_option("--page-port", flags.http, "port of its page")->group("");
  if (const auto end = heddle::ParseCommandLine(&app, argc, argv)) return *end;
  if (flags.port != 0) {
    heddle::scheduler::Users users(flags);
    return users.Run(flags.stalled, flags.pages, flags.calls, flags.seconds) ? 0 : 1;
  }
  const int code = heddle::scheduler::Main(flags);
  std::filesystem::remove_all(flags.data);
  return code;
}
