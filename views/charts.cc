#include "views/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>

#include "absl/time/time.h"
#include "views/html.h"

namespace heddle::views {
namespace {

constexpr double kWidth = 760;
constexpr double kHeight = 440;
constexpr double kLeft = 70;
constexpr double kRight = 170;  // width of the legend
constexpr double kTop = 56;
constexpr double kBottom = 50;
constexpr int kTicks = 5;
// More points than this are drawn small.
constexpr size_t kFewPoints = 200;
// Distinguishable also for people with red-green colour blindness, on light and on dark ground.
constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                    "#e69f00", "#56b4e9", "#8a63d2", "#8c8c8c"};

constexpr size_t kMostRows = 64;
constexpr double kRowHeight = 20;
constexpr double kNameWidth = 190;
constexpr size_t kLabelChars = 28;
// More spans than this are drawn as so many cells, of all rows together.
constexpr size_t kMostBars = 2000;
constexpr size_t kMostLabels = 800;  // of spans; where there are more, none has a label

const char* ColourOf(size_t group) { return kColours[group % std::size(kColours)]; }

size_t GroupIndex(std::vector<std::string>* groups, const std::string& group) {
  const auto found = std::find(groups->begin(), groups->end(), group);
  if (found != groups->end()) return static_cast<size_t>(found - groups->begin());
  groups->push_back(group);
  return groups->size() - 1;
}

std::string Begin(const std::string& title, double height, SvgUse use) {
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" role=\"img\" aria-label=\"{2}\" font-family=\"sans-serif\" "
      "font-size=\"12\" fill=\"currentColor\"{3}>\n",
      kWidth, height, Escape(title), use == SvgUse::kFile ? " color=\"black\"" : "");
  if (use == SvgUse::kFile) svg += "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  return svg;
}

void Line(std::string* svg, double x1, double y1, double x2, double y2, double opacity) {
  *svg += fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"currentColor\" "
      "stroke-opacity=\"{}\"/>\n",
      x1, y1, x2, y2, opacity);
}

void Words(std::string* svg, double x, double y, const char* anchor, const std::string& words) {
  *svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y,
                      anchor, Escape(words));
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

// A tick distance of a time axis, of which about kTicks fill `seconds`.
double TimeStep(double seconds) {
  for (double step : {1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200}) {
    if (step * kTicks >= seconds) return step;
  }
  return std::ceil(seconds / kTicks / 86400) * 86400;
}

std::string Shortened(const std::string& name) {
  return name.size() <= kLabelChars ? name : name.substr(0, kLabelChars - 2) + "..";
}

// A span in pixels.
struct Bar {
  double x1 = 0, x2 = 0;
  size_t group = 0;
  const std::string* label = nullptr;  // null: none
};

void Draw(std::string* svg, const Bar& bar, double y) {
  *svg +=
      fmt::format("<rect x=\"{:.1f}\" y=\"{:.0f}\" width=\"{:.1f}\" height=\"{:.0f}\" fill=\"{}\"",
                  bar.x1, y, std::max(0.5, bar.x2 - bar.x1), kRowHeight - 5, ColourOf(bar.group));
  *svg += bar.label == nullptr ? "/>\n"
                               : fmt::format("><title>{}</title></rect>\n", Escape(*bar.label));
}

// The bars in `cells` columns from `left`, each of the group that has most of it, or of none where more
// than half is free. Equal neighbours become one.
std::vector<Bar> InCells(const std::vector<Bar>& bars, double left, double width, size_t cells) {
  const double cell = width / static_cast<double>(cells);
  std::vector<std::vector<double>> held(cells, std::vector<double>(std::size(kColours)));
  for (const Bar& bar : bars) {
    for (auto c = static_cast<size_t>((bar.x1 - left) / cell);
         c < cells && left + static_cast<double>(c) * cell < bar.x2; ++c) {
      const double begin = left + static_cast<double>(c) * cell;
      held[c][bar.group % std::size(kColours)] +=
          std::max(0.0, std::min(bar.x2, begin + cell) - std::max(bar.x1, begin));
    }
  }
  std::vector<Bar> drawn;
  for (size_t c = 0; c < cells; ++c) {
    double sum = 0;
    for (const double part : held[c]) sum += part;
    if (sum < cell / 2) continue;
    const auto group =
        static_cast<size_t>(std::max_element(held[c].begin(), held[c].end()) - held[c].begin());
    const double x1 = left + static_cast<double>(c) * cell;
    if (!drawn.empty() && drawn.back().group == group && x1 - drawn.back().x2 < cell / 2) {
      drawn.back().x2 = x1 + cell;
    } else {
      drawn.push_back({x1, x1 + cell, group, nullptr});
    }
  }
  return drawn;
}

using Scale = std::function<double(double)>;  // pixels of a value

std::vector<std::string> GroupsOf(const std::vector<PlotPoint>& points) {
  std::vector<std::string> groups;
  for (const PlotPoint& point : points) GroupIndex(&groups, point.group);
  return groups;
}

void DrawPoints(std::string* svg, const std::vector<PlotPoint>& points,
                const std::vector<std::string>& groups, const Scale& at_x, const Scale& at_y) {
  const double radius = points.size() <= kFewPoints ? 5 : 2.5;
  for (size_t g = 0; g < groups.size(); ++g) {
    *svg += fmt::format("<g fill=\"{}\" fill-opacity=\"0.75\">\n", ColourOf(g));
    for (const PlotPoint& point : points) {
      if (point.group != groups[g]) continue;
      *svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"", at_x(point.x),
                          at_y(point.y), radius);
      *svg += point.label.empty()
                  ? "/>\n"
                  : fmt::format("><title>{}</title></circle>\n", Escape(point.label));
    }
    *svg += "</g>\n";
  }
}

void DrawLegend(std::string* svg, const std::vector<std::string>& groups) {
  for (size_t g = 0; g < groups.size(); ++g) {
    const double y = kTop + 18 * static_cast<double>(g);
    *svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\" fill=\"{}\"/>\n",
                        kWidth - kRight + 20, y, ColourOf(g));
    Words(svg, kWidth - kRight + 32, y + 4, "start", groups[g]);
  }
}

void Title(std::string* svg, double x, double y, const std::string& title) {
  *svg += fmt::format("<text x=\"{}\" y=\"{}\" font-size=\"15\">{}</text>\n", x, y, Escape(title));
}

// Powers of ten around what a logarithmic axis shows.
struct Decades {
  int first = 0, last = 1;
  double Share(double value) const { return (std::log10(value) - first) / (last - first); }
};
Decades DecadesOf(double least, double most) {
  Decades decades{static_cast<int>(std::floor(std::log10(least))),
                  static_cast<int>(std::ceil(std::log10(most)))};
  if (decades.last == decades.first) ++decades.last;
  return decades;
}

}  // namespace

std::string ScatterPlot(const std::string& title, const std::string& x_axis,
                        const std::string& y_axis, const std::vector<PlotPoint>& points,
                        const std::vector<PlotPoint>& steps, SvgUse use) {
  double most_x = 0;
  double most_y = 0;
  const std::vector<std::string> groups = GroupsOf(points);
  for (const auto* all : {&points, &steps}) {
    for (const PlotPoint& point : *all) {
      most_x = std::max(most_x, point.x);
      most_y = std::max(most_y, point.y);
    }
  }
  const double step_x = TickStep(most_x > 0 ? most_x : 1);
  const double step_y = TickStep(most_y > 0 ? most_y : 1);
  const double end_x = step_x * std::max(1.0, std::ceil(most_x / step_x));
  const double end_y = step_y * std::max(1.0, std::ceil(most_y / step_y));
  const auto at_x = [&](double x) { return kLeft + x / end_x * (kWidth - kLeft - kRight); };
  const auto at_y = [&](double y) {
    return kHeight - kBottom - y / end_y * (kHeight - kTop - kBottom);
  };
  std::string svg = Begin(title, kHeight, use);
  Title(&svg, kLeft, 22, title);
  for (double x = 0; x <= end_x * 1.0001; x += step_x) {
    Line(&svg, at_x(x), at_y(0), at_x(x), at_y(end_y), 0.12);
    Words(&svg, at_x(x), at_y(0) + 18, "middle", fmt::format("{:.6g}", x));
  }
  for (double y = 0; y <= end_y * 1.0001; y += step_y) {
    Line(&svg, at_x(0), at_y(y), at_x(end_x), at_y(y), 0.12);
    Words(&svg, at_x(0) - 8, at_y(y) + 4, "end", fmt::format("{:.6g}", y));
  }
  Line(&svg, at_x(0), at_y(0), at_x(end_x), at_y(0), 1);
  Line(&svg, at_x(0), at_y(0), at_x(0), at_y(end_y), 1);
  Words(&svg, at_x(end_x / 2), kHeight - 12, "middle", x_axis);
  Words(&svg, kLeft - 55, kTop - 8, "start", y_axis);
  DrawPoints(&svg, points, groups, at_x, at_y);
  if (!steps.empty()) {
    std::string path = fmt::format("M{:.1f} {:.1f}", at_x(steps[0].x), at_y(steps[0].y));
    for (const PlotPoint& step : steps)
      path += fmt::format("H{:.1f}V{:.1f}", at_x(step.x), at_y(step.y));
    svg +=
        "<path d=\"" + path + "\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"1.5\"/>\n";
  }
  DrawLegend(&svg, groups);
  return svg + "</svg>\n";
}

std::string RooflineChart(const std::string& title, double peak_gflops, double memory_gbps,
                          const std::vector<PlotPoint>& all, SvgUse use) {
  std::vector<PlotPoint> points;
  const double ridge = peak_gflops / memory_gbps;  // from here on arithmetic is the limit
  double least_x = ridge / 4, most_x = ridge * 4, least_y = peak_gflops / 10, most_y = peak_gflops;
  for (const PlotPoint& point : all) {
    if (point.x <= 0 || point.y <= 0) continue;
    points.push_back(point);
    least_x = std::min(least_x, point.x);
    most_x = std::max(most_x, point.x);
    least_y = std::min(least_y, point.y);
    most_y = std::max(most_y, point.y);
  }
  const Decades across = DecadesOf(least_x, most_x), up = DecadesOf(least_y, most_y);
  const double right = kWidth - kRight, bottom = kHeight - kBottom;
  const Scale at_x = [&](double x) { return kLeft + across.Share(x) * (right - kLeft); };
  const Scale at_y = [&](double y) { return bottom - up.Share(y) * (bottom - kTop); };
  std::string svg = Begin(title, kHeight, use);
  Title(&svg, kLeft, 22, title);
  for (int power = across.first; power <= across.last; ++power) {
    const double x = at_x(std::pow(10, power));
    Line(&svg, x, kTop, x, bottom, 0.12);
    Words(&svg, x, bottom + 18, "middle", fmt::format("{:.6g}", std::pow(10, power)));
  }
  for (int power = up.first; power <= up.last; ++power) {
    const double y = at_y(std::pow(10, power));
    Line(&svg, kLeft, y, right, y, 0.12);
    Words(&svg, kLeft - 8, y + 4, "end", fmt::format("{:.6g}", std::pow(10, power)));
  }
  Line(&svg, kLeft, bottom, right, bottom, 1);
  Line(&svg, kLeft, kTop, kLeft, bottom, 1);
  Words(&svg, (kLeft + right) / 2, kHeight - 12, "middle", "FLOP per byte");
  Words(&svg, kLeft - 55, kTop - 8, "start", "GFLOP/s");
  // The slope begins where it enters the chart, from the left or from below.
  const double begin_x = std::max(std::pow(10, across.first), std::pow(10, up.first) / memory_gbps);
  svg += fmt::format(
      "<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}H{:.1f}\" fill=\"none\" stroke=\"currentColor\" "
      "stroke-width=\"1.5\"/>\n",
      at_x(begin_x), at_y(begin_x * memory_gbps), at_x(ridge), at_y(peak_gflops), right);
  Words(&svg, right - 4, at_y(peak_gflops) - 6, "end", fmt::format("{:.4g} GFLOP/s", peak_gflops));
  Words(&svg, at_x(begin_x) + 8, at_y(begin_x * memory_gbps) - 8, "start",
        fmt::format("{:.4g} GB/s", memory_gbps));
  const std::vector<std::string> groups = GroupsOf(points);
  DrawPoints(&svg, points, groups, at_x, at_y);
  DrawLegend(&svg, groups);
  return svg + "</svg>\n";
}

std::string BarChart(const std::string& title, const std::vector<ChartBar>& bars, SvgUse use) {
  const size_t shown = std::min(bars.size(), kMostRows);
  constexpr double kFirst = 30;  // y of the first bar
  const double bottom = kFirst + kRowHeight * static_cast<double>(shown);
  double most = 0;
  for (size_t i = 0; i < shown; ++i) most = std::max(most, bars[i].value);
  std::string svg = Begin(title, bottom + 24, use);
  Title(&svg, 0, 16, title);
  for (size_t i = 0; i < shown; ++i) {
    const double y = kFirst + kRowHeight * static_cast<double>(i);
    const double width = most > 0 ? bars[i].value / most * (kWidth - kNameWidth - kRight) : 0;
    Words(&svg, 0, y + 11, "start", Shortened(bars[i].name));
    Draw(&svg, {kNameWidth, kNameWidth + width, 0, nullptr}, y);
    Words(&svg, kNameWidth + width + 8, y + 11, "start", bars[i].words);
  }
  if (shown < bars.size()) {
    Words(&svg, 0, bottom + 16, "start", fmt::format("showing {} of {} bars", shown, bars.size()));
  }
  return svg + "</svg>\n";
}

std::string TimelineChart(const std::string& title, const std::vector<ChartRow>& rows,
                          int64_t begin_unix_ns, int64_t end_unix_ns, SvgUse use) {
  const size_t shown = std::min(rows.size(), kMostRows);
  const double bottom = kTop + kRowHeight * static_cast<double>(shown);
  const double seconds = static_cast<double>(end_unix_ns - begin_unix_ns) / 1e9;
  const double scale = (kWidth - kNameWidth - 20) / seconds;
  const auto at = [&](int64_t ns) {
    const double offset = static_cast<double>(ns - begin_unix_ns) / 1e9;
    return kNameWidth + std::clamp(offset, 0.0, seconds) * scale;
  };
  std::string svg = Begin(title, bottom + 44, use);
  Title(&svg, 0, 16, title);

  const double step = TimeStep(seconds);
  const absl::TimeZone zone = absl::LocalTimeZone();
  const absl::Time first = absl::FromUnixNanos(begin_unix_ns);
  const int offset = zone.At(first).offset;
  const double local = absl::ToDoubleSeconds(first - absl::UnixEpoch()) + offset;
  for (double tick = std::ceil(local / step) * step; tick <= local + seconds; tick += step) {
    const double x = kNameWidth + (tick - local) * scale;
    const absl::Time when = first + absl::Seconds(tick - local) + absl::Milliseconds(1);
    Line(&svg, x, kTop - 6, x, bottom, 0.15);
    Words(&svg, x, bottom + 16, "middle",
          absl::FormatTime(step < 60      ? "%H:%M:%S"
                           : step < 86400 ? "%H:%M"
                                          : "%m-%d",
                           when, zone));
  }

  std::vector<std::string> groups;
  std::vector<std::vector<Bar>> bars(shown);
  size_t count = 0;
  for (size_t r = 0; r < shown; ++r) {
    for (const ChartSpan& span : rows[r].spans) {
      if (span.end_unix_ns <= begin_unix_ns || span.begin_unix_ns >= end_unix_ns) continue;
      bars[r].push_back({at(span.begin_unix_ns), at(span.end_unix_ns),
                         GroupIndex(&groups, span.group), &span.label});
      ++count;
    }
  }
  for (size_t r = 0; r < shown; ++r) {
    const double y = kTop + kRowHeight * static_cast<double>(r);
    Words(&svg, 0, y + 11, "start", Shortened(rows[r].name));
    if (count > kMostBars)
      bars[r] = InCells(bars[r], kNameWidth, kWidth - kNameWidth - 20, kMostBars / shown);
    for (Bar& bar : bars[r]) {
      if (count > kMostLabels) bar.label = nullptr;
      Draw(&svg, bar, y);
    }
  }
  double x = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    svg += fmt::format("<rect x=\"{:.1f}\" y=\"28\" width=\"10\" height=\"10\" fill=\"{}\"/>\n", x,
                       ColourOf(g));
    Words(&svg, x + 14, 37, "start", groups[g]);
    x += 28 + 7.5 * static_cast<double>(groups[g].size());
  }
  if (shown < rows.size()) {
    Words(&svg, 0, bottom + 36, "start", fmt::format("showing {} of {} rows", shown, rows.size()));
  }
  return svg + "</svg>\n";
}

}  // namespace heddle::views
