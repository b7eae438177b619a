// Rules by which the kernel checks what a process opens, connects to and signals (Landlock, man 7
// landlock). The numbers are those of the kernel's interface, since Debian 12's headers are older
// than the kernels that Heddle runs on.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/confine/paths.h"

namespace heddle::worker::confine {

// The version of Landlock that the kernel offers; 0, and errno, if none.
int LandlockVersion();

// A set of rules that is ready to be applied. The paths are looked up when it is made.
class LandlockRules {
 public:
  // Asks for what `version` knows, which is at most the kernel's. Unavailable: it is 0.
  static absl::StatusOr<std::unique_ptr<LandlockRules>> Make(const std::vector<PathRule>& paths,
                                                             int version = LandlockVersion());
  LandlockRules(const LandlockRules&) = delete;
  LandlockRules& operator=(const LandlockRules&) = delete;
  ~LandlockRules();

  // Applies them to the calling thread for good: no file beyond the paths, and nothing executed. From
  // version 4 on no TCP; from version 6 on no signal to, and no abstract UNIX socket of, a process
  // outside. The process must not be able to gain privileges (PR_SET_NO_NEW_PRIVS).
  absl::Status Apply() const;

 private:
  explicit LandlockRules(int rules) : rules_(rules) {}
  const int rules_;  // a descriptor
};

}  // namespace heddle::worker::confine
