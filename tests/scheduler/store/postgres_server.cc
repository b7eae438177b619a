#include "tests/scheduler/store/postgres_server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <libpq-fe.h>
#include <pwd.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace heddle {
namespace {

constexpr absl::Duration kServerStartLimit = absl::Seconds(60);
constexpr absl::Duration kStopLimit = absl::Seconds(20);

// Where Debian has the programs of the newest version; empty: nowhere.
std::string Programs() {
  std::string newest;
  std::error_code error;
  for (const auto& version : std::filesystem::directory_iterator("/usr/lib/postgresql", error)) {
    const std::string path = version.path().string() + "/bin";
    if (std::filesystem::exists(path + "/initdb", error)) newest = std::max(newest, path);
  }
  return newest;
}

pid_t BeginProcess(const std::vector<std::string>& command, const std::string& log) {
  std::vector<std::string> words;
  if (geteuid() == 0) {
    words = {"setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups",
             "--pdeathsig=QUIT"};
  }
  words.insert(words.end(), command.begin(), command.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t pid = fork();
  if (pid != 0) return pid;
  const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  dup2(out, STDOUT_FILENO);
  dup2(out, STDERR_FILENO);
  if (chdir("/") != 0) _exit(127);
  execvp(arguments[0], arguments.data());
  _exit(127);
}

bool Reap(pid_t pid, absl::Duration limit, int* status) {
  for (const absl::Time end = absl::Now() + limit; absl::Now() < end;
       absl::SleepFor(absl::Milliseconds(5))) {
    if (waitpid(pid, status, WNOHANG) == pid) return true;
  }
  return false;
}

std::string Contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace

bool PostgresServer::Installed() { return !Programs().empty(); }

PostgresServer* PostgresServer::Shared() {
  static const std::unique_ptr<PostgresServer> shared = []() -> std::unique_ptr<PostgresServer> {
    if (!Installed()) return nullptr;
    auto started = Start(/*durable=*/false);
    EXPECT_TRUE(started.ok()) << started.status();
    return started.ok() ? *std::move(started) : nullptr;
  }();
  return shared.get();
}

absl::StatusOr<std::unique_ptr<PostgresServer>> PostgresServer::Start(bool durable) {
  std::unique_ptr<PostgresServer> server(new PostgresServer(durable));
  char folder[] = "/tmp/heddle-postgres-XXXXXX";
  if (mkdtemp(folder) == nullptr) return absl::InternalError("there is no temporary folder");
  server->folder_ = folder;
  if (const passwd* user = geteuid() == 0 ? getpwnam("postgres") : nullptr) {
    if (chown(folder, user->pw_uid, user->pw_gid) != 0)
      return absl::InternalError("the folder cannot be given to the user postgres");
  }
  const pid_t initdb =
      BeginProcess({Programs() + "/initdb", "-D", server->folder_ + "/data", "-A", "trust", "-U",
                    "heddle", "-E", "UTF8", "--locale=C.UTF-8", "-N"},
                   server->folder_ + "/initdb.log");
  int status = 0;
  if (!Reap(initdb, kServerStartLimit, &status)) {
    kill(initdb, SIGKILL);
    waitpid(initdb, &status, 0);
  }
  if (status != 0)
    return absl::InternalError("initdb failed: " + Contents(server->folder_ + "/initdb.log"));
  if (const absl::Status started = server->Restart(); !started.ok()) return started;
  return server;
}

PostgresServer::~PostgresServer() {
  int status = 0;
  if (pid_ != 0) {
    kill(pid_, SIGQUIT);  // at once
    if (!Reap(pid_, kStopLimit, &status)) Kill();
  }
  std::error_code error;
  std::filesystem::remove_all(folder_, error);
}

void PostgresServer::Kill() {
  if (pid_ == 0) return;
  kill(pid_, SIGKILL);
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = 0;
}

absl::Status PostgresServer::Restart() {
  const std::string fsync = absl::StrCat("fsync=", durable_ ? "on" : "off");
  const std::string log = folder_ + "/server.log";
  const std::string url = "postgresql://heddle@/postgres?host=" + folder_;
  for (const absl::Time end = absl::Now() + kServerStartLimit; absl::Now() < end;
       absl::SleepFor(absl::Milliseconds(20))) {
    int status = 0;
    // Processes of a server that was killed may hold its memory for a moment; then it does not start.
    if (pid_ == 0 || waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = BeginProcess({Programs() + "/postgres", "-D", folder_ + "/data", "-k", folder_, "-c",
                           "listen_addresses=", "-c", fsync, "-c", "shared_buffers=32MB", "-c",
                           "max_connections=60", "-c", "logging_collector=off"},
                          log);
    }
    if (PQping(url.c_str()) == PQPING_OK) return absl::OkStatus();
  }
  return absl::DeadlineExceededError("the server does not start: " + Contents(log));
}

std::string PostgresServer::NewDatabase(const std::string& options) {
  const std::string name = absl::StrCat("heddle", ++databases_);
  const auto made = Sql("postgresql://heddle@/postgres?host=" + folder_,
                        absl::StrCat("CREATE DATABASE ", name, " ", options));
  EXPECT_TRUE(made.ok()) << made.status();
  return absl::StrCat("postgresql://heddle@/", name, "?host=", folder_);
}

std::string PostgresServer::Through(const std::string& folder, const std::string& url) {
  return url.substr(0, url.find("?host=")) + "?host=" + folder;
}

std::string PostgresServer::ThroughPort(int port, const std::string& url) {
  return absl::StrReplaceAll(url.substr(0, url.find("?host=")),
                             {{"@/", absl::StrCat("@127.0.0.1:", port, "/")}});
}

absl::StatusOr<std::vector<std::string>> PostgresServer::Sql(const std::string& url,
                                                             const std::string& sql) {
  PGconn* const connection = PQconnectdb(url.c_str());
  PGresult* const result = PQexec(connection, sql.c_str());
  const ExecStatusType status = PQresultStatus(result);
  std::vector<std::string> column;
  for (int i = 0; status == PGRES_TUPLES_OK && i < PQntuples(result); ++i)
    column.push_back(PQgetvalue(result, i, 0));
  const std::string error = PQerrorMessage(connection);
  PQclear(result);
  PQfinish(connection);
  if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) return absl::InternalError(error);
  return column;
}

int PostgresServer::CutConnections(const std::string& url) {
  const auto cut = Sql(url,
                       "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                       "WHERE datname=current_database() AND pid<>pg_backend_pid()");
  return cut.ok() ? static_cast<int>(cut->size()) : 0;
}

}  // namespace heddle
