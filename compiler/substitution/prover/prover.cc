#include "compiler/substitution/prover/prover.h"

#include <z3++.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "compiler/substitution/axioms.h"

namespace heddle::substitution {
namespace {

void CollectOperators(const std::vector<Term>& terms, std::set<Op>* operators) {
  for (const Term& term : terms) {
    operators->insert(term.op);
    CollectOperators(term.operands, operators);
  }
}
std::set<Op> OperatorsOf(const Rule& rule) {
  std::set<Op> operators;
  CollectOperators(rule.source, &operators);
  CollectOperators(rule.target, &operators);
  return operators;
}

// Operators of matrices only and of images only, and those of both that no other operator is defined by.
constexpr Op kMatrices[] = {Op::kMul,    Op::kMap,      Op::kMove, Op::kTranspose,
                            Op::kMatmul, Op::kIdentity, Op::kOnes};
constexpr Op kImages[] = {Op::kConv,    Op::kDepthwise,   Op::kGrouped,
                          Op::kEnlarge, Op::kMergeGroups, Op::kAvgPool,
                          Op::kMaxPool, Op::kPoolWeights, Op::kIdentityWeights};
constexpr Op kOnTheirOwn[] = {Op::kMove, Op::kGrouped, Op::kMergeGroups, Op::kMaxPool};

// The axioms that a proof of the rule may need. Fewer are never wrong, and the solver gets further with them.
std::vector<Rule> AxiomsFor(const Rule& rule) {
  const std::set<Op> used = OperatorsOf(rule);
  const auto any = [](std::span<const Op> of, const std::set<Op>& operators) {
    return std::any_of(of.begin(), of.end(), [&](Op op) { return operators.contains(op); });
  };
  const bool matrices = any(kMatrices, used), images = any(kImages, used);
  std::vector<Rule> axioms;
  for (const Axiom& axiom : Axioms()) {
    Rule law = RuleOf(axiom);
    const std::set<Op> operators = OperatorsOf(law);
    if (!matrices && images && any(kMatrices, operators)) continue;
    if (!images && any(kImages, operators)) continue;
    const bool foreign = std::any_of(std::begin(kOnTheirOwn), std::end(kOnTheirOwn), [&](Op op) {
      return operators.contains(op) && !used.contains(op);
    });
    if (!foreign) axioms.push_back(std::move(law));
  }
  return axioms;
}

// One for each proof: what a solver has seen before would change how far its effort reaches.
struct Logic {
  explicit Logic(const Rule& rule)
      : tensor(context.uninterpreted_sort("Tensor")),
        parameter(context.uninterpreted_sort("Parameter")) {
    for (const Rule& axiom : AxiomsFor(rule)) axioms.push_back(Statement(axiom));
  }

  z3::func_decl Function(Op op) {
    const OpShape& shape = OpShapes()[static_cast<size_t>(op)];
    z3::sort_vector domain(context);
    for (int i = 0; i < shape.parameters; ++i) domain.push_back(parameter);
    for (int i = 0; i < shape.operands; ++i) domain.push_back(tensor);
    return context.function(std::string(shape.name).c_str(), domain, tensor);
  }

  // Names become constants; `names` collects them, for a quantifier. Numbers stay what they are.
  z3::expr ExprOf(const Term& term, z3::expr_vector* names) {
    if (term.op == Op::kVariable) return Name("t_" + term.name, tensor, names);
    z3::expr_vector arguments(context);
    for (const std::string& p : term.parameters) {
      const bool number = p[0] >= '0' && p[0] <= '9';
      arguments.push_back(Name((number ? "n_" : "p_") + p, parameter, number ? nullptr : names));
    }
    for (const Term& operand : term.operands) arguments.push_back(ExprOf(operand, names));
    return Function(term.op)(arguments);
  }

  z3::expr Name(const std::string& name, const z3::sort& sort, z3::expr_vector* names) {
    z3::expr constant = context.constant(name.c_str(), sort);
    if (names != nullptr) {
      bool known = false;
      for (const z3::expr& other : *names) known = known || z3::eq(other, constant);
      if (!known) names->push_back(constant);
    }
    return constant;
  }

  z3::expr Statement(const Rule& axiom) {
    z3::expr_vector names(context);
    const z3::expr left = ExprOf(axiom.source[0], &names), right = ExprOf(axiom.target[0], &names);
    return names.empty() ? left == right : z3::forall(names, left == right);
  }

  z3::context context;
  z3::sort tensor, parameter;
  std::vector<z3::expr> axioms;
};

}  // namespace

bool Prove(const Rule& rule, unsigned effort) {
  Logic logic(rule);
  for (size_t i = 0; i < rule.source.size(); ++i) {
    if (rule.source[i] == rule.target[i]) continue;
    z3::solver solver(logic.context);
    z3::params limits(logic.context);
    limits.set("rlimit", effort);
    limits.set("random_seed", 1U);
    solver.set(limits);
    for (const z3::expr& axiom : logic.axioms) solver.add(axiom);
    solver.add(logic.ExprOf(rule.source[i], nullptr) != logic.ExprOf(rule.target[i], nullptr));
    if (solver.check() != z3::unsat) return false;
  }
  return true;
}

}  // namespace heddle::substitution
