// Charts as SVG: a file of its own, or a part of a page.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::views {

enum class SvgUse {
  kFile,  // on a white ground
  kPage,  // in the colours of the text around it, so that it fits a dark page, too
};

struct PlotPoint {
  double x = 0;
  double y = 0;
  std::string group{};  // decides the colour; has an entry in the legend
  std::string label{};  // shown when pointed at; empty: nothing
};

// Both axes begin at 0. Values must be finite and not negative. The points of `line` are joined by
// steps, such as a curve of the best so far; only their x and y are used. Either may be empty.
std::string ScatterPlot(const std::string& title, const std::string& x_axis,
                        const std::string& y_axis, const std::vector<PlotPoint>& points,
                        const std::vector<PlotPoint>& line = {}, SvgUse use = SvgUse::kFile);

// The roofline (Williams, Waterman and Patterson, 2009): how fast a machine can be at most, by the
// operations that a kernel does for each byte that it moves. x is FLOP per byte, y is GFLOP/s; both axes
// are logarithmic, so points with an x or y of 0 are left out. `peak_gflops` and `memory_gbps` (10^9
// bytes a second) are finite and positive.
std::string RooflineChart(const std::string& title, double peak_gflops, double memory_gbps,
                          const std::vector<PlotPoint>& points, SvgUse use = SvgUse::kFile);

struct ChartBar {
  std::string name;
  double value = 0;   // finite and not negative
  std::string words;  // behind the bar
};
// Bars from 0, one below the other; those after the 64th are left out, and a line says so.
std::string BarChart(const std::string& title, const std::vector<ChartBar>& bars,
                     SvgUse use = SvgUse::kFile);

struct ChartSpan {
  int64_t begin_unix_ns = 0;
  int64_t end_unix_ns = 0;
  std::string group;  // decides the colour; has an entry in the legend
  std::string label;  // shown when pointed at
};
struct ChartRow {
  std::string name;
  std::vector<ChartSpan> spans;  // in the order of their begins
};
// Rows of spans over a common time, which has begin < end. What lies outside is cut off. Where there are
// more than 2000 spans, each row is drawn in cells, in the colour of the group that has most of a cell.
// Rows after the 64th are left out, and a line says so. So the chart has at most 0.3 MB.
std::string TimelineChart(const std::string& title, const std::vector<ChartRow>& rows,
                          int64_t begin_unix_ns, int64_t end_unix_ns, SvgUse use = SvgUse::kFile);

}  // namespace heddle::views
