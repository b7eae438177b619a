#include <charconv>
#include <cmath>

#include "compiler/ir/text.h"

namespace heddle::ir {
namespace {

void PrintInt(int64_t value, std::string& out) {
  char digits[24];
  out.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

void PrintFloat(double value, DType dtype, std::string& out) {
  if (!std::isfinite(value)) {
    const char* word = std::isnan(value) ? "nan" : (value > 0 ? "inf" : "-inf");
    out += dtype == DType::kF32 ? std::string(word)
                                : std::string(Name(dtype)) + "(" + std::string(word) + ")";
    return;
  }
  char digits[64];
  char* end = digits + sizeof digits;
  end = dtype == DType::kF64 ? std::to_chars(digits, end, value).ptr
                             : std::to_chars(digits, end, static_cast<float>(value)).ptr;
  const std::string_view text(digits, end - digits);
  out += text;
  if (text.find_first_of(".e") == text.npos) out += ".0";
  if (dtype != DType::kF32) out += Name(dtype);
}

bool IsInfix(Op op) { return Arity(op) == 2 && op != Op::kMin && op != Op::kMax && op != Op::kPow; }

void PrintExpr(const Expr& e, std::string& out);

void PrintList(const std::vector<Expr>& list, std::string& out) {
  for (size_t i = 0; i < list.size(); ++i) {
    if (i > 0) out += ", ";
    PrintExpr(list[i], out);
  }
}

void PrintExpr(const Expr& e, std::string& out) {
  switch (e->kind) {
    case ExprKind::kInt:
      if (e->dtype == DType::kBool) {
        out += e->int_value ? "true" : "false";
      } else {
        if (e->dtype == DType::kU64)
          out += std::to_string(static_cast<uint64_t>(e->int_value));
        else
          PrintInt(e->int_value, out);
        if (e->dtype != DType::kI64) out += Name(e->dtype);
      }
      return;
    case ExprKind::kFloat:
      return PrintFloat(e->float_value, e->dtype, out);
    case ExprKind::kVar:
      out += e->var->name;
      return;
    case ExprKind::kLoad:
      out += e->buffer->name;
      out += '[';
      PrintList(e->args, out);
      out += ']';
      return;
    case ExprKind::kCast:
      out += Name(e->dtype);
      out += '(';
      PrintList(e->args, out);
      out += ')';
      return;
    case ExprKind::kOp:
      break;
  }
  if (IsInfix(e->op)) {
    out += '(';
    PrintExpr(e->args[0], out);
    out += ' ';
    out += Name(e->op);
    out += ' ';
    PrintExpr(e->args[1], out);
    out += ')';
    return;
  }
  out += Name(e->op);
  out += '(';
  PrintList(e->args, out);
  out += ')';
}

void PrintType(const Buffer& buffer, std::string& out) {
  out += buffer.name;
  out += ": ";
  out += Name(buffer.dtype);
  out += '[';
  for (size_t i = 0; i < buffer.shape.size(); ++i) {
    if (i > 0) out += ", ";
    PrintInt(buffer.shape[i], out);
  }
  out += ']';
  if (buffer.below > 0) {
    out += " < ";
    PrintInt(buffer.below, out);
  }
}

void PrintParams(const std::vector<BufferRef>& params, std::string& out) {
  out += '(';
  for (size_t i = 0; i < params.size(); ++i) {
    if (i > 0) out += ", ";
    PrintType(*params[i], out);
    if (params[i]->constant) out += " const";
  }
  out += ')';
}

std::string_view ScopeName(Scope scope) {
  return scope == Scope::kGlobal ? "global" : (scope == Scope::kShared ? "shared" : "local");
}

class StmtPrinter {
 public:
  explicit StmtPrinter(std::string& out) : out_(out) {}

  void Print(const Stmt& s, int indent) {
    if (const Seq* seq = As<Seq>(s)) {
      for (const Stmt& child : seq->stmts) Print(child, indent);
      return;
    }
    out_.append(static_cast<size_t>(indent) * 2, ' ');
    if (const For* loop = As<For>(s)) return PrintFor(*loop, indent);
    if (const Block* block = As<Block>(s)) return PrintBlock(*block, indent);
    if (const Store* store = As<Store>(s)) {
      PrintStore(*store);
      out_ += '\n';
    } else if (const If* branch = As<If>(s)) {
      out_ += "if ";
      PrintExpr(branch->condition, out_);
      Body(branch->body, indent);
    } else if (const Alloc* alloc = As<Alloc>(s)) {
      out_ += "alloc ";
      PrintType(*alloc->buffer, out_);
      out_ += ' ';
      out_ += ScopeName(alloc->buffer->scope);
      Body(alloc->body, indent);
    } else if (const Prefetch* prefetch = As<Prefetch>(s)) {
      out_ += "prefetch ";
      PrintExpr(prefetch->element, out_);
      out_ += '\n';
    } else {
      out_ += "barrier";
      if (const int late = As<Barrier>(s)->late; late > 0) {
        out_ += ' ';
        PrintInt(late, out_);
      }
      out_ += '\n';
    }
  }

 private:
  void Body(const Stmt& body, int indent) {
    out_ += " {\n";
    Print(body, indent + 1);
    out_.append(static_cast<size_t>(indent) * 2, ' ');
    out_ += "}\n";
  }

  void PrintFor(const For& loop, int indent) {
    out_ += "for ";
    out_ += loop.var->name;
    out_ += " in ";
    PrintInt(loop.extent, out_);
    if (loop.kind != LoopKind::kSerial) {
      out_ += ' ';
      out_ += Name(loop.kind);
    }
    Body(loop.body, indent);
  }

  void PrintBlock(const Block& block, int indent) {
    out_ += "block ";
    out_ += block.name;
    out_ += '(';
    for (size_t i = 0; i < block.iters.size(); ++i) {
      const BlockIter& iter = block.iters[i];
      if (i > 0) out_ += ", ";
      out_ += iter.var->name;
      out_ += " < ";
      PrintInt(iter.extent, out_);
      out_ += iter.kind == IterKind::kSpatial ? " spatial = " : " reduce = ";
      PrintExpr(iter.binding, out_);
    }
    out_ += ')';
    if (block.where) {
      out_ += " where ";
      PrintExpr(block.where, out_);
    }
    if (block.reducer) {
      out_ += ' ';
      out_ += Name(block.reducer->op);
      if (block.reducer->init) {
        out_ += " init ";
        PrintExpr(block.reducer->init, out_);
      }
    }
    out_ += " {\n";
    out_.append(static_cast<size_t>(indent + 1) * 2, ' ');
    PrintStore(block.store);
    out_ += '\n';
    out_.append(static_cast<size_t>(indent) * 2, ' ');
    out_ += "}\n";
  }

  void PrintStore(const Store& store) {
    out_ += store.buffer->name;
    out_ += '[';
    PrintList(store.indices, out_);
    out_ += "] = ";
    PrintExpr(store.value, out_);
  }

  std::string& out_;
};

}  // namespace

std::string Print(const Expr& expr) {
  std::string out;
  PrintExpr(expr, out);
  return out;
}

std::string Print(const Stmt& stmt, int indent) {
  std::string out;
  StmtPrinter(out).Print(stmt, indent);
  return out;
}

std::string Print(const Program& program) {
  std::string out = "program " + program.name;
  PrintParams(program.inputs, out);
  out += " -> ";
  PrintParams(program.outputs, out);
  out += " {\n";
  StmtPrinter(out).Print(program.body, 1);
  out += "}\n";
  return out;
}

}  // namespace heddle::ir
