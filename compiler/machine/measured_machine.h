// What was measured on a device: how fast its cores compute and move data. measure/measure_machine.h
// makes it. Workers keep it, and send it with their slots; a job uses one for all its stages.
//
// It is text on its way, one line for each figure, in any order:
//
//   machine 1                 the version of the format
//   cores 2                   the cores that were measured together
//   l1_bytes 32768
//   ...
//   clock_ghz 3.69
//
// Figures have six significant digits, so that a value and its text say the same.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/machine/target_info.h"

namespace heddle::machine {

// The version of the text, and of how the figures are measured. What was measured by another version
// is measured again.
inline constexpr int kMeasuredVersion = 1;

struct MeasuredMachine {
  // ---- Stated by the operating system ----

  int64_t cores = 1;     // those that the figures of several cores are about
  int64_t l1_bytes = 0;  // data cache of a core
  int64_t l2_bytes = 0;
  int64_t l3_bytes = 0;  // 0: there is none, or nobody says so

  // ---- One core, while the others are idle. Rates are in 10^9 a second ----

  double clock_ghz = 0;        // integer additions, each of which waits for the one before
  double gflops = 0;           // f32; multiply-adds of whole vectors count twice a lane
  double multiply_add_ns = 0;  // from a multiply-add to the next one on the same accumulator
  // Bytes that are read in order, by where they lie.
  double l1_gbps = 0;
  double l2_gbps = 0;
  double l3_gbps = 0;
  double memory_gbps = 0;
  double store_gbps = 0;       // bytes written to the first-level cache
  double gathered_per_ns = 0;  // f32 read from there if the lanes of a vector are apart
  double call_ns = 0;          // a kernel that does next to nothing

  // ---- All `cores` at the same time, together ----

  double all_gflops = 0;
  double all_l3_gbps = 0;
  double all_memory_gbps = 0;
  // A parallel loop that does next to nothing, beyond `call_ns`; next to nothing with one core.
  double wake_ns = 0;

  bool operator==(const MeasuredMachine&) const = default;
};

std::string ToText(const MeasuredMachine& machine);
// InvalidArgument, naming the line: a figure is missing, unknown, given twice, not a number or out
// of bounds, or the text is of another version. The text may come from anywhere.
absl::StatusOr<MeasuredMachine> ParseMeasuredMachine(std::string_view text);
// One short line for people: "3.7 GHz, 118 GFLOP/s a core (236 with 2), ...".
std::string Summary(const MeasuredMachine& machine);

// Puts what was measured into the description of a CPU. The figures of one core count, or its share
// of those of all cores if the target has several threads. Nothing else in `info` changes.
void PutMeasured(const MeasuredMachine& machine, TargetInfo* info);

}  // namespace heddle::machine
