// How fast the code that this compiler generates is, relative to the machine it runs on.
//
// The figures were fitted to times of our own kernels on the reference machine (core_speed.h).
// They change when schedules or code generation improve, while those of core_speed.h change with
// the machine only.
#pragma once

#include <cstdint>

namespace heddle::machine {

// Costs of a register tile beside its arithmetic and its bandwidth. Fitted to times of tiles that
// were measured in turns. The explanations are plausible; no hardware counter has confirmed them.
// Read by schedule/rules/tile_cost.cc unless a comment names another reader.
struct TileFit {
  // Cycles that an instruction costs in addition to what bounds the tile. They would be 0 on a core
  // that is alone, but a core may share its issue slots with another thread. Measured (C1): 28
  // multiply-adds that load their scalars themselves took as long as 14 pairs, each after a
  // broadcast, while a loop of multiply-adds reached its peak. They were 1.16 times faster while
  // that loop reached 60 to 80 % of its peak.
  double instruction_cycles = 0.16;
  // Instructions that count and branch in one iteration of a loop.
  double loop_instructions = 3;
  // Instructions in a step for each register that is missing: its value is stored and loaded again.
  int64_t spill_instructions = 4;
  // Cycles for each byte that is not in the first-level cache, in addition to its bandwidth.
  // Scalars come from many places at a time, which hardware prefetching does not follow; vectors of
  // one panel come in order.
  double scalar_byte_cycles = 0.03;
  double streamed_byte_cycles = 0.005;
  // Cycles in a step for each page that its scalars lie in: hardware prefetching follows few pages.
  double page_cycles = 0.08;
  // Cycles for each line of the result that is written without its neighbour: lines come in pairs.
  double lone_line_cycles = 5;
  // Factors on the time of a whole tile. Each further row adds guarded loads at a corner of the
  // border.
  double guarded_row = 1.015;
  // The last tile along an axis is smaller than the others and becomes a loop of its own.
  double row_guard = 1.02;
  // Vector lanes behind a condition are masked in every load; an operand that is packed ahead of
  // time has zeros there instead.
  double lane_guard = 1.5;
  double packed_lane_guard = 1.02;
  // Most multiply-adds of an unrolled tile: more do not fit the first-level instruction cache.
  // Bounds the space (schedule/rules/tile_decisions.cc), as do the next two.
  int64_t unrolled_multiply_adds = 1024;
  // Most steps of a reduction block. With four vectors of 64 bytes a step they make 16 KiB, which
  // leaves room in the first-level cache.
  int64_t block_steps = 64;
  // The same if the whole result stays in the second-level cache: a panel of about 100 KiB.
  int64_t long_block_steps = 512;
  // Least size in bytes of a constant that is worth packing. Smaller ones stay in the first-level
  // cache in any layout.
  int64_t packed_bytes = 16 << 10;
};

// When a convolution takes Winograd's form F(m x m, 3 x 3) by default. Read by
// schedule/rules/form_choice.cc.
struct WinogradFit {
  // Least number of input and output channels: with fewer, too little work shares a transformed
  // tile. F(2) gains less and needs more channels.
  double channels = 32;
  double channels_of_2 = 128;
  // Least number of tiles of the image: the form reads several times the weights of the direct one,
  // and the tiles share them.
  int64_t tiles = 16;
  // How many times faster the products must be according to the estimate, which does not count the
  // transforms.
  double gain = 1.2;
};

// How fast default schedules are relative to GraphSpeed, by operator and layout. Medians over the
// kernels of the zoo's convolutional networks, each compiled in both layouts. Read by
// graph/layout/layout_costs.cc.
struct LayoutFit {
  // Share of the peak when vectors are full, channels first and channels last.
  struct Share {
    double first, last;
  };
  Share convolution = {0.33, 0.85};
  Share transposed = {0.08, 0.6};
  Share depthwise = {0.17, 0.35};
  // With channels first, vector lanes gather their pixels.
  Share strided_depthwise = {0.04, 0.35};
  // Time in a blocked layout over time with channels last: of a 1 x 1 convolution with strides;
  // with several threads (0 to 9 %, mobilenet_v2); of a window, which needs padding more often; and
  // of a 3 x 3 convolution with stride one that has Winograd's form with channels last.
  double blocked_strided_pixels = 1.3;
  double blocked_threads = 1.05;
  double blocked_window = 1.08;
  double blocked_without_winograd = 2.2;
  // Share of its time that a depthwise convolution saves in a blocked layout if its images fit the
  // second-level cache. There a strip is one piece of memory. With channels last, pixels are apart
  // by all channels and often fall into few sets of a cache (1.1 to 1.5 times slower).
  double blocked_depthwise_gain = 0.17;
  // Time of pooling with channels first over channels last: windows along a row do not fill
  // vectors.
  double pool_of_planes = 2.2;
  // Share of the speed that is left if the last register is not full and needs masks.
  double masked = 0.7;
  // Share of the rates at which a core reads memory in order (from beyond the second-level cache,
  // and from within) that operators reach, which also write: GraphSpeed over CoreSpeed on the
  // reference machine. Read where GraphSpeed is made from a measured machine.
  double far_share = 0.85;
  double near_share = 0.6;
  // Bytes that a separate kernel moves between caches, which it would not if it were fused. Read
  // there, too.
  double kernel_bytes = 40e3;
};

// Limits of prefetching. Read by the passes prefetch_ahead and prefetch_epilogue.
struct FetchFit {
  // Lines requested at once. More fill the queue of outstanding loads, and too little is computed
  // with each line to hide the wait. Also read by the tile cost.
  int64_t lines_at_once = 4;
  // Size of a panel of weights that is prefetched while the one before is used. Hardware
  // prefetching finds smaller ones itself; two larger ones do not fit a second-level cache.
  int64_t min_panel_bytes = 8 << 10;
  int64_t max_panel_bytes = 1 << 20;
  // Least size in bytes of a buffer of an epilogue; smaller ones stay in a cache by themselves.
  int64_t min_epilogue_bytes = 64 << 10;
  // Most lines for one tile of an epilogue; more evict what the reduction needs.
  int64_t max_epilogue_lines = 128;
};

// What the search's prior assumes about the generated code. Typical figures suffice, because only
// the order of candidates matters. Read by cost_model/features/estimate.cc.
struct PriorFit {
  // exp and other functions take the time of this many operations.
  double special_operations = 40;
  // Instructions at the end of one iteration of a loop.
  double loop_instructions = 2;
  // Registers that a tile needs beside its accumulators.
  double working_registers = 2;
};

struct CodeSpeed {
  TileFit tile;
  WinogradFit winograd;
  LayoutFit layout;
  FetchFit fetch;
  PriorFit prior;
};

}  // namespace heddle::machine
