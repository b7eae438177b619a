// A PostgreSQL server of a test's own: a new cluster in a temporary folder, reached by a UNIX socket there and
// by nothing else. It runs as the user `postgres` where the test is root, whom the server refuses.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace heddle {

inline constexpr char kNoPostgres[] =
    "PostgreSQL's server is not installed; deploy/setup.sh --tests installs it";

class PostgresServer {
 public:
  // Whether the server's programs are installed.
  static bool Installed();
  // One that all tests of the process share, started at the first call; it forgets what it wrote if the
  // machine dies. Null: it is not installed, or does not start, which fails the test.
  static PostgresServer* Shared();

  // `durable`: a commit is on disk.
  static absl::StatusOr<std::unique_ptr<PostgresServer>> Start(bool durable);
  ~PostgresServer();
  PostgresServer(const PostgresServer&) = delete;
  PostgresServer& operator=(const PostgresServer&) = delete;

  // Makes an empty database; its URL. `options` follow CREATE DATABASE NAME.
  std::string NewDatabase(const std::string& options = "");
  // The same database by another socket's folder.
  static std::string Through(const std::string& folder, const std::string& url);
  // The same by a port of 127.0.0.1, behind which a proxy goes to socket().
  static std::string ThroughPort(int port, const std::string& url);
  // Runs statements on a connection of its own; the first column of the rows of the last one.
  absl::StatusOr<std::vector<std::string>> Sql(const std::string& url, const std::string& sql);
  // Ends all connections to the database, as an operator may; how many.
  int CutConnections(const std::string& url);

  // SIGKILL of the server, whose other processes then end by themselves.
  void Kill();
  // After Kill: starts it on what it left.
  absl::Status Restart();

  const std::string& folder() const { return folder_; }  // with the socket
  std::string socket() const { return folder_ + "/.s.PGSQL.5432"; }

 private:
  explicit PostgresServer(bool durable) : durable_(durable) {}

  const bool durable_;
  std::string folder_;
  pid_t pid_ = 0;
  int databases_ = 0;
};

}  // namespace heddle
