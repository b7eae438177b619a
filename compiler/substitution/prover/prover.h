// Proves rules from the axioms with the SMT solver Z3: tensors are of one uninterpreted sort, operators are
// uninterpreted functions, axioms hold for all tensors and parameters. A rule is proved if the axioms and
// its negation cannot both hold. Only the axioms about operators that the rule can have to do with are given to
// the solver, because others cost it effort. Shapes are not part of a proof; they are checked where a rule is applied.
//
// Only the tool `heddle-rules` links Z3.
#pragma once

#include "compiler/substitution/term.h"

namespace heddle::substitution {

// The solver's bound on its work for one term of a rule, in its own units, which do not depend on the speed
// of the machine.
inline constexpr unsigned kProofEffort = 300'000;

// Whether each term of the source was proved equal to its partner. False: unknown, which counts as wrong. The
// same rule has the same result whatever was proved before.
bool Prove(const Rule& rule, unsigned effort = kProofEffort);

}  // namespace heddle::substitution
