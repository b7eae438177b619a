// A scatter plot as an SVG file: for people who would rather see than read.
#pragma once

#include <string>
#include <vector>

namespace heddle::client {

struct PlotPoint {
  double x = 0;
  double y = 0;
  std::string group;  // gives the colour and an entry of the legend
  std::string label;  // shown when pointed at
};

// Both axes begin at 0. Values must be finite and not negative. `line`: points joined by steps, as
// a curve of the best so far is; of these only x and y count.
std::string ScatterPlot(const std::string& title, const std::string& x_axis,
                        const std::string& y_axis, const std::vector<PlotPoint>& points,
                        const std::vector<PlotPoint>& line = {});

}  // namespace heddle::client
