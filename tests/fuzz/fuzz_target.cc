#include "tests/fuzz/fuzz_target.h"

#include <cstdio>
#include <cstdlib>

namespace heddle::fuzz {

void Require(bool holds, std::string_view what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz target: this does not hold: %.*s\n", static_cast<int>(what.size()),
               what.data());
  std::abort();
}

unsigned TakeByte(std::string_view* input) {
  if (input->empty()) return 0;
  const auto byte = static_cast<unsigned char>(input->front());
  input->remove_prefix(1);
  return byte;
}

}  // namespace heddle::fuzz
