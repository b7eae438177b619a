#include "views/charts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/views/well_formed.h"
#include "views/align.h"

namespace heddle::views {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(ScatterPlot, IsASmallFile) {
  const std::vector<PlotPoint> points = {{1, 5, "random", "j1 \"<&>\""}, {2, 8, "annealing", ""}};
  const std::vector<PlotPoint> line = {{1, 5}, {2, 8}, {30, 8}};
  const std::string svg = ScatterPlot("a <title>", "trial", "GFLOP/s", points, line);
  EXPECT_EQ(Malformed(svg), "");
  EXPECT_THAT(svg, HasSubstr("fill=\"white\""));
  EXPECT_THAT(svg, HasSubstr("a &lt;title&gt;"));
  EXPECT_THAT(svg, HasSubstr("<title>j1 &quot;&lt;&amp;&gt;&quot;</title>"));
  EXPECT_THAT(svg, HasSubstr(">30</text>")) << "the axis covers the line, too";
  EXPECT_THAT(svg, HasSubstr(">annealing</text>"));
  EXPECT_EQ(Count(svg, "<circle"), 4u) << "two points, two entries of the legend";
  EXPECT_EQ(Count(svg, "<path"), 1u);
}

TEST(ScatterPlot, TakesTheColoursOfAPage) {
  const std::string svg = ScatterPlot("t", "x", "y", {{1, 1, "g", ""}}, {}, SvgUse::kPage);
  EXPECT_EQ(Malformed(svg), "");
  EXPECT_THAT(svg, Not(HasSubstr("white")));
  EXPECT_THAT(svg, Not(HasSubstr("black")));
  EXPECT_THAT(svg, Not(HasSubstr("style=")));
  EXPECT_THAT(svg, HasSubstr("role=\"img\" aria-label=\"t\""));
}

TEST(ScatterPlot, CanBeEmpty) {
  EXPECT_EQ(Malformed(ScatterPlot("t", "x", "y", {})), "");
  EXPECT_EQ(Malformed(ScatterPlot("t", "x", "y", {{0, 0, "g", ""}}, {{0, 0}})), "");
}

TEST(RooflineChart, BendsWhereBothLimitsMeet) {
  // Axes: 1 to 1000 FLOP per byte, 10 to 100 GFLOP/s; the ridge is at 10 FLOP per byte.
  const std::vector<PlotPoint> points = {{1, 10, "trials", ""},
                                         {1000, 100, "best", "best <1>"},
                                         {0, 5, "no bytes", ""},
                                         {5, 0, "failed", ""}};
  const std::string svg = RooflineChart("a <roof>", 100, 10, points, SvgUse::kPage);
  EXPECT_EQ(Malformed(svg), "");
  EXPECT_THAT(svg, HasSubstr(">100 GFLOP/s</text>"));
  EXPECT_THAT(svg, HasSubstr(">10 GB/s</text>"));
  EXPECT_THAT(svg, HasSubstr("<title>best &lt;1&gt;</title>"));
  EXPECT_THAT(svg, Not(HasSubstr("no bytes"))) << "a logarithmic axis has no zero";
  EXPECT_THAT(svg, Not(HasSubstr("failed")));
  EXPECT_EQ(Count(svg, "<circle"), 4u) << "two points, two entries of the legend";
  // The slope begins in the lower left corner, where the first trial is, and ends at a third of the way.
  EXPECT_THAT(svg, HasSubstr("d=\"M70.0 390.0L243.3 56.0H590.0\""));
  EXPECT_THAT(svg, HasSubstr("cx=\"70.0\" cy=\"390.0\""));
}

TEST(RooflineChart, CanBeWithoutPoints) {
  EXPECT_EQ(Malformed(RooflineChart("t", 3.7, 0.02, {})), "");
  EXPECT_EQ(Malformed(RooflineChart("t", 1e-6, 1e6, {{1e-9, 1e9, "g", ""}})), "");
}

TEST(BarChart, IsAsLongAsItsValue) {
  const std::string svg =
      BarChart("t <1>", {{"one", 1, "1 s"}, {"two & more", 2, "2 s"}, {"none", 0, "0 s"}});
  EXPECT_EQ(Malformed(svg), "");
  EXPECT_THAT(svg, HasSubstr("width=\"400.0\""));
  EXPECT_THAT(svg, HasSubstr("width=\"200.0\""));
  EXPECT_THAT(svg, HasSubstr("two &amp; more"));
  EXPECT_EQ(Malformed(BarChart("t", {})), "");
  const std::string many = BarChart("t", std::vector<ChartBar>(100, {"bar", 1, "words"}));
  EXPECT_THAT(many, HasSubstr("showing 64 of 100 bars"));
}

constexpr int64_t kChartSecond = 1'000'000'000;
constexpr int64_t kChartNow = 1'800'000'000 * kChartSecond;

TEST(TimelineChart, DrawsEachSpanOfAFew) {
  std::vector<ChartRow> rows(2);
  rows[0].name = "w1/cpu<0>";
  rows[0].spans = {
      {kChartNow, kChartNow + 10 * kChartSecond, "build", "j1 build"},
      {kChartNow + 20 * kChartSecond, kChartNow + 30 * kChartSecond, "update", "j1 update"}};
  rows[1].name = "a worker with a name that is too long for the chart";
  rows[1].spans = {
      {kChartNow - 100 * kChartSecond, kChartNow - 50 * kChartSecond, "profile", "before"},
      {kChartNow - 100 * kChartSecond, kChartNow + 5 * kChartSecond, "profile", "j2 profile"}};
  const std::string svg =
      TimelineChart("Stages", rows, kChartNow, kChartNow + 60 * kChartSecond, SvgUse::kPage);
  EXPECT_EQ(Malformed(svg), "");
  EXPECT_THAT(svg, HasSubstr("w1/cpu&lt;0&gt;"));
  EXPECT_THAT(svg, HasSubstr("<title>j2 profile</title>"));
  EXPECT_THAT(svg, Not(HasSubstr("before")));
  EXPECT_EQ(Count(svg, "<rect"), 3u + 3u) << "three spans, three entries of the legend";
}

TEST(TimelineChart, IsBoundedHoweverMuchThereIs) {
  std::vector<ChartRow> rows(100);
  for (size_t r = 0; r < rows.size(); ++r) {
    rows[r].name = absl::StrCat("worker", r);
    for (int i = 0; i < 2000; ++i) {
      rows[r].spans.push_back({kChartNow + i * kChartSecond,
                               kChartNow + i * kChartSecond + kChartSecond * 9 / 10,
                               absl::StrCat("stage ", i % 7), "a label"});
    }
  }
  const std::string svg = TimelineChart("Stages", rows, kChartNow, kChartNow + 2000 * kChartSecond);
  EXPECT_EQ(Malformed(svg), "");
  EXPECT_LT(svg.size(), 300'000u);
  EXPECT_THAT(svg, HasSubstr("showing 64 of 100 rows"));
  EXPECT_GT(Count(svg, "<rect"), 64u);
  EXPECT_THAT(svg, Not(HasSubstr("a label")));
}

TEST(TimelineChart, CellsThatAreMostlyFreeStayFree) {
  std::vector<ChartRow> rows(1);
  rows[0].name = "w";
  // 3000 short spans in the first half of the time, each a quarter of its second.
  for (int i = 0; i < 3000; ++i)
    rows[0].spans.push_back({kChartNow + i * kChartSecond,
                             kChartNow + i * kChartSecond + kChartSecond / 4, "build", ""});
  rows[0].spans.push_back(
      {kChartNow + 3000 * kChartSecond, kChartNow + 6000 * kChartSecond, "profile", ""});
  const std::string svg = TimelineChart("Stages", rows, kChartNow, kChartNow + 6000 * kChartSecond);
  EXPECT_EQ(Malformed(svg), "");
  EXPECT_LE(Count(svg, "<rect"), 6u) << "the second half as one bar, the ground, and the legend";
}

TEST(AlignLines, PairsLinesThatDiffer) {
  const std::vector<AlignedRow> rows = AlignLines("same\nold\nend\n", "same\nnew\nend\nmore\n");
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].mark, ' ');
  EXPECT_EQ(rows[1].left, "old");
  EXPECT_EQ(rows[1].mark, '|');
  EXPECT_EQ(rows[1].right, "new");
  EXPECT_EQ(rows[3].mark, '>');
  EXPECT_EQ(rows[3].right, "more");
  EXPECT_THAT(AlignLines("", ""), IsEmpty());
}

}  // namespace
}  // namespace heddle::views
