// Walks and rewrites: every kind of node is reached, and what does not change is shared.
#include "compiler/ir/visit.h"

#include <gtest/gtest.h>

#include <set>

#include "compiler/ir/text.h"

namespace heddle::ir {
namespace {

// Every kind of statement.
constexpr char kAll[] = R"(program p(A: f32[8], I: i64[8]) -> (O: f32[8]) {
  for i in 8 {
    alloc t : f32[1] local {
      prefetch A[(i + 1)]
      if (i < 4) {
        block b(v < 8 spatial = i) where (i < 3) sum init 0.0 { t[0] = A[I[v]] }
      }
      barrier
      O[i] = t[0]
    }
  }
}
)";

Stmt Body() {
  absl::StatusOr<Program> program = Parse(kAll);
  EXPECT_TRUE(program.ok()) << program.status();
  return program->body;
}

TEST(Visit, ReachesEveryKindOfStatement) {
  std::set<size_t> kinds;
  VisitStmt(Body(), [&](const Stmt& s) {
    kinds.insert(s->index());
    return true;
  });
  EXPECT_EQ(kinds.size(), std::variant_size_v<StmtVariant>);
}

TEST(Visit, ReachesEveryExpression) {
  std::multiset<std::string> loads, exprs;
  VisitLoads(Body(), [&](const Expr& load) { loads.insert(Print(load)); });
  EXPECT_EQ(loads, (std::multiset<std::string>{"A[(i + 1)]", "A[I[v]]", "I[v]", "t[0]"}));
  VisitStmtExprs(Body(), [&](const Expr& e) { exprs.insert(Print(e)); });
  EXPECT_EQ(exprs, (std::multiset<std::string>{"A[(i + 1)]", "(i < 4)", "i", "(i < 3)", "0.0", "0",
                                               "A[I[v]]", "i", "t[0]"}));
}

TEST(MapChildren, SharesWhatDoesNotChange) {
  const Stmt body = Body();
  EXPECT_EQ(RewriteStmt(
                body, [](const Stmt& s) { return s; }, [](const Expr& e) { return e; }),
            body);
  EXPECT_EQ(Substitute(body, {}), body);
  EXPECT_EQ(ReplaceBuffers(body, {}), body);
  // One store changes: the loops around it are new, the guarded block is the same node.
  const auto guarded = [](const Stmt& s) {
    Stmt found;
    VisitStmt(s, [&](const Stmt& node) {
      if (As<If>(node)) found = node;
      return true;
    });
    return found;
  };
  const Stmt changed = RewriteStmt(body, [](const Stmt& s) {
    const Store* store = As<Store>(s);
    return store ? MakeStmt(Store{store->buffer, store->indices, Float(1)}) : s;
  });
  EXPECT_NE(changed, body);
  EXPECT_EQ(guarded(changed), guarded(body));
}

TEST(MapChildren, DeletesWhatBecomesEmpty) {
  const Stmt without = RewriteStmt(Body(), [](const Stmt& s) -> Stmt {
    return As<Block>(s) || As<Prefetch>(s) || As<Barrier>(s) ? nullptr : s;
  });
  EXPECT_EQ(Print(without), "for i in 8 {\n  alloc t: f32[1] local {\n    O[i] = t[0]\n  }\n}\n");
  EXPECT_EQ(RewriteStmt(Body(), [](const Stmt& s) -> Stmt { return As<For>(s) ? nullptr : s; }),
            nullptr);
}

TEST(MapElements, RedirectsLoadsAndStores) {
  const auto to = std::make_shared<const Buffer>(Buffer{"T", DType::kF32, {1, 2}, Scope::kLocal});
  const Stmt moved =
      MapElements(Body(), [&](const BufferRef& buffer, const std::vector<Expr>& indices) {
        std::optional<Element> element;
        if (buffer->name == "t") element = Element{to, {indices[0], Int(1)}};
        return element;
      });
  const std::string text = Print(moved);
  EXPECT_NE(text.find("T[0, 1] = A[I[v]]"), text.npos) << text;
  EXPECT_NE(text.find("O[i] = T[0, 1]"), text.npos) << text;
}

}  // namespace
}  // namespace heddle::ir
