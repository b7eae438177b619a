// NVRTC without CUDA, for tests of everything from a workload to a measured result: what it
// compiles is code for this CPU (host_code.h), which the fake driver runs
// (tests/runtime/fake_cuda.h). Loaded in place of libnvrtc.so (HEDDLE_NVRTC). Its report of
// registers is made up.
#include <atomic>
#include <cstring>
#include <regex>
#include <string>

#include "tests/codegen/cuda/host_code.h"
#include "tests/runtime/fake_cuda.h"

namespace {

struct Program {
  std::string source, log, cubin;
};

std::atomic<int> compilations = 0;

Program& At(void* program) { return *static_cast<Program*>(program); }

// As the assembler's (-v).
std::string Report(const std::string& source) {
  std::string report;
  const std::regex kernel(R"(__global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\()");
  for (std::sregex_iterator it(source.begin(), source.end(), kernel), end; it != end; ++it) {
    report += "ptxas info    : Compiling entry function '" + std::string((*it)[1]) +
              "' for 'sm_90'\n    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
              "ptxas info    : Used 32 registers\n";
  }
  return report;
}

}  // namespace

extern "C" {

int fake_nvrtc_compilations() { return compilations; }

int nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return 0;
}
int nvrtcGetNumSupportedArchs(int* count) {
  *count = 2;
  return 0;
}
int nvrtcGetSupportedArchs(int* archs) {
  archs[0] = 80;
  archs[1] = 90;
  return 0;
}
int nvrtcCreateProgram(void** program, const char* source, const char*, int, const char* const*,
                       const char* const*) {
  *program = new Program{source, {}, {}};
  return 0;
}
int nvrtcDestroyProgram(void** program) {
  delete &At(*program);
  *program = nullptr;
  return 0;
}
int nvrtcCompileProgram(void* program, int, const char* const*) {
  Program& p = At(program);
  ++compilations;
  const std::string code = heddle::testing::CompileForHost(p.source, &p.log);
  if (code.empty()) return 6;  // NVRTC_ERROR_COMPILATION
  p.log = Report(p.source);
  p.cubin = heddle::test::FakeCubin(code);
  return 0;
}
int nvrtcGetCUBINSize(void* program, size_t* size) {
  *size = At(program).cubin.size();
  return 0;
}
int nvrtcGetCUBIN(void* program, char* cubin) {
  std::memcpy(cubin, At(program).cubin.data(), At(program).cubin.size());
  return 0;
}
int nvrtcGetProgramLogSize(void* program, size_t* size) {
  *size = At(program).log.size() + 1;
  return 0;
}
int nvrtcGetProgramLog(void* program, char* log) {
  std::memcpy(log, At(program).log.c_str(), At(program).log.size() + 1);
  return 0;
}
const char* nvrtcGetErrorString(int error) {
  return error == 6 ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR";
}

}  // extern "C"
