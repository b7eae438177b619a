// heddle-bench-overload: measures a scheduler under overload, by callers that stand still and by ten
// times the usual calls.
//
// Starts a real heddle-scheduler. Its tracker and its worker are in this process and only pretend, so
// that the two cores are the scheduler's. It runs many small jobs twice for the same time: with the
// usual calls of users, and with stalled peers and ten times the calls. Prints, for each, how long a
// slot waits between two stages (the scheduler's decision and its lease), trials a second, how many
// calls succeeded, and the scheduler's peak memory.
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/jobs.grpc.pb.h"
#include "tests/scheduler/service/fake_cluster.h"

extern char** environ;

namespace heddle::scheduler {
namespace {

struct Flags {
  std::string programs;
  std::string data;
  int seconds = 20;
  int stalled = 500;
  int calls = 20;  // a second, of users, in the usual case
  int factor = 10;
  int jobs = 20;
  bool json = false;
};

struct Figures {
  double gap_p50_ms = 0, gap_p99_ms = 0;
  double trials_per_second = 0;
  int64_t calls = 0, succeeded = 0;
  double call_p99_ms = 0;
};

double Quantile(std::vector<int64_t> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return static_cast<double>(
      values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))]);
}

std::shared_ptr<grpc::Channel> Connect(int port) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection for each peer
  return grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", port),
                                   grpc::InsecureChannelCredentials(), arguments);
}

class Bench {
 public:
  explicit Bench(const Flags& flags) : flags_(flags) { cluster_.behaviour.candidate_ms = 1; }
  ~Bench() {
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
    std::vector<char*> arguments;
    for (std::string& word : command) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    if (posix_spawn(&pid_, command[0].c_str(), nullptr, nullptr, arguments.data(), environ) != 0) {
      pid_ = 0;
      std::fprintf(stderr, "cannot start %s\n", command[0].c_str());
      return false;
    }
    for (int i = 0; i < 600 && port_ == 0; ++i) {
      std::ifstream(port_file) >> port_;
      if (port_ == 0) absl::SleepFor(absl::Milliseconds(50));
    }
    return port_ != 0;
  }

  Figures Measure(int stalled, int calls_per_second) {
    stop_ = false;
    std::thread submitter([this] { KeepJobs(); });
    absl::SleepFor(absl::Seconds(2));  // until all slots are busy
    std::vector<std::thread> threads;
    if (stalled > 0) threads.emplace_back([this, stalled] { Stall(stalled); });
    if (stalled > 0) absl::SleepFor(absl::Seconds(3));
    (void)cluster_.worker.TakeGaps();
    const int64_t trials = cluster_.worker.trials;
    const absl::Time begin = absl::Now();
    std::atomic<int64_t> attempted{0}, succeeded{0};
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
          ++attempted;
          succeeded += Call(stub.get(), records.get(), turn);
          times[i].push_back(absl::ToInt64Nanoseconds(absl::Now() - start));
        }
      });
    }
    absl::SleepFor(absl::Seconds(flags_.seconds));
    Figures figures;
    const std::vector<int64_t> gaps = cluster_.worker.TakeGaps();
    figures.gap_p50_ms = Quantile(gaps, 0.5) * 1e-6;
    figures.gap_p99_ms = Quantile(gaps, 0.99) * 1e-6;
    figures.trials_per_second = static_cast<double>(cluster_.worker.trials - trials) /
                                absl::ToDoubleSeconds(absl::Now() - begin);
    stop_ = true;
    for (std::thread& thread : threads) thread.join();
    submitter.join();
    figures.calls = attempted;
    figures.succeeded = succeeded;
    std::vector<int64_t> all;
    for (const auto& one : times) all.insert(all.end(), one.begin(), one.end());
    figures.call_p99_ms = Quantile(all, 0.99) * 1e-6;
    return figures;
  }

  // Of the scheduler until now.
  double PeakMib() const {
    std::ifstream status(absl::StrCat("/proc/", pid_, "/status"));
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("VmHWM:")) return std::atof(line.c_str() + 6) / 1024;
    }
    return 0;
  }
  bool Alive() const { return waitpid(pid_, nullptr, WNOHANG) == 0; }

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
    for (size_t i = 0; i < peers.size() && !stop_; ++i) peers[i] = open(i);
    for (size_t at = 0; !stop_; at = (at + 1) % peers.size()) {
      absl::SleepFor(absl::Seconds(50.0 / static_cast<double>(peers.size())));
      peers[at]->context->TryCancel();
      peers[at] = open(at);
    }
    for (const auto& peer : peers) {
      if (peer != nullptr) peer->context->TryCancel();
    }
  }

  const Flags flags_;
  FakeCluster cluster_;
  pid_t pid_ = 0;
  int port_ = 0;
  int number_ = 1;
  std::atomic<bool> stop_{false};
};

int Main(const Flags& flags) {
  Bench bench(flags);
  if (!bench.Start()) return 1;
  const Figures calm = bench.Measure(0, flags.calls);
  const Figures storm = bench.Measure(flags.stalled, flags.calls * flags.factor);
  const bool alive = bench.Alive();
  const double mib = bench.PeakMib();
  if (flags.json) {
    const auto row = [](const Figures& f) {
      return nlohmann::json{{"gap_p50_ms", f.gap_p50_ms},
                            {"gap_p99_ms", f.gap_p99_ms},
                            {"trials_per_second", f.trials_per_second},
                            {"calls", f.calls},
                            {"succeeded", f.succeeded},
                            {"call_p99_ms", f.call_p99_ms}};
    };
    const nlohmann::json all = {
        {"calm", row(calm)}, {"storm", row(storm)}, {"peak_mib", mib}, {"alive", alive}};
    std::printf("%s\n", all.dump().c_str());
  } else {
    std::printf("%-44s%12s%12s%10s%12s%14s\n", "", "gap p50 ms", "gap p99 ms", "trials/s",
                "calls ok", "call p99 ms");
    for (const auto& [name, f] :
         {std::pair("usual", calm), std::pair("stalled peers and ten times the calls", storm)}) {
      std::printf("%-44s%12.2f%12.2f%10.0f%11.1f%%%14.1f\n", name, f.gap_p50_ms, f.gap_p99_ms,
                  f.trials_per_second,
                  100.0 * static_cast<double>(f.succeeded) /
                      static_cast<double>(std::max<int64_t>(1, f.calls)),
                  f.call_p99_ms);
    }
    std::printf("scheduler: %s, peak memory %.0f MiB\n", alive ? "alive" : "gone", mib);
  }
  return alive ? 0 : 1;
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
  app.add_option("--seconds", flags.seconds, "time of each of the two measurements")
      ->check(CLI::Range(1, 600))
      ->capture_default_str();
  app.add_option("--stalled", flags.stalled, "peers that open a call and then do nothing")
      ->check(CLI::Range(1, 5000))
      ->capture_default_str();
  app.add_option("--calls", flags.calls, "usual calls of users a second")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--jobs", flags.jobs, "unfinished jobs")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--data", flags.data, "directory for the scheduler's data, removed at the end");
  app.add_flag("--json", flags.json, "print JSON");
  CLI11_PARSE(app, argc, argv);
  const int code = heddle::scheduler::Main(flags);
  std::filesystem::remove_all(flags.data);
  return code;
}
