#include "worker/confine/landlock.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace heddle::worker::confine {
namespace {

// Rights over files, by the version that introduced them. The first has the thirteen bits 0 to 12.
constexpr uint64_t kFirstRights = (uint64_t{1} << 13) - 1;
constexpr uint64_t kRefer = uint64_t{1} << 13;     // version 2: rename and link between folders
constexpr uint64_t kTruncate = uint64_t{1} << 14;  // version 3
constexpr uint64_t kIoctl = uint64_t{1} << 15;     // version 5: of devices
// Version 4.
constexpr uint64_t kBindTcp = 1;
constexpr uint64_t kConnectTcp = 2;
// Version 6.
constexpr uint64_t kAbstractSocket = 1;
constexpr uint64_t kSignal = 2;

constexpr uint64_t kReadRights = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
constexpr uint64_t kWriteRights = kReadRights | LANDLOCK_ACCESS_FS_WRITE_FILE | kTruncate;
// No links, sockets, pipes or devices.
constexpr uint64_t kPrivateRights = kWriteRights | LANDLOCK_ACCESS_FS_REMOVE_DIR |
                                    LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_DIR |
                                    LANDLOCK_ACCESS_FS_MAKE_REG | kRefer;
constexpr uint64_t kDeviceRights =
    LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | kIoctl;
// Those that a rule about something other than a folder may give.
constexpr uint64_t kFileRights = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_WRITE_FILE |
                                 LANDLOCK_ACCESS_FS_READ_FILE | kTruncate | kIoctl;

// What the rules are about. All that is handled is refused unless a rule gives it. Older kernels
// accept this size if the fields that they do not know are 0.
struct Handled {
  uint64_t files = kFirstRights;
  uint64_t network = 0;
  uint64_t scopes = 0;
};

Handled HandledBy(int version) {
  Handled handled;
  if (version >= 2) handled.files |= kRefer;
  if (version >= 3) handled.files |= kTruncate;
  if (version >= 4) handled.network = kBindTcp | kConnectTcp;
  if (version >= 5) handled.files |= kIoctl;
  if (version >= 6) handled.scopes = kAbstractSocket | kSignal;
  return handled;
}

uint64_t RightsOf(Access access) {
  switch (access) {
    case Access::kRead:
      return kReadRights;
    case Access::kWrite:
      return kWriteRights;
    case Access::kPrivate:
      return kPrivateRights;
    case Access::kDevice:
      return kDeviceRights;
  }
  return 0;
}

absl::Status AddRule(int rules, const PathRule& rule, uint64_t handled) {
  const int path = open(rule.path.c_str(), O_PATH | O_CLOEXEC);
  if (path < 0) return absl::OkStatus();  // it does not exist, or is out of reach
  // The kernel may forget a file of /proc and make it anew, which no rule would be about. What is open
  // it remembers, so these stay open.
  const bool keep = rule.path.starts_with("/proc/");
  const absl::Cleanup close_path = [path, keep] {
    if (!keep) close(path);
  };
  struct stat info;
  if (fstat(path, &info) != 0) return absl::ErrnoToStatus(errno, rule.path);
  uint64_t rights = RightsOf(rule.access) & handled;
  if (!S_ISDIR(info.st_mode)) rights &= kFileRights;
  const landlock_path_beneath_attr attribute{.allowed_access = rights, .parent_fd = path};
  if (syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &attribute, 0) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("landlock: ", rule.path));
  return absl::OkStatus();
}

}  // namespace

int LandlockVersion() {
  const auto version =
      syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  return version < 0 ? 0 : static_cast<int>(version);
}

absl::StatusOr<std::unique_ptr<LandlockRules>> LandlockRules::Make(
    const std::vector<PathRule>& paths, int version) {
  if (version == 0) return absl::UnavailableError("the kernel has no Landlock");
  const Handled handled = HandledBy(version);
  const auto made = syscall(SYS_landlock_create_ruleset, &handled, sizeof(handled), 0);
  if (made < 0) return absl::ErrnoToStatus(errno, "landlock: cannot make rules");
  std::unique_ptr<LandlockRules> rules(new LandlockRules(static_cast<int>(made)));
  for (const PathRule& rule : paths)
    HEDDLE_RETURN_IF_ERROR(AddRule(rules->rules_, rule, handled.files));
  return rules;
}

LandlockRules::~LandlockRules() { close(rules_); }

absl::Status LandlockRules::Apply() const {
  if (syscall(SYS_landlock_restrict_self, rules_, 0) != 0)
    return absl::ErrnoToStatus(errno, "landlock: cannot apply the rules");
  return absl::OkStatus();
}

}  // namespace heddle::worker::confine
