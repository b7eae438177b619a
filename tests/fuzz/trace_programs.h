// The programs on which the target trace_text.cc replays traces, and for which write_seeds.cc makes them.
#pragma once

#include <string_view>

namespace heddle::fuzz {

inline constexpr std::string_view kTracePrograms[] = {R"(
program dense(x: f32[8, 12], w: f32[12, 16] const, b: f32[16]) -> (out: f32[8, 16]) {
  alloc c_buf: f32[8, 16] global {
    for i in 8 { for j in 16 { for k in 12 {
      block c(vi < 8 spatial = i, vj < 16 spatial = j, vk < 12 reduce = k) sum init 0.0 {
        c_buf[vi, vj] = (x[vi, vk] * w[vk, vj])
      } } } }
    for i1 in 8 { for j1 in 16 {
      block y(vi1 < 8 spatial = i1, vj1 < 16 spatial = j1) {
        out[vi1, vj1] = max((c_buf[vi1, vj1] + b[vj1]), 0.0)
      } } }
  }
})",
                                                      R"(
program conv(x: f32[1, 4, 8, 8], w: f32[8, 4, 3, 3] const) -> (out: f32[1, 8, 8, 8]) {
  alloc p_buf: f32[1, 4, 10, 10] global {
    for a in 4 { for h in 10 { for v in 10 {
      block p(va < 4 spatial = a, vh < 10 spatial = h, vv < 10 spatial = v) {
        p_buf[0, va, vh, vv] = select(((((1 <= vh) && (vh < 9)) && (1 <= vv)) && (vv < 9)), x[0, va, (vh - 1), (vv - 1)], 0.0)
      } } } }
    for o in 8 { for i in 8 { for j in 8 { for c in 4 { for r in 3 { for s in 3 {
      block y(vo < 8 spatial = o, vi < 8 spatial = i, vj < 8 spatial = j, vc < 4 reduce = c, vr < 3 reduce = r, vs < 3 reduce = s) sum init 0.0 {
        out[0, vo, vi, vj] = (p_buf[0, vc, (vi + vr), (vj + vs)] * w[vo, vc, vr, vs])
      } } } } } } }
  }
})"};

}  // namespace heddle::fuzz
