#include "client/views/scatter_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace heddle::client {
namespace {

constexpr double kWidth = 760;
constexpr double kHeight = 440;
constexpr double kLeft = 70;
constexpr double kRight = 170;  // width of the legend
constexpr double kTop = 56;
constexpr double kBottom = 50;
constexpr int kTicks = 5;
// Distinguishable also for people with red-green colour blindness.
constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                    "#e69f00", "#56b4e9", "#000000", "#999999"};

std::string Escape(const std::string& text) {
  std::string escaped;
  for (char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

// A tick distance of 1, 2 or 5 times a power of ten, so that about kTicks ticks reach `most`.
double TickStep(double most) {
  const double rough = most / kTicks;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

}  // namespace

std::string ScatterPlot(const std::string& title, const std::string& x_axis,
                        const std::string& y_axis, const std::vector<PlotPoint>& points,
                        const std::vector<PlotPoint>& steps) {
  double most_x = 0;
  double most_y = 0;
  std::vector<std::string> groups;
  for (const PlotPoint& point : points) {
    most_x = std::max(most_x, point.x);
    most_y = std::max(most_y, point.y);
    if (std::find(groups.begin(), groups.end(), point.group) == groups.end())
      groups.push_back(point.group);
  }
  const double step_x = TickStep(most_x > 0 ? most_x : 1);
  const double step_y = TickStep(most_y > 0 ? most_y : 1);
  const double end_x = step_x * std::max(1.0, std::ceil(most_x / step_x));
  const double end_y = step_y * std::max(1.0, std::ceil(most_y / step_y));
  const auto at_x = [&](double x) { return kLeft + x / end_x * (kWidth - kLeft - kRight); };
  const auto at_y = [&](double y) {
    return kHeight - kBottom - y / end_y * (kHeight - kTop - kBottom);
  };
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      "<text x=\"{2}\" y=\"22\" font-size=\"15\">{3}</text>\n",
      kWidth, kHeight, kLeft, Escape(title));
  const auto line = [&](double x1, double y1, double x2, double y2, const char* colour) {
    svg += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", x1, y1,
        x2, y2, colour);
  };
  const auto text = [&](double x, double y, const char* anchor, const std::string& words) {
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y,
                       anchor, Escape(words));
  };
  for (double x = 0; x <= end_x * 1.0001; x += step_x) {
    line(at_x(x), at_y(0), at_x(x), at_y(end_y), "#e5e5e5");
    text(at_x(x), at_y(0) + 18, "middle", fmt::format("{:.4g}", x));
  }
  for (double y = 0; y <= end_y * 1.0001; y += step_y) {
    line(at_x(0), at_y(y), at_x(end_x), at_y(y), "#e5e5e5");
    text(at_x(0) - 8, at_y(y) + 4, "end", fmt::format("{:.4g}", y));
  }
  line(at_x(0), at_y(0), at_x(end_x), at_y(0), "black");
  line(at_x(0), at_y(0), at_x(0), at_y(end_y), "black");
  text(at_x(end_x / 2), kHeight - 12, "middle", x_axis);
  text(kLeft - 55, kTop - 8, "start", y_axis);
  for (const PlotPoint& point : points) {
    const auto group = std::find(groups.begin(), groups.end(), point.group) - groups.begin();
    svg += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\" fill=\"{}\" fill-opacity=\"0.75\">"
        "<title>{}</title></circle>\n",
        at_x(point.x), at_y(point.y), kColours[static_cast<size_t>(group) % std::size(kColours)],
        Escape(point.label));
  }
  if (!steps.empty()) {
    std::string path = fmt::format("M{:.1f} {:.1f}", at_x(steps[0].x), at_y(steps[0].y));
    for (const PlotPoint& step : steps)
      path += fmt::format("H{:.1f}V{:.1f}", at_x(step.x), at_y(step.y));
    svg += "<path d=\"" + path + "\" fill=\"none\" stroke=\"black\" stroke-width=\"1.5\"/>\n";
  }
  for (size_t g = 0; g < groups.size(); ++g) {
    const double y = kTop + 18 * static_cast<double>(g);
    svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\" fill=\"{}\"/>\n",
                       kWidth - kRight + 20, y, kColours[g % std::size(kColours)]);
    text(kWidth - kRight + 32, y + 4, "start", groups[g]);
  }
  return svg + "</svg>\n";
}

}  // namespace heddle::client
