// What a stage may touch, by its kind.
//
//   all kinds         libraries of the system and of the GPUs' driver, what the kernel says of CPUs
//                     and load, /dev/null and /dev/urandom; the stage's own folder: its blobs to
//                     read, its `tmp` to write
//   all but profile   compilers for GPUs (CUDA_HOME, VIRTUAL_ENV), and the job's folder of compiled
//     and compare     code (HEDDLE_CODE_CACHE) to write
//   on a GPU          the devices of the driver, and what the kernel says of them; the files of the
//                     process's own threads to write, in which the driver names them
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/worker.pb.h"
#include "worker/confine/paths.h"

namespace heddle::worker::confine {

// The folders in a stage's own folder, which is its working directory (stage_folder.h).
inline constexpr char kPrivateFolder[] = "tmp";
inline constexpr char kBlobFolder[] = "blobs";
inline constexpr char kRootFolder[] = "root";  // stays empty; the place of the view's root

struct Policy {
  std::string folder;  // the stage's own
  std::vector<PathRule> paths;
  bool gpu = false;  // it calls the driver of a GPU
};

// For a process whose environment is that of a stage, in the stage's own folder.
Policy PolicyOf(const v1::StageStart& start, const std::string& folder);

// The GPU that the stage runs on, "cuda:0"; empty: none.
std::string DeviceOf(const v1::StageStart& start);

// Bytes that the files of a stage may have together. More only for stages with the parts of a model:
// they keep weights in the form that a kernel wants, which may be padded.
int64_t MaxFileBytes(const v1::StageStart& start);

// Files that a stage may have open, and threads that it may have on so many cores. A driver of a GPU
// opens some for each device; a pool of threads has one for each core, and there are a few pools.
int MaxOpenFiles(bool gpu);
int MaxThreads(int cores);

// The variables of the worker's environment that its stages get, by name.
const std::vector<std::string>& PassedVariables();

// The variables that the worker sets for every stage, "NAME=value". `code_folder` holds the compiled
// code of the stage's job; empty: the stage keeps none.
std::vector<std::string> StageVariables(const std::string& code_folder);

}  // namespace heddle::worker::confine
