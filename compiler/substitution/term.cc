#include "compiler/substitution/term.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/sha256.h"
#include "base/status_macros.h"

namespace heddle::substitution {
namespace {

constexpr OpShape kOpShapes[] = {
#define HEDDLE_TERM_SHAPE(op, name, parameters, operands) {name, parameters, operands},
    HEDDLE_TERM_OPERATORS(HEDDLE_TERM_SHAPE)
#undef HEDDLE_TERM_SHAPE
};

constexpr int kMaxDepth = 64;  // of a term that is parsed

bool IsNumber(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](unsigned char c) { return std::isdigit(c) != 0; });
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  absl::StatusOr<Term> ParseTerm(int depth = 0) {
    if (depth > kMaxDepth) return Error("the term is nested too deeply");
    HEDDLE_ASSIGN_OR_RETURN(const std::string name, ParseName());
    const auto shapes = OpShapes();
    const auto found = std::find_if(shapes.begin() + 1, shapes.end(),
                                    [&](const OpShape& s) { return s.name == name; });
    Term term;
    if (found == shapes.end()) {
      if (Peek('[') || Peek('(')) return Error(absl::StrCat("there is no operator '", name, "'"));
      term.name = name;
      return term;
    }
    term.op = static_cast<Op>(found - shapes.begin());
    for (int i = 0; i < found->parameters; ++i) {
      HEDDLE_RETURN_IF_ERROR(Expect(i == 0 ? '[' : ','));
      HEDDLE_ASSIGN_OR_RETURN(std::string parameter, ParseName());
      term.parameters.push_back(std::move(parameter));
    }
    if (found->parameters > 0) HEDDLE_RETURN_IF_ERROR(Expect(']'));
    for (int i = 0; i < found->operands; ++i) {
      HEDDLE_RETURN_IF_ERROR(Expect(i == 0 ? '(' : ','));
      HEDDLE_ASSIGN_OR_RETURN(Term operand, ParseTerm(depth + 1));
      term.operands.push_back(std::move(operand));
    }
    if (found->operands > 0) HEDDLE_RETURN_IF_ERROR(Expect(')'));
    return term;
  }

  absl::StatusOr<std::vector<Term>> ParseTerms() {
    std::vector<Term> terms;
    do {
      HEDDLE_ASSIGN_OR_RETURN(Term term, ParseTerm());
      terms.push_back(std::move(term));
    } while (Take(','));
    return terms;
  }

  bool TakeArrow() {
    if (!Peek('=') || at_ + 1 >= text_.size() || text_[at_ + 1] != '>') return false;
    at_ += 2;
    return true;
  }

  bool AtEnd() {
    SkipSpace();
    return at_ == text_.size();
  }

  absl::Status Error(std::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(std::string(what), " at column ", at_ + 1,
                                                   " of '", std::string(text_.substr(0, 200)),
                                                   "'"));
  }

 private:
  void SkipSpace() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool Peek(char c) {
    SkipSpace();
    return at_ < text_.size() && text_[at_] == c;
  }
  bool Take(char c) {
    if (!Peek(c)) return false;
    ++at_;
    return true;
  }
  absl::Status Expect(char c) {
    return Take(c) ? absl::OkStatus() : Error(absl::StrCat("expected '", std::string(1, c), "'"));
  }
  absl::StatusOr<std::string> ParseName() {
    SkipSpace();
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_')) {
      ++at_;
    }
    if (begin == at_) return Error("expected a name");
    return std::string(text_.substr(begin, at_ - begin));
  }

  std::string_view text_;
  size_t at_ = 0;
};

void Visit(const Term& term, const auto& visit) {
  for (const Term& operand : term.operands) Visit(operand, visit);
  visit(term);
}

void AppendText(const Term& term, std::string* out) {
  if (term.op == Op::kVariable) {
    out->append(term.name);
    return;
  }
  out->append(OpShapes()[static_cast<size_t>(term.op)].name);
  if (!term.parameters.empty()) absl::StrAppend(out, "[", absl::StrJoin(term.parameters, ","), "]");
  if (term.operands.empty()) return;
  out->append("(");
  for (size_t i = 0; i < term.operands.size(); ++i) {
    if (i > 0) out->append(", ");
    AppendText(term.operands[i], out);
  }
  out->append(")");
}

std::string OperatorsOf(std::span<const Term> terms) {
  std::set<std::string> seen;
  std::vector<std::string> names;
  for (const Term& term : terms) {
    Visit(term, [&](const Term& t) {
      if (t.operands.empty()) return;
      std::string name(OpShapes()[static_cast<size_t>(t.op)].name);
      if (t.op == Op::kSplit0 || t.op == Op::kSplit1) name = "split";
      if (!seen.insert(t.op == Op::kSplit1 ? absl::StrCat("split0", ToText(t).substr(6))
                                           : ToText(t))
               .second)
        return;
      names.push_back(std::move(name));
    });
  }
  return names.empty() ? "nothing" : absl::StrJoin(names, "-");
}

}  // namespace

std::span<const OpShape> OpShapes() { return kOpShapes; }

std::strong_ordering Term::operator<=>(const Term& other) const {
  if (const auto c = op <=> other.op; c != 0) return c;
  if (const auto c = name.compare(other.name) <=> 0; c != 0) return c;
  if (const auto c = parameters <=> other.parameters; c != 0) return c;
  if (const auto c = operands.size() <=> other.operands.size(); c != 0) return c;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (const auto c = operands[i] <=> other.operands[i]; c != 0) return c;
  }
  return std::strong_ordering::equal;
}

std::string ToText(const Term& term) {
  std::string text;
  AppendText(term, &text);
  return text;
}

std::string ToText(std::span<const Term> terms) {
  std::string text;
  for (const Term& term : terms) {
    if (!text.empty()) text.append(", ");
    AppendText(term, &text);
  }
  return text;
}

std::string ToText(const Rule& rule) {
  return absl::StrCat(ToText(rule.source), " => ", ToText(rule.target));
}

absl::StatusOr<Term> ParseTerm(std::string_view text) {
  Parser parser(text);
  HEDDLE_ASSIGN_OR_RETURN(Term term, parser.ParseTerm());
  if (!parser.AtEnd()) return parser.Error("expected the end");
  return term;
}

absl::StatusOr<Rule> ParseRule(std::string_view text) {
  Parser parser(text);
  Rule rule;
  HEDDLE_ASSIGN_OR_RETURN(rule.source, parser.ParseTerms());
  if (!parser.TakeArrow()) return parser.Error("expected '=>'");
  HEDDLE_ASSIGN_OR_RETURN(rule.target, parser.ParseTerms());
  if (!parser.AtEnd()) return parser.Error("expected the end");
  if (rule.source.size() != rule.target.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a rule needs as many terms on both sides; there are ", rule.source.size(),
                     " and ", rule.target.size()));
  }
  return rule;
}

int NumOperators(std::span<const Term> terms) {
  std::set<std::string> seen;
  for (const Term& term : terms) {
    Visit(term, [&](const Term& t) {
      if (t.operands.empty()) return;
      std::string text = ToText(t);
      if (t.op == Op::kSplit1) text = absl::StrCat("split0", text.substr(6));
      seen.insert(std::move(text));
    });
  }
  return static_cast<int>(seen.size());
}

std::vector<std::string> VariablesOf(std::span<const Term> terms) {
  std::vector<std::string> names;
  for (const Term& term : terms) {
    Visit(term, [&](const Term& t) {
      if (t.op == Op::kVariable && std::find(names.begin(), names.end(), t.name) == names.end())
        names.push_back(t.name);
    });
  }
  return names;
}

std::vector<std::string> ParametersOf(std::span<const Term> terms) {
  std::vector<std::string> names;
  for (const Term& term : terms) {
    Visit(term, [&](const Term& t) {
      for (const std::string& p : t.parameters) {
        if (!IsNumber(p) && std::find(names.begin(), names.end(), p) == names.end())
          names.push_back(p);
      }
    });
  }
  return names;
}

Rule Reversed(const Rule& rule) { return {rule.target, rule.source}; }

std::string NameOf(const Rule& rule) {
  return absl::StrCat(OperatorsOf(rule.source), "=", OperatorsOf(rule.target), "/",
                      Sha256Hex(ToText(rule)).substr(0, 4));
}

}  // namespace heddle::substitution
