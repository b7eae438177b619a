/* A second library with a symbol of the first one's name. */
#include "compiler/runtime/abi.h"

void add(void* const* buffers, void* workspace, const heddle_host* host) {
  float* out = buffers[2];
  out[0] = -1;
}
