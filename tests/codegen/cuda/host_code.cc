#include "tests/codegen/cuda/host_code.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>

#include "compiler/codegen/cuda/prelude.h"
#include "tests/places.h"

namespace heddle::testing {

namespace {

constexpr std::string_view kPrelude = codegen::kCudaPrelude;

// Its part up to the first PTX is plain C++; the shim has the rest.
std::string_view PlainPrelude() {
  return kPrelude.substr(0, kPrelude.find("// Copies from global"));
}

void Replace(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

std::string HostSource(std::string kernels) {
  if (kernels.starts_with(kPrelude)) kernels.erase(0, kPrelude.size());
  // Dynamic shared memory is declared, not defined, in each kernel.
  Replace(kernels, "extern __shared__ __align__(1024) unsigned char h_shared[];",
          "unsigned char* const h_shared = h_dynamic;");
  std::string table;
  const std::regex kernel(R"(__global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\()");
  for (std::sregex_iterator it(kernels.begin(), kernels.end(), kernel), end; it != end; ++it) {
    const std::string name = (*it)[1];
    table += "extern \"C\" int run_" + name +
             "(void* const* arguments, const unsigned* d) {\n  return h_launch(" + name +
             ", arguments, {d[0], d[1], d[2]}, {d[3], d[4], d[5]});\n}\n";
  }
  const std::regex variable(R"(__device__ int (\w+)\[\])");
  for (std::sregex_iterator it(kernels.begin(), kernels.end(), variable), end; it != end; ++it) {
    const std::string name = (*it)[1];
    table += "extern \"C\" const unsigned long size_" + name + " = sizeof " + name + ";\n";
  }
  return "#include <cmath>\nusing namespace std;\n#define H_HOST\n#define __device__\n#define "
         "__forceinline__ "
         "inline\n" +
         std::string(PlainPrelude()) +
         "#include \"" HEDDLE_SOURCE_DIR "/tests/codegen/cuda/cuda_host_shim.h\"\n" + kernels +
         table;
}

std::string Contents(const std::string& file) {
  std::string text;
  std::ifstream in(file, std::ios::binary);
  text.assign(std::istreambuf_iterator<char>(in), {});
  return text;
}

}  // namespace

bool HasHostCompiler() { return access(HEDDLE_CXX, X_OK) == 0; }

std::string CompileForHost(const std::string& source, std::string* log) {
  std::string folder = std::filesystem::temp_directory_path() / "heddle-cuda-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) {
    *log = "no temporary folder";
    return "";
  }
  std::ofstream(folder + "/kernels.cc") << HostSource(source);
  const std::string command =
      HEDDLE_CXX " -std=c++20 -O1 -w -pthread -fPIC -shared -ffp-contract=off -o " + folder +
      "/kernels.so " + folder + "/kernels.cc 2> " + folder + "/log";
  const bool compiled = std::system(command.c_str()) == 0;
  *log = Contents(folder + "/log");
  const std::string code = compiled ? Contents(folder + "/kernels.so") : "";
  std::filesystem::remove_all(folder);
  return code;
}

void* LoadHostCode(std::string_view shared_object) {
  // A name that no other has: dlopen knows by it what is loaded.
  std::string file = std::filesystem::temp_directory_path() / "heddle-code-XXXXXX";
  const int descriptor = mkstemp(file.data());
  if (descriptor < 0) return nullptr;
  close(descriptor);
  std::ofstream(file, std::ios::binary) << shared_object;
  void* const code = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  std::filesystem::remove(file);
  if (code != nullptr) return code;
  // In a confined stage no code may lie in a file that has a name. The descriptor stays open, since its
  // number is what dlopen knows the code by.
  const int memory = memfd_create("heddle-code", MFD_CLOEXEC);
  while (!shared_object.empty()) {
    const ssize_t written = write(memory, shared_object.data(), shared_object.size());
    if (written <= 0) return nullptr;
    shared_object.remove_prefix(static_cast<size_t>(written));
  }
  return dlopen(("/proc/self/fd/" + std::to_string(memory)).c_str(), RTLD_NOW | RTLD_LOCAL);
}

HostKernel FindHostKernel(void* code, const std::string& name) {
  return reinterpret_cast<HostKernel>(dlsym(code, ("run_" + name).c_str()));
}

HostVariable FindHostVariable(void* code, const std::string& name) {
  const auto* size = static_cast<const unsigned long*>(dlsym(code, ("size_" + name).c_str()));
  if (size == nullptr) return {};
  return {dlsym(code, name.c_str()), *size};
}

}  // namespace heddle::testing
