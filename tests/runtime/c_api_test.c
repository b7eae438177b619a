/* A deploying program in plain C: loads the modules of test_module.h by libheddle.so and checks what
 * they compute. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/runtime/heddle.h"

enum { kLength = 1000 };

#define CHECK(condition)                                                                      \
  do {                                                                                        \
    if (!(condition)) {                                                                       \
      fprintf(stderr, "line %d: %s failed: %s\n", __LINE__, #condition, heddle_last_error()); \
      exit(1);                                                                                \
    }                                                                                         \
  } while (0)

static void check_errors(heddle_model* model) {
  heddle_tensor_info info;
  float value = 0;
  CHECK(heddle_input_info(model, 1, &info) != 0);
  CHECK(strstr(heddle_last_error(), "no input 1: the model has 1") != NULL);
  CHECK(heddle_output_info(model, -1, &info) != 0);
  CHECK(heddle_set_input(model, 0, &value, sizeof(value)) != 0);
  CHECK(strstr(heddle_last_error(), "'a' has 4000 bytes, not 4") != NULL);
  CHECK(heddle_get_output(model, 0, &value, sizeof(value)) != 0);
  heddle_model* none = NULL;
  CHECK(heddle_load("/nonexistent", 0, &none) != 0 && none == NULL);
  CHECK(heddle_load_memory("HEDDLE02", 8, 0, &none) != 0 && none == NULL);
  CHECK(strstr(heddle_last_error(), "truncated") != NULL);
}

/* Any number of rows of a module with blocks of 8, 3 and 1. */
static void check_rows(const char* path) {
  enum { kMost = 50 };
  heddle_model* model = NULL;
  float x[kMost][4], sum[kMost + 1], size[kMost];
  const void* inputs[1] = {x};
  void* outputs[2] = {sum, size};
  void* only_sum[2] = {sum, NULL};
  const void* none[1] = {NULL};
  int64_t shape[1];
  size_t bytes = 0;
  heddle_tensor_info info;
  CHECK(heddle_load(path, 1, &model) == 0);
  CHECK(heddle_rows_are_independent(model) == 1);
  CHECK(heddle_input_info(model, 0, &info) == 0);
  CHECK(info.shape[0] == 8 && info.bytes / (size_t)info.shape[0] == sizeof(x[0]));
  for (int r = 0; r < kMost; ++r) {
    for (int c = 0; c < 4; ++c) x[r][c] = (float)(r * 7 + c);
  }
  for (int rows = 0; rows <= kMost; ++rows) {
    memset(sum, 0, sizeof(sum));
    CHECK(heddle_run_rows(model, rows, inputs, rows % 2 == 0 ? outputs : only_sum) == 0);
    for (int r = 0; r < rows; ++r) CHECK(sum[r] == 106.0f + 28.0f * (float)r);
    CHECK(sum[rows] == 0);
  }
  CHECK(heddle_run_rows(model, kMost, inputs, outputs) == 0);
  /* 50 is six times 8, and 2 are left: a block of 3 is filled by more than half. */
  CHECK(size[0] == 8 && size[47] == 8 && size[48] == 3 && size[49] == 3);
  CHECK(heddle_output_shape(model, 0, shape, &bytes) == 0);
  CHECK(shape[0] == 8 && bytes == 8 * sizeof(sum[0]));
  CHECK(heddle_run_rows(model, -1, inputs, outputs) != 0);
  CHECK(strstr(heddle_last_error(), "-1 rows: the number of rows must be between 0 and") != NULL);
  CHECK(heddle_run_rows(model, INT64_MAX, inputs, outputs) != 0);
  CHECK(heddle_run_rows(model, 1, none, outputs) != 0);
  CHECK(strstr(heddle_last_error(), "input 'x' is null") != NULL);
  CHECK(heddle_run_rows(model, 1, NULL, outputs) != 0);
  CHECK(strstr(heddle_last_error(), "the array of inputs is null") != NULL);
  CHECK(heddle_run_rows(model, 1, inputs, NULL) != 0);
  CHECK(strstr(heddle_last_error(), "the array of outputs is null") != NULL);
  CHECK(heddle_run_rows(model, 0, NULL, NULL) == 0);
  /* The fixed form of the same model runs its largest block. */
  CHECK(heddle_set_input(model, 0, x, 8 * sizeof(x[0])) == 0);
  CHECK(heddle_run(model) == 0);
  CHECK(heddle_get_output(model, 0, sum, 8 * sizeof(sum[0])) == 0);
  for (int r = 0; r < 8; ++r) CHECK(sum[r] == 106.0f + 28.0f * (float)r);
  heddle_free(model);
}

/* Tensors that stay where they are: what stands behind the pointer counts, until it is given back. */
static void check_bound(heddle_model* model) {
  static float own[kLength];
  static float memory[2 * kLength + 64] __attribute__((aligned(64)));
  float* in = memory;
  float* out = memory + 1024; /* a multiple of 64 bytes behind */
  const size_t size = sizeof(own);
  for (int i = 0; i < kLength; ++i) own[i] = 1;
  CHECK(heddle_set_input(model, 0, own, size) == 0);
  CHECK(heddle_bind_input(model, 0, in, size) == 0);
  CHECK(heddle_bind_output(model, 0, out, size) == 0);
  for (int run = 0; run < 2; ++run) {
    for (int i = 0; i < kLength; ++i) in[i] = (float)(run + i % 3);
    CHECK(heddle_run(model) == 0);
    for (int i = 0; i < kLength; ++i) {
      const float sum = in[i] + 0.25f * (float)i;
      CHECK(out[i] == sum * sum);
    }
  }
  CHECK(heddle_get_output(model, 0, own, size) == 0);
  CHECK(memcmp(own, out, size) == 0);
  CHECK(heddle_bind_input(model, 0, in + 1, size) != 0);
  CHECK(strstr(heddle_last_error(), "'a' must lie at a multiple of 64 bytes") != NULL);
  CHECK(heddle_bind_output(model, 0, out + 4, size) != 0);
  CHECK(heddle_bind_input(model, 0, in, size - 4) != 0);
  CHECK(strstr(heddle_last_error(), "'a' has 4000 bytes, not 3996") != NULL);
  CHECK(heddle_bind_input(model, 1, in, size) != 0);
  CHECK(heddle_bind_output(model, 1, out, size) != 0);
  /* Given back: the memory is neither read nor written any more. */
  CHECK(heddle_bind_input(model, 0, NULL, 0) == 0 && heddle_bind_output(model, 0, NULL, 0) == 0);
  memset(memory, 0, sizeof(memory));
  CHECK(heddle_run(model) == 0);
  CHECK(heddle_get_output(model, 0, own, size) == 0);
  for (int i = 0; i < kLength; ++i) {
    const float sum = 1 + 0.25f * (float)i; /* what was set before the input was bound */
    CHECK(own[i] == sum * sum && out[i] == 0);
  }
}

/* Binding ends with heddle_run_rows, which has memory of its own. */
static void check_bound_rows(const char* path) {
  static float x[8][4] __attribute__((aligned(64)));
  static float bound_sum[16] __attribute__((aligned(64)));
  float sum[8];
  const void* inputs[1] = {x};
  void* outputs[2] = {sum, NULL};
  heddle_model* model = NULL;
  CHECK(heddle_load(path, 1, &model) == 0);
  CHECK(heddle_bind_input(model, 0, x, sizeof(x)) == 0);
  CHECK(heddle_bind_output(model, 0, bound_sum, 8 * sizeof(float)) == 0);
  CHECK(heddle_run(model) == 0 && bound_sum[7] == 100);
  bound_sum[7] = 0;
  x[7][0] = 5;
  CHECK(heddle_run_rows(model, 8, inputs, outputs) == 0);
  CHECK(sum[7] == 105 && bound_sum[7] == 0 && x[7][0] == 5);
  heddle_free(model);
}

static void check_names(const heddle_model* model, const char* rows_path) {
  heddle_tensor_names names;
  heddle_model* rows = NULL;
  CHECK(heddle_input_names(model, 0, &names) == 0);
  CHECK(names.text == 0 && names.num_columns == 0 && names.num_labels == 0);
  CHECK(heddle_input_names(model, 1, &names) != 0 && heddle_output_names(model, -1, &names) != 0);
  CHECK(heddle_load(rows_path, 1, &rows) == 0);
  CHECK(heddle_input_names(rows, 0, &names) == 0);
  CHECK(names.num_columns == 4 && strcmp(names.columns[3], "width") == 0);
  CHECK(heddle_output_names(rows, 0, &names) == 0);
  CHECK(names.num_columns == 0 && names.num_labels == 0);
  heddle_free(rows);
}

int main(int argc, char** argv) {
  heddle_model* model = NULL;
  CHECK(argc == 3);
  check_rows(argv[2]);
  CHECK(heddle_load(argv[1], 2, &model) == 0);
  CHECK(heddle_num_inputs(model) == 1 && heddle_num_outputs(model) == 1);
  heddle_tensor_info info;
  CHECK(heddle_input_info(model, 0, &info) == 0);
  CHECK(strcmp(info.name, "a") == 0 && strcmp(info.dtype, "f32") == 0 && info.rank == 2);
  CHECK(info.shape[0] == 10 && info.shape[1] == 100 && info.bytes == 4 * kLength);

  float in[kLength];
  float out[kLength];
  for (int i = 0; i < kLength; ++i) in[i] = (float)(i % 5);
  CHECK(heddle_set_input(model, 0, in, sizeof(in)) == 0);
  CHECK(heddle_run(model) == 0);
  int64_t shape[2];
  size_t bytes = 0;
  CHECK(heddle_output_shape(model, 0, shape, &bytes) == 0);
  CHECK(shape[0] == 10 && shape[1] == 100 && bytes == sizeof(out));
  CHECK(heddle_output_shape(model, 1, shape, &bytes) != 0);
  CHECK(heddle_get_output(model, 0, out, sizeof(out)) == 0);
  for (int i = 0; i < kLength; ++i) {
    const float sum = in[i] + 0.25f * (float)i;
    CHECK(out[i] == sum * sum);
  }
  check_bound(model);
  check_bound_rows(argv[2]);
  check_names(model, argv[2]);
  check_errors(model);
  CHECK(heddle_rows_are_independent(model) == 0);
  CHECK(heddle_run_rows(model, 10, NULL, NULL) != 0);
  CHECK(strstr(heddle_last_error(), "depend on each other") != NULL);
  heddle_free(model);
  heddle_free(NULL);
  return 0;
}
