// The laws of the operators of terms, from which substitutions are proved. Most are those of TASO
// (table 2.2), with its numbers; those it lacks begin at 44.
//
// TASO's convolutions carry an activation. Ours do not: a map is an operator of its own, and fusion brings
// them together. So number 22 is gone, and no law needs "without activation".
//
// TASO has one convolution, with groups; its laws 39 and 40 are wrong for groups. Here a convolution has one
// group (`conv`), one for each channel (`depthwise`), or any number (`grouped`), and each law names those for
// which it holds.
//
// Concatenation is associative for arrays, and must not be a law here: with it, split0 would give different
// parts of one tensor (x = split0(concat(x, concat(y, z))) = split0(concat(concat(x, y), z)) = concat(x, y)).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "compiler/substitution/term.h"

namespace heddle::substitution {

struct Axiom {
  std::string_view name;
  std::string_view text;  // a rule whose two sides are equal
};
std::span<const Axiom> Axioms();
Rule RuleOf(const Axiom& axiom);

// SHA-256 of all of them: a proof counts only with the axioms it was made with.
std::string AxiomsDigest();

}  // namespace heddle::substitution
