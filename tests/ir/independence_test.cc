// WritesApart against all iterations, one by one.
#include "compiler/ir/analysis/independence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "compiler/ir/text.h"

namespace heddle::ir {
namespace {

TEST(Independence, WhatIsCalledApartIsApart) {
  std::mt19937_64 rng(1);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(rng() % n); };
  int apart = 0, surely = 0;
  for (int round = 0; round < 20000; ++round) {
    const int count = static_cast<int>(1 + below(4));
    std::vector<Stmt> loops;
    std::vector<const For*> nest;
    std::vector<int64_t> steps;
    // Mostly a mixed-radix number whose digits are in any order, so that many are apart.
    std::vector<int64_t> extents;
    for (int k = 0; k < count; ++k) extents.push_back(1 + below(5));
    std::vector<int> order(count);
    for (int k = 0; k < count; ++k) order[k] = k;
    std::shuffle(order.begin(), order.end(), rng);
    steps.resize(count);
    int64_t radix = 1;
    for (const int k : order) {
      steps[k] = below(4) == 0 ? below(20) - 4 : radix + below(5) / 4;
      radix *= extents[k];
    }
    Expr index = Int(0);
    for (int k = 0; k < count; ++k) {
      auto var = std::make_shared<const Var>(Var{"i" + std::to_string(k)});
      loops.push_back(MakeStmt(For{var, extents[k], LoopKind::kSerial, nullptr}));
      nest.push_back(As<For>(loops.back()));
      index = index + VarExpr(var) * Int(steps[k]);
    }
    // All values that each iteration of the first loop writes.
    std::set<int64_t> seen;
    bool disjoint = true;
    for (int64_t t = 0; t < extents[0]; ++t) {
      std::set<int64_t> own{t * steps[0]};
      for (int k = 1; k < count; ++k) {
        std::set<int64_t> more;
        for (const int64_t value : own) {
          for (int64_t i = 0; i < extents[k]; ++i) more.insert(value + i * steps[k]);
        }
        own = std::move(more);
      }
      for (const int64_t value : own) disjoint &= seen.insert(value).second;
    }
    Buffer buffer;
    buffer.name = "b";
    buffer.shape = {1000};
    const bool said = WritesApart({index}, buffer, nest);
    ASSERT_TRUE(disjoint || !said) << Print(index) << " over " << extents[0] << " iterations";
    apart += disjoint && extents[0] > 1;
    surely += said && extents[0] > 1;
  }
  EXPECT_GT(surely, apart / 2) << "hardly anything that is apart is seen to be";
}

}  // namespace
}  // namespace heddle::ir
