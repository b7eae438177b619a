// Whether the programs are there, and whether a service finds a place for its data.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_split.h"
#include "client/doctor/checks.h"
#include "client/doctor/run_program.h"
#include "client/views/terminal.h"
#include "proto/access/local_socket.h"

namespace heddle::client::doctor {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrograms[] = {"heddle-scheduler", "heddle-tracker", "heddle-worker"};
constexpr absl::Duration kProgramLimit = absl::Seconds(10);
// The service takes no models with less; a job of a large model needs more.
constexpr int64_t kReserveBytes = int64_t{64} << 20;
constexpr int64_t kComfortBytes = int64_t{2} << 30;
constexpr size_t kLongestSocket = 107;  // bytes of its path

std::string ProgramPath(const Surroundings& here, const std::string& name) {
  return here.programs.empty() ? name : here.programs + "/" + name;
}

// The directory itself, or the nearest one above it that exists.
fs::path NearestExisting(const std::string& directory) {
  std::error_code ignored;
  fs::path path = fs::absolute(directory, ignored);
  while (!fs::exists(path, ignored) && path.has_parent_path() && path != path.parent_path())
    path = path.parent_path();
  return path;
}

std::string Chmod(const char* mode, const std::string& path) {
  return fmt::format("chmod {} {}", mode, path);
}

}  // namespace

Verdict CheckPrograms(const DoctorOptions&, const Surroundings& here) {
  for (const char* name : kPrograms) {
    const std::string path = ProgramPath(here, name);
    if (access(path.c_str(), X_OK) == 0) continue;
    return Problem(
        fmt::format("{}: {}", path, std::strerror(errno)),
        fmt::format("install {} beside heddle (the build makes it: ninja {})", name, name));
  }
  return Well(
      fmt::format("heddle-scheduler, heddle-tracker and heddle-worker are in {}", here.programs));
}

Verdict CheckVersions(const DoctorOptions& options, const Surroundings& here) {
  for (const char* name : kPrograms) {
    const std::string path = ProgramPath(here, name);
    if (access(path.c_str(), X_OK) != 0) continue;  // the check "programs" says so
    const absl::StatusOr<ProgramResult> said = RunProgram({path, "--version"}, kProgramLimit);
    if (!said.ok()) {
      return Problem(std::string(said.status().message()),
                     fmt::format("install {} of version {} again", name, options.version));
    }
    const std::vector<std::string> words =
        absl::StrSplit(said->output, absl::ByAnyChar(" \n"), absl::SkipEmpty());
    const std::string version = words.empty() ? "nothing" : words.back();
    if (said->status == 0 && version == options.version) continue;
    return Problem(fmt::format("{} says it is of version {}, and heddle is of {}", path,
                               Printable(version), options.version),
                   fmt::format("install {} of version {}", name, options.version));
  }
  return Well("all programs are of version " + options.version);
}

Verdict CheckConfinement(const DoctorOptions&, const Surroundings& here) {
  const std::string worker = ProgramPath(here, "heddle-worker");
  if (access(worker.c_str(), X_OK) != 0) return Well("not asked, since there is no heddle-worker");
  const absl::StatusOr<ProgramResult> said = RunProgram({worker, "--check"}, kProgramLimit);
  if (!said.ok())
    return Problem(std::string(said.status().message()), "heddle-worker --check shows more");
  std::string missing, have;
  for (const absl::string_view line : absl::StrSplit(said->output, '\n', absl::SkipEmpty())) {
    const size_t colon = line.find(": ");
    if (colon == absl::string_view::npos) continue;
    const bool available = absl::string_view(line.substr(colon)).substr(0, 5) == ": yes";
    std::string& list = available ? have : missing;
    list += list.empty() ? "" : available ? ", " : "; ";
    list += std::string(available ? line.substr(0, colon) : line);
  }
  // The worker insists on less where less can be had: a user of their own needs a worker that is root.
  if (said->status == 0) return Well("stages are confined by " + have);
  return Warning(
      fmt::format("stages of jobs are not confined as they should be: {}",
                  missing.empty() ? "heddle-worker --check says nothing" : Printable(missing)),
      "do what the line says after the last ';', and take jobs only of people you trust until "
      "then");
}

Verdict CheckTemporary(const DoctorOptions&, const Surroundings& here) {
  std::string made = here.temporary + "/heddle-doctor-XXXXXX";
  if (mkdtemp(made.data()) == nullptr) {
    return Problem(
        fmt::format("no folder can be made in {}: {}", here.temporary, std::strerror(errno)),
        "set TMPDIR to a folder that you may write to");
  }
  rmdir(made.c_str());
  return Well(here.temporary + " takes temporary files");
}

Verdict CheckDataDirectory(const DoctorOptions& options, const Surroundings&) {
  const fs::path nearest = NearestExisting(options.data);
  const bool exists = nearest == fs::absolute(options.data);
  struct stat info = {};
  if (stat(nearest.c_str(), &info) != 0)
    return Problem(fmt::format("{}: {}", nearest.string(), std::strerror(errno)),
                   "give another --data, or set XDG_DATA_HOME");
  if (!S_ISDIR(info.st_mode)) {
    return Problem(fmt::format("{} is a file, so the service has no place for its data in {}",
                               nearest.string(), options.data),
                   fmt::format("move {} away, or set XDG_DATA_HOME", nearest.string()));
  }
  if (faccessat(AT_FDCWD, nearest.c_str(), W_OK | X_OK, AT_EACCESS) != 0) {
    return Problem(fmt::format("you may not write to {}", nearest.string()),
                   "chown it to you, or set XDG_DATA_HOME to a folder of yours");
  }
  if (!exists) return Well(options.data + " can be made");
  if (info.st_uid != geteuid() && geteuid() != 0)
    return Problem(fmt::format("{} belongs to user {}", options.data, info.st_uid),
                   "start the service as that user, or set XDG_DATA_HOME");
  if ((info.st_mode & 077) != 0) {
    return Warning(fmt::format("others can enter {}, which holds models and modules", options.data),
                   Chmod("700", options.data));
  }
  return Well(options.data + " is yours alone");
}

Verdict CheckSocketPath(const DoctorOptions& options, const Surroundings&) {
  const std::string path = SocketPath(SchedulerSocket(options.data));
  if (path.size() <= kLongestSocket) return Well("a socket can be at " + path);
  return Problem(fmt::format("the path {} has {} bytes, and that of a socket at most {}", path,
                             path.size(), kLongestSocket),
                 "take a data directory with a shorter path (--data, XDG_DATA_HOME)");
}

Verdict CheckDiskSpace(const DoctorOptions& options, const Surroundings& here) {
  const std::string place = NearestExisting(options.data);
  const absl::StatusOr<DiskFacts> disk = here.disk(place);
  if (!disk.ok()) return Problem(std::string(disk.status().message()), "give another --data");
  const std::string found = fmt::format("{} are free at {}", FormatBytes(disk->free_bytes), place);
  if (disk->free_bytes < kReserveBytes)
    return Problem(found + ", too few for the service to take a model", "free some space there");
  if (disk->free_bytes < kComfortBytes)
    return Warning(found + "; models and their records may need more", "free some space there");
  return Well(found);
}

Verdict CheckDiskKind(const DoctorOptions& options, const Surroundings& here) {
  const std::string place = NearestExisting(options.data);
  const absl::StatusOr<DiskFacts> disk = here.disk(place);
  if (!disk.ok()) return Problem(std::string(disk.status().message()), "give another --data");
  if (disk->kind.empty()) return Well(place + " is on a disk of this machine");
  if (disk->kind == "tmpfs" || disk->kind == "ramfs") {
    return Warning(fmt::format("{} is in memory ({}), so records are lost with the next start of "
                               "the machine",
                               place, disk->kind),
                   "take a data directory on a disk (--data, XDG_DATA_HOME)");
  }
  return Problem(
      fmt::format("{} is on another machine ({}), where the database's locks do not hold", place,
                  disk->kind),
      "take a data directory on a disk of this machine (--data, XDG_DATA_HOME)");
}

}  // namespace heddle::client::doctor
