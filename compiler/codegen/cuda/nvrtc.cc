#include "compiler/codegen/cuda/nvrtc.h"

#include <dlfcn.h>
#include <glob.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace heddle::codegen {

// The part of NVRTC's interface that is used. A program is an opaque pointer; a result of 0 means
// success.
struct Nvrtc::Api {
  using Program = void*;
  int (*version)(int*, int*);
  int (*num_archs)(int*);
  int (*archs)(int*);
  int (*create)(Program*, const char* source, const char* name, int headers, const char* const*,
                const char* const*);
  int (*destroy)(Program*);
  int (*compile)(Program, int options, const char* const*);
  int (*cubin_size)(Program, size_t*);
  int (*cubin)(Program, char*);
  int (*log_size)(Program, size_t*);
  int (*log)(Program, char*);
  const char* (*error_string)(int);
};

namespace {

// Newest first, because the newest release knows the most architectures. Packages without
// development files have only the numbered names.
constexpr const char* kNames[] = {"libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"};

std::vector<std::string> Folders() {
  std::vector<std::string> folders{""};  // the dynamic linker's own search
  if (const char* home = std::getenv("CUDA_HOME")) folders.push_back(absl::StrCat(home, "/lib64/"));
  folders.emplace_back("/usr/local/cuda/lib64/");
  if (const char* python = std::getenv("VIRTUAL_ENV")) {
    glob_t found{};
    if (glob(absl::StrCat(python, "/lib/python3*/site-packages/nvidia/*/lib/").c_str(), 0, nullptr,
             &found) == 0) {
      for (size_t i = 0; i < found.gl_pathc; ++i) folders.emplace_back(found.gl_pathv[i]);
    }
    globfree(&found);
  }
  return folders;
}

template <typename F>
bool Find(void* library, const char* name, F* function) {
  *function = reinterpret_cast<F>(dlsym(library, name));
  return *function != nullptr;
}

// The newest major version of CUDA that this machine's driver supports, or 0 if there is no driver.
// The driver is loaded but not initialised. Tests name another library (runtime/cuda/driver.h).
int DriverMajor() {
  const char* other = std::getenv("HEDDLE_CUDA_DRIVER");
  void* driver =
      dlopen(other != nullptr && *other != '\0' ? other : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  int (*version)(int*) = nullptr;
  int found = 0;  // 1000 * major + 10 * minor
  if (driver == nullptr || !Find(driver, "cuDriverGetVersion", &version) || version(&found) != 0)
    return 0;
  return found / 1000;
}

// Whether a driver of this major version can load what the library compiles. True if there is no
// driver (0).
bool Matches(void* library, int driver) {
  int (*version)(int*, int*) = nullptr;
  int major = 0, minor = 0;
  return driver == 0 || !Find(library, "nvrtcVersion", &version) || version(&major, &minor) != 0 ||
         major <= driver;
}

void* Open(std::vector<std::string>* tried) {
  if (const char* file = std::getenv("HEDDLE_NVRTC"); file != nullptr && *file != '\0') {
    tried->emplace_back(file);
    return dlopen(file, RTLD_NOW | RTLD_LOCAL);
  }
  const int driver = DriverMajor();
  void* unsuitable = nullptr;
  for (const std::string& folder : Folders()) {
    for (const char* name : kNames) {
      void* library = dlopen((folder + name).c_str(), RTLD_NOW | RTLD_LOCAL);
      if (library != nullptr && Matches(library, driver)) return library;
      if (unsuitable == nullptr) unsuitable = library;
    }
    tried->push_back(folder.empty() ? "LD_LIBRARY_PATH" : folder);
  }
  return unsuitable;
}

// The first error of a log, or its first line.
std::string FirstError(const std::string& log) {
  const std::vector<std::string> lines = absl::StrSplit(log, '\n');
  for (const std::string& line : lines) {
    if (line.find("error") != std::string::npos) return line;
  }
  return lines[0];
}

}  // namespace

absl::StatusOr<const Nvrtc*> Nvrtc::Load() {
  std::vector<std::string> tried;
  void* library = Open(&tried);
  if (library == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("no NVRTC on this machine, which compiles for cuda targets (looked in ",
                     absl::StrJoin(tried, ", "), "); set HEDDLE_NVRTC to its libnvrtc.so"));
  }
  static Api api;
  const bool complete = Find(library, "nvrtcVersion", &api.version) &&
                        Find(library, "nvrtcGetNumSupportedArchs", &api.num_archs) &&
                        Find(library, "nvrtcGetSupportedArchs", &api.archs) &&
                        Find(library, "nvrtcCreateProgram", &api.create) &&
                        Find(library, "nvrtcDestroyProgram", &api.destroy) &&
                        Find(library, "nvrtcCompileProgram", &api.compile) &&
                        Find(library, "nvrtcGetCUBINSize", &api.cubin_size) &&
                        Find(library, "nvrtcGetCUBIN", &api.cubin) &&
                        Find(library, "nvrtcGetProgramLogSize", &api.log_size) &&
                        Find(library, "nvrtcGetProgramLog", &api.log) &&
                        Find(library, "nvrtcGetErrorString", &api.error_string);
  if (!complete) {
    return absl::UnavailableError(
        "the NVRTC of this machine is too old: CUDA 11.2 or later is wanted");
  }
  static const Nvrtc nvrtc(&api);
  return &nvrtc;
}

absl::StatusOr<const Nvrtc*> Nvrtc::Get() {
  static const auto& loaded = *new absl::StatusOr<const Nvrtc*>(Load());
  return loaded;
}

int Nvrtc::Major() const {
  int major = 0, minor = 0;
  api_->version(&major, &minor);
  return major;
}

std::string Nvrtc::Version() const {
  int major = 0, minor = 0;
  api_->version(&major, &minor);
  return absl::StrCat("NVRTC ", major, ".", minor);
}

std::string Nvrtc::Identity() const {
  Dl_info found{};
  if (dladdr(reinterpret_cast<void*>(api_->version), &found) == 0) return "";
  std::error_code no_file, no_size, no_time;
  const std::string file = std::filesystem::canonical(found.dli_fname, no_file);
  const auto size = std::filesystem::file_size(file, no_size);
  const auto time = std::filesystem::last_write_time(file, no_time).time_since_epoch().count();
  if (no_file || no_size || no_time) return "";
  return absl::StrCat(Version(), " ", file, " ", size, " ", time);
}

std::string Nvrtc::Complaint() const {
  int major = 0, minor = 0;
  const int driver = DriverMajor();
  if (driver == 0 || api_->version(&major, &minor) != 0 || major <= driver) return "";
  return absl::StrCat("the driver here knows CUDA ", driver, " and loads nothing that ", Version(),
                      " compiles: set HEDDLE_NVRTC to a libnvrtc.so of CUDA ", driver,
                      ", or install a newer driver");
}

std::vector<int> Nvrtc::Architectures() const {
  int count = 0;
  if (api_->num_archs(&count) != 0 || count <= 0) return {};
  std::vector<int> archs(static_cast<size_t>(count));
  if (api_->archs(archs.data()) != 0) return {};
  return archs;
}

absl::StatusOr<Nvrtc::Result> Nvrtc::Compile(const std::string& source,
                                             const std::vector<std::string>& options) const {
  Api::Program program = nullptr;
  int status = api_->create(&program, source.c_str(), "heddle.cu", 0, nullptr, nullptr);
  if (status != 0) {
    return absl::InternalError(absl::StrCat("NVRTC: ", api_->error_string(status)));
  }
  std::vector<const char*> words;
  for (const std::string& option : options) words.push_back(option.c_str());
  status = api_->compile(program, static_cast<int>(words.size()), words.data());
  Result result;
  size_t size = 0;
  if (api_->log_size(program, &size) == 0 && size > 1) {
    result.log.resize(size);
    api_->log(program, result.log.data());
    result.log.resize(size - 1);  // without the final zero
  }
  if (status == 0) status = api_->cubin_size(program, &size);
  if (status == 0) {
    result.cubin.resize(size);
    status = api_->cubin(program, result.cubin.data());
  }
  api_->destroy(&program);
  if (status == 0) return result;
  return absl::InternalError(
      absl::StrCat("NVRTC: ", api_->error_string(status), ": ", FirstError(result.log)));
}

}  // namespace heddle::codegen
