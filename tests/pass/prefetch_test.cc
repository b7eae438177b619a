// Passes that fetch ahead: what is asked for, when, and that it is needed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "compiler/ir/analysis/simplify.h"
#include "compiler/ir/text.h"
#include "compiler/ir/visit.h"
#include "compiler/pass/lower.h"

namespace heddle::pass {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ir::Program Parsed(const std::string& text) {
  absl::StatusOr<ir::Program> program = ir::Parse(text);
  EXPECT_TRUE(program.ok()) << program.status();
  return *program;
}

// Addresses of one buffer in the order a lowered program touches them; only what the test needs:
// loops, prefetches, and the loads of stores.
class Touches {
 public:
  struct Touch {
    bool prefetch;
    int64_t line;
  };
  static std::vector<Touch> Of(const ir::Program& program, const std::string& buffer) {
    Touches touches(buffer);
    touches.Visit(program.body);
    return std::move(touches.touches_);
  }

 private:
  explicit Touches(std::string buffer) : buffer_(std::move(buffer)) {}

  void Visit(const ir::Stmt& s) {
    if (auto* loop = ir::As<ir::For>(s)) {
      for (int64_t i = 0; i < loop->extent; ++i) {
        values_[loop->var.get()] = ir::Int(i);
        Visit(loop->body);
      }
      values_.erase(loop->var.get());
    } else if (auto* branch = ir::As<ir::If>(s)) {
      int64_t holds = 0;
      EXPECT_TRUE(
          ir::IsConstInt(ir::Simplify(ir::Substitute(branch->condition, values_), {}), &holds));
      if (holds != 0) Visit(branch->body);
    } else if (auto* prefetch = ir::As<ir::Prefetch>(s)) {
      if (prefetch->element->buffer->name == buffer_) Add(prefetch->element, true);
    } else if (auto* store = ir::As<ir::Store>(s)) {
      ir::VisitLoads(store->value, [&](const ir::Expr& load) {
        if (load->buffer->name == buffer_) Add(load, false);
      });
    } else {
      ir::ForEachChild(s, [&](const ir::Stmt& child) { Visit(child); });
    }
  }

  void Add(const ir::Expr& load, bool prefetch) {
    int64_t address = 0;
    for (size_t d = 0; d < load->args.size(); ++d) {
      int64_t index = -1;
      EXPECT_TRUE(ir::IsConstInt(ir::Simplify(ir::Substitute(load->args[d], values_), {}), &index));
      address = address * load->buffer->shape[d] + index;
    }
    touches_.push_back({prefetch, address / 16});
  }

  std::string buffer_;
  ir::Substitution values_;
  std::vector<Touch> touches_;
};

// rows: an expression of the row tile; around: loops around the reduction.
std::string PanelProduct(const std::string& constant, const std::string& loops,
                         const std::string& row, const std::string& panel) {
  return "program p(X: f32[4, 128], W: f32[3, 128, 32] " + constant + ") -> (Y: f32[4, 96]) { " +
         loops + " { for k in 128 { for l in 32 { block b(i < 4 spatial = " + row +
         ", j < 96 spatial = ((" + panel +
         " * 32) + l), s < 128 reduce = k) sum init 0.0 "
         "{ Y[i, j] = (X[i, s] * W[(j // 32), s, (j % 32)]) } } } } }" +
         (loops.find("for r") == std::string::npos ? "" : " }");
}

TEST(PrefetchAhead, AsksForEveryLineOfTheNextPanelBeforeItIsRead) {
  for (const std::string& text : {PanelProduct("const", "for p in 3 { for r in 4", "r", "p"),
                                  PanelProduct("const", "for f in 12", "(f % 4)", "(f // 4)")}) {
    auto lowered = Lower(Parsed(text));
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    std::map<int64_t, int> asked;
    std::set<int64_t> read;
    constexpr int64_t kPanelLines = 128 * 32 / 16;
    for (const auto& [prefetch, line] : Touches::Of(*lowered, "W")) {
      if (prefetch) {
        ++asked[line];
      } else if (read.insert(line).second && line >= kPanelLines) {
        EXPECT_EQ(asked.count(line), 1) << "line " << line << " in\n" << ir::Print(*lowered);
      }
    }
    EXPECT_EQ(read.size(), 3 * kPanelLines);
    for (const auto& [line, times] : asked) {
      EXPECT_GE(line, kPanelLines) << "the first panel has nobody to ask for it";
      // The last panel is asked for in its own turn too.
      EXPECT_LE(times, line < 2 * kPanelLines ? 2 : 4) << "line " << line;
    }
  }
}

// As a transposed convolution reads the weights of its phases: two loops go over them, one inside
// the other, and no panel waits for the end of the inner one.
TEST(PrefetchAhead, PanelsGoOnWhereALoopAroundThemTakesUp) {
  auto lowered = Lower(
      Parsed("program p(X: f32[6, 128], W: f32[3, 2, 128, 32] const) -> (Y: f32[6, 32]) { for q in "
             "3 { for f in 2 { for k in 128 { for l in 32 { block b(i < 6 spatial = ((q * 2) + f), "
             "j < 32 spatial = l, s < 128 reduce = k) sum init 0.0 { Y[i, j] = (X[i, s] * W[(i // "
             "2), (i % 2), s, j]) } } } } } }"));
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  std::set<int64_t> asked, read;
  constexpr int64_t kPanelLines = 128 * 32 / 16;
  for (const auto& [prefetch, line] : Touches::Of(*lowered, "W")) {
    if (prefetch) {
      asked.insert(line);
    } else if (read.insert(line).second && line >= kPanelLines) {
      EXPECT_EQ(asked.count(line), 1) << "line " << line << " in\n" << ir::Print(*lowered);
    }
  }
  EXPECT_EQ(read.size(), 6 * kPanelLines);
}

// Half a panel is used up too quickly to ask for the other half in its time; four rows use all of
// it.
TEST(PrefetchAhead, TakesALargerPanelWhereASmallOneLeavesNoTime) {
  auto lowered = Lower(Parsed(
      "program p(X: f32[4, 2, 128], W: f32[3, 2, 128, 32] const) -> (Y: f32[4, 3, 32]) { "
      "for p in 3 { for r in 4 { for t in 2 { for k in 16 { for u in 8 unrolled { for l in "
      "32 vectorized { block b(i < 4 spatial = r, o < 3 spatial = p, j < 32 spatial = l, h < "
      "2 reduce = t, s < 128 reduce = ((k * 8) + u)) sum init 0.0 { Y[i, o, j] = (X[i, h, s] "
      "* W[o, h, s, j]) } } } } } } } }"));
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  std::set<int64_t> asked, read;
  constexpr int64_t kPanelLines = 2 * 128 * 32 / 16;
  for (const auto& [prefetch, line] : Touches::Of(*lowered, "W")) {
    if (prefetch) {
      asked.insert(line);
    } else if (read.insert(line).second && line >= kPanelLines) {
      EXPECT_EQ(asked.count(line), 1) << "line " << line << " in\n" << ir::Print(*lowered);
    }
  }
  EXPECT_EQ(read.size(), 3 * kPanelLines);
}

TEST(PrefetchAhead, LeavesAloneWhatItCannotHelp) {
  const std::string not_constant = PanelProduct("", "for p in 3 { for r in 4", "r", "p");
  const std::string no_reuse =
      "program p(X: f32[128], W: f32[3, 128, 256] const) -> (Y: f32[768]) { for p in 3 { for k in "
      "128 { for l in 256 unrolled { block b(j < 768 spatial = ((p * 256) + l), s < 128 reduce = "
      "k) sum init 0.0 { Y[j] = (X[s] * W[(j // 256), s, (j % 256)]) } } } } }";
  for (const std::string& text : {not_constant, no_reuse}) {
    auto lowered = Lower(Parsed(text));
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    EXPECT_THAT(ir::Print(*lowered), Not(HasSubstr("prefetch"))) << text;
  }
}

// A product in tiles of `tile_rows` x `vectors` x `lanes` whose results are added to an operand.
struct TileWithOperand {
  int64_t rows = 128, columns = 256, tile_rows = 2, vectors = 2, lanes = 16;
  std::string shape = "f32[128, 256]", element = "R[a2, c2]", more = "";

  std::string Text() const {
    const auto n = [](int64_t x) { return std::to_string(x); };
    const auto tiles = [](int64_t extent, int64_t tile) { return (extent + tile - 1) / tile; };
    const int64_t width = vectors * lanes;
    const auto nest = [&](const std::string& k, const std::string& iters, const std::string& last) {
      const std::string row = "((i * " + n(tile_rows) + ") + r" + k + ")",
                        column = "((j * " + n(width) + ") + ((v" + k + " * " + n(lanes) + ") + l" +
                                 k + "))";
      return "for r" + k + " in " + n(tile_rows) + " unrolled { for v" + k + " in " + n(vectors) +
             " unrolled { for l" + k + " in " + n(lanes) + " vectorized { block b" + k + "(a" + k +
             " < " + n(rows) + " spatial = " + row + ", c" + k + " < " + n(columns) +
             " spatial = " + column + iters + ") where ((" + row + " < " + n(rows) + ") && (" +
             column + " < " + n(columns) + ")) " + last + " } } }";
    };
    const std::string size = "f32[" + n(rows) + ", " + n(columns) + "]";
    return "program p(X: f32[" + n(rows) + ", 8], W: f32[8, " + n(columns) +
           "] const, R: " + shape + more + ") -> (Y: " + size + ") { for i in " +
           n(tiles(rows, tile_rows)) + " { for j in " + n(tiles(columns, width)) +
           " { alloc t : " + size + " local { for k in 8 { " +
           nest("1", ", s < 8 reduce = k", "sum init 0.0 { t[a1, c1] = (X[a1, s] * W[s, c1]) }") +
           " } " + nest("2", "", "{ Y[a2, c2] = (t[a2, c2] + " + element + ") }") + " } } } }";
  }
};

// The lines of a buffer that are asked for, in the order of the program, and those that are read.
struct Lines {
  std::vector<int64_t> asked;
  std::set<int64_t> read;
};

// Every line that is read was asked for, or the one before it was: a vector may reach into another.
Lines LinesOf(const ir::Program& lowered, const std::string& buffer) {
  Lines lines;
  for (const auto& [prefetch, line] : Touches::Of(lowered, buffer)) {
    if (prefetch) {
      lines.asked.push_back(line);
    } else if (lines.read.insert(line).second) {
      const auto near = [&](int64_t asked) { return asked == line || asked == line - 1; };
      EXPECT_TRUE(std::any_of(lines.asked.begin(), lines.asked.end(), near)) << "line " << line;
    }
  }
  return lines;
}

TEST(PrefetchEpilogue, AsksForWhatATileAddsAndWhereItWrites) {
  for (const int64_t lanes : {16, 8}) {
    TileWithOperand tile;
    tile.lanes = lanes;
    tile.vectors = 32 / lanes;
    auto lowered = Lower(Parsed(tile.Text()));
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    // In the order of the program: every line of the operand and of the result once, in the tile
    // that needs it.
    std::vector<int64_t> asked;
    std::set<int64_t> read;
    for (const auto& [prefetch, line] : Touches::Of(*lowered, "R")) {
      if (prefetch) {
        asked.push_back(line);
      } else if (read.insert(line).second) {
        EXPECT_EQ(std::count(asked.begin(), asked.end(), line), 1) << ir::Print(*lowered);
        EXPECT_LE(asked.size() - read.size(), 3) << "earlier than the tile before";
      }
    }
    EXPECT_EQ(read.size(), 128 * 256 / 16);
    EXPECT_EQ(asked.size(), read.size()) << lanes << " lanes";
    std::set<int64_t> results;
    for (const auto& [prefetch, line] : Touches::Of(*lowered, "Y")) results.insert(line);
    EXPECT_EQ(results.size(), 128 * 256 / 16);
  }
}

TEST(PrefetchEpilogue, TilesThatEndBeyondTheRowsAndLines) {
  for (const int64_t lanes : {16, 8}) {
    TileWithOperand tile;
    tile.rows = 127;
    tile.columns = 250;
    tile.lanes = lanes;
    tile.shape = "f32[127, 250]";
    auto lowered = Lower(Parsed(tile.Text()));
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    const Lines lines = LinesOf(*lowered, "R");
    EXPECT_EQ(lines.read.size(), (127 * 250 + 15) / 16);
    EXPECT_LE(lines.asked.size(), 128 * 16);
  }
}

TEST(PrefetchEpilogue, LeavesAloneWhatIsCloseConstantOrMuch) {
  TileWithOperand small, constant, large;
  small.shape = "f32[1, 256]";
  small.element = "R[0, c2]";
  constant.shape += " const";
  large.tile_rows = 64;  // of four lines each
  for (const TileWithOperand& tile : {small, constant, large}) {
    auto lowered = Lower(Parsed(tile.Text()));
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    for (const char* buffer : {"R", "Y"}) {
      for (const auto& [prefetch, line] : Touches::Of(*lowered, buffer)) EXPECT_FALSE(prefetch);
    }
  }
}

// What a gather reads is known only by reading the index.
TEST(PrefetchEpilogue, AsksForNothingWhoseIndexIsLoaded) {
  TileWithOperand tile;
  tile.element = "R[min(max(I[a2, 0], 0), 127), c2]";
  tile.more = ", I: i64[128, 256]";
  auto lowered = Lower(Parsed(tile.Text()));
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  const std::string text = ir::Print(*lowered);
  EXPECT_THAT(text, HasSubstr("prefetch I["));
  EXPECT_THAT(text, Not(HasSubstr("prefetch R[")));
}

}  // namespace
}  // namespace heddle::pass
