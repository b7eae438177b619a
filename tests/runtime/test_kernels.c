/* Kernels as a code generator would emit them, for tests of the runtime alone. */
#include "compiler/runtime/abi.h"

enum { kLength = 1000 };

/* out = a + b over kLength floats */
void add(void* const* buffers, void* workspace, const heddle_host* host) {
  const float* a = buffers[0];
  const float* b = buffers[1];
  float* out = buffers[2];
  for (int i = 0; i < kLength; ++i) out[i] = a[i] + b[i];
}

struct closure {
  const float* in;
  float* out;
};

static void square_range(void* data, int64_t begin, int64_t end, int32_t worker) {
  const struct closure* c = data;
  for (int64_t i = begin; i < end; ++i) c->out[i] = c->in[i] * c->in[i];
}

/* out = in * in in a parallel loop, by way of the workspace */
void square(void* const* buffers, void* workspace, const heddle_host* host) {
  struct closure c = {buffers[0], workspace};
  host->parallel_for(host, kLength, square_range, &c);
  float* out = buffers[1];
  const float* squares = workspace;
  for (int i = 0; i < kLength; ++i) out[i] = squares[i];
}

/* For blocks of `rows` rows of x, f32[rows, 4]: sum[r] = p[0] + the sum of row r, size[r] = rows. */
static void row_sums(void* const* buffers, int rows) {
  const float* x = buffers[0];
  const float* p = buffers[1];
  float* sum = buffers[2];
  float* size = buffers[3];
  for (int r = 0; r < rows; ++r) {
    sum[r] = p[0] + x[4 * r] + x[4 * r + 1] + x[4 * r + 2] + x[4 * r + 3];
    size[r] = (float)rows;
  }
}

void row_sums_65536(void* const* buffers, void* workspace, const heddle_host* host) {
  row_sums(buffers, 65536);
}
void row_sums_8(void* const* buffers, void* workspace, const heddle_host* host) {
  row_sums(buffers, 8);
}
void row_sums_3(void* const* buffers, void* workspace, const heddle_host* host) {
  row_sums(buffers, 3);
}
void row_sums_1(void* const* buffers, void* workspace, const heddle_host* host) {
  row_sums(buffers, 1);
}
