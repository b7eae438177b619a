// What a register tile costs by the model, and the strips its padding is computed in.
#include "compiler/schedule/rules/register_tile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "compiler/ir/text.h"
#include "compiler/ir/visit.h"
#include "compiler/pass/lower.h"
#include "compiler/schedule/space.h"
#include "tests/schedule/workloads.h"

namespace heddle::schedule {
namespace {

using ::testing::HasSubstr;

machine::TargetInfo Cpu(int threads = 1) {
  machine::TargetInfo target = Wide();
  target.target.threads = threads;
  target.l1_bytes = 48 << 10;
  target.l2_bytes = 2 << 20;
  return target;
}

// The convolution of a workload.
struct Convolution {
  explicit Convolution(const std::string& name) : naive(MakeWorkload(name).value()) {
    const Path path = FindBlock(naive.body, "conv2d").value();
    stage.block = &path.block();
    EXPECT_TRUE(ViewStage(path, &stage.view));
    stage.constants = {"w"};
    if (FindBlock(naive.body, "pad").ok()) stage.producers = {"pad"};
  }
  TileModel Model(const machine::TargetInfo& target) const { return TileModel(stage, 3, target); }

  ir::Program naive;
  Stage stage;
};

// A tile of rows x columns places and so many whole vectors of channels.
RegisterTile Tile(int64_t rows, int64_t columns, int64_t vectors) {
  return {{1, rows, columns, vectors}, 16};
}

// By hand: a scalar that one multiply-add wants comes with it where instructions can broadcast an
// operand; for two it takes an instruction of its own.
TEST(Tiles, InstructionsOfAStep) {
  const TileModel model = Convolution("C1").Model(Cpu());
  const double loop = 3.0 / 3;
  EXPECT_EQ(model.Instructions(Tile(4, 7, 1)), 28 + 1 + loop);
  EXPECT_EQ(model.Instructions(Tile(1, 14, 2)), 28 + 14 + 2 + loop);
  EXPECT_EQ(model.Instructions(Tile(1, 1, 4)), 4 + 1 + loop) << "the vectors come with theirs";
  EXPECT_EQ(model.Instructions(Tile(1, 7, 4)), 28 + 7 + 4 + loop + 4)
      << "of 33 registers, one waits";
  EXPECT_EQ(model.Instructions(Tile(1, 1, 1)), 1 + 1 + loop) << "only one of two can";
  machine::TargetInfo narrow = Cpu();
  narrow.vector_bytes = 32;
  EXPECT_EQ(Convolution("C1").Model(narrow).Instructions({{1, 1, 8, 1}, 8}), 8 + 8 + 1 + loop);
}

// The elements of the image that a tile reads are those that its places' windows reach.
TEST(Tiles, ScalarsTouchedAreCountedOnce) {
  for (const char* name : {"C1", "C4", "C3", "C5", "C12", "20x3-16k5s3", "20x5-16k2s4"}) {
    const Convolution conv(name);
    const TileModel model = conv.Model(Cpu());
    const std::vector<Axis>& reduce = conv.stage.view.reduce;
    const int64_t out = conv.stage.view.spatial[1].extent;
    // Strides and windows from the indices of the load, at every place.
    for (const auto& [rows, columns] :
         std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {1, 2}, {1, 7}, {2, 7}, {4, 7}, {3, 1}}) {
      if (rows > out || columns > out) continue;
      std::set<std::vector<int64_t>> read;
      for (const ir::Expr& load : DistinctLoads(*conv.stage.block)) {
        if (load->buffer->name == "w") continue;
        for (int64_t i = 0; i < rows; ++i) {
          for (int64_t j = 0; j < columns; ++j) {
            for (int64_t h = 0; h < reduce[0].extent; ++h) {
              for (int64_t w = 0; w < reduce[1].extent; ++w) {
                std::vector<int64_t> place;
                const ir::Substitution at = {{conv.stage.view.spatial[1].iter, ir::Int(i)},
                                             {conv.stage.view.spatial[2].iter, ir::Int(j)},
                                             {reduce[0].iter, ir::Int(h)},
                                             {reduce[1].iter, ir::Int(w)}};
                for (size_t d = 1; d <= 2; ++d) {
                  int64_t index = -1;
                  EXPECT_TRUE(ir::IsConstInt(ir::Substitute(load->args[d], at), &index));
                  place.push_back(index);
                }
                read.insert(place);
              }
            }
          }
        }
      }
      EXPECT_EQ(model.ScalarsTouched(Tile(rows, columns, 1)),
                static_cast<double>(static_cast<int64_t>(read.size()) * reduce[2].extent))
          << name << " " << rows << " x " << columns;
    }
  }
}

// A first layer's few channels stay in the first-level cache: instructions decide, and a tile of
// one vector has fewest. Where a column's rows would be read again and again, it is a wider one.
TEST(Tiles, BestOfAConvolution) {
  const RegisterTile first = Convolution("C1").Model(Cpu()).BestTile();
  EXPECT_EQ(first.sizes[3], 1);
  EXPECT_EQ(first.sizes[1] * first.sizes[2], 28);
  EXPECT_EQ(Convolution("C7").Model(Cpu()).BestTile().sizes[3], 4);
  for (const char* name : {"C1", "C3", "C4", "C7", "C10", "C12"}) {
    for (const machine::TargetInfo& target : Targets()) {
      const TileModel model = Convolution(name).Model(target);
      EXPECT_LE(model.Accumulators(model.BestTile()), target.vector_registers) << name;
    }
  }
}

// How often elements of the buffer are stored, whether or not a guard stands in the way.
int64_t StoresTo(const std::string& buffer, const ir::Stmt& s, int64_t times = 1) {
  if (auto* loop = ir::As<ir::For>(s)) return StoresTo(buffer, loop->body, times * loop->extent);
  if (auto* alloc = ir::As<ir::Alloc>(s)) return StoresTo(buffer, alloc->body, times);
  if (auto* branch = ir::As<ir::If>(s)) return StoresTo(buffer, branch->body, times);
  if (auto* store = ir::As<ir::Store>(s)) return store->buffer->name == buffer ? times : 0;
  int64_t stores = 0;
  if (auto* seq = ir::As<ir::Seq>(s)) {
    for (const ir::Stmt& child : seq->stmts) stores += StoresTo(buffer, child, times);
  }
  return stores;
}

// The padded image of a first layer (C1) is made strip by strip, each with the rows it shares with
// the next one: a strip of a single row of results would make each padded row three and a half
// times, for a fifth of the whole time. So strips have many rows, but each thread has several.
TEST(Tiles, PaddedStripsShareLittle) {
  for (const char* name : {"C1", "224x3-32k3s2", "224x3-64k5s2", "230x4-32k7s1", "480x3-32k3s1"}) {
    for (const int threads : {1, 2, 4}) {
      const machine::TargetInfo target = Cpu(threads);
      const ir::Program naive = MakeWorkload(name).value();
      const Trace trace = DefaultTrace(naive, target).value();
      const std::string text = ToText(trace);
      ASSERT_THAT(text, HasSubstr("compute_at pad conv2d.i2.0")) << text;
      pass::LowerOptions options;
      options.disabled = {"partition_loops", "widen_copies"};
      const auto lowered = pass::Lower(Replay(naive, trace).value(), options);
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      int64_t image = 0;
      ir::VisitStmt(naive.body, [&](const ir::Stmt& s) {
        auto* alloc = ir::As<ir::Alloc>(s);
        if (alloc && alloc->buffer->name == "pad_buf") image = alloc->buffer->NumElements();
        return true;
      });
      ASSERT_GT(image, 0) << ir::Print(naive);
      const int64_t stores = StoresTo("pad_buf", lowered->body);
      EXPECT_GE(stores, image * 9 / 10) << name;
      EXPECT_LE(stores, image * 7 / 4) << name << " on " << threads << "\n" << text;
      const std::string split = "split conv2d.i1 ";
      ASSERT_THAT(text, HasSubstr(split));
      const int64_t strips = std::stol(text.substr(text.find(split) + split.size()));
      EXPECT_GE(strips, 4 * threads) << name << "\n" << text;
    }
  }
}

}  // namespace
}  // namespace heddle::schedule
