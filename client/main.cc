// heddle: the command line. Turns flags into options and calls the command.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/command_documents.h"
#include "base/near_names.h"
#include "base/status_macros.h"
#include "base/vocabulary/job_limits.h"
#include "base/vocabulary/strategies.h"
#include "client/commands/commands.h"
#include "client/commands/device_commands.h"
#include "client/commands/doctor_command.h"
#include "client/commands/sweep_command.h"
#include "client/config/config_options.h"
#include "client/modules/streams.h"
#include "client/views/json.h"
#include "proto/access/local_socket.h"

using heddle::client::GlobalOptions;

namespace {

// A script whose variable is not set passes "". Taking that for "none" would surprise its author.
std::string NotEmpty(const std::string& text) { return text.empty() ? "is empty" : ""; }

// CLI::Range would take "-1" for the largest number there is.
std::string IsSeed(const std::string& text) {
  uint64_t seed = 0;
  if (absl::SimpleAtoi(text, &seed)) return "";
  return absl::StrCat("'", text, "' is no whole number from 0 to ",
                      std::numeric_limits<uint64_t>::max());
}

// `when` says with what the flags mean something.
void AddImportFlags(CLI::App* app, heddle::client::ModelFlags& flags,
                    const std::string& when = "") {
  // What follows a value may be the model, so each flag takes one.
  app->add_option("--shape", flags.shapes,
                  when +
                      "Shape of an input with dynamic dimensions, name=1x3x224x224, or the extent "
                      "of a dimension by its name, batch=1 (repeatable); for decision trees and "
                      "pipelines of independent rows, the numbers of rows that the module "
                      "computes at once, rows=1,16,128,2048, which is the default: it then runs "
                      "any number of rows in such blocks")
      ->allow_extra_args(false);
  app->add_option("--input-value", flags.input_values,
                  when +
                      "An input becomes a constant, name=16000 or name=1,0,2; one number fills "
                      "the whole tensor (repeatable)")
      ->allow_extra_args(false);
}

void AddSubmitFlags(CLI::App* app, heddle::client::SubmitOptions& o) {
  app->add_option("model", o.model, "ONNX file, or trees of XGBoost or LightGBM")->required();
  app->add_option("--target", o.target, "What to tune for, e.g. 'llvm -mcpu=native -threads=2'")
      ->capture_default_str();
  app->add_option("--device", o.device_key,
                  "Only devices with this key (default: any that runs the target)");
  app->add_option("--name", o.name, "Name for people (default: the file's name)");
  app->add_option("--trials", o.trials,
                  "Candidates measured per task, on average (see --allocation)")
      ->check(CLI::Range(1, heddle::kMaxTrialsPerTask))
      ->capture_default_str();
  app->add_option("--batch", o.batch, "Candidates per round")
      ->check(CLI::Range(1, heddle::kMaxBatch))
      ->capture_default_str();
  app->add_option(
         "--depth", o.depth,
         "Most rounds of the job in flight, those of different tasks first; a second round of one "
         "task is proposed by a model that lags behind (0: one more than devices, at least 2, and "
         "never two of a task; 1: strict order of stages)")
      ->check(CLI::Range(0, heddle::kMaxPipelineDepth));
  app->add_option("--strategy", o.strategy, heddle::StrategyList())->capture_default_str();
  app->add_option("--seed", o.seed, "Seed of the search")->check(IsSeed)->capture_default_str();
  AddImportFlags(app, o.import);
  app->add_option("--disable-pass", o.import.disabled_passes,
                  "Graph pass to leave out (repeatable)")
      ->allow_extra_args(false);
  app->add_flag("!--no-winograd", o.winograd,
                "No Winograd convolutions: results to 1e-4 instead of 1e-3 (target -winograd=off)");
  app->add_flag("!--no-compare", o.compare,
                "Do not time the module against the default schedules at the end");
  app->add_flag("!--no-transfer", o.transfer, "Learn nothing from other tasks and jobs");
  app->add_option("--records", o.records,
                  "Start with the records of this file, as `heddle records export` writes it");
  app->add_option("--allocation", o.job.allocation,
                  "gradient: most trials go to the tasks with the largest expected gain; uniform: "
                  "the same number to each task")
      ->capture_default_str();
  app->add_option("--time-limit", o.job.time_limit,
                  "End tuning after this much time, without pauses, e.g. 30m")
      ->check(NotEmpty);
  app->add_option("--plateau", o.job.plateau,
                  "End a task after this many trials without a gain over 1 % (0: never)")
      ->check(CLI::Range(0, heddle::kMaxTrialsPerTask));
  app->add_option("--target-latency", o.job.target_latency,
                  "End tuning when the weighted best times of all tasks add up to this, e.g. 5ms")
      ->check(NotEmpty);
  app->add_option("--deadline", o.job.deadline,
                  "When the module should be ready, e.g. 2h, 18:30 or '2030-01-31 18:30'")
      ->check(NotEmpty);
  app->add_option("--priority", o.job.priority, "Order among your own jobs, larger first")
      ->check(CLI::Range(heddle::kMinPriority, heddle::kMaxPriority));
  app->add_option("--max-devices", o.job.max_devices,
                  "Most device slots held at a time (0: all that are free)")
      ->check(CLI::Range(0, heddle::kMaxJobDevices));
  app->add_option("--plan", o.plan,
                  "How graph, layouts and fusion are chosen: joint: by measured kernels, graph "
                  "substitutions together with layouts; sequential: one after the other; off: by "
                  "estimates (default: joint for models with decision trees, from 32 trials a task "
                  "on; else off)")
      ->check(CLI::IsMember({"joint", "sequential", "off"}));
  app->add_flag("--force", o.force, "Measure again even if the database has enough records");
}

// The first word that is no flag, nor the value of one; empty: there is none.
std::string CommandWord(const CLI::App& app, int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (!word.starts_with("-")) return word;
    const CLI::Option* flag = app.get_option_no_throw(word);
    if (flag != nullptr && flag->get_expected_min() > 0) ++i;
  }
  return "";
}

// The command of that name; null: there is none.
const CLI::App* CommandNamed(const CLI::App& app, const std::string& name) {
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->get_name() == name) return command;
  }
  return nullptr;
}

std::vector<std::string> ShownCommands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) {
    if (!command->get_group().empty()) names.push_back(command->get_name());
  }
  return names;
}

// ", did you mean 'show'?"; empty: no known name is near.
std::string DidYouMean(const std::string& word, const std::vector<std::string>& known) {
  const std::string near = heddle::NearName(word, known);
  return near.empty() ? "" : ", did you mean '" + near + "'?";
}

// Words that other tools have for commands of this one.
constexpr std::pair<std::string_view, const char*> kOtherWords[] = {
    {"bench", "run"},      {"benchmark", "run"}, {"compile", "tune"},    {"delete", "cancel"},
    {"download", "fetch"}, {"get", "fetch"},     {"info", "inspect"},    {"kill", "cancel"},
    {"list", "jobs"},      {"logs", "watch"},    {"ls", "jobs"},         {"nodes", "devices"},
    {"optimize", "tune"},  {"ps", "jobs"},       {"queue", "jobs"},      {"rm", "cancel"},
    {"status", "show"},    {"stop", "cancel"},   {"workers", "devices"},
};

// What to say of a command that there is not; empty: it is there, or no command was given.
std::string UnknownCommand(const CLI::App& app, const std::string& word) {
  if (word.empty() || CommandNamed(app, word) != nullptr) return "";
  const std::string unknown = "there is no command '" + heddle::client::Printable(word) + "'";
  for (const CLI::App* command : app.get_subcommands({})) {
    if (CommandNamed(*command, word) != nullptr)
      return unknown + ", did you mean '" + command->get_name() + " " + word + "'?";
  }
  for (const auto& [other, ours] : kOtherWords) {
    if (word == other && app.get_parent() == nullptr)
      return unknown + ", did you mean '" + ours + "'?";
  }
  return unknown + DidYouMean(word, ShownCommands(app));
}

// What to say of words that `at`, a command of `app`, does not take. The first one tells what is wrong.
std::string UnknownWords(const CLI::App& app, const CLI::App& at,
                         const std::vector<std::string>& words) {
  const std::string word = words.front().substr(0, words.front().find('='));
  if (word.starts_with("-")) {
    std::vector<std::string> known;
    for (const CLI::App* one : {&app, &at}) {
      for (const CLI::Option* option : one->get_options()) {
        for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
      }
    }
    return "there is no option '" + heddle::client::Printable(word) + "'" + DidYouMean(word, known);
  }
  std::string all;
  for (const std::string& one : words) all += (all.empty() ? "" : " ") + one;
  const std::string unexpected = "not expected: " + heddle::client::Printable(all);
  if (at.get_option_no_throw("--input") != nullptr)
    return unexpected + "; data is given by --input";
  return unexpected + DidYouMean(word, ShownCommands(at));
}

// The flags of submit, each with a list of values. A new flag of submit is a sweep parameter too.
class SweepFlags {
 public:
  explicit SweepFlags(CLI::App* app) {
    CLI::App submit;
    heddle::client::SubmitOptions unused;
    AddSubmitFlags(&submit, unused);
    for (const CLI::Option* option : submit.get_options()) {
      if (option->get_lnames().empty()) continue;
      const std::string& name = option->get_lnames().front();
      // A sweep always measures again and starts without records.
      if (name == "help" || name == "force" || name == "records") continue;
      const bool flag = option->get_expected_max() == 0;
      flags_.push_back({name, flag});
      app->add_option("--" + name, lists_[name],
                      option->get_description() + (flag ? "; list: on,off" : "; list: a,b,.."));
    }
  }
  absl::StatusOr<std::vector<heddle::client::SweepParameter>> Parameters() const {
    std::vector<heddle::client::SweepParameter> parameters;
    for (const auto& [name, flag] : flags_) {
      const auto& text = lists_.at(name);
      if (!text.has_value()) continue;
      HEDDLE_ASSIGN_OR_RETURN(auto parameter,
                              heddle::client::ParseSweepParameter(name, flag, *text));
      parameters.push_back(std::move(parameter));
    }
    return parameters;
  }
  static absl::StatusOr<heddle::client::SubmitOptions> Parse(std::vector<std::string> words) {
    CLI::App submit;
    heddle::client::SubmitOptions options;
    AddSubmitFlags(&submit, options);
    std::reverse(words.begin(), words.end());  // the order that CLI11 expects
    try {
      submit.parse(words);
    } catch (const CLI::ParseError& error) {
      return absl::InvalidArgumentError(error.what());
    }
    return options;
  }

 private:
  std::vector<std::pair<std::string, bool>> flags_;
  std::map<std::string, std::optional<std::string>> lists_;
};

// Which records a command is about.
void AddFilterFlags(CLI::App* app, heddle::v1::RecordQuery& query) {
  const auto text = [app](const char* flag, std::string* field, const char* help) {
    app->add_option(flag, *field, help);
  };
  text("--task", query.mutable_workload_key(),
       "Task: a workload's key, the beginning of one, or a label (to look: or a part of one)");
  text("--target", query.mutable_target(), "Canonical target text");
  text("--device", query.mutable_device_key(), "Device key");
  text("--job", query.mutable_job(), "Job id");
  text("--worker", query.mutable_worker(), "Worker that measured them for a job of this service");
  text("--imported-by", query.mutable_imported_by(), "Who imported them");
}

void AddQueryFlags(CLI::App* app, heddle::v1::RecordQuery& query) {
  AddFilterFlags(app, query);
  app->add_flag_function(
      "--retracted", [&query](int64_t n) { query.set_retracted(n > 0); },
      "Also those that were retracted");
  app->add_flag_function(
      "--best", [&query](int64_t n) { query.set_best_only(n > 0); },
      "Only the fastest of each task");
  app->add_flag_function(
      "--valid", [&query](int64_t n) { query.set_valid_only(n > 0); },
      "Leave out failed candidates");
  app->add_option_function<int64_t>(
      "--limit", [&query](int64_t n) { query.set_limit(n); },
      "At most this many, the newest (default: 1000; an export has all)");
}

// Takes what configuration files say as defaults. Help needs none of it.
absl::Status Configure(int argc, char** argv, CLI::App* app,
                       std::vector<heddle::client::Setting>* settings) {
  const std::string word = CommandWord(*app, argc, argv);
  if (word.empty() || word == "help" || word == "version") return absl::OkStatus();
  std::error_code error;
  std::string warning;
  HEDDLE_ASSIGN_OR_RETURN(*settings, heddle::client::ReadConfig(
                                         std::filesystem::current_path(error).string(), &warning));
  if (!warning.empty()) std::fprintf(stderr, "heddle: warning: %s\n", warning.c_str());
  return heddle::client::ApplyConfig(*settings, std::vector<std::string>(argv + 1, argv + argc),
                                     app);
}

}  // namespace

int main(int argc, char** argv) {
  namespace client = heddle::client;
  CLI::App app("Heddle tunes neural networks and decision trees for the machine they run on.",
               "heddle");
  app.require_subcommand(1);
  app.set_version_flag("--version", "heddle " HEDDLE_VERSION);
  app.fallthrough();  // global flags may follow the subcommand
  app.footer(
      "Start: heddle zoo resnet18 -o resnet18.onnx && heddle tune resnet18.onnx -o "
      "resnet18.heddle");

  GlobalOptions global;
  global.server.address = heddle::SchedulerSocket(heddle::DefaultDataDirectory());
  CLI::Option* server =
      app.add_option("--server", global.server.address,
                     "Scheduler's address: HOST:PORT, or unix:PATH on this machine; several with "
                     "commas between, where schedulers stand by for each other")
          ->envname("HEDDLE_SERVER")
          ->capture_default_str();
  app.add_option("--tls-dir", global.server.tls_directory,
                 "For a scheduler on another machine: folder with ca.pem, and with cert.pem and "
                 "key.pem unless there is a token")
      ->envname("HEDDLE_TLS_DIR");
  app.add_option("--token-file", global.server.token_file,
                 "File with the token that says who you are")
      ->envname("HEDDLE_TOKEN_FILE");
  app.add_flag("--json", global.output.json, "Machine-readable output");
  app.add_flag("--plain", global.output.plain, "No colour, no animation, tab-separated tables");
  app.add_flag("-v,--verbose", global.output.verbosity, "More details");

  int code = 0;
  const auto command = [&app](const char* name, const char* help) {
    return app.add_subcommand(name, help);
  };

  client::SubmitOptions submit;
  CLI::App* submit_app = command("submit", "Submit a model; prints the job's id");
  AddSubmitFlags(submit_app, submit);
  submit_app->add_flag("--dry-run", submit.dry_run, "Only show what would be tuned, and where");
  submit_app->callback([&] { code = client::Submit(global, submit); });

  client::TuneOptions tune;
  CLI::App* tune_app = command(
      "tune", "Submit, watch and fetch in one command; starts a service if none is running");
  AddSubmitFlags(tune_app, tune.submit);
  tune_app->add_option("-o,--output", tune.output, "Module file to write")->required();
  tune_app->add_option("--data", tune.data, "Data directory of a service started for this command");
  tune_app
      ->add_option("--http", tune.http,
                   "HOST:PORT of this machine where a service started for this command serves its "
                   "page, such as 127.0.0.1:0; port 0 picks a free one, and the address is printed "
                   "(default: no page)")
      ->check(NotEmpty);
  tune_app->callback([&] { code = client::Tune(global, tune); });

  client::SweepOptions sweep;
  CLI::App* sweep_app = command(
      "sweep", "Tune with every combination of the given values (--trials 8,16 --seed 1,2)");
  sweep_app->add_option("model", sweep.model, "ONNX file, or trees of XGBoost or LightGBM")
      ->required();
  sweep_app->add_option("-o,--output", sweep.directory, "Directory of sweep.json, .csv and .svg")
      ->required();
  sweep_app->add_option("--data", sweep.data,
                        "Data directory of a service started for this command");
  sweep_app->add_option("--parallel", sweep.parallel, "Jobs at a time")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  SweepFlags sweep_flags(sweep_app);
  sweep_app->callback([&] {
    auto parameters = sweep_flags.Parameters();
    if (!parameters.ok()) {
      code = client::Fail(parameters.status());
      return;
    }
    sweep.parameters = *std::move(parameters);
    sweep.parse = SweepFlags::Parse;
    code = client::Sweep(global, sweep);
  });

  bool all_jobs = false;
  CLI::App* jobs_app = command("jobs", "List jobs");
  jobs_app->add_flag("-a,--all", all_jobs, "Also list finished jobs");
  std::vector<std::string> job_ids;
  std::string trace_output;
  CLI::App* trace_app = jobs_app->add_subcommand(
      "trace",
      "Export jobs for Perfetto (ui.perfetto.dev) and, once they have ended, heddle-sim --replay");
  trace_app->add_option("job", job_ids, "Job ids")->required();
  trace_app->add_option("-o,--output", trace_output, "File to write")->required();
  jobs_app->callback([&] {
    code = trace_app->parsed() ? client::TraceJobs(global, job_ids, trace_output)
                               : client::ListJobs(global, all_jobs);
  });

  std::string job_id;
  bool stages = false;
  CLI::App* show_app = command("show", "Show jobs, their tasks and the timeline of their stages");
  show_app->add_option("job", job_ids, "Job ids")->required();
  show_app->add_flag("--stages", stages, "List every stage");
  show_app->callback([&] { code = client::ShowJobs(global, job_ids, stages); });

  std::string explained_task, explain_plot;
  CLI::App* explain_app =
      command("explain",
              "Show how a task's search went and what it found; without a task, why the model's "
              "graph and layouts are as they are");
  explain_app->add_option("job", job_id, "Job id")->required();
  explain_app->add_option("task", explained_task, "Number, label or key of a task (heddle show)");
  explain_app->add_option("--plot", explain_plot, "SVG file of all trials to write");
  bool assembly = false;
  int assembly_lines = 200;
  CLI::Option* assembly_flag =
      explain_app
          ->add_flag("--assembly", assembly,
                     "List the machine code of the task's kernel in the job's module instead")
          ->excludes("--plot");
  explain_app->add_option("--lines", assembly_lines, "With --assembly: lines to show; 0: all")
      ->check(CLI::Range(0, 1'000'000))
      ->needs(assembly_flag)
      ->capture_default_str();
  explain_app->callback([&] {
    if (assembly && explained_task.empty()) {
      code = client::Fail(client::kUsage,
                          "--assembly is of one task; name it after the job (heddle show)");
    } else if (assembly) {
      code = client::ExplainAssembly(global, job_id, explained_task, assembly_lines);
    } else {
      code = explained_task.empty()
                 ? client::ExplainPlan(global, job_id)
                 : client::ExplainTask(global, job_id, explained_task, explain_plot);
    }
  });

  std::string report_output;
  CLI::App* report_app = command(
      "report", "Write a job's tasks, charts and schedules into one HTML file that can be mailed");
  report_app->add_option("job", job_id, "Job id")->required();
  report_app->add_option("-o,--output", report_output, "HTML file to write")->required();
  report_app->add_flag("--assembly", assembly,
                       "Also the machine code of the kernels in the job's module");
  report_app->callback([&] { code = client::ReportJob(global, job_id, report_output, assembly); });

  CLI::App* watch_app = command("watch", "Watch a job live; Ctrl-C detaches");
  watch_app->add_option("job", job_id, "Job id")->required();
  watch_app->callback([&] { code = client::WatchJob(global, job_id); });

  std::string wait_for = "done";
  std::string wait_timeout = "0";
  CLI::App* wait_app = command("wait", "Wait for jobs, for scripts");
  wait_app->add_option("job", job_ids, "Job ids")->required();
  wait_app->add_option("--for", wait_for, "done or first-valid")
      ->check(CLI::IsMember({"done", "first-valid"}))
      ->capture_default_str();
  wait_app
      ->add_option("--timeout", wait_timeout,
                   "How long, e.g. 30m, or a number of seconds; 0 waits without limit")
      ->capture_default_str();
  wait_app->callback([&] { code = client::WaitForJobs(global, job_ids, wait_for, wait_timeout); });

  const auto action = [&](const char* name, const char* help, client::JobAction what) {
    CLI::App* action_app = command(name, help);
    action_app->add_option("job", job_ids, "Job ids")->required();
    action_app->callback([&, what] { code = client::ActOnJobs(global, what, job_ids); });
  };
  action("cancel", "Cancel jobs; their records stay", client::JobAction::kCancel);
  action("pause", "Pause jobs after their running stages", client::JobAction::kPause);
  action("resume", "Resume paused jobs", client::JobAction::kResume);
  int priority = 0;
  CLI::App* priority_app =
      command("priority", "Change the order among the jobs of one user; running stages go on");
  priority_app->add_option("job", job_id, "Job id")->required();
  priority_app->add_option("priority", priority, "-10 to 10; larger ones go first")
      ->check(CLI::Range(-10, 10))
      ->required();
  priority_app->callback([&] { code = client::PrioritizeJob(global, job_id, priority); });

  std::string output, schedules = "best";
  CLI::App* fetch_app = command("fetch", "Fetch a job's module");
  fetch_app->add_option("job", job_id, "Job id")->required();
  fetch_app->add_option("-o,--output", output, "Module file to write")->required();
  fetch_app->add_option("--schedules", schedules, "best, default or naive")
      ->check(CLI::IsMember({"best", "default", "naive"}))
      ->capture_default_str();
  fetch_app->callback([&] { code = client::FetchModule(global, job_id, output, schedules); });

  client::RunOptions run;
  CLI::App* run_app = command("run", "Run a module, without a service");
  run_app->add_option("module", run.module, "Module file")->required();
  run_app->add_option("--input", run.inputs,
                      "x.npy in order, or name=x.npy (repeatable; missing inputs are random); "
                      "data.csv holds a row for each row of the inputs, its columns by name or "
                      "in the model's order; x.npz holds arrays for inputs of their names");
  std::string header = "auto";
  run_app->add_option("--header", header, "Whether .csv files begin with a header")
      ->check(CLI::IsMember({"yes", "no", "auto"}))
      ->capture_default_str();
  run_app->add_option("-o,--output", run.output,
                      ".npy file, a directory for several outputs, or a .csv file of all rows");
  run_app->add_flag("--signed", run.signed_only,
                    "Run only what a worker of the lab signed; --tls-dir says which lab");
  run_app->add_flag("--csv", run.csv,
                    "Print what each row gives, or with --duration the latencies, as CSV");
  run_app->add_option("--threads", run.threads, "Threads (0: as tuned)")->check(CLI::Range(0, 256));
  run_app->add_option("--seed", run.seed, "Seed of random inputs")
      ->check(IsSeed)
      ->capture_default_str();
  run_app
      ->add_option("--rows", run.rows,
                   "Rows of random inputs, where rows are independent (default: the module's "
                   "largest block)")
      ->check(CLI::Range(1, 10000000));
  run_app->add_flag("--evaluate", run.evaluate, "Time the model, and each task");
  run_app->add_flag("--profile", run.profile,
                    "Time each kernel, and compare it with what the machine can do");
  run_app->add_option("--against", run.against,
                      "Other modules of the model to time in turns (repeatable)");
  run_app->add_option("--rounds", run.rounds, "Rounds of timing")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  run_app
      ->add_option("--duration", run.duration,
                   "Run the model again and again for so long, e.g. 10s, and tell the latencies of "
                   "single inferences")
      ->check(NotEmpty);
  run_app
      ->add_option("--streams", run.streams,
                   "With --duration: as many copies of the model run at the same time")
      ->check(CLI::Range(1, client::kMostStreams))
      ->capture_default_str();
  run_app->add_option("--check", run.check,
                      "Model file: compare the outputs with the interpreter's");
  AddImportFlags(run_app, run.import, "With --check: ");
  run_app->callback([&] {
    run.header = header == "yes"  ? client::HeaderRule::kYes
                 : header == "no" ? client::HeaderRule::kNo
                                  : client::HeaderRule::kAuto;
    code = client::RunModule(global, run);
  });

  std::string inspected;
  client::ModelFlags inspected_flags;
  bool explain_layout = false;
  CLI::App* inspect_app =
      command("inspect", "Show what a model or a module holds, and what tuning it would involve");
  inspect_app->add_option("file", inspected, "Model file or module file")->required();
  inspect_app->add_flag("--explain-layout", explain_layout,
                        "For an ONNX file: the layout of each operator and the cost of the "
                        "alternatives, for this machine and one thread");
  AddImportFlags(inspect_app, inspected_flags, "For an ONNX file: ");
  inspect_app->callback([&] {
    code = explain_layout ? client::ExplainLayout(global, inspected, inspected_flags)
                          : client::Inspect(global, inspected, inspected_flags);
  });

  heddle::v1::RecordQuery query;
  CLI::App* records_app = command(
      "records",
      "Query, export, import or retract tuning records; -v: how quiet each measurement was");
  AddQueryFlags(records_app, query);
  CLI::App* export_app = records_app->add_subcommand("export", "Write records as JSON lines");
  AddQueryFlags(export_app, query);
  export_app->add_option("-o,--output", output, "File (default: stdout)");
  std::string import_path;
  CLI::App* import_app = records_app->add_subcommand("import", "Read records from JSON lines");
  import_app->add_option("file", import_path, "File, or - for stdin")->required();
  CLI::App* retract_app =
      records_app->add_subcommand("retract", "Mark records as wrong; nothing uses them any more");
  AddFilterFlags(retract_app, query);
  retract_app->add_option_function<int64_t>(
      "id", [&query](int64_t id) { query.set_id(id); },
      "One record, by its id in `heddle records`");
  std::string retract_reason;
  retract_app->add_option("--reason", retract_reason, "Why they do not hold")->required();
  records_app->callback([&] {
    if (export_app->parsed()) {
      code = client::ExportRecords(global, query, output);
    } else if (import_app->parsed()) {
      code = client::ImportRecords(global, import_path);
    } else if (retract_app->parsed()) {
      code = client::RetractRecords(global, query, retract_reason);
    } else {
      code = client::QueryRecords(global, query);
    }
  });

  std::string backup_directory;
  CLI::App* backup_app =
      command("backup", "Back up the service's database and blobs, without stopping it");
  backup_app
      ->add_option(
          "directory", backup_directory,
          "New directory, or one with an earlier backup, of which only the rest is fetched")
      ->required();
  backup_app->callback([&] { code = client::BackUp(global, backup_directory); });

  bool read_blobs = false;
  CLI::App* check_app = command(
      "check", "Check the service's database and blobs, without stopping it; status 2: damage");
  check_app->add_flag(
      "--read-blobs", read_blobs,
      "Also read every blob; one that is damaged is removed, and can be sent again");
  check_app->callback([&] { code = client::CheckStore(global, read_blobs); });

  client::CollectOptions collect;
  CLI::App* collect_app = command(
      "gc", "Collect old jobs: remove their models, modules, raw measurements and old records");
  collect_app->add_flag("--dry-run", collect.dry_run, "Only show what would go");
  collect_app
      ->add_option("--older-than", collect.older_than,
                   "Collect jobs that ended longer ago than this, 30d or 12h; 0: all that ended")
      ->capture_default_str();
  collect_app
      ->add_option("--keep-jobs", collect.keep_jobs, "So many jobs, those that ended last, stay")
      ->check(CLI::Range(0, 1'000'000'000))
      ->capture_default_str();
  collect_app->callback([&] { code = client::Collect(global, collect); });

  std::string copy_from, copy_to;
  CLI::App* store_app = command("store", "Copy jobs and records between SQLite and PostgreSQL");
  store_app->require_subcommand(1);
  CLI::App* copy_app = store_app->add_subcommand(
      "copy",
      "Copy all of one store to another, which no scheduler uses; goes on if it was interrupted");
  const char* const store_place = "A scheduler's data folder, or postgresql://USER@HOST/DATABASE";
  copy_app->add_option("from", copy_from, store_place)->required();
  copy_app->add_option("to", copy_to, store_place)->required();
  copy_app->callback([&] { code = client::CopyStore(copy_from, copy_to); });

  CLI::App* devices_app = command("devices", "List workers, their slots and what they do");
  devices_app->callback([&] { code = client::ListDevices(global); });

  client::DeviceOptions device;
  device.tracker = "unix:" + heddle::DefaultDataDirectory() + "/sockets/tracker";
  CLI::App* device_app = command("device", "Keep jobs off a worker's slots for a while");
  device_app->require_subcommand(1);
  const auto device_command = [&](const char* name, const char* help, const char* place,
                                  int (*act)(const GlobalOptions&, const client::DeviceOptions&)) {
    CLI::App* one = device_app->add_subcommand(name, help);
    one->add_option("place", device.place, place)->required();
    one->add_option(
           "--tracker", device.tracker,
           "The tracker's address: HOST:PORT, or unix:PATH; several are separated by commas")
        ->envname("HEDDLE_TRACKER")
        ->capture_default_str();
    one->callback([&, act] { code = act(global, device); });
    return one;
  };
  const char* const all_slots = "WORKER/SLOT, or WORKER for all its slots";
  CLI::App* lease_app =
      device_command("lease", "Hold a slot that is free", "WORKER/SLOT", client::LeaseDevice);
  CLI::App* drain_app = device_command("drain", "Let running stages end, and hold the slots",
                                       all_slots, client::DrainDevice);
  device_command("resume", "End such leases", all_slots, client::ResumeDevice);
  for (CLI::App* one : {lease_app, drain_app}) {
    one->add_option("--for", device.duration, "How long, 1s to 1h; then jobs run there again")
        ->capture_default_str();
  }
  drain_app->add_option("--wait", device.wait,
                        "How long to wait for running stages; by default 10m, or as long as --for");

  std::string zoo_name;
  uint64_t zoo_seed = 0;
  CLI::App* zoo_app = command("zoo", "Write a well-known model with random weights as ONNX");
  zoo_app->add_option("name", zoo_name, "Model; omit to list them");
  zoo_app->add_option("-o,--output", output, "ONNX file to write");
  zoo_app->add_option("--seed", zoo_seed, "Seed of the weights")
      ->check(IsSeed)
      ->capture_default_str();
  zoo_app->callback([&] { code = client::WriteZooModel(global, zoo_name, output, zoo_seed); });

  client::DoctorOptions doctor;
  doctor.data = heddle::DefaultDataDirectory();
  CLI::App* doctor_app = command(
      "doctor", "Look for what keeps this machine from tuning well, and say what to do about it");
  doctor_app->add_option("--target", doctor.target, "What is to be tuned for")
      ->capture_default_str();
  doctor_app->add_option("--data", doctor.data, "Data directory of the service")
      ->capture_default_str();
  std::vector<client::Setting> settings;  // of configuration files
  doctor_app->callback([&] {
    doctor.server = global.server;
    doctor.server_is_default =
        server->count() == 0 &&
        std::none_of(settings.begin(), settings.end(), [](const client::Setting& setting) {
          return client::KeyOf(setting) == "server";
        });
    doctor.version = app.version().substr(app.version().rfind(' ') + 1);
    code = client::Doctor(global, doctor);
  });

  CLI::App* config_app = command("config", "What configuration files and the environment set");
  config_app->require_subcommand(1);
  CLI::App* config_show = config_app->add_subcommand("show", "Print it");
  bool origin = false;
  config_show->add_flag("--origin", origin, "Also say where each value comes from");
  config_show->callback([&] { code = client::ShowConfig(settings, app, origin, global.output); });

  // What people type before they know the flags.
  CLI::App* help_app = command("help", "Show this help, or that of a command");
  std::vector<std::string> helped;
  help_app->add_option("command", helped, "Command, with its own command if it has some");
  help_app->callback([&] {
    const CLI::App* of = &app;
    std::string name = "heddle";
    for (const std::string& word : helped) {
      if (const std::string unknown = UnknownCommand(*of, word); !unknown.empty()) {
        code = client::Fail(client::kUsage, unknown + " (see `" + name + " --help`)");
        return;
      }
      of = CommandNamed(*of, word);
      name += " " + word;
    }
    const std::string text = of->get_formatter()->make_help(of, name, CLI::AppFormatMode::Normal);
    if (global.output.json)
      client::PrintOneText("help", text);
    else
      std::fputs(text.c_str(), stdout);
  });
  command("version", "Show the version")->callback([&] {
    if (global.output.json)
      client::PrintOneText("version", HEDDLE_VERSION);
    else
      std::printf("%s\n", app.version().c_str());
  });

  // What packages install; hidden, since people who tune do not need it.
  std::string shell;
  CLI::App* completion_app = command("completion", "Print a script that completes these commands");
  completion_app->group("");
  completion_app->add_option("shell", shell, "Shell")
      ->required()
      ->check(CLI::IsMember(heddle::CompletionShells()));
  completion_app->callback(
      [&] { std::fputs(heddle::ShellCompletion(app, shell).c_str(), stdout); });
  heddle::AddManPageFlag(&app);

  client::InstallInterruptHandler();
  if (std::any_of(argv + 1, argv + argc,
                  [](const char* w) { return std::strcmp(w, "--json") == 0; }))
    client::TellErrorsAsJson();
  if (const std::string unknown = UnknownCommand(app, CommandWord(app, argc, argv));
      !unknown.empty()) {
    return client::Fail(client::kUsage, unknown + " (see `heddle --help`)");
  }
  if (const absl::Status configured = Configure(argc, argv, &app, &settings); !configured.ok())
    return client::Fail(configured);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {  // --help or --version
    code = app.exit(e);
    std::cout.flush();
  } catch (const CLI::ParseError& e) {
    std::string help = "heddle", message = e.what();
    const CLI::App* at = &app;
    while (!at->get_subcommands().empty()) {
      at = at->get_subcommands().front();
      help += " " + at->get_name();
    }
    if (message == "A subcommand is required") {
      const char* before = ": ";
      for (const std::string& name : ShownCommands(*at)) {
        message += before + name;
        before = ", ";
      }
    }
    const bool extras = dynamic_cast<const CLI::ExtrasError*>(&e) != nullptr;
    if (const std::vector<std::string> words = app.remaining(true); extras && !words.empty())
      message = UnknownWords(app, *at, words);
    return client::Fail(client::kUsage, message + " (see `" + help + " --help`)");
  } catch (const std::system_error& e) {
    // fmt throws when its text cannot be written.
    return client::Fail(client::kInternal, "cannot write the output: " + e.code().message());
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return client::Fail(client::kInternal,
                        std::string("cannot write the output: ") + std::strerror(errno));
  }
  return code;
}
