// Recursive descent over the grammar of ir.h. Nodes are made as written, without folding, so that
// text round-trips.
#include <charconv>
#include <limits>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "compiler/ir/lexer.h"
#include "compiler/ir/literal.h"
#include "compiler/ir/text.h"

namespace heddle::ir {
namespace {

// Text may come from a stranger; recursion deeper than this would threaten the stack, and no
// program we make comes near it.
constexpr int kMaxDepth = 1000;
constexpr int64_t kMaxLate = 64;  // fetches; no machine counts more

constexpr std::string_view kReserved[] = {"for",     "alloc", "block", "if",  "barrier", "prefetch",
                                          "program", "true",  "false", "inf", "nan"};

// Makes a name visible during its own lifetime, then restores the previous meaning of the name. Names without one leave the map, so
// that it stays as small as the nest is deep.
template <typename T>
class Scoped {
 public:
  using Map = std::unordered_map<std::string, T>;
  Scoped(Map& map, const std::string& name, T value) : map_(map), name_(name), old_(map[name]) {
    map_[name_] = std::move(value);
  }
  ~Scoped() {
    if (old_ == nullptr)
      map_.erase(name_);
    else
      map_[name_] = std::move(old_);
  }
  Scoped(const Scoped&) = delete;
  Scoped& operator=(const Scoped&) = delete;

 private:
  Map& map_;
  std::string name_;
  T old_;
};

// Counts one level of recursion during its lifetime.
class DeeperExpression {
 public:
  explicit DeeperExpression(int& depth) : depth_(depth) { ++depth_; }
  ~DeeperExpression() { --depth_; }

 private:
  int& depth_;
};

Expr RawNode(ExprNode node) { return std::make_shared<const ExprNode>(std::move(node)); }

class Parser {
 public:
  explicit Parser(std::string_view text) : lexer_(text) { Advance(); }

  absl::StatusOr<Program> ParseProgram() {
    Program program;
    HEDDLE_RETURN_IF_ERROR(Expect("program"));
    HEDDLE_ASSIGN_OR_RETURN(program.name, TakeName("program name"));
    HEDDLE_ASSIGN_OR_RETURN(program.inputs, ParseParams());
    HEDDLE_RETURN_IF_ERROR(Expect("->"));
    HEDDLE_ASSIGN_OR_RETURN(program.outputs, ParseParams());
    HEDDLE_ASSIGN_OR_RETURN(program.body, ParseBody());
    if (token_.kind != TokenKind::kEnd) return Error("text after the program");
    return program;
  }

 private:
  void Advance() { token_ = lexer_.Next(); }
  bool At(std::string_view text) const {
    return token_.text == text &&
           (token_.kind == TokenKind::kName || token_.kind == TokenKind::kSymbol);
  }
  bool Accept(std::string_view text) {
    if (!At(text)) return false;
    Advance();
    return true;
  }

  absl::Status Error(const std::string& message) const {
    std::string found = token_.kind == TokenKind::kEnd ? std::string("the end of the text")
                                                       : "'" + std::string(token_.text) + "'";
    return absl::InvalidArgumentError("line " + std::to_string(token_.line) + ", column " +
                                      std::to_string(token_.column) + ": " + message + ", at " +
                                      found);
  }
  absl::Status Expect(std::string_view text) {
    if (Accept(text)) return absl::OkStatus();
    return Error("expected '" + std::string(text) + "'");
  }

  absl::StatusOr<std::string> TakeName(const char* what) {
    if (token_.kind != TokenKind::kName) return Error(std::string("expected a ") + what);
    if (!IsName(token_.text)) return Error("a reserved word cannot be a " + std::string(what));
    std::string name(token_.text);
    Advance();
    return name;
  }

  absl::StatusOr<int64_t> TakeInt(const char* what) {
    int64_t value = 0;
    const char* end = token_.text.data() + token_.text.size();
    if (token_.kind == TokenKind::kNumber) {
      auto [p, error] = std::from_chars(token_.text.data(), end, value);
      if (error == std::errc() && p == end) {
        Advance();
        return value;
      }
    }
    return Error(std::string("expected ") + what);
  }

  absl::StatusOr<std::shared_ptr<Buffer>> ParseBufferType() {
    auto buffer = std::make_shared<Buffer>();
    HEDDLE_ASSIGN_OR_RETURN(buffer->name, TakeName("buffer name"));
    HEDDLE_RETURN_IF_ERROR(Expect(":"));
    const auto dtype = DTypeFromName(token_.text);
    if (!dtype) return Error("expected a type");
    buffer->dtype = *dtype;
    Advance();
    HEDDLE_RETURN_IF_ERROR(Expect("["));
    while (!At("]")) {
      if (!buffer->shape.empty()) HEDDLE_RETURN_IF_ERROR(Expect(","));
      HEDDLE_ASSIGN_OR_RETURN(int64_t extent, TakeInt("an extent"));
      buffer->shape.push_back(extent);
    }
    Advance();
    return buffer;
  }

  absl::StatusOr<std::vector<BufferRef>> ParseParams() {
    std::vector<BufferRef> params;
    HEDDLE_RETURN_IF_ERROR(Expect("("));
    while (!At(")")) {
      if (!params.empty()) HEDDLE_RETURN_IF_ERROR(Expect(","));
      HEDDLE_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> buffer, ParseBufferType());
      if (Accept("<")) {
        HEDDLE_ASSIGN_OR_RETURN(buffer->below, TakeInt("what the elements are below"));
        if (buffer->below <= 0 || !IsInteger(buffer->dtype))
          return Error("expected integer elements below a positive number before");
      }
      buffer->constant = Accept("const");
      buffers_[buffer->name] = buffer;
      params.push_back(std::move(buffer));
    }
    Advance();
    return params;
  }

  absl::StatusOr<Stmt> ParseBody() {
    std::vector<Stmt> stmts;
    HEDDLE_RETURN_IF_ERROR(Expect("{"));
    while (!At("}")) {
      HEDDLE_ASSIGN_OR_RETURN(Stmt s, ParseStmt());
      stmts.push_back(std::move(s));
    }
    Advance();
    return MakeSeq(std::move(stmts));
  }

  absl::StatusOr<Stmt> ParseStmt() {
    DeeperExpression deeper(depth_);
    if (depth_ > kMaxDepth) return Error("statements nest too deeply");
    if (Accept("for")) return ParseFor();
    if (Accept("alloc")) return ParseAlloc();
    if (Accept("block")) return ParseBlock();
    if (Accept("barrier")) return ParseBarrier();
    if (Accept("prefetch")) {
      HEDDLE_ASSIGN_OR_RETURN(Expr element, ParseExpr());
      if (element->kind != ExprKind::kLoad) return Error("expected an element of a buffer before");
      return MakeStmt(Prefetch{std::move(element)});
    }
    if (Accept("if")) {
      HEDDLE_ASSIGN_OR_RETURN(Expr condition, ParseExpr());
      HEDDLE_ASSIGN_OR_RETURN(Stmt body, ParseBody());
      return MakeStmt(If{std::move(condition), std::move(body)});
    }
    HEDDLE_ASSIGN_OR_RETURN(Store store, ParseStore());
    return MakeStmt(std::move(store));
  }

  absl::StatusOr<Stmt> ParseBarrier() {
    Barrier barrier;
    if (token_.kind == TokenKind::kNumber) {
      HEDDLE_ASSIGN_OR_RETURN(const int64_t late, TakeInt("a number of fetches"));
      if (late > kMaxLate) return Error("no barrier lets so many fetches come late");
      barrier.late = static_cast<int>(late);
    }
    return MakeStmt(std::move(barrier));
  }

  absl::StatusOr<Stmt> ParseFor() {
    For loop;
    HEDDLE_ASSIGN_OR_RETURN(std::string name, TakeName("loop variable"));
    loop.var = std::make_shared<Var>(Var{name});
    HEDDLE_RETURN_IF_ERROR(Expect("in"));
    HEDDLE_ASSIGN_OR_RETURN(loop.extent, TakeInt("the extent of the loop"));
    if (!At("{")) {
      const auto kind = LoopKindFromName(token_.text);
      if (!kind) return Error("expected a loop kind or '{'");
      loop.kind = *kind;
      Advance();
    }
    Scoped<VarRef> visible(vars_, name, loop.var);
    HEDDLE_ASSIGN_OR_RETURN(loop.body, ParseBody());
    return MakeStmt(std::move(loop));
  }

  absl::StatusOr<Stmt> ParseAlloc() {
    HEDDLE_ASSIGN_OR_RETURN(BufferRef parsed, ParseBufferType());
    auto buffer = std::make_shared<Buffer>(*parsed);
    if (At("global")) {
      buffer->scope = Scope::kGlobal;
    } else if (At("shared")) {
      buffer->scope = Scope::kShared;
    } else if (At("local")) {
      buffer->scope = Scope::kLocal;
    } else {
      return Error("expected global, shared or local");
    }
    Advance();
    Scoped<BufferRef> visible(buffers_, buffer->name, buffer);
    HEDDLE_ASSIGN_OR_RETURN(Stmt body, ParseBody());
    return MakeStmt(Alloc{buffer, std::move(body)});
  }

  absl::StatusOr<BlockIter> ParseIter() {
    BlockIter iter;
    HEDDLE_ASSIGN_OR_RETURN(std::string name, TakeName("block iterator"));
    iter.var = std::make_shared<Var>(Var{name});
    HEDDLE_RETURN_IF_ERROR(Expect("<"));
    HEDDLE_ASSIGN_OR_RETURN(iter.extent, TakeInt("the extent of the iterator"));
    if (Accept("reduce")) {
      iter.kind = IterKind::kReduce;
    } else {
      HEDDLE_RETURN_IF_ERROR(Expect("spatial"));
    }
    HEDDLE_RETURN_IF_ERROR(Expect("="));
    HEDDLE_ASSIGN_OR_RETURN(iter.binding, ParseExpr());
    return iter;
  }

  absl::StatusOr<Stmt> ParseBlock() {
    Block block;
    HEDDLE_ASSIGN_OR_RETURN(block.name, TakeName("block name"));
    HEDDLE_RETURN_IF_ERROR(Expect("("));
    while (!At(")")) {
      if (!block.iters.empty()) HEDDLE_RETURN_IF_ERROR(Expect(","));
      HEDDLE_ASSIGN_OR_RETURN(BlockIter iter, ParseIter());
      block.iters.push_back(std::move(iter));
    }
    Advance();
    if (Accept("where")) {
      HEDDLE_ASSIGN_OR_RETURN(block.where, ParseExpr());
    }
    std::vector<std::unique_ptr<Scoped<VarRef>>> visible;
    for (const BlockIter& iter : block.iters)
      visible.push_back(std::make_unique<Scoped<VarRef>>(vars_, iter.var->name, iter.var));
    const absl::Status status = ParseBlockBody(block);
    while (!visible.empty()) visible.pop_back();  // a name may be there twice
    HEDDLE_RETURN_IF_ERROR(status);
    HEDDLE_RETURN_IF_ERROR(Expect("}"));
    return MakeStmt(std::move(block));
  }

  // Parses the parts that are written in iterators: the initial value and the store.
  absl::Status ParseBlockBody(Block& block) {
    if (!At("{")) {
      HEDDLE_ASSIGN_OR_RETURN(block.reducer, ParseReducer());
    }
    HEDDLE_RETURN_IF_ERROR(Expect("{"));
    HEDDLE_ASSIGN_OR_RETURN(block.store, ParseStore());
    return absl::OkStatus();
  }

  absl::StatusOr<Reducer> ParseReducer() {
    Reducer reducer;
    for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMax, ReduceOp::kMin}) {
      if (!Accept(Name(op))) continue;
      reducer.op = op;
      if (Accept("init")) {
        HEDDLE_ASSIGN_OR_RETURN(reducer.init, ParseExpr());
      }
      return reducer;
    }
    return Error("expected where, sum, prod, max, min or '{'");
  }

  absl::StatusOr<Store> ParseStore() {
    Store store;
    if (token_.kind != TokenKind::kName) return Error("expected a statement");
    HEDDLE_ASSIGN_OR_RETURN(store.buffer, LookUpBuffer(token_.text));
    Advance();
    HEDDLE_ASSIGN_OR_RETURN(store.indices, ParseList("[", "]"));
    HEDDLE_RETURN_IF_ERROR(Expect("="));
    HEDDLE_ASSIGN_OR_RETURN(store.value, ParseExpr());
    return store;
  }

  absl::StatusOr<BufferRef> LookUpBuffer(std::string_view name) {
    auto it = buffers_.find(std::string(name));
    if (it == buffers_.end() || !it->second) return Error("no buffer of this name is visible");
    return it->second;
  }

  absl::StatusOr<std::vector<Expr>> ParseList(const char* open, const char* close) {
    std::vector<Expr> list;
    HEDDLE_RETURN_IF_ERROR(Expect(open));
    while (!At(close)) {
      if (!list.empty()) HEDDLE_RETURN_IF_ERROR(Expect(","));
      HEDDLE_ASSIGN_OR_RETURN(Expr e, ParseExpr());
      list.push_back(std::move(e));
    }
    Advance();
    return list;
  }

  absl::StatusOr<Expr> ParseExpr() {
    DeeperExpression deeper(depth_);
    if (depth_ > kMaxDepth) return Error("expressions nest too deeply");
    if (At("(")) return ParseInfix();
    if (token_.kind == TokenKind::kNumber || At("-") || At("inf") || At("nan"))
      return ParseNumber(DType::kF32);
    if (At("true") || At("false")) {
      const bool value = At("true");
      Advance();
      return Bool(value);
    }
    if (token_.kind != TokenKind::kName) return Error("expected an expression");
    const Token name = token_;
    Advance();
    if (At("(")) return ParseCall(name);
    if (At("[")) {
      auto it = buffers_.find(std::string(name.text));
      if (it == buffers_.end() || !it->second) {
        token_ = name;
        return Error("no buffer of this name is visible");
      }
      HEDDLE_ASSIGN_OR_RETURN(std::vector<Expr> indices, ParseList("[", "]"));
      return Load(it->second, std::move(indices));
    }
    auto it = vars_.find(std::string(name.text));
    if (it == vars_.end() || !it->second) {
      token_ = name;
      return Error("no variable of this name is visible");
    }
    return VarExpr(it->second);
  }

  static Expr RawOp(Op op, std::vector<Expr> args) {
    ExprNode node{ExprKind::kOp, args[0]->dtype};
    if (op == Op::kSelect) node.dtype = args[1]->dtype;
    if ((op >= Op::kLt && op <= Op::kNe) || op == Op::kIsNan || op == Op::kIsInf)
      node.dtype = DType::kBool;
    node.op = op;
    node.args = std::move(args);
    return RawNode(std::move(node));
  }

  absl::StatusOr<Expr> ParseInfix() {
    Advance();
    HEDDLE_ASSIGN_OR_RETURN(Expr a, ParseExpr());
    const auto op = token_.kind == TokenKind::kSymbol ? OpFromName(token_.text) : std::nullopt;
    if (!op) return Error("expected an operator");
    Advance();
    HEDDLE_ASSIGN_OR_RETURN(Expr b, ParseExpr());
    HEDDLE_RETURN_IF_ERROR(Expect(")"));
    return RawOp(*op, {std::move(a), std::move(b)});
  }

  absl::StatusOr<Expr> ParseCall(const Token& name) {
    if (const auto dtype = DTypeFromName(name.text)) {
      Advance();
      Expr operand;
      if (At("-") || At("inf") || At("nan")) {  // f64(inf) is how a literal of f64 is written
        HEDDLE_ASSIGN_OR_RETURN(operand, ParseNumber(IsFloat(*dtype) ? *dtype : DType::kF32));
      } else {
        HEDDLE_ASSIGN_OR_RETURN(operand, ParseExpr());
      }
      HEDDLE_RETURN_IF_ERROR(Expect(")"));
      if (operand->kind == ExprKind::kFloat && operand->dtype == *dtype) return operand;
      ExprNode node{ExprKind::kCast, *dtype};
      node.args.push_back(std::move(operand));
      return RawNode(std::move(node));
    }
    const auto op = OpFromName(name.text);
    if (!op) {
      token_ = name;
      return Error("no operator of this name");
    }
    HEDDLE_ASSIGN_OR_RETURN(std::vector<Expr> args, ParseList("(", ")"));
    if (static_cast<int>(args.size()) != Arity(*op)) {
      token_ = name;
      return Error("wants " + std::to_string(Arity(*op)) + " operands");
    }
    return RawOp(*op, std::move(args));
  }

  // `special` is the type of inf and nan.
  absl::StatusOr<Expr> ParseNumber(DType special) {
    const bool negative = Accept("-");
    if (At("inf") || At("nan")) {
      const double value = At("inf") ? std::numeric_limits<double>::infinity()
                                     : std::numeric_limits<double>::quiet_NaN();
      Advance();
      return Float(negative ? -value : value, special);
    }
    if (token_.kind != TokenKind::kNumber) return Error("expected a number");
    absl::StatusOr<Expr> literal = Literal(token_.text, negative);
    if (!literal.ok()) return Error(std::string(literal.status().message()));
    Advance();
    return literal;
  }

  Lexer lexer_;
  Token token_;
  int depth_ = 0;
  std::unordered_map<std::string, VarRef> vars_;
  std::unordered_map<std::string, BufferRef> buffers_;
};

}  // namespace

absl::StatusOr<Program> Parse(std::string_view text) { return Parser(text).ParseProgram(); }

bool IsName(std::string_view text) {
  if (text.empty() || !Lexer::IsNameStart(text[0])) return false;
  for (char c : text) {
    if (!Lexer::IsNameChar(c)) return false;
  }
  for (std::string_view word : kReserved) {
    if (text == word) return false;
  }
  return true;
}

}  // namespace heddle::ir
