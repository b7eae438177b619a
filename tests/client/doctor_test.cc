// heddle doctor: each problem is planted into a machine on which all is well, and exactly its check must
// name it.
#include "client/doctor/doctor.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <set>

#include "compiler/codegen/backend.h"
#include "proto/jobs.grpc.pb.h"
#include "tests/places.h"

namespace heddle::client {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kVersion[] = "0.1.0";
constexpr int kCores = 2;

// A scheduler that only says which workers it knows.
class FakeService final : public v1::JobService::Service {
 public:
  FakeService() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
  }
  ~FakeService() override { server_->Shutdown(std::chrono::system_clock::now()); }
  grpc::Status ListJobs(grpc::ServerContext*, const v1::ListJobsRequest*,
                        v1::ListJobsResponse*) override {
    return grpc::Status::OK;
  }
  grpc::Status ListDevices(grpc::ServerContext*, const v1::ListWorkersRequest*,
                           v1::ListWorkersResponse* response) override {
    *response = workers;
    return tracker;
  }
  v1::SlotStatus* AddSlot(v1::SlotKind kind, v1::SlotState state) {
    if (workers.workers().empty()) workers.add_workers()->set_worker("w1");
    v1::SlotStatus* slot = workers.mutable_workers(0)->add_slots();
    slot->mutable_slot()->set_name(kind == v1::SLOT_CPU ? "cpu0" : "profile0");
    slot->mutable_slot()->set_kind(kind);
    slot->mutable_slot()->set_target("llvm -mcpu=znver4");
    slot->set_state(state);
    return slot;
  }
  const std::string& address() const { return address_; }

  v1::ListWorkersResponse workers;
  grpc::Status tracker;

 private:
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

// A machine of files and functions.
class Patient {
 public:
  Patient() {
    std::string made = testing::TempDir() + "/doctor-XXXXXX";
    EXPECT_NE(mkdtemp(made.data()), nullptr);
    root_ = made;
    Write("/proc/meminfo", "MemTotal:  32000000 kB\nMemAvailable:  16000000 kB\n");
    Write("/sys/fs/cgroup/cpu.max", "max 100000\n");
    Write("/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n");
    for (int core = 0; core < kCores; ++core) Write(Governor(core), "performance\n");
    for (auto& core : ticks_) core = {1000, 0, 100, 90000, 0, 0, 0, 0};
    WriteTicks();
    for (const char* name : {"heddle-scheduler", "heddle-tracker"})
      Program(name, std::string("echo ") + name + " " + kVersion);
    Worker("filter: yes, system calls outside of a list are refused", 0);
    fs::create_directories(root_ / "data");
    fs::permissions(root_ / "data", fs::perms::owner_all);
    fs::create_directories(root_ / "tmp");

    here.root = root_;
    here.programs = root_ / "bin";
    here.temporary = root_ / "tmp";
    here.cores = {0, 1};
    here.open_files = 65536;
    here.now = absl::FromCivil(absl::CivilDay(2026, 11, 26), absl::UTCTimeZone());
    here.wait = [this] {
      for (size_t core = 0; core < ticks_.size(); ++core) {
        for (size_t i = 0; i < passing.size(); ++i) ticks_[core][i] += passing[i];
      }
      WriteTicks();
    };
    here.disk = [](const std::string&) { return DiskFacts{int64_t{100} << 30, ""}; };
    here.toolchain = [](TargetKind) { return absl::OkStatus(); };
    here.kernel = [](const Target&) {
      return KernelFacts{absl::Milliseconds(80), {100, 101, 102, 100, 99}};
    };
    options.server.address = "unix:" + (root_ / "data/sockets/scheduler").string();
    options.data = root_ / "data";
    options.version = kVersion;
  }
  ~Patient() {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }
  Patient(const Patient&) = delete;
  Patient& operator=(const Patient&) = delete;

  void Write(const std::string& path, const std::string& text) const {
    const fs::path file = root_ / path.substr(1);
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void Program(const std::string& name, const std::string& body) const {
    Write("/bin/" + name, "#!/bin/sh\n" + body + "\n");
    fs::permissions(root_ / "bin" / name, fs::perms::owner_all);
  }
  // A worker that says this with --check, and that with --check-gpus.
  void Worker(const std::string& check, int status, const std::string& gpus = "",
              int gpu_status = 0) const {
    const auto answer = [](const char* flag, const std::string& text, int code) {
      return std::string("if [ \"$1\" = ") + flag + " ]; then printf '" + text + "'; exit " +
             std::to_string(code) + "; fi; ";
    };
    Program("heddle-worker", answer("--check", check + "\\n", status) +
                                 answer("--check-gpus", gpus, gpu_status) + "echo heddle-worker " +
                                 kVersion);
  }
  // A worker whose GPUs say this.
  void Gpus(const std::string& text, int status) const {
    Worker("filter: yes, fine", 0, text, status);
  }
  static std::string Governor(int core) {
    return "/sys/devices/system/cpu/cpu" + std::to_string(core) + "/cpufreq/scaling_governor";
  }
  // The checks that find something, with what they found.
  std::map<std::string, Verdict> Findings() const {
    std::map<std::string, Verdict> findings;
    for (const Finding& finding : Examine(options, here)) {
      if (finding.verdict.health != Health::kWell) findings[finding.check] = finding.verdict;
    }
    return findings;
  }
  const fs::path& root() const { return root_; }
  FakeService& Serve() {
    service = std::make_unique<FakeService>();
    options.server.address = service->address();
    options.server_is_default = false;
    return *service;
  }

  DoctorOptions options;
  Surroundings here;
  std::unique_ptr<FakeService> service;  // null: none runs
  // Ticks of each core between two readings: 1 of 50 is busy.
  std::array<int64_t, 8> passing = {1, 0, 0, 49, 0, 0, 0, 0};

 private:
  void WriteTicks() const {
    std::string text = "cpu  1 2 3 4 5 6 7 8 0 0\n";
    for (size_t core = 0; core < ticks_.size(); ++core) {
      text += "cpu" + std::to_string(core);
      for (const int64_t value : ticks_[core]) text += " " + std::to_string(value);
      text += " 0 0\n";
    }
    Write("/proc/stat", text);
  }
  fs::path root_;
  std::array<std::array<int64_t, 8>, kCores> ticks_;
};

struct Plant {
  std::string name;
  std::string check;
  Health health;
  std::string says;
  std::function<void(Patient&)> plant;
};

std::vector<Plant> Plants() {
  const Health problem = Health::kProblem, warning = Health::kWarning;
  return {
      {"NoWorker", "programs", problem, "heddle-worker",
       [](Patient& p) { fs::remove(p.root() / "bin/heddle-worker"); }},
      {"OldScheduler", "versions", problem, "0.0.9",
       [](Patient& p) { p.Program("heddle-scheduler", "echo heddle-scheduler 0.0.9"); }},
      {"NoCompiler", "toolchain", problem, "no LLVM",
       [](Patient& p) {
         p.here.toolchain = [](TargetKind kind) {
           return kind == kHostKind ? absl::UnavailableError("no LLVM here") : absl::OkStatus();
         };
       }},
      {"UnknownTarget", "processor", problem, "znver99",
       [](Patient& p) { p.options.target = "llvm -mcpu=znver99"; }},
      {"GpuWithoutCompiler", "gpu", warning, "no NVRTC",
       [](Patient& p) {
         p.Write("/dev/nvidiactl", "");
         p.here.toolchain = [](TargetKind kind) {
           return kind == TargetKind::kCuda ? absl::UnavailableError("no NVRTC here")
                                            : absl::OkStatus();
         };
       }},
      {"GpuThatFails", "gpu", problem, "not in a confined stage (landlock): CUDA_ERROR",
       [](Patient& p) {
         p.Gpus(
             "cuda:0: A, CUDA 13.0: ok: a small kernel takes 9 ns\\n"
             "cuda:1: B, CUDA 13.0: problem: works, but not in a confined stage (landlock): "
             "CUDA_ERROR_OPERATING_SYSTEM\\n",
             1);
       }},
      {"DriverThatFails", "gpu", problem, "driver: it takes too long",
       [](Patient& p) { p.Gpus("driver: it takes too long\\n", 1); }},
      {"GpuWithoutDriver", "gpu", warning, "no driver that shows it",
       [](Patient& p) { p.Write("/dev/nvidiactl", ""); }},
      {"OneCore", "cores", warning, "one core", [](Patient& p) { p.here.cores = {0}; }},
      {"Quota", "cpu-quota", warning, "0.5 cores",
       [](Patient& p) { p.Write("/sys/fs/cgroup/cpu.max", "50000 100000\n"); }},
      {"Powersave", "governor", warning, "powersave",
       [](Patient& p) { p.Write(Patient::Governor(1), "powersave\n"); }},
      {"Busy", "load", warning, "40 %", [](Patient& p) { p.passing = {20, 0, 0, 30, 0, 0, 0, 0}; }},
      {"Stolen", "steal", warning, "10 %",
       [](Patient& p) { p.passing = {0, 0, 0, 45, 0, 0, 0, 5}; }},
      {"SlowClock", "clock", warning, "hpet",
       [](Patient& p) {
         p.Write("/sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n");
       }},
      {"NoDate", "date", problem, "1970", [](Patient& p) { p.here.now = absl::UnixEpoch(); }},
      {"LittleMemory", "memory", warning, "512.0 MB",
       [](Patient& p) { p.Write("/proc/meminfo", "MemAvailable: 500000 kB\n"); }},
      {"FewFiles", "open-files", problem, "256", [](Patient& p) { p.here.open_files = 256; }},
      {"BrokenKernel", "kernel", problem, "illegal instruction",
       [](Patient& p) {
         p.here.kernel = [](const Target&) -> absl::StatusOr<KernelFacts> {
           return absl::InternalError("illegal instruction");
         };
       }},
      {"NoisyKernel", "kernel", warning, "cannot be seen",
       [](Patient& p) {
         p.here.kernel = [](const Target&) {
           return KernelFacts{absl::Milliseconds(80), {100, 180, 102, 100, 210, 101, 190, 99}};
         };
       }},
      {"NoConfinement", "confinement", warning, "landlock",
       [](Patient& p) { p.Worker("landlock: no, the kernel lacks it; update it", 1); }},
      {"NoTemporaryFolder", "temporary", problem, "nowhere",
       [](Patient& p) { p.here.temporary = p.root() / "nowhere"; }},
      {"DataOpenToOthers", "data-directory", warning, "others can enter",
       [](Patient& p) { chmod((p.root() / "data").c_str(), 0755); }},
      {"DataIsAFile", "data-directory", problem, "is a file",
       [](Patient& p) {
         p.Write("/file", "");
         p.options.data = p.root() / "file/heddle";
       }},
      {"LongPath", "socket-path", problem, "at most 107",
       [](Patient& p) { p.options.data = p.root() / std::string(120, 'x'); }},
      {"FullDisk", "disk-space", problem, "10.0 MB",
       [](Patient& p) {
         p.here.disk = [](const std::string&) { return DiskFacts{10'000'000, ""}; };
       }},
      {"LittleDisk", "disk-space", warning, "1000.0 MB",
       [](Patient& p) {
         p.here.disk = [](const std::string&) { return DiskFacts{1'000'000'000, ""}; };
       }},
      {"NetworkDisk", "disk-kind", problem, "nfs",
       [](Patient& p) {
         p.here.disk = [](const std::string&) { return DiskFacts{int64_t{100} << 30, "nfs"}; };
       }},
      {"DiskInMemory", "disk-kind", warning, "tmpfs",
       [](Patient& p) {
         p.here.disk = [](const std::string&) { return DiskFacts{int64_t{100} << 30, "tmpfs"}; };
       }},
      {"NoCertificates", "certificates", problem, "ca.pem",
       [](Patient& p) { p.options.server.tls_directory = p.root() / "tmp"; }},
      {"OpenToken", "token", problem, "others can read",
       [](Patient& p) {
         p.Write("/token", "abc\n");
         chmod((p.root() / "token").c_str(), 0644);
         p.options.server.token_file = p.root() / "token";
       }},
      {"NoService", "service", problem, "127.0.0.1:1",
       [](Patient& p) {
         p.options.server.address = "127.0.0.1:1";
         p.options.server_is_default = false;
       }},
      {"NoTracker", "tracker", problem, "connection refused",
       [](Patient& p) {
         p.Serve().tracker = {grpc::StatusCode::UNAVAILABLE, "connection refused"};
       }},
      {"NoWorkers", "devices", problem, "no worker", [](Patient& p) { p.Serve(); }},
      {"NoDevice", "devices", problem, "none offers a device",
       [](Patient& p) { p.Serve().AddSlot(v1::SLOT_CPU, v1::SLOT_FREE); }},
      {"Quarantine", "quarantine", warning, "w1/profile0 is in quarantine: its clock halved",
       [](Patient& p) {
         p.Serve().AddSlot(v1::SLOT_DEVICE, v1::SLOT_QUARANTINED)->set_reason("its clock halved");
       }},
  };
}

TEST(Doctor, IsSilentWhereAllIsWell) {
  const Patient patient;
  for (const auto& [check, verdict] : patient.Findings())
    ADD_FAILURE() << check << ": " << verdict.found;
}

TEST(Doctor, IsSilentWithAServiceThatHasADevice) {
  Patient patient;
  patient.Serve().AddSlot(v1::SLOT_DEVICE, v1::SLOT_FREE);
  for (const auto& [check, verdict] : patient.Findings())
    ADD_FAILURE() << check << ": " << verdict.found;
}

class Planted : public testing::TestWithParam<Plant> {};

TEST_P(Planted, IsNamedWithItsRemedy) {
  Patient patient;
  GetParam().plant(patient);
  const auto findings = patient.Findings();
  ASSERT_EQ(findings.size(), 1u) << testing::PrintToString([&] {
    std::string names;
    for (const auto& [check, verdict] : findings) names += check + ": " + verdict.found + "\n";
    return names;
  }());
  const auto& [check, verdict] = *findings.begin();
  EXPECT_EQ(check, GetParam().check);
  EXPECT_EQ(verdict.health, GetParam().health);
  EXPECT_THAT(verdict.found, HasSubstr(GetParam().says));
  EXPECT_THAT(verdict.remedy, Not(IsEmpty()));
  EXPECT_THAT(verdict.found + verdict.remedy, Not(HasSubstr("\n")));
}

INSTANTIATE_TEST_SUITE_P(Doctor, Planted, testing::ValuesIn(Plants()),
                         [](const auto& info) { return info.param.name; });

// A check that no problem is planted for could be broken unseen.
TEST(Doctor, EachCheckHasAPlant) {
  std::set<std::string> planted;
  for (const Plant& plant : Plants()) planted.insert(plant.check);
  const std::vector<std::string> names = CheckNames();
  EXPECT_EQ(planted, std::set<std::string>(names.begin(), names.end()));
}

TEST(Doctor, AProcessorThatLacksAFeatureIsNamed) {
  // No processor has both of these.
  for (const char* feature : {"xop", "amx-tile"}) {
    const auto target = ParseTarget(std::string("llvm -mcpu=native -mattr=+") + feature);
    ASSERT_TRUE(target.ok());
    const auto resolved = codegen::ResolveTarget(*target);
    ASSERT_TRUE(resolved.ok()) << resolved.status();
    if (codegen::BackendOf(*resolved).RunsHere(*resolved)) continue;
    Patient patient;
    patient.options.target = ToText(*resolved);
    const auto findings = patient.Findings();
    ASSERT_TRUE(findings.contains("processor"));
    EXPECT_THAT(findings.at("processor").found, HasSubstr(feature));
    return;
  }
  FAIL() << "this processor claims to have everything";
}

TEST(Doctor, ThisMachineCanBeExamined) {
  DoctorOptions options;
  options.server.address = "unix:/nowhere/at/all";
  options.data = testing::TempDir() + "/heddle-doctor-data";
  options.version = kVersion;
  Surroundings here = ThisMachine();
  here.programs = HEDDLE_BIN_DIR;
  const std::vector<Finding> findings = Examine(options, here);
  ASSERT_EQ(findings.size(), CheckNames().size());
  for (const Finding& finding : findings) {
    if (finding.check == "kernel") {
      EXPECT_THAT(finding.verdict.found, HasSubstr("a small network was built in"));
    }
    EXPECT_EQ(finding.verdict.health == Health::kWell, finding.verdict.remedy.empty())
        << finding.check;
  }
}

}  // namespace
}  // namespace heddle::client
