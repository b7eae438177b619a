// Finds rules that follow from others by rewriting, so that they need not be kept.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "compiler/substitution/term.h"

namespace heddle::substitution {

// Both sides of add and mul in the order of their texts.
void SortCommutative(Term* term);

// Adds the term and all terms in it, but for variables and others without operands.
void AddSubterms(const Term& term, std::set<Term>* out);

// All results of one application of `rule`, from source to target, anywhere in `terms`: every occurrence of
// what the source matches is replaced. A source that is a variable, and variables or parameters that only
// the target has, give none. Texts of terms with SortCommutative.
std::set<std::string> Rewrites(const std::vector<Term>& terms, const Rule& rule);

// Graphs on the way have at most as many operators as the smaller side, so that a search that goes by cost
// can take it.
struct DeriveOptions {
  int steps = 4;          // from the source to the target
  size_t terms = 20'000;  // at most, from each side
};
// Whether `rules`, in both directions, lead from the source to the target.
bool Derivable(const Rule& rule, const std::vector<Rule>& rules, const DeriveOptions& options = {});

// Leaves out every rule that is derivable from smaller ones that stay, and then those that are cases of a
// larger one. Rules with constants or with operators of weights do not stand for rules without, because in a
// graph they apply only where these constants are. In the order of texts.
std::vector<Rule> Independent(std::vector<Rule> rules, const DeriveOptions& options,
                              const std::function<void(size_t done, size_t kept)>& progress);

}  // namespace heddle::substitution
