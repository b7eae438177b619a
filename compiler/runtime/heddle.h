/* The C API of the runtime: load a module, set inputs, run, get outputs. Thread-compatible: one
 * model object is used by one thread at a time. Every function that can fail returns 0 on success,
 * else non-zero with heddle_last_error() (per thread). */
#ifndef HEDDLE_RUNTIME_HEDDLE_H_
#define HEDDLE_RUNTIME_HEDDLE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* libheddle.so exports these functions and nothing else. */
#define HEDDLE_API __attribute__((visibility("default")))

typedef struct heddle_model heddle_model;

typedef struct heddle_tensor_info {
  const char* name;
  const char* dtype; /* "f32", "i64", .. */
  const int64_t* shape;
  int32_t rank;
  size_t bytes;
} heddle_tensor_info;

HEDDLE_API const char* heddle_last_error(void);
/* threads: 0 = the number the module was tuned for. The caller frees *model with heddle_free. */
HEDDLE_API int heddle_load(const char* path, int32_t threads, heddle_model** model);
HEDDLE_API int heddle_load_memory(const void* data, size_t size, int32_t threads,
                                  heddle_model** model);
HEDDLE_API void heddle_free(heddle_model* model);
HEDDLE_API int32_t heddle_num_inputs(const heddle_model* model);
HEDDLE_API int32_t heddle_num_outputs(const heddle_model* model);
/* The strings and shapes live as long as the model. Non-zero if index is out of range. */
HEDDLE_API int heddle_input_info(const heddle_model* model, int32_t index,
                                 heddle_tensor_info* info);
HEDDLE_API int heddle_output_info(const heddle_model* model, int32_t index,
                                  heddle_tensor_info* info);
/* The names that people gave to parts of a tensor. They live as long as the model. */
typedef struct heddle_tensor_names {
  /* 1: dtype is "u8", and the last dimension holds the bytes of a text with zeros behind it; else 0. */
  int32_t text;
  /* Of the elements (or texts) of a row, a row being one index of dimension 0; none if they have no names. */
  const char* const* columns;
  int32_t num_columns;
  /* labels[k] is what the integer k stands for; none if integers stand for themselves. */
  const char* const* labels;
  int32_t num_labels;
} heddle_tensor_names;

/* Non-zero if index is out of range. */
HEDDLE_API int heddle_input_names(const heddle_model* model, int32_t index,
                                  heddle_tensor_names* names);
HEDDLE_API int heddle_output_names(const heddle_model* model, int32_t index,
                                   heddle_tensor_names* names);

/* Copies `size` bytes into input `index`; `size` must be the size of the tensor. */
HEDDLE_API int heddle_set_input(heddle_model* model, int32_t index, const void* data, size_t size);
/* Without a copy: heddle_run reads input `index` from `data`, or writes output `index` to it. `data` is dense
 * row-major memory at a multiple of 64 bytes; `size` must be the size of the tensor, as heddle_input_info or
 * heddle_output_info tells it. The memory must live, and outputs must overlap no other tensor, until it is
 * given back: by NULL in place of `data`, or by heddle_set_input or heddle_run_rows. Non-zero if the memory
 * is not aligned, or the module runs on a GPU: then copies are the way. */
HEDDLE_API int heddle_bind_input(heddle_model* model, int32_t index, const void* data, size_t size);
HEDDLE_API int heddle_bind_output(heddle_model* model, int32_t index, void* data, size_t size);
HEDDLE_API int heddle_run(heddle_model* model);
/* Some outputs have extents that depend on data, such as the number of objects that were found.
 * heddle_output_info then tells the largest possible shape. After a run, this function tells the
 * shape that the output has: it writes `rank` extents to `shape`, and the size to *bytes. For other
 * outputs it tells the same as heddle_output_info. */
HEDDLE_API int heddle_output_shape(const heddle_model* model, int32_t index, int64_t* shape,
                                   size_t* bytes);
/* Copies output `index` to `data`, densely; `size` must be the size of the tensor, as
 * heddle_output_shape tells it. */
HEDDLE_API int heddle_get_output(const heddle_model* model, int32_t index, void* data, size_t size);

/* Any number of rows. In some models, such as decision trees, dimension 0 of all inputs and outputs
 * counts rows, and what an output has for a row depends on no other row. heddle_input_info and
 * heddle_output_info then tell the largest block of rows that the module computes at once. */

/* 1 if the rows of the model are independent, so that heddle_run_rows may be called; else 0. */
HEDDLE_API int32_t heddle_rows_are_independent(const heddle_model* model);
/* Runs the model on `rows` rows, in blocks of the sizes that the module was made for. inputs[i] has
 * the rows of input i, densely, and outputs[i] gets those of output i; an output that is NULL is not
 * copied. Outputs must not overlap inputs. A row of a tensor has bytes / shape[0] bytes, of its
 * heddle_tensor_info. The function replaces heddle_set_input, heddle_run and heddle_get_output,
 * whose tensors it overwrites; heddle_output_shape tells the largest block afterwards. For 0 rows it
 * does nothing, and the arrays may be NULL. */
HEDDLE_API int heddle_run_rows(heddle_model* model, int64_t rows, const void* const* inputs,
                               void* const* outputs);

#ifdef __cplusplus
}
#endif
#endif /* HEDDLE_RUNTIME_HEDDLE_H_ */
