// Terms: what small graphs compute, as text that people read and programs compare.
//
//   term     name | operator [parameters] (terms)
//   rule     terms => terms        as many on both sides; each equals its partner
//
// For example, two products with the same left operand are one product:
//
//   matmul(x, y), matmul(x, z) => split0[1](matmul(x, concat[1](y, z))), split1[1](matmul(x, concat[1](y, z)))
//
// A name stands for any tensor, a name in brackets for any value of a parameter; a number in brackets is
// that value. Equal subterms are one tensor, so a rule is a pair of graphs. Rules hold in both directions.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace heddle::substitution {

// All operators of terms: enumerator, name in text, number of parameters, number of operands. What each of
// them computes is in algebra.h, and how it is found in a graph in match.h.
#define HEDDLE_TERM_OPERATORS(X)                                                             \
  X(kVariable, "", 0, 0)                                                                     \
  X(kAdd, "add", 0, 2)                                                                       \
  X(kMul, "mul", 0, 2)                                                                       \
  X(kScale, "scale", 0, 2)         /* all elements times one number */                       \
  X(kMap, "map", 1, 1)             /* [function] any function of each element */             \
  X(kMove, "move", 1, 1)           /* [movement] of all elements to other places */          \
  X(kTranspose, "transpose", 0, 1) /* of a matrix */                                         \
  X(kMatmul, "matmul", 0, 2)                                                                 \
  X(kConv, "conv", 1, 2)                /* [window] image, weights; one group */             \
  X(kDepthwise, "depthwise", 1, 2)      /* [window] image, weights; a group per channel */   \
  X(kGrouped, "grouped", 1, 2)          /* [window] image, weights; groups of channels */    \
  X(kEnlarge, "enlarge", 1, 1)          /* [kernel] weights, with zeros around them */       \
  X(kMergeGroups, "merge_groups", 1, 1) /* [factor] weights, so many groups as one */        \
  X(kAvgPool, "avg_pool", 2, 1)         /* [kernel, window] image; padding counts */         \
  X(kMaxPool, "max_pool", 2, 1)         /* [kernel, window] image */                         \
  X(kConcat, "concat", 1, 2)            /* [axis] */                                         \
  X(kSplit0, "split0", 1, 1)            /* [axis] the first part of what was concatenated */ \
  X(kSplit1, "split1", 1, 1)            /* [axis] the second part */                         \
  X(kPoolWeights, "pool_weights", 1, 0) /* [kernel] of a depthwise that averages */          \
  X(kIdentityWeights, "identity_weights", 1, 0) /* [kernel] of a conv that copies */         \
  X(kIdentity, "identity", 0, 0)                /* the identity matrix */                    \
  X(kOnes, "ones", 0, 0)

enum class Op : uint8_t {
#define HEDDLE_TERM_ENUMERATOR(op, name, parameters, operands) op,
  HEDDLE_TERM_OPERATORS(HEDDLE_TERM_ENUMERATOR)
#undef HEDDLE_TERM_ENUMERATOR
};

struct OpShape {
  std::string_view name;
  int parameters = 0;
  int operands = 0;
};
std::span<const OpShape> OpShapes();  // by Op

struct Term {
  Op op = Op::kVariable;
  std::string name;                     // of a variable
  std::vector<std::string> parameters;  // names or numbers
  std::vector<Term> operands;

  bool operator==(const Term&) const = default;
  std::strong_ordering operator<=>(const Term& other) const;
};

struct Rule {
  std::vector<Term> source;
  std::vector<Term> target;  // as many
  bool operator==(const Rule&) const = default;
};

std::string ToText(const Term& term);
std::string ToText(std::span<const Term> terms);
std::string ToText(const Rule& rule);
// InvalidArgument, with the place: the text is no term or no rule.
absl::StatusOr<Term> ParseTerm(std::string_view text);
absl::StatusOr<Rule> ParseRule(std::string_view text);

// How many operators the graph of these terms has: equal ones count once, the two parts of a split, too.
int NumOperators(std::span<const Term> terms);
// Names of variables, and names (no numbers) of parameters, in the order of their first use.
std::vector<std::string> VariablesOf(std::span<const Term> terms);
std::vector<std::string> ParametersOf(std::span<const Term> terms);

Rule Reversed(const Rule& rule);
// A short name: the operators of both sides and four digits of the digest of the text.
std::string NameOf(const Rule& rule);

}  // namespace heddle::substitution
