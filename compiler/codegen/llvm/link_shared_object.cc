#include "compiler/codegen/llvm/link_shared_object.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "lld/Common/Driver.h"
#include "llvm/Support/CrashRecoveryContext.h"
#include "llvm/Support/raw_ostream.h"

LLD_HAS_DRIVER(elf)

namespace heddle::codegen {

namespace {

// Return codes from here on stand for signals.
constexpr int kSignalled = 128;

absl::StatusOr<std::string> MakePrivateDirectory() {
  std::error_code error;
  std::string pattern =
      (std::filesystem::temp_directory_path(error) / "heddle-link-XXXXXX").string();
  if (error || !mkdtemp(pattern.data())) {
    return absl::UnavailableError("cannot make a directory for linking under TMPDIR");
  }
  return pattern;
}

}  // namespace

absl::StatusOr<std::string> LinkSharedObject(std::string_view object) {
  HEDDLE_ASSIGN_OR_RETURN(std::string directory, MakePrivateDirectory());
  auto remove = absl::MakeCleanup([&] {
    std::error_code ignored;
    std::filesystem::remove_all(directory, ignored);
  });
  const std::string input = directory + "/kernel.o", output = directory + "/kernel.so";
  std::ofstream file(input, std::ios::binary);
  file.write(object.data(), static_cast<std::streamsize>(object.size()));
  file.close();
  if (!file)
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot write ", input, ": is the disk full?"));

  std::string messages;
  llvm::raw_string_ostream stream(messages);
  const char* args[] = {"ld.lld", "-shared",     "--threads=1",      "--build-id=none",
                        "-z",     "noexecstack", "--hash-style=gnu", input.c_str(),
                        "-o",     output.c_str()};
  {
    static std::mutex linker;
    static bool damaged = false;
    std::lock_guard lock(linker);
    if (damaged) {
      return absl::UnavailableError(
          "lld: an earlier failure left its state damaged; start the process again");
    }
    // When lld gives up, it ends the process without a message unless a recovery context catches
    // that. A recovery context works on the calling thread alone, hence --threads=1.
    llvm::CrashRecoveryContext::Enable();
    const absl::Cleanup disable = [] { llvm::CrashRecoveryContext::Disable(); };
    const lld::Result result = lld::lldMain(args, stream, stream, {{lld::Gnu, &lld::elf::link}});
    damaged = !result.canRunAgain;
    if (result.retCode >= kSignalled) {
      return absl::UnavailableError(
          absl::StrCat("lld: ended by signal ", result.retCode - kSignalled));
    }
    if (result.retCode != 0 || damaged)
      return absl::InternalError(absl::StrCat("lld: ", stream.str().c_str()));
  }
  std::ifstream linked(output, std::ios::binary);
  std::ostringstream bytes;
  bytes << linked.rdbuf();
  if (!linked || bytes.str().empty())
    return absl::ResourceExhaustedError(absl::StrCat("cannot read ", output));
  return bytes.str();
}

}  // namespace heddle::codegen
