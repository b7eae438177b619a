/* Loads a module, fills its inputs with ones (numbers of type f32; zeros otherwise), runs it, and
 * prints the largest value of each output. Usage: run_module MODULE.heddle */
#include <heddle.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char* what) {
  fprintf(stderr, "run_module: %s: %s\n", what, heddle_last_error());
  exit(1);
}

static void* allocate(size_t bytes) {
  void* memory = calloc(bytes > 0 ? bytes : 1, 1);
  if (memory == NULL) {
    fprintf(stderr, "run_module: no memory for %zu bytes\n", bytes);
    exit(1);
  }
  return memory;
}

static void print_tensor(const heddle_tensor_info* info, const int64_t* shape) {
  printf("%s: %s", info->name, info->dtype);
  for (int32_t i = 0; i < info->rank; ++i) printf("%s%" PRId64, i == 0 ? " " : "x", shape[i]);
}

static void set_input(heddle_model* model, int32_t index) {
  heddle_tensor_info info;
  if (heddle_input_info(model, index, &info) != 0) fail("an input");
  void* data = allocate(info.bytes);
  if (strcmp(info.dtype, "f32") == 0) {
    float* values = data;
    for (size_t i = 0; i < info.bytes / sizeof(float); ++i) values[i] = 1;
  }
  if (heddle_set_input(model, index, data, info.bytes) != 0) fail(info.name);
  free(data);
  print_tensor(&info, info.shape);
  printf("\n");
}

static void print_output(heddle_model* model, int32_t index) {
  heddle_tensor_info info;
  if (heddle_output_info(model, index, &info) != 0) fail("an output");
  /* The shape of this run: outputs whose extents depend on data may be smaller than info.shape. */
  int64_t* shape = allocate((size_t)info.rank * sizeof(int64_t));
  size_t bytes = 0;
  if (heddle_output_shape(model, index, shape, &bytes) != 0) fail(info.name);
  void* data = allocate(bytes);
  if (heddle_get_output(model, index, data, bytes) != 0) fail(info.name);
  print_tensor(&info, shape);
  if (strcmp(info.dtype, "f32") == 0 && bytes > 0) {
    const float* values = data;
    size_t largest = 0;
    for (size_t i = 1; i < bytes / sizeof(float); ++i) {
      if (values[i] > values[largest]) largest = i;
    }
    printf(", the largest value %g at %zu", values[largest], largest);
  }
  printf("\n");
  free(data);
  free(shape);
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: run_module MODULE.heddle\n");
    return 2;
  }
  heddle_model* model = NULL;
  if (heddle_load(argv[1], /*threads=*/0, &model) != 0) fail(argv[1]);
  for (int32_t i = 0; i < heddle_num_inputs(model); ++i) set_input(model, i);
  if (heddle_run(model) != 0) fail("run");
  for (int32_t i = 0; i < heddle_num_outputs(model); ++i) print_output(model, i);
  heddle_free(model);
  return 0;
}
