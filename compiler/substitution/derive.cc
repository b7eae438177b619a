#include "compiler/substitution/derive.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace heddle::substitution {
namespace {

struct Bindings {
  std::map<std::string, Term> variables;
  std::map<std::string, std::string> parameters;
};

bool BeginsAsNumber(const std::string& p) { return p[0] >= '0' && p[0] <= '9'; }

// Calls `found` with the bindings of every way in which the pattern matches; it returns whether to go on.
using Found = std::function<void(const Bindings&)>;

void MatchTerm(const Term& pattern, const Term& term, const Bindings& bindings,
               const Found& found) {
  if (pattern.op == Op::kVariable) {
    Bindings more = bindings;
    if (more.variables.emplace(pattern.name, term).first->second == term) found(more);
    return;
  }
  if (pattern.op != term.op) return;
  Bindings more = bindings;
  for (size_t i = 0; i < pattern.parameters.size(); ++i) {
    const std::string &p = pattern.parameters[i], &value = term.parameters[i];
    if (BeginsAsNumber(p) ? p != value : more.parameters.emplace(p, value).first->second != value)
      return;
  }
  if (pattern.operands.empty()) {
    found(more);
  } else if (pattern.operands.size() == 1) {
    MatchTerm(pattern.operands[0], term.operands[0], more, found);
  } else {
    const bool commutes = pattern.op == Op::kAdd || pattern.op == Op::kMul;
    for (int first = 0; first < (commutes ? 2 : 1); ++first) {
      MatchTerm(pattern.operands[0], term.operands[static_cast<size_t>(first)], more,
                [&](const Bindings& left) {
                  MatchTerm(pattern.operands[1], term.operands[static_cast<size_t>(1 - first)],
                            left, found);
                });
    }
  }
}

Term Filled(const Term& pattern, const Bindings& bindings) {
  if (pattern.op == Op::kVariable) return bindings.variables.at(pattern.name);
  Term term{pattern.op, "", {}, {}};
  for (const std::string& p : pattern.parameters)
    term.parameters.push_back(BeginsAsNumber(p) ? p : bindings.parameters.at(p));
  for (const Term& operand : pattern.operands) term.operands.push_back(Filled(operand, bindings));
  return term;
}

Term Replaced(const Term& term, const std::vector<std::pair<Term, Term>>& replacements) {
  for (const auto& [from, to] : replacements) {
    if (term == from) return to;
  }
  Term copy = term;
  for (Term& operand : copy.operands) operand = Replaced(operand, replacements);
  return copy;
}

bool IsSubset(std::vector<std::string> a, std::vector<std::string> b) {
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  return std::includes(b.begin(), b.end(), a.begin(), a.end());
}

bool CanRewrite(const Rule& rule) {
  return std::none_of(rule.source.begin(), rule.source.end(),
                      [](const Term& t) { return t.operands.empty(); }) &&
         IsSubset(VariablesOf(rule.target), VariablesOf(rule.source)) &&
         IsSubset(ParametersOf(rule.target), ParametersOf(rule.source));
}

// Whether a rule needs more of a graph than its operators: a constant with certain elements, or one that can be
// computed before. It says less of what can be reached in graphs than it says of terms.
bool NeedsConstants(const Term& term) {
  if (term.op == Op::kEnlarge || term.op == Op::kMergeGroups) return true;
  if (term.operands.empty()) return term.op != Op::kVariable;
  return std::any_of(term.operands.begin(), term.operands.end(), NeedsConstants);
}
bool NeedsConstants(const Rule& rule) {
  return std::any_of(rule.source.begin(), rule.source.end(),
                     [](const Term& t) { return NeedsConstants(t); }) ||
         std::any_of(rule.target.begin(), rule.target.end(),
                     [](const Term& t) { return NeedsConstants(t); });
}

// Everything that the rules make of `terms` in some steps, as texts.
std::set<std::string> Reachable(const std::vector<Term>& terms, const std::vector<Rule>& rules,
                                int most, int steps, const DeriveOptions& options) {
  std::vector<Term> start = terms;
  for (Term& term : start) SortCommutative(&term);
  std::set<std::string> seen{ToText(start)};
  std::set<std::string> last = seen;
  for (int step = 0; step < steps; ++step) {
    std::set<std::string> fresh;
    for (const std::string& text : last) {
      const std::vector<Term> from = ParseRule(text + " => " + text)->source;
      for (const Rule& rule : rules) {
        for (const std::string& made : Rewrites(from, rule)) {
          if (seen.size() >= options.terms) return seen;
          if (seen.contains(made) || NumOperators(ParseRule(made + " => " + made)->source) > most)
            continue;
          seen.insert(made);
          fresh.insert(made);
        }
      }
    }
    last = std::move(fresh);
  }
  return seen;
}

}  // namespace

void AddSubterms(const Term& term, std::set<Term>* out) {
  if (term.operands.empty()) return;
  out->insert(term);
  for (const Term& operand : term.operands) AddSubterms(operand, out);
}

void SortCommutative(Term* term) {
  for (Term& operand : term->operands) SortCommutative(&operand);
  if ((term->op == Op::kAdd || term->op == Op::kMul) &&
      ToText(term->operands[1]) < ToText(term->operands[0]))
    std::swap(term->operands[0], term->operands[1]);
}

std::set<std::string> Rewrites(const std::vector<Term>& terms, const Rule& rule) {
  std::set<std::string> results;
  if (!CanRewrite(rule)) return results;
  std::set<Term> subterms;
  for (const Term& term : terms) AddSubterms(term, &subterms);
  std::vector<std::pair<Term, Term>> replacements;
  const std::function<void(size_t, const Bindings&)> match = [&](size_t i,
                                                                 const Bindings& bindings) {
    if (i == rule.source.size()) {
      std::vector<std::pair<Term, Term>> filled = replacements;
      for (size_t j = 0; j < filled.size(); ++j)
        filled[j].second = Filled(rule.target[j], bindings);
      std::vector<Term> made;
      for (const Term& term : terms) {
        made.push_back(Replaced(term, filled));
        SortCommutative(&made.back());
      }
      results.insert(ToText(made));
      return;
    }
    for (const Term& subterm : subterms) {
      // As in graphs, each term of a source is another operator.
      if (std::any_of(replacements.begin(), replacements.end(),
                      [&](const auto& r) { return r.first == subterm; }))
        continue;
      MatchTerm(rule.source[i], subterm, bindings, [&](const Bindings& more) {
        replacements.emplace_back(subterm, Term{});
        match(i + 1, more);
        replacements.pop_back();
      });
    }
  };
  match(0, {});
  return results;
}

bool Derivable(const Rule& rule, const std::vector<Rule>& rules, const DeriveOptions& options) {
  const int most = std::min(NumOperators(rule.source), NumOperators(rule.target));
  const std::set<std::string> from_source =
      Reachable(rule.source, rules, most, (options.steps + 1) / 2, options);
  const std::set<std::string> from_target =
      Reachable(rule.target, rules, most, options.steps / 2, options);
  return std::any_of(from_source.begin(), from_source.end(),
                     [&](const std::string& text) { return from_target.contains(text); });
}

std::vector<Rule> Independent(std::vector<Rule> rules, const DeriveOptions& options,
                              const std::function<void(size_t done, size_t kept)>& progress) {
  const auto size = [](const Rule& rule) {
    std::vector<Term> all = rule.source;
    all.insert(all.end(), rule.target.begin(), rule.target.end());
    return std::tuple(NumOperators(rule.source) + NumOperators(rule.target),
                      -static_cast<int>(VariablesOf(all).size()), ToText(rule));
  };
  std::sort(rules.begin(), rules.end(),
            [&](const Rule& a, const Rule& b) { return size(a) < size(b); });
  std::vector<Rule> kept;
  // Both directions of those kept; `plain`: of those that need no constants.
  std::vector<Rule> directed, plain;
  const auto direct = [](const Rule& rule, std::vector<Rule>* to) {
    for (const Rule& direction : {rule, Reversed(rule)}) {
      if (CanRewrite(direction)) to->push_back(direction);
    }
  };
  for (size_t i = 0; i < rules.size(); ++i) {
    const bool constants = NeedsConstants(rules[i]);
    if (!Derivable(rules[i], constants ? directed : plain, options)) {
      kept.push_back(rules[i]);
      direct(rules[i], &directed);
      if (!constants) direct(rules[i], &plain);
    }
    if (progress) progress(i + 1, kept.size());
  }
  // Small rules that are cases of larger ones.
  for (size_t i = 0; i < kept.size();) {
    std::vector<Rule> others;
    const bool constants = NeedsConstants(kept[i]);
    for (size_t j = 0; j < kept.size(); ++j) {
      if (j != i && (constants || !NeedsConstants(kept[j]))) direct(kept[j], &others);
    }
    if (Derivable(kept[i], others, options)) {
      kept.erase(kept.begin() + static_cast<int64_t>(i));
    } else {
      ++i;
    }
  }
  std::sort(kept.begin(), kept.end(),
            [](const Rule& a, const Rule& b) { return ToText(a) < ToText(b); });
  return kept;
}

}  // namespace heddle::substitution
