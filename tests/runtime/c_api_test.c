/* A deploying program in plain C: loads the module of test_module.h by libheddle.so and checks what
 * it computes. */
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

int main(int argc, char** argv) {
  heddle_model* model = NULL;
  CHECK(argc == 2);
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
  check_errors(model);
  heddle_free(model);
  heddle_free(NULL);
  return 0;
}
