// What libFuzzer and replay.cc call.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  heddle::fuzz::Run(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
