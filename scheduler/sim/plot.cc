#include "scheduler/sim/plot.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace heddle::sim {
namespace {

constexpr double kWidth = 1200, kRight = 40, kCharWidth = 6.6;
constexpr int kMaxRows = 48;        // slots drawn; more would be too thin to see
constexpr int kMaxLegendJobs = 12;  // names; further jobs share their colours
constexpr double kFinest = 0.6;     // pixels; shorter stages are drawn together
constexpr const char* kInk = "#24292f";
constexpr const char* kFaint = "#6e7781";
constexpr const char* kGrid = "#e4e8ec";
// Colours that people with any kind of colour vision can tell apart, as far as that is possible for
// ten.
constexpr std::array<const char*, 10> kColours = {"#4e79a7", "#f28e2b", "#59a14f", "#e15759",
                                                  "#b07aa1", "#2aa5a0", "#d4a017", "#ec7fa9",
                                                  "#8a6248", "#5b6770"};

// How a stage's colour is mixed with white, and whether it is hatched.
struct Look {
  v1::StageKind kind;
  const char* name;
  double strength;
  bool hatched;
};
constexpr std::array<Look, 8> kLooks = {{{v1::STAGE_PROFILE, "profile", 1.0, false},
                                         {v1::STAGE_BUILD, "build", 0.78, false},
                                         {v1::STAGE_UPDATE, "update", 0.42, true},
                                         {v1::STAGE_PROPOSE, "propose", 0.42, false},
                                         {v1::STAGE_IMPORT, "import", 0.18, false},
                                         {v1::STAGE_COMPILE, "compile", 0.18, true},
                                         {v1::STAGE_COMPARE, "compare", 0.78, true},
                                         {v1::STAGE_PLAN, "plan", 0.3, false}}};

const Look& LookOf(v1::StageKind kind) {
  for (const Look& look : kLooks) {
    if (look.kind == kind) return look;
  }
  return kLooks.front();
}

std::string Mixed(const std::string& colour, double strength) {
  std::string out = "#";
  for (int i = 0; i < 3; ++i) {
    const int part = std::stoi(colour.substr(static_cast<size_t>(1 + 2 * i), 2), nullptr, 16);
    absl::StrAppendFormat(&out, "%02x",
                          static_cast<int>(std::lround(255 - (255 - part) * strength)));
  }
  return out;
}

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text,
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

// Distance between ticks: about ten ticks, at round numbers of a common unit.
double TickDistance(double seconds) {
  for (double step : {0.001, 0.002, 0.005, 0.01,  0.02,  0.05,   0.1,    0.2,    0.5,
                      1.,    2.,    5.,    10.,   15.,   30.,    60.,    120.,   300.,
                      600.,  900.,  1800., 3600., 7200., 10800., 21600., 43200., 86400.}) {
    if (seconds / step <= 12) return step;
  }
  return std::ceil(seconds / 12 / 86400) * 86400;
}

std::string TickLabel(double at, double step) {
  if (step >= 86400) return absl::StrFormat("%g d", at / 86400);
  if (step >= 1800) return absl::StrFormat("%g h", at / 3600);
  if (step >= 30) return absl::StrFormat("%g min", at / 60);
  return absl::StrFormat("%g s", at);
}

class Drawing {
 public:
  Drawing(const Scenario& scenario, const std::vector<PlotRun>& runs, PlotWindow window)
      : scenario_(scenario), runs_(runs), window_(window), useful_(scenario.Useful()) {
    if (window_.end <= 0) {
      for (const PlotRun& run : runs) window_.end = std::max(window_.end, run.result->seconds);
    }
    window_.end = std::max(window_.end, window_.begin + 1e-3);
    // Device slots are drawn below the CPU slots of all workers.
    for (bool device : {false, true}) {
      for (size_t i = 0; i < scenario.slots.size(); ++i) {
        if (useful_[i] && scenario.slots[i].info.device == device)
          rows_.push_back(static_cast<int>(i));
      }
    }
    more_ = rows_.size() > kMaxRows ? rows_.size() - kMaxRows : 0;
    rows_.resize(rows_.size() - more_);
    row_height_ = rows_.size() <= 12 ? 24 : rows_.size() <= 24 ? 16 : 11;
    size_t longest = 6;
    for (int slot : rows_) longest = std::max(longest, NameOf(slot).size());
    left_ = std::clamp(28 + kCharWidth * static_cast<double>(longest), 140.0, 260.0);
  }

  std::string Draw() {
    double y = 34;
    Text(24, y, scenario_.name, 17, kInk, "start", true);
    y += Legend(24, y + 22);
    for (const PlotRun& run : runs_) y = Panel(run, y + 40);
    const double height = y + 16;
    return absl::StrFormat(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" viewBox=\"0 0 "
               "%g %g\" "
               "font-family=\"Inter, 'DejaVu Sans', Helvetica, Arial, sans-serif\">\n<rect "
               "width=\"100%%\" height=\"100%%\" "
               "fill=\"#ffffff\"/>\n",
               kWidth, height, kWidth, height) +
           "<defs><pattern id=\"hatch\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" "
           "patternTransform=\"rotate(45)\"><rect width=\"1.6\" height=\"5\" fill=\"#ffffff\" "
           "fill-opacity=\"0.75\"/>"
           "</pattern></defs>\n" +
           body_ + "</svg>\n";
  }

 private:
  std::string NameOf(int slot) const {
    const SlotId& id = scenario_.slots[static_cast<size_t>(slot)].info.id;
    return absl::StrCat(id.worker, "/", id.slot);
  }
  double X(double seconds) const {
    const double share = (seconds - window_.begin) / (window_.end - window_.begin);
    return left_ + (kWidth - kRight - left_) * std::clamp(share, 0.0, 1.0);
  }
  static const char* Colour(int job) {
    return kColours[static_cast<size_t>(job) % kColours.size()];
  }

  void Text(double x, double y, const std::string& text, double size, const char* colour,
            const char* anchor, bool bold = false) {
    absl::StrAppendFormat(
        &body_,
        "<text x=\"%.1f\" y=\"%.1f\" font-size=\"%g\" fill=\"%s\" text-anchor=\"%s\"%s>%s</text>\n",
        x, y, size, colour, anchor, bold ? " font-weight=\"600\"" : "", Escaped(text));
  }
  void Line(double x1, double y1, double x2, double y2, const char* colour) {
    absl::StrAppendFormat(&body_,
                          "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n",
                          x1, y1, x2, y2, colour);
  }
  void Box(double x, double y, double width, double height, const char* colour, const Look& look,
           bool round) {
    const std::string fill = Mixed(colour, look.strength);
    absl::StrAppendFormat(
        &body_, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"%s\"%s/>\n", x,
        y, width, height, fill, round && width > 5 ? " rx=\"2\"" : "");
    if (look.hatched && width > 2) {
      absl::StrAppendFormat(
          &body_,
          "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"url(#hatch)\"/>\n", x,
          y, width, height);
    }
  }

  // Draws the legend, with a colour per job and a shade per stage. Returns its height.
  double Legend(double x, double y) {
    double at = x;
    const auto wrap = [&](double width) {
      if (at + width > kWidth - kRight) at = x, y += 20;
    };
    const double top = y;
    const int jobs = static_cast<int>(scenario_.jobs.size());
    for (int job = 0; job < std::min(jobs, kMaxLegendJobs); ++job) {
      std::string name = scenario_.jobs[static_cast<size_t>(job)].name;
      if (job == kMaxLegendJobs - 1 && jobs > kMaxLegendJobs)
        name = absl::StrCat("and ", jobs - job, " more");
      const double width = 30 + kCharWidth * static_cast<double>(name.size());
      wrap(width);
      Box(at, y - 10, 12, 12, Colour(job), kLooks[0], true);
      Text(at + 17, y, name, 12, kInk, "start");
      at += width;
    }
    at = x;
    y += 20;
    for (const Look& look : kLooks) {
      Box(at, y - 10, 22, 12, kColours[0], look, true);
      Text(at + 27, y, look.name, 12, kFaint, "start");
      at += 44 + kCharWidth * static_cast<double>(std::string(look.name).size());
    }
    const bool disturbed = Any(&RanStage::disturbed), faults = Any(&RanStage::fault);
    if (disturbed) {
      absl::StrAppendFormat(
          &body_, "<rect x=\"%.1f\" y=\"%.1f\" width=\"22\" height=\"2.5\" fill=\"#cf222e\"/>\n",
          at, y - 2);
      Text(at + 27, y, "disturbed by another job", 12, kFaint, "start");
      at += 200;
    }
    if (faults) {
      absl::StrAppendFormat(&body_, "<path d=\"M%.1f %.1fl-4 -7h8z\" fill=\"#cf222e\"/>\n", at + 6,
                            y);
      Text(at + 17, y, "ended by a fault", 12, kFaint, "start");
    }
    return y - top + 22;
  }

  bool Any(bool RanStage::*what) const {
    for (const PlotRun& run : runs_) {
      for (const RanStage& stage : run.result->stages) {
        if (stage.*what) return true;
      }
    }
    return false;
  }

  double Panel(const PlotRun& run, double y) {
    Text(24, y - 12, run.title, 13, kInk, "start", true);
    const double rows = row_height_ * static_cast<double>(rows_.size());
    const double chart = 74;
    Axis(y, y + rows + 14 + chart);
    for (size_t r = 0; r < rows_.size(); ++r) {
      const double top = y + row_height_ * static_cast<double>(r);
      Text(left_ - 10, top + row_height_ / 2 + 4, NameOf(rows_[r]), row_height_ > 12 ? 12 : 9, kInk,
           "end");
      Line(left_, top + row_height_, kWidth - kRight, top + row_height_, kGrid);
      Row(run, rows_[r], top + 2, row_height_ - 4);
    }
    if (more_ > 0) Text(left_ - 10, y + rows + 10, absl::StrCat(more_, " more"), 9, kFaint, "end");
    Utilisation(run, y + rows + 14, chart);
    return y + rows + 14 + chart + 22;
  }

  void Axis(double top, double bottom) {
    const double step = TickDistance(window_.end - window_.begin);
    for (double at = std::ceil(window_.begin / step) * step; at <= window_.end + 1e-9; at += step) {
      Line(X(at), top, X(at), bottom, kGrid);
      Text(X(at), bottom + 15, TickLabel(at, step), 11, kFaint, "middle");
    }
  }

  // Draws the stages of one slot. A run of stages shorter than kFinest is drawn as one, in the look
  // of the job and kind that takes most of it.
  void Row(const PlotRun& run, int slot, double y, double height) {
    std::vector<const RanStage*> stages;
    for (const RanStage& stage : run.result->stages) {
      if (stage.slot == slot && stage.end > window_.begin && stage.begin < window_.end)
        stages.push_back(&stage);
    }
    std::sort(stages.begin(), stages.end(),
              [](const RanStage* a, const RanStage* b) { return a->begin < b->begin; });
    for (size_t i = 0; i < stages.size();) {
      const RanStage& first = *stages[i];
      std::map<std::pair<int, int>, double> share;
      const double x = X(first.begin);
      double end = x;
      do {
        share[{stages[i]->job, stages[i]->kind}] += stages[i]->end - stages[i]->begin;
        end = std::max(end, X(stages[i]->end));
        ++i;
      } while (i < stages.size() && X(stages[i]->end) - x < kFinest);
      auto most = std::max_element(share.begin(), share.end(), [](const auto& a, const auto& b) {
        return a.second < b.second;
      });
      const double width = std::max(0.25, end - x);
      Box(x, y, width > 2.5 ? width - 0.5 : width, height, Colour(most->first.first),
          LookOf(static_cast<v1::StageKind>(most->first.second)), true);
      if (share.size() == 1 && first.fault && width > 1) {
        absl::StrAppendFormat(&body_, "<path d=\"M%.1f %.1fl-4 -5h8z\" fill=\"#cf222e\"/>\n", end,
                              y + 5);
      }
      if (first.disturbed) {
        absl::StrAppendFormat(
            &body_,
            "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"2.5\" fill=\"#cf222e\"/>\n", x,
            y + height - 2.5, width);
      }
    }
  }

  // The share of the slots of a kind that is leased, over time, in bins of a few pixels.
  std::vector<double> Shares(const PlotRun& run, bool device, int bins) const {
    std::vector<double> sum(static_cast<size_t>(bins));
    const double width = (window_.end - window_.begin) / bins;
    int slots = 0;
    for (size_t i = 0; i < scenario_.slots.size(); ++i)
      slots += useful_[i] && scenario_.slots[i].info.device == device;
    for (const RanStage& stage : run.result->stages) {
      if (scenario_.slots[static_cast<size_t>(stage.slot)].info.device != device) continue;
      const double begin = (std::max(stage.begin, window_.begin) - window_.begin) / width;
      const double end = (std::min(stage.end, window_.end) - window_.begin) / width;
      for (int b = std::max(0, static_cast<int>(begin)); b < bins && b < end; ++b)
        sum[static_cast<size_t>(b)] +=
            std::max(0.0, std::min(end, b + 1.0) - std::max(begin, static_cast<double>(b)));
    }
    for (double& share : sum) share = std::min(1.0, share / std::max(1, slots));
    return sum;
  }

  void Utilisation(const PlotRun& run, double y, double height) {
    constexpr int kBins = 160;
    Text(left_ - 10, y + 8, "100 %", 10, kFaint, "end");
    Text(left_ - 10, y + height, "0", 10, kFaint, "end");
    Line(left_, y, kWidth - kRight, y, kGrid);
    Line(left_, y + height, kWidth - kRight, y + height, "#c6ccd2");
    const std::pair<bool, const char*> kinds[] = {{false, "#8a97a6"}, {true, "#1f3a5f"}};
    for (const auto& [device, colour] : kinds) {
      const std::vector<double> shares = Shares(run, device, kBins);
      const double step = (kWidth - kRight - left_) / kBins;
      std::string line;
      double sum = 0;  // over the bins before the end of the run
      const double until = std::min(window_.end, run.result->seconds);
      const double bins = kBins * (until - window_.begin) / (window_.end - window_.begin);
      for (int b = 0; b < kBins; ++b) {
        const double at = y + height * (1 - shares[static_cast<size_t>(b)]);
        sum += shares[static_cast<size_t>(b)];
        absl::StrAppendFormat(&line, "%s%.1f %.1fH%.1f", b == 0 ? "M" : "L", left_ + step * b, at,
                              left_ + step * (b + 1));
      }
      if (!device) {
        absl::StrAppendFormat(&body_,
                              "<path d=\"%sV%.1fH%.1fZ\" fill=\"%s\" fill-opacity=\"0.18\"/>\n",
                              line, y + height, left_, colour);
      }
      absl::StrAppendFormat(&body_,
                            "<path d=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"%g\"/>\n",
                            line, colour, device ? 1.6 : 1.0);
      Text(left_ - 10, y + (device ? 50 : 32),
           absl::StrFormat("%s held %.0f %%", device ? "devices" : "CPU",
                           100 * sum / std::max(1.0, bins)),
           11, colour, "end", true);
    }
  }

  const Scenario& scenario_;
  const std::vector<PlotRun>& runs_;
  PlotWindow window_;
  std::vector<bool> useful_;  // which slots are drawn and counted
  std::vector<int> rows_;
  size_t more_ = 0;  // number of slots without a row
  double row_height_ = 24, left_ = 120;
  std::string body_;
};

}  // namespace

std::string Plot(const Scenario& scenario, const std::vector<PlotRun>& runs, PlotWindow window) {
  return Drawing(scenario, runs, window).Draw();
}

}  // namespace heddle::sim
