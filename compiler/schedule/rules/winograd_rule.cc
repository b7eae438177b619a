// The transforms around the products of a Winograd convolution.
//
// Both run tile by tile, a register of channels at a time: for the input, the rows of B^T d go into
// registers and the tile's elements of (B^T d) B are stored from there; for the result likewise,
// with the epilogue on what A gives.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/schedule/rules/rules.h"

namespace heddle::schedule {

namespace {

class WinogradTransforms : public Rule {
 public:
  // What the rule needs to know of the stage that makes the result.
  struct Output {
    std::string block;
    std::string batch, row, column, channel;  // its loops
    int64_t rows = 1, columns = 1, channels = 1;
  };

  WinogradTransforms(std::string block, Output output, int64_t m, int64_t inputs, int64_t tiles,
                     const machine::TargetInfo& target, Knobs& knobs)
      : block_(std::move(block)), output_(std::move(output)), m_(m), inputs_(inputs) {
    const int64_t lanes = LanesOf(target, ir::DType::kF32);
    data_lanes_ = knobs.Add(absl::StrCat("lanes of ", block_, ".data"), Widths(inputs, lanes),
                            PowerOfTwoDivisor(inputs, lanes));
    output_lanes_ =
        knobs.Add(absl::StrCat("lanes of ", output_.block), Widths(output_.channels, lanes),
                  PowerOfTwoDivisor(output_.channels, lanes));
    if (target.target.threads > 1) {
      parallel_ = knobs.Add(absl::StrCat("parallel transforms of ", block_), {0, 1},
                            tiles >= target.core.wake_tiles);
    }
  }

  absl::Status Apply(const Knobs& knobs, const Point& point, Recorder& out) const override {
    const bool parallel = parallel_ >= 0 && knobs.Value(point, parallel_) != 0;
    HEDDLE_RETURN_IF_ERROR(ApplyData(knobs.Value(point, data_lanes_), parallel, out));
    return ApplyOutput(knobs.Value(point, output_lanes_), parallel, out);
  }

 private:
  static std::vector<int64_t> Widths(int64_t channels, int64_t lanes) {
    std::vector<int64_t> widths{PowerOfTwoDivisor(channels, lanes)};
    if (widths[0] > 1) widths.push_back(widths[0] / 2);
    return widths;
  }

  // Computes `rows` into registers inside `loop`.
  static absl::Status RowsInRegisters(const std::string& rows, const std::string& loop,
                                      int64_t lanes, Recorder& out) {
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kComputeAt, {rows, loop}));
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kSetScope, {rows, "local"}));
    const auto own = [&](int k) { return absl::StrCat(rows, "@", loop, ".", k); };
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kUnroll, {own(0)}));
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kUnroll, {own(1)}));
    return lanes > 1 ? out.Do(Primitive::kVectorize, {own(5)}) : absl::OkStatus();
  }

  static absl::Status OverTiles(const std::vector<std::string>& loops, bool parallel,
                                Recorder& out) {
    if (!parallel) return absl::OkStatus();
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kFuse, loops));
    return out.Do(Primitive::kParallel, {absl::StrCat(loops[0], "*", loops[1], "*", loops[2])});
  }

  absl::Status ApplyData(int64_t lanes, bool parallel, Recorder& out) const {
    const std::string data = block_ + ".data";
    const auto loop = [&](int k) { return absl::StrCat(data, ".", k); };
    const std::string channel = loop(5) + ".0", lane = loop(5) + ".1";
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kSplit, {loop(5)}, {inputs_ / lanes, lanes}));
    HEDDLE_RETURN_IF_ERROR(
        out.Do(Primitive::kReorder, {loop(2), loop(3), loop(4), channel, loop(0), loop(1), lane}));
    HEDDLE_RETURN_IF_ERROR(RowsInRegisters(block_ + ".data_rows", channel, lanes, out));
    HEDDLE_RETURN_IF_ERROR(OverTiles({loop(2), loop(3), loop(4)}, parallel, out));
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kUnroll, {loop(0)}));
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kUnroll, {loop(1)}));
    return lanes > 1 ? out.Do(Primitive::kVectorize, {lane}) : absl::OkStatus();
  }

  absl::Status ApplyOutput(int64_t lanes, bool parallel, Recorder& out) const {
    const std::string &y = output_.row, &x = output_.column, &o = output_.channel;
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kSplit, {y}, {(output_.rows + m_ - 1) / m_, m_}));
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kSplit, {x}, {(output_.columns + m_ - 1) / m_, m_}));
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kSplit, {o}, {output_.channels / lanes, lanes}));
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kReorder, {output_.batch, y + ".0", x + ".0", o + ".0",
                                                        y + ".1", x + ".1", o + ".1"}));
    HEDDLE_RETURN_IF_ERROR(RowsInRegisters(block_ + ".rows", o + ".0", lanes, out));
    HEDDLE_RETURN_IF_ERROR(OverTiles({output_.batch, y + ".0", x + ".0"}, parallel, out));
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kUnroll, {y + ".1"}));
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kUnroll, {x + ".1"}));
    return lanes > 1 ? out.Do(Primitive::kVectorize, {o + ".1"}) : absl::OkStatus();
  }

  std::string block_;
  Output output_;
  int64_t m_, inputs_;
  int data_lanes_ = -1, output_lanes_ = -1, parallel_ = -1;
};

// The one variable of an index, where it is all there is or the left operand of // or %.
const ir::Var* VarOf(const ir::Expr& index) {
  const bool divides = index->kind == ir::ExprKind::kOp &&
                       (index->op == ir::Op::kFloorDiv || index->op == ir::Op::kFloorMod);
  const ir::Expr& e = divides ? index->args[0] : index;
  return e->kind == ir::ExprKind::kVar ? e->var.get() : nullptr;
}

// The block that reads the rows of A^T M, which is the convolution's own or, if that was inlined,
// what stands behind it.
bool FindOutput(const std::vector<Path>& blocks, const ir::Buffer* rows,
                WinogradTransforms::Output* output) {
  for (const Path& path : blocks) {
    if (!Reads(path.block(), rows)) continue;
    StageView view;
    if (!ViewStage(path, &view) || view.spatial.size() != 4 || path.block().reducer) return false;
    ir::Expr load;
    ForEachLoad(path.block(), [&](const ir::Expr& e) {
      if (e->buffer.get() == rows) load = e;
    });
    const auto axis_of = [&](size_t d) -> const Axis* {
      for (const Axis& axis : view.spatial) {
        if (axis.iter == VarOf(load->args[d])) return &axis;
      }
      return nullptr;
    };
    const Axis *batch = axis_of(2), *row = axis_of(3), *column = axis_of(4), *channel = axis_of(5);
    if (!batch || !row || !column || !channel) return false;
    *output = {view.block,    batch->loop, row->loop,      column->loop,
               channel->loop, row->extent, column->extent, channel->extent};
    return true;
  }
  return false;
}

}  // namespace

std::unique_ptr<Rule> MakeWinogradTransforms(const ir::Program& program, const std::string& block,
                                             int64_t m, const machine::TargetInfo& target,
                                             Knobs& knobs, std::set<std::string>* blocks) {
  const std::vector<Path> all = AllBlocks(program.body);
  const ir::Block *data = nullptr, *rows = nullptr;
  for (const Path& path : all) {
    if (path.block().name == block + ".data") data = &path.block();
    if (path.block().name == block + ".rows") rows = &path.block();
  }
  WinogradTransforms::Output output;
  if (!data || !rows || !FindOutput(all, rows->store.buffer.get(), &output)) return nullptr;
  for (const char* stage : {".data_rows", ".data", ".rows"}) blocks->insert(block + stage);
  blocks->insert(output.block);
  const int64_t tiles = data->iters[2].extent * data->iters[3].extent * data->iters[4].extent;
  return std::make_unique<WinogradTransforms>(block, std::move(output), m, data->iters[5].extent,
                                              tiles, target, knobs);
}

}  // namespace heddle::schedule
