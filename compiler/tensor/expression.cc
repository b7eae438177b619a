#include "compiler/tensor/expression.h"

#include <cctype>
#include <unordered_map>
#include <unordered_set>

#include "absl/status/status.h"
#include "compiler/ir/text.h"
#include "compiler/ir/visit.h"

namespace heddle::tensor {
namespace {

using ir::BufferRef;
using ir::Expr;

// Replaces everything but letters, digits and underscores by underscores. Models choose tensor
// names freely, and the punctuation that IR names allow is reserved for names derived by schedules.
std::string CleanName(const std::string& name) {
  std::string clean;
  for (char c : name) clean += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  if (clean.empty() || std::isdigit(static_cast<unsigned char>(clean[0]))) clean.insert(0, "t");
  if (!ir::IsName(clean)) clean += '_';
  return clean;
}

std::shared_ptr<ir::Buffer> MakeBuffer(const std::string& name, ir::DType dtype,
                                       std::vector<int64_t> shape) {
  auto buffer = std::make_shared<ir::Buffer>();
  buffer->name = CleanName(name);
  buffer->dtype = dtype;
  buffer->shape = std::move(shape);
  return buffer;
}

std::vector<std::pair<ir::VarRef, int64_t>> MakeVars(const char* prefix,
                                                     const std::vector<int64_t>& extents) {
  std::vector<std::pair<ir::VarRef, int64_t>> vars;
  for (size_t i = 0; i < extents.size(); ++i) {
    vars.emplace_back(std::make_shared<ir::Var>(ir::Var{prefix + std::to_string(i)}), extents[i]);
  }
  return vars;
}

std::vector<Expr> AsExprs(const std::vector<std::pair<ir::VarRef, int64_t>>& vars) {
  std::vector<Expr> exprs;
  for (const auto& [var, extent] : vars) exprs.push_back(ir::VarExpr(var));
  return exprs;
}

void CollectLoads(const Expr& e, std::unordered_set<const ir::Buffer*>& loads) {
  ir::VisitExpr(e, [&](const Expr& node) {
    if (node->kind == ir::ExprKind::kLoad) loads.insert(node->buffer.get());
  });
}

absl::Status Bad(const std::string& program, const std::string& message) {
  return absl::InvalidArgumentError("tensor program " + program + ": " + message);
}

// Gives out unique names. A stage T also takes the name T_buf.
class Names {
 public:
  std::string Take(const std::string& wanted) {
    std::string name = wanted;
    for (int suffix = 1; used_.count(name) || used_.count(name + "_buf"); ++suffix) {
      name = wanted + "_" + std::to_string(suffix);
    }
    used_.insert(name);
    used_.insert(name + "_buf");
    return name;
  }

 private:
  std::unordered_set<std::string> used_;
};

}  // namespace

Builder::Builder(std::string name) { program_.name = CleanName(name); }

Tensor Builder::Input(std::string name, ir::DType dtype, std::vector<int64_t> shape, bool constant,
                      int64_t below) {
  std::shared_ptr<ir::Buffer> buffer = MakeBuffer(name, dtype, std::move(shape));
  buffer->constant = constant;
  buffer->below = below;
  program_.inputs.push_back(std::move(buffer));
  return Tensor(program_.inputs.back());
}

Tensor Builder::Compute(std::string name, std::vector<int64_t> shape,
                        const std::function<Expr(Iters)>& fn) {
  Stage stage;
  stage.spatial = MakeVars("i", shape);
  stage.value = fn(AsExprs(stage.spatial));
  stage.out = MakeBuffer(name, stage.value->dtype, std::move(shape));
  program_.stages.push_back(stage);
  return Tensor(stage.out);
}

Tensor Builder::Stored(const Tensor& tensor, ir::DType dtype) {
  if (!ir::IsHalf(dtype) || tensor.buffer()->dtype == dtype) return tensor;
  return Compute("stored", tensor.shape(), [&](Iters s) {
    return ir::Cast(dtype, tensor.At({s.begin(), s.end()}));
  });
}

Tensor Builder::Reduce(std::string name, std::vector<int64_t> shape,
                       std::vector<int64_t> reduce_extents, ir::ReduceOp op,
                       const std::function<Expr(Iters, Iters)>& fn) {
  Stage stage;
  stage.spatial = MakeVars("i", shape);
  stage.reduce = MakeVars("r", reduce_extents);
  stage.value = fn(AsExprs(stage.spatial), AsExprs(stage.reduce));
  if (!stage.reduce.empty()) stage.op = op;
  stage.out = MakeBuffer(name, stage.value->dtype, std::move(shape));
  program_.stages.push_back(stage);
  return Tensor(stage.out);
}

Tensor Builder::Recur(std::string name, ir::DType dtype, std::vector<int64_t> shape,
                      std::vector<int64_t> reduce_extents, ir::ReduceOp op,
                      const std::function<Expr(Iters, Iters, const Tensor&)>& fn) {
  Stage stage;
  stage.spatial = MakeVars("i", shape);
  stage.reduce = MakeVars("r", reduce_extents);
  stage.out = MakeBuffer(name, dtype, std::move(shape));
  stage.value = fn(AsExprs(stage.spatial), AsExprs(stage.reduce), Tensor(stage.out));
  stage.op = op;
  program_.stages.push_back(stage);
  return Tensor(stage.out);
}

absl::StatusOr<TensorProgram> Builder::Build(const std::vector<Tensor>& outputs) {
  std::unordered_set<const ir::Buffer*> needed, made;
  for (const Stage& stage : program_.stages) made.insert(stage.out.get());
  if (outputs.empty()) return Bad(program_.name, "no outputs");
  for (const Tensor& output : outputs) {
    if (!output.buffer() || !made.count(output.buffer().get())) {
      return Bad(program_.name, "an output is not the result of a stage; copy it with Compute");
    }
    if (!needed.insert(output.buffer().get()).second) {
      return Bad(program_.name, "output " + output.buffer()->name + " is listed twice");
    }
  }
  for (auto stage = program_.stages.rbegin(); stage != program_.stages.rend(); ++stage) {
    if (needed.count(stage->out.get())) CollectLoads(stage->value, needed);
  }
  for (const BufferRef& input : program_.inputs) made.insert(input.get());
  for (const ir::Buffer* buffer : needed) {
    if (!made.count(buffer))
      return Bad(program_.name, "reads " + buffer->name + ", which is neither input nor stage");
  }

  TensorProgram result;
  result.name = program_.name;
  Names names;
  ir::BufferMap renamed;
  const auto rename = [&](const BufferRef& old) {
    auto copy = std::make_shared<ir::Buffer>(*old);
    copy->name = names.Take(old->name);
    renamed[old.get()] = copy;
    return copy;
  };
  for (const BufferRef& input : program_.inputs) result.inputs.push_back(rename(input));
  for (const Stage& stage : program_.stages) {
    for (int64_t extent : stage.out->shape) {
      if (extent <= 0)
        return Bad(program_.name, stage.out->name + " has an extent that is not positive");
    }
    if (!needed.count(stage.out.get())) continue;
    Stage copy = stage;
    copy.out = rename(stage.out);  // before the value, which may read it
    copy.value = ir::ReplaceBuffers(stage.value, renamed);
    result.stages.push_back(std::move(copy));
  }
  for (const Tensor& output : outputs) result.outputs.push_back(renamed.at(output.buffer().get()));
  return result;
}

namespace {

// Makes loops "<block>.i0", .., "<block>.r0", .. around one block with iterators "<block>.vi0", ..
ir::Stmt LowerStage(const Stage& stage, const BufferRef& out, const ir::BufferMap& buffers) {
  const std::string& name = stage.out->name;
  ir::Block block;
  block.name = name;
  std::vector<ir::For> loops;
  ir::Substitution iters;
  const auto add = [&](const ir::VarRef& var, int64_t extent, ir::IterKind kind,
                       const std::string& short_name) {
    auto loop_var = std::make_shared<ir::Var>(ir::Var{name + "." + short_name});
    auto iter_var = std::make_shared<ir::Var>(ir::Var{name + ".v" + short_name});
    loops.push_back(ir::For{loop_var, extent, ir::LoopKind::kSerial, nullptr});
    block.iters.push_back(ir::BlockIter{iter_var, extent, kind, ir::VarExpr(loop_var)});
    iters[var.get()] = ir::VarExpr(iter_var);
    return ir::VarExpr(iter_var);
  };
  for (size_t i = 0; i < stage.spatial.size(); ++i) {
    const auto& [var, extent] = stage.spatial[i];
    block.store.indices.push_back(
        add(var, extent, ir::IterKind::kSpatial, "i" + std::to_string(i)));
  }
  for (size_t i = 0; i < stage.reduce.size(); ++i) {
    const auto& [var, extent] = stage.reduce[i];
    add(var, extent, ir::IterKind::kReduce, "r" + std::to_string(i));
  }
  if (stage.op) block.reducer = ir::Reducer{*stage.op, ir::Identity(*stage.op, out->dtype)};
  block.store.buffer = out;
  block.store.value = ir::ReplaceBuffers(ir::Substitute(stage.value, iters), buffers);
  ir::Stmt body = ir::MakeStmt(std::move(block));
  for (auto loop = loops.rbegin(); loop != loops.rend(); ++loop) {
    loop->body = std::move(body);
    body = ir::MakeStmt(std::move(*loop));
  }
  return body;
}

}  // namespace

absl::StatusOr<ir::Program> LowerToLoops(const TensorProgram& program) {
  ir::Program result;
  result.name = program.name;
  result.inputs = program.inputs;
  ir::BufferMap buffers;
  std::vector<ir::Stmt> stmts;
  for (const Stage& stage : program.stages) {
    auto out = std::make_shared<ir::Buffer>(*stage.out);
    out->name += "_buf";
    if (stage.value->dtype != out->dtype)
      return Bad(program.name, stage.out->name + " has a value of another type");
    if (stage.spatial.size() != out->shape.size())
      return Bad(program.name, stage.out->name + " lacks an iterator per dimension");
    if (stage.op.has_value() == stage.reduce.empty()) {
      return Bad(
          program.name,
          stage.out->name + " must have a reduce operator if and only if it has reduce iterators");
    }
    buffers[stage.out.get()] = out;
    stmts.push_back(LowerStage(stage, out, buffers));
  }
  std::unordered_set<const ir::Buffer*> is_output;
  for (const BufferRef& output : program.outputs) {
    auto it = buffers.find(output.get());
    if (it == buffers.end())
      return Bad(program.name, "output " + output->name + " is not the result of a stage");
    result.outputs.push_back(it->second);
    is_output.insert(output.get());
  }
  result.body = ir::MakeSeq(std::move(stmts));
  for (auto stage = program.stages.rbegin(); stage != program.stages.rend(); ++stage) {
    if (is_output.count(stage->out.get())) continue;
    result.body = ir::MakeStmt(ir::Alloc{buffers.at(stage->out.get()), result.body});
  }
  return result;
}

}  // namespace heddle::tensor
