// heddle._service: the scheduler's client, and a scheduler started for the duration of a call, over the C++
// client library. Messages reach Python as the JSON of the command line (client/views/json.h).
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "client/commands/commands.h"
#include "client/embedded_service.h"
#include "client/modules/model_file.h"
#include "client/service_client.h"
#include "client/views/json.h"
#include "client/views/terminal.h"
#include "proto/access/local_socket.h"
#include "python/native/signals.h"
#include "python/native/text.h"

namespace heddle::python {
namespace {

namespace py = pybind11;

// How long a wait goes on while a service is being restarted.
constexpr absl::Duration kWatchPatience = absl::Seconds(60);

void Check(const absl::Status& status) {
  if (status.ok()) return;
  Raise(static_cast<int>(client::ExitCodeFor(status)), std::string(status.message()));
}

template <typename T>
T ValueOf(absl::StatusOr<T> value) {
  Check(value.status());
  return *std::move(value);
}

// The process that uses gRPC, whose threads no forked child has; 0: none yet.
std::atomic<pid_t> grpc_process{0};

bool InGrpcProcess() { return grpc_process == getpid(); }

void EnterGrpc() {
  pid_t none = 0;
  if (grpc_process.compare_exchange_strong(none, getpid()) || InGrpcProcess()) return;
  Check(absl::FailedPreconditionError(
      "this process was forked from one that had used a heddle.Client, and cannot use one itself; "
      "start it with multiprocessing.get_context(\"spawn\")"));
}

// One job is made at a time: the compiler's front end makes no promise about threads.
std::mutex front_end;

absl::StatusOr<std::string> SubmitFile(const client::ServiceClient& client,
                                       const client::SubmitOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(const client::ModelFile model, client::OpenModel(options.model));
  absl::StatusOr<v1::JobSpec> spec;
  {
    std::lock_guard lock(front_end);
    spec = client::MakeJobSpec(options, model);
  }
  if (!spec.ok()) return spec.status();
  return client.Submit(*spec, model.onnx, model.parts);
}

// Waits for what the service does, or sends, can be interrupted.
class Client {
 public:
  Client(const std::string& address, const std::string& tls_directory,
         const std::string& token_file) {
    EnterGrpc();
    client_ = std::make_shared<const client::ServiceClient>(
        client::ServerAccess{address, tls_directory, token_file});
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  // A forked child leaves the connection alone: it is its parent's.
  ~Client() {
    if (!InGrpcProcess()) new std::shared_ptr<const client::ServiceClient>(std::move(client_));
  }

  py::str Submit(const client::SubmitOptions& options) const {
    return Text(ValueOf(Call<absl::StatusOr<std::string>>(
        [options](const client::ServiceClient& client) { return SubmitFile(client, options); })));
  }

  py::list Jobs(bool all) const {
    return Lines(ValueOf(Call<absl::StatusOr<std::vector<std::string>>>(
        [all](const client::ServiceClient& client) -> absl::StatusOr<std::vector<std::string>> {
          HEDDLE_ASSIGN_OR_RETURN(const std::vector<v1::Job> jobs, client.ListJobs(all));
          std::vector<std::string> lines;
          for (const v1::Job& job : jobs) lines.push_back(client::ToJsonLine(job));
          return lines;
        })));
  }

  py::str Job(const std::string& job) const {
    return CallForJob([job](const client::ServiceClient& client) { return client.GetJob(job); });
  }
  py::str Cancel(const std::string& job, const std::string& reason) const {
    return CallForJob([job, reason](const client::ServiceClient& client) {
      return client.CancelJob(job, reason);
    });
  }
  py::str Pause(const std::string& job) const {
    return CallForJob([job](const client::ServiceClient& client) { return client.PauseJob(job); });
  }
  py::str Resume(const std::string& job) const {
    return CallForJob([job](const client::ServiceClient& client) { return client.ResumeJob(job); });
  }
  py::str Prioritize(const std::string& job, int priority) const {
    return CallForJob([job, priority](const client::ServiceClient& client) {
      return client.PrioritizeJob(job, priority);
    });
  }

  // Calls `on_job` with every new state of the job, and with None about ten times a second without one.
  // True: the job has ended. False: `on_job` returned false.
  bool Watch(const std::string& job, const py::function& on_job) const {
    EnterGrpc();
    std::exception_ptr raised;
    bool stopped = false;
    absl::Status status;
    {
      py::gil_scoped_release unlocked;
      status = client_->WatchJob(job, kWatchPatience, [&](const v1::Job* update) {
        const std::string line = update == nullptr ? "" : client::ToJsonLine(*update);
        py::gil_scoped_acquire locked;
        try {
          if (PyErr_CheckSignals() != 0) throw py::error_already_set();
          const py::object told = update == nullptr ? py::object(py::none()) : Text(line);
          stopped = !py::cast<bool>(on_job(told));
        } catch (...) {
          raised = std::current_exception();
        }
        return raised == nullptr && !stopped;
      });
    }
    if (raised != nullptr) std::rethrow_exception(raised);
    if (!stopped) Check(status);
    return !stopped;
  }

  // Writes the job's module to a file.
  void Fetch(const std::string& job, const std::string& schedules, const std::string& path) const {
    const v1::ScheduleChoice choice = schedules == "naive"     ? v1::SCHEDULE_NAIVE
                                      : schedules == "default" ? v1::SCHEDULE_DEFAULT
                                                               : v1::SCHEDULE_BEST;
    Check(Call<absl::Status>([job, choice, path](const client::ServiceClient& client) {
      return client::FetchModuleFile(client, job, choice, path).status();
    }));
  }

  // The newest records of the job, newest first.
  py::list Records(const std::string& job, int64_t limit) const {
    return Lines(ValueOf(Call<absl::StatusOr<std::vector<std::string>>>(
        [job,
         limit](const client::ServiceClient& client) -> absl::StatusOr<std::vector<std::string>> {
          v1::RecordQuery query;
          query.set_job(job);
          query.set_limit(limit);
          std::vector<std::string> lines;
          HEDDLE_RETURN_IF_ERROR(client.QueryRecords(query, [&lines](const v1::Record& record) {
            lines.push_back(client::ToJsonLine(record));
            return true;
          }));
          return lines;
        })));
  }

  py::str Devices() const {
    return Text(client::ToJsonLine(ValueOf(Call<absl::StatusOr<v1::ListWorkersResponse>>(
        [](const client::ServiceClient& client) { return client.ListDevices(); }))));
  }

 private:
  template <typename Result>
  Result Call(std::function<Result(const client::ServiceClient&)> call) const {
    EnterGrpc();
    return RunInterruptibly<Result>(
        [client = client_, call = std::move(call)] { return call(*client); });
  }

  py::str CallForJob(
      std::function<absl::StatusOr<v1::Job>(const client::ServiceClient&)> call) const {
    return Text(client::ToJsonLine(ValueOf(Call<absl::StatusOr<v1::Job>>(std::move(call)))));
  }

  static py::list Lines(const std::vector<std::string>& lines) {
    py::list all;
    for (const std::string& line : lines) all.append(Text(line));
    return all;
  }

  std::shared_ptr<const client::ServiceClient> client_;
};

// client::CommandService. The system ends a started service when the thread that started it ends. So the
// thread is one of its own.
class Service {
 public:
  // Errors are those of CommandService::Find.
  Service(const std::string& address, const std::string& tls_directory,
          const std::string& token_file, const std::string& data) {
    EnterGrpc();
    const client::ServerAccess server{address, tls_directory, token_file};
    std::thread([state = state_, server, data] { Keep(state, server, data); }).detach();
    try {
      WaitUntil(state_->mutex, state_->changed, [this] { return state_->found; });
    } catch (...) {
      RequestStop();
      throw;
    }
    Check(Locked([](State& state) { return state.status; }));
  }
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  ~Service() {
    if (InGrpcProcess()) RequestStop();
  }

  // Whether it ends with a command or a call: this one or another.
  bool IsPrivate() const {
    return Locked([](State& state) { return state.is_private; });
  }
  py::str Address() const {
    return Text(Locked([](State& state) { return state.address; }));
  }

  // Raises Unreachable if the service has ended and cannot be started again.
  void CheckAlive() const {
    EnterGrpc();
    Check(Locked([](State& state) {
      return state.service != nullptr ? state.service->CheckAlive() : absl::OkStatus();
    }));
  }

  // Ends a service that was started, and waits until it has ended: ten seconds at most.
  void Stop() {
    EnterGrpc();
    RequestStop();
    WaitUntil(state_->mutex, state_->changed, [this] { return state_->ended; });
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool found = false;  // or known not to be
    bool stop = false;
    bool ended = false;
    absl::Status status;
    std::string address;
    bool is_private = false;
    std::unique_ptr<client::CommandService> service;
  };

  static void Keep(const std::shared_ptr<State>& state, const client::ServerAccess& server,
                   const std::string& data) {
    absl::StatusOr<std::unique_ptr<client::CommandService>> service =
        client::CommandService::Find(server, data);
    std::unique_lock lock(state->mutex);
    state->status = service.status();
    if (service.ok()) {
      state->service = *std::move(service);
      state->address = state->service->server().address;
      state->is_private = state->service->is_private();
    }
    state->found = true;
    state->changed.notify_all();
    if (state->service != nullptr) state->changed.wait(lock, [&] { return state->stop; });
    std::unique_ptr<client::CommandService> ending = std::move(state->service);
    lock.unlock();
    ending.reset();
    lock.lock();
    state->ended = true;
    state->changed.notify_all();
  }

  template <typename Read>
  std::invoke_result_t<Read, State&> Locked(Read read) const {
    std::lock_guard lock(state_->mutex);
    return read(*state_);
  }

  void RequestStop() {
    std::lock_guard lock(state_->mutex);
    state_->stop = true;
    state_->changed.notify_all();
  }

  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace

PYBIND11_MODULE(_service, m) {
  m.doc() = "The scheduler's client. Use heddle.Client and heddle.tune.";
  m.def("default_server", [] { return Text(SchedulerSocket(DefaultDataDirectory())); });

  using client::JobOptions;
  using client::ModelFlags;
  using client::SubmitOptions;
  py::class_<ModelFlags>(m, "ModelFlags")
      .def_readwrite("shapes", &ModelFlags::shapes)
      .def_readwrite("input_values", &ModelFlags::input_values)
      .def_readwrite("disabled_passes", &ModelFlags::disabled_passes);
  py::class_<JobOptions>(m, "JobOptions")
      .def_readwrite("deadline", &JobOptions::deadline)
      .def_readwrite("time_limit", &JobOptions::time_limit)
      .def_readwrite("target_latency", &JobOptions::target_latency)
      .def_readwrite("allocation", &JobOptions::allocation)
      .def_readwrite("priority", &JobOptions::priority)
      .def_readwrite("plateau", &JobOptions::plateau)
      .def_readwrite("max_devices", &JobOptions::max_devices);
  py::class_<SubmitOptions>(m, "SubmitOptions")
      .def(py::init<>())
      .def_readwrite("model", &SubmitOptions::model)
      .def_readwrite("target", &SubmitOptions::target)
      .def_readwrite("device", &SubmitOptions::device_key)
      .def_readwrite("name", &SubmitOptions::name)
      .def_readwrite("trials", &SubmitOptions::trials)
      .def_readwrite("batch", &SubmitOptions::batch)
      .def_readwrite("depth", &SubmitOptions::depth)
      .def_readwrite("strategy", &SubmitOptions::strategy)
      .def_readwrite("seed", &SubmitOptions::seed)
      .def_readwrite("winograd", &SubmitOptions::winograd)
      .def_readwrite("compare", &SubmitOptions::compare)
      .def_readwrite("transfer", &SubmitOptions::transfer)
      .def_readwrite("plan", &SubmitOptions::plan)
      .def_readwrite("force", &SubmitOptions::force)
      .def_readonly("job", &SubmitOptions::job)
      .def_readonly("imports", &SubmitOptions::import);

  py::class_<Client>(m, "Client")
      .def(py::init<const std::string&, const std::string&, const std::string&>(),
           py::arg("address"), py::arg("tls_directory"), py::arg("token_file"))
      .def("submit", &Client::Submit, py::arg("options"))
      .def("jobs", &Client::Jobs, py::arg("all"))
      .def("job", &Client::Job, py::arg("job"))
      .def("cancel", &Client::Cancel, py::arg("job"), py::arg("reason"))
      .def("pause", &Client::Pause, py::arg("job"))
      .def("resume", &Client::Resume, py::arg("job"))
      .def("prioritize", &Client::Prioritize, py::arg("job"), py::arg("priority"))
      .def("watch", &Client::Watch, py::arg("job"), py::arg("on_job"))
      .def("fetch", &Client::Fetch, py::arg("job"), py::arg("schedules"), py::arg("path"))
      .def("records", &Client::Records, py::arg("job"), py::arg("limit"))
      .def("devices", &Client::Devices);

  py::class_<Service>(m, "Service")
      .def(py::init<const std::string&, const std::string&, const std::string&,
                    const std::string&>(),
           py::arg("address"), py::arg("tls_directory"), py::arg("token_file"), py::arg("data"))
      .def("is_private", &Service::IsPrivate)
      .def("address", &Service::Address)
      .def("check_alive", &Service::CheckAlive)
      .def("stop", &Service::Stop);
}

}  // namespace heddle::python
