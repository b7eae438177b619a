// The subcommands of `heddle`: options in, exit status out. main.cc only turns flags into these
// options. Every command prints data to stdout, and messages and progress to stderr.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/vocabulary/job_limits.h"
#include "client/commands/job_options.h"
#include "client/commands/model_flags.h"
#include "client/modules/model_file.h"
#include "client/modules/table_input.h"
#include "client/service_client.h"
#include "client/views/terminal.h"

namespace heddle::client {

struct GlobalOptions {
  ServerAccess server;
  OutputOptions output;
};

// ---- jobs (job_commands.cc, submit_command.cc) ----

struct SubmitOptions {
  std::string model;  // path of an ONNX file
  std::string target = "llvm -mcpu=native";
  std::string device_key;
  std::string name;
  int trials = 64;  // per task
  int batch = kDefaultBatch;
  int depth = 0;
  std::string strategy = "annealing";
  uint64_t seed = 0;
  ModelFlags import;
  bool winograd = true;  // false: the target gets -winograd=off
  bool compare = true;   // false: the module is not timed against the default schedules
  bool transfer = true;  // false: searches learn nothing from other tasks
  std::string plan;  // how the plan is chosen: joint, sequential, off; empty: the service decides
  bool force = false;
  bool dry_run = false;
  JobOptions job;
  std::string records;  // file of records to start with (record_file.h); empty: none
};

// Makes the spec from the options, with all checks that need no service: the model is imported, so
// that a refusal comes before anything is sent.
absl::StatusOr<v1::JobSpec> MakeJobSpec(const SubmitOptions& options, const ModelFile& model);
// Warns on stderr if no device of the service has the key; an empty one stands for any device.
void TellMissingDevice(const ServiceClient& client, const std::string& device_key);
// Submits a job, and shows on stderr what is sent of a large model. Returns the job's id.
absl::StatusOr<std::string> SubmitModel(const ServiceClient& client, const v1::JobSpec& spec,
                                        const ModelFile& model, const OutputOptions& output);
// Fetches the job's module into a file, and returns its size.
absl::StatusOr<int64_t> FetchModuleFile(const ServiceClient& client, const std::string& job,
                                        v1::ScheduleChoice choice, const std::string& path);
int Submit(const GlobalOptions& global, const SubmitOptions& options);

int ListJobs(const GlobalOptions& global, bool all);
int ShowJobs(const GlobalOptions& global, const std::vector<std::string>& jobs, bool stages);
// Exports finished jobs, their stages and the slots as one JSON file for heddle-sim.
int TraceJobs(const GlobalOptions& global, const std::vector<std::string>& jobs,
              const std::string& output);
// Explains why the job has its plan (explain_plan_command.cc).
int ExplainPlan(const GlobalOptions& global, const std::string& job);
// Explains the search of one task of the job (explain_command.cc). `plot` is an SVG file to write,
// or empty.
int ExplainTask(const GlobalOptions& global, const std::string& job, const std::string& task,
                const std::string& plot);
// Lists the machine code of the task's kernel (assembly_command.cc): `lines` of it, or all if 0.
int ExplainAssembly(const GlobalOptions& global, const std::string& job, const std::string& task,
                    int lines);
// Writes what the page shows of a job into one HTML file that needs nothing else (report_command.cc).
// With `assembly`, also the machine code of its kernels.
int ReportJob(const GlobalOptions& global, const std::string& job, const std::string& output,
              bool assembly);
int WatchJob(const GlobalOptions& global, const std::string& job);
// Waits for all of them, and returns the first exit status that is not kDone. The timeout is of all together.
int WaitForJobs(const GlobalOptions& global, const std::vector<std::string>& jobs,
                const std::string& what, const std::string& timeout);
enum class JobAction { kCancel, kPause, kResume };
// Goes on with the others after an error, and returns the first exit status that is not kDone.
int ActOnJobs(const GlobalOptions& global, JobAction action, const std::vector<std::string>& jobs);
int PrioritizeJob(const GlobalOptions& global, const std::string& job, int priority);
int FetchModule(const GlobalOptions& global, const std::string& job, const std::string& output,
                const std::string& schedules);
int ListDevices(const GlobalOptions& global);

// Shows the job until it ends or Ctrl-C detaches, and returns the exit status for that. An error of
// `service_alive` (optional, called about ten times a second) ends it too. Used by watch and tune.
int FollowJob(const ServiceClient& client, const std::string& job, const OutputOptions& output,
              v1::Job* last, const std::function<absl::Status()>& service_alive = nullptr);
int ExitCodeOf(const v1::Job& job);

// ---- submit, watch and fetch in one command (tune_command.cc) ----

struct TuneOptions {
  SubmitOptions submit;
  std::string output;  // module file
  std::string data;    // data directory of an embedded service; empty: the service's default
  std::string http;    // where an embedded service serves its page, HOST:PORT; empty: nowhere
};
// Starts an embedded service for its own duration if none is running.
int Tune(const GlobalOptions& global, const TuneOptions& options);

// ---- records (record_commands.cc) ----

int QueryRecords(const GlobalOptions& global, const v1::RecordQuery& query);
int ExportRecords(const GlobalOptions& global, const v1::RecordQuery& query,
                  const std::string& output);
int ImportRecords(const GlobalOptions& global, const std::string& input);
int RetractRecords(const GlobalOptions& global, const v1::RecordQuery& query,
                   const std::string& reason);

// ---- what the service stores (store_commands.cc) ----

// Writes a backup into the directory.
int BackUp(const GlobalOptions& global, const std::string& directory);
// Prints what is wrong with the database and the blobs; with `read_blobs`, each is read.
int CheckStore(const GlobalOptions& global, bool read_blobs);
struct CollectOptions {
  bool dry_run = false;
  std::string older_than = "30d";  // days, or a duration such as "12h"
  int64_t keep_jobs = 0;
};
// Collects finished jobs, and prints a table of them.
int Collect(const GlobalOptions& global, const CollectOptions& options);
// Copies jobs and records from one store to another, which no scheduler uses: this process becomes
// `heddle-scheduler copy-store`, since only the scheduler has the stores. Each is a scheduler's data folder,
// or postgresql://USER@HOST/DATABASE.
int CopyStore(const std::string& from, const std::string& to);

// ---- modules, without a service (run_command.cc, local_commands.cc) ----

struct RunOptions {
  std::string module;
  bool signed_only = false;  // run nothing that no worker of the lab of --tls-dir signed
  // "x.npy" in order, or "name=x.npy" or "name=x.csv"; missing ones are random. "x.csv" is a table for all inputs without
  // a file of their own. "x.npz" holds arrays for several inputs, by their names.
  std::vector<std::string> inputs;
  HeaderRule header = HeaderRule::kAuto;  // of .csv files
  std::string output;  // .npy file (one output), directory or .csv file; empty: printed
  bool csv = false;    // print all rows as CSV
  int threads = 0;
  uint64_t seed = 0;  // of random inputs
  int64_t rows =
      0;  // of random inputs with independent rows; 0: those of the module's largest block
  bool evaluate = false;
  bool profile = false;
  std::vector<std::string>
      against;  // other modules of the same model, timed in turns with this one
  int rounds = 5;
  std::string
      duration;       // of a run of `streams` streams, "10s"; empty: the model is timed in rounds
  int streams = 1;    // executors that run at the same time, with `duration`
  std::string check;  // ONNX file: compare the outputs with the interpreter's
  ModelFlags import;  // with check
};
int RunModule(const GlobalOptions& global, const RunOptions& options);
int ShowModule(const GlobalOptions& global, const std::string& module);
// Shows what a file holds: a module, or an ONNX model with what tuning it would involve. A model
// that is refused is shown as well, and the exit status says that it is. Dimensions that the flags
// leave open are guessed.
int Inspect(const GlobalOptions& global, const std::string& path, const ModelFlags& flags);
// Prints the layout of each operator of an ONNX model, the cost of the alternatives, and the
// remaining transposes (layout_view.cc).
int ExplainLayout(const GlobalOptions& global, const std::string& model, const ModelFlags& flags);
int WriteZooModel(const GlobalOptions& global, const std::string& name, const std::string& output,
                  uint64_t seed);

}  // namespace heddle::client
