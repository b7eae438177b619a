/* The calling convention between generated kernels and the runtime. Plain C. */
#ifndef HEDDLE_RUNTIME_ABI_H_
#define HEDDLE_RUNTIME_ABI_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The body of a parallel loop: runs iterations [begin, end). `worker` < num_workers tells
 * concurrent calls apart. */
typedef void (*heddle_parallel_body)(void* closure, int64_t begin, int64_t end, int32_t worker);

/* What a kernel needs from its host. Kernels have no other undefined symbol than libm's and
 * memcpy, memmove and memset. */
typedef struct heddle_host {
  int32_t num_workers; /* concurrency of parallel_for, >= 1. Beyond the target's -threads, loops
                          whose iterations need memory of their own run on one worker. */
  /* Runs body over [0, n), cut into ranges that workers take one after the other; returns when all
   * are done. */
  void (*parallel_for)(const struct heddle_host* host, int64_t n, heddle_parallel_body body,
                       void* closure);
  void* context; /* the host's own */
} heddle_host;

/* buffers: inputs, then outputs, each 64-byte aligned. workspace: KernelInfo.workspace_bytes,
 * 64-byte aligned; it may not be shared by two calls at a time. Kernels never fail. */
typedef void (*heddle_kernel)(void* const* buffers, void* workspace, const heddle_host* host);

#ifdef __cplusplus
}
#endif
#endif /* HEDDLE_RUNTIME_ABI_H_ */
