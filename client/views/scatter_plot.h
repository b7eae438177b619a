// A scatter plot as an SVG file.
#pragma once

#include <string>
#include <vector>

namespace heddle::client {

struct PlotPoint {
  double x = 0;
  double y = 0;
  std::string group;  // decides the colour; has an entry in the legend
  std::string label;  // shown when pointed at
};

// Both axes begin at 0. Values must be finite and not negative. The points of `line` are joined by
// steps, such as a curve of the best so far; only their x and y are used.
std::string ScatterPlot(const std::string& title, const std::string& x_axis,
                        const std::string& y_axis, const std::vector<PlotPoint>& points,
                        const std::vector<PlotPoint>& line = {});

}  // namespace heddle::client
