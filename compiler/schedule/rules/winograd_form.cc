// A convolution in Winograd form (primitives.h), and the transforms around its products.
//
// Both transforms run tile by tile, a register of channels at a time. For the input, the rows of
// B^T d go into registers, and the tile's elements of (B^T d) B are computed from there and stored.
// For the result it is the same, with the epilogue applied to the product with A.
#include <array>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/schedule/rules/form_choice.h"
#include "compiler/schedule/rules/forms.h"
#include "compiler/schedule/rules/shared_steps.h"
#include "compiler/schedule/rules/stage_work.h"

namespace heddle::schedule {

namespace {

// The variable of an index that is a plain variable, or a variable under // or %; null otherwise.
const ir::Var* VarOf(const ir::Expr& index) {
  const bool divides = index->kind == ir::ExprKind::kOp &&
                       (index->op == ir::Op::kFloorDiv || index->op == ir::Op::kFloorMod);
  const ir::Expr& e = divides ? index->args[0] : index;
  return e->kind == ir::ExprKind::kVar ? e->var.get() : nullptr;
}

// The block that makes the result, and its axes.
struct Output {
  std::string block;
  Axis batch, row, column, channel;
};

// The block that reads the rows of A^T M: the convolution's own or, if that was inlined, the one
// that it went into.
absl::StatusOr<Output> FindOutput(const ir::Program& program, const std::string& rows_block) {
  HEDDLE_ASSIGN_OR_RETURN(const Path rows, FindBlock(program.body, rows_block));
  const ir::Buffer* buffer = rows.block().store.buffer.get();
  for (const Path& path : AllBlocks(program.body)) {
    if (!Reads(path.block(), buffer)) continue;
    StageView view;
    if (!ViewStage(path, &view) || view.spatial.size() != 4 || path.block().reducer) break;
    ir::Expr load;
    ForEachLoad(path.block(), [&](const ir::Expr& e) {
      if (e->buffer.get() == buffer) load = e;
    });
    std::array<const Axis*, 4> axes{};  // of the dimensions after those of the matrix
    for (const Axis& axis : view.spatial) {
      for (size_t k = 0; k < axes.size(); ++k) {
        if (axis.iter == VarOf(load->args[k + 2])) axes[k] = &axis;
      }
    }
    if (!axes[0] || !axes[1] || !axes[2] || !axes[3]) break;
    return Output{view.block, *axes[0], *axes[1], *axes[2], *axes[3]};
  }
  return absl::FailedPreconditionError("no block makes the result element by element");
}

class WinogradForm : public FormRule {
 public:
  WinogradForm(std::string block, int64_t m) : block_(std::move(block)), m_(m) {}

  absl::Status Rewrite(Recorder& out) override {
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<NewBlock> stages, out.Winograd(block_, m_));
    const NewBlock* end = stages.data() + stages.size();  // the order of primitives.h
    data_rows_ = end[-7].name;
    data_ = end[-6];
    product_ = end[-3].name;
    rows_ = end[-2].name;
    return absl::OkStatus();
  }

  absl::Status Declare(const ir::Program& program, const machine::TargetInfo& target,
                       std::string_view name, Knobs& knobs, Owners& owners) override {
    HEDDLE_RETURN_IF_ERROR(FindBlock(program.body, data_.name).status());
    HEDDLE_ASSIGN_OR_RETURN(output_, FindOutput(program, rows_));
    for (const std::string& own : {data_rows_, data_.name, rows_, output_.block})
      owners[own] = name;
    const int64_t lanes = LanesOf(target, ir::DType::kF32), inputs = data_.loops[5].extent;
    const int64_t outputs = output_.channel.extent;
    data_lanes_ = knobs.Add(absl::StrCat("lanes of ", data_.name), Widths(inputs, lanes),
                            PowerOfTwoDivisor(inputs, lanes));
    output_lanes_ = knobs.Add(absl::StrCat("lanes of ", output_.block), Widths(outputs, lanes),
                              PowerOfTwoDivisor(outputs, lanes));
    if (target.target.threads > 1) {
      HEDDLE_ASSIGN_OR_RETURN(const Path rows, FindBlock(program.body, data_rows_));
      HEDDLE_ASSIGN_OR_RETURN(const Path data, FindBlock(program.body, data_.name));
      parallel_ =
          knobs.Add(absl::StrCat("parallel transforms of ", block_), {0, 1},
                    machine::WorthThreads(WorkOf({&rows.block(), &data.block()}, target), target));
    }
    return absl::OkStatus();
  }

  absl::Status Apply(const Knobs& knobs, const Point& point, Recorder& out) const override {
    const bool parallel = parallel_ >= 0 && knobs.Value(point, parallel_) != 0;
    HEDDLE_RETURN_IF_ERROR(ApplyData(knobs.Value(point, data_lanes_), parallel, out));
    return ApplyOutput(knobs.Value(point, output_lanes_), parallel, out);
  }

  // The form is not worth its transforms if the product is a mere pass over memory (the plain
  // rule).
  bool Holds(const Owners& owners) const override {
    const auto owner = owners.find(product_);
    return owner != owners.end() && owner->second != kPlainRule;
  }

 private:
  // The loops of a transform.
  struct Transform {
    std::vector<Loop> tiles;     // over all tiles
    Loop channels;               // over registers of channels
    std::vector<Loop> elements;  // of a tile
    Loop lanes;
  };

  static std::vector<int64_t> Widths(int64_t channels, int64_t lanes) {
    std::vector<int64_t> widths{PowerOfTwoDivisor(channels, lanes)};
    if (widths[0] > 1) widths.push_back(widths[0] / 2);
    return widths;
  }

  // Computes block `rows` into registers for each tile and register of channels.
  static absl::Status ApplyTransform(const Transform& loops, const std::string& rows, bool parallel,
                                     Recorder& out) {
    HEDDLE_RETURN_IF_ERROR(
        out.Reorder(Concat({loops.tiles, {loops.channels}, loops.elements, {loops.lanes}})));
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> own, out.ComputeAt(rows, loops.channels));
    HEDDLE_RETURN_IF_ERROR(out.SetScope(rows, ir::Scope::kLocal));
    HEDDLE_RETURN_IF_ERROR(UnrollAll({own[0], own[1]}, out));
    if (loops.lanes.extent > 1) HEDDLE_RETURN_IF_ERROR(out.Vectorize(own[5]));
    if (parallel) HEDDLE_RETURN_IF_ERROR(FuseParallel(loops.tiles, out));
    HEDDLE_RETURN_IF_ERROR(UnrollAll(loops.elements, out));
    return VectorizeLanes(loops.lanes, out);
  }

  absl::Status ApplyData(int64_t lanes, bool parallel, Recorder& out) const {
    const std::vector<Loop>& d = data_.loops;
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> channels,
                            out.Split(d[5], {d[5].extent / lanes, lanes}));
    return ApplyTransform({{d[2], d[3], d[4]}, channels[0], {d[0], d[1]}, channels[1]}, data_rows_,
                          parallel, out);
  }

  absl::Status ApplyOutput(int64_t lanes, bool parallel, Recorder& out) const {
    const auto split = [&](const Axis& axis, int64_t size) {
      return out.Split(LoopOf(axis), {(axis.extent + size - 1) / size, size});
    };
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> y, split(output_.row, m_));
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> x, split(output_.column, m_));
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> o, split(output_.channel, lanes));
    return ApplyTransform({{LoopOf(output_.batch), y[0], x[0]}, o[0], {y[1], x[1]}, o[1]}, rows_,
                          parallel, out);
  }

  std::string block_;
  int64_t m_;
  std::string data_rows_, product_, rows_;  // stages
  NewBlock data_;
  Output output_;
  int data_lanes_ = -1, output_lanes_ = -1, parallel_ = -1;
};

}  // namespace

bool MatchesWinograd(const FormSite& site) {
  return site.reduction != nullptr && site.target.execution == machine::Execution::kThreads &&
         site.target.target.winograd;
}

std::unique_ptr<FormRule> MakeWinogradForm(const FormSite& site, int64_t m) {
  return std::make_unique<WinogradForm>(site.reduction->block().name, m);
}

int RankWinogradForm(const FormSite& site, int64_t m) {
  return PreferredWinograd(site.reduction->block(), site.target) == m ? 1 : -1;
}

}  // namespace heddle::schedule
