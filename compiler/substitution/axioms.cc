#include "compiler/substitution/axioms.h"

#include "absl/strings/str_cat.h"
#include "base/fatal.h"
#include "base/sha256.h"

namespace heddle::substitution {
namespace {

// tests/substitution/axioms_test.cc checks each of them on all small cases.
constexpr Axiom kAxioms[] = {
    // Element by element.
    {"1", "add(x, add(y, z)) => add(add(x, y), z)"},
    {"2", "add(x, y) => add(y, x)"},
    {"3", "mul(x, mul(y, z)) => mul(mul(x, y), z)"},
    {"4", "mul(x, y) => mul(y, x)"},
    {"5", "mul(add(x, y), z) => add(mul(x, z), mul(y, z))"},
    {"6", "scale(scale(x, y), w) => scale(x, scale(y, w))"},
    {"7", "scale(add(x, y), w) => add(scale(x, w), scale(y, w))"},
    {"8", "scale(mul(x, y), w) => mul(x, scale(y, w))"},
    {"27", "mul(x, ones) => x"},
    // Transposes.
    {"9", "transpose(transpose(x)) => x"},
    {"10", "transpose(add(x, y)) => add(transpose(x), transpose(y))"},
    {"11", "transpose(mul(x, y)) => mul(transpose(x), transpose(y))"},
    {"12", "scale(transpose(x), w) => transpose(scale(x, w))"},
    {"23", "map[f](transpose(x)) => transpose(map[f](x))"},
    // Movements, which keep every element.
    {"10 move", "move[r](add(x, y)) => add(move[r](x), move[r](y))"},
    {"11 move", "move[r](mul(x, y)) => mul(move[r](x), move[r](y))"},
    {"12 move", "scale(move[r](x), w) => move[r](scale(x, w))"},
    {"23 move", "map[f](move[r](x)) => move[r](map[f](x))"},
    // Matrix products.
    {"13", "matmul(x, matmul(y, z)) => matmul(matmul(x, y), z)"},
    {"14", "scale(matmul(x, y), w) => matmul(x, scale(y, w))"},
    {"15", "matmul(x, add(y, z)) => add(matmul(x, y), matmul(x, z))"},
    {"16", "transpose(matmul(x, y)) => matmul(transpose(y), transpose(x))"},
    {"26", "matmul(x, identity) => x"},
    // Convolutions.
    {"17", "conv[s](scale(x, w), y) => conv[s](x, scale(y, w))"},
    {"18", "scale(conv[s](x, y), w) => conv[s](scale(x, w), y)"},
    {"19", "conv[s](x, add(y, z)) => add(conv[s](x, y), conv[s](x, z))"},
    {"20", "conv[s](add(x, y), z) => add(conv[s](x, z), conv[s](y, z))"},
    {"21", "conv[s](x, y) => conv[s](x, enlarge[k](y))"},
    {"25", "conv[1](x, identity_weights[k]) => x"},
    {"17 depthwise", "depthwise[s](scale(x, w), y) => depthwise[s](x, scale(y, w))"},
    {"18 depthwise", "scale(depthwise[s](x, y), w) => depthwise[s](scale(x, w), y)"},
    {"19 depthwise", "depthwise[s](x, add(y, z)) => add(depthwise[s](x, y), depthwise[s](x, z))"},
    {"20 depthwise", "depthwise[s](add(x, y), z) => add(depthwise[s](x, z), depthwise[s](y, z))"},
    {"21 depthwise", "depthwise[s](x, y) => depthwise[s](x, enlarge[k](y))"},
    {"17 grouped", "grouped[s](scale(x, w), y) => grouped[s](x, scale(y, w))"},
    {"18 grouped", "scale(grouped[s](x, y), w) => grouped[s](scale(x, w), y)"},
    {"19 grouped", "grouped[s](x, add(y, z)) => add(grouped[s](x, y), grouped[s](x, z))"},
    {"20 grouped", "grouped[s](add(x, y), z) => add(grouped[s](x, z), grouped[s](y, z))"},
    {"21 grouped", "grouped[s](x, y) => grouped[s](x, enlarge[k](y))"},
    {"24", "depthwise[s](x, pool_weights[k]) => avg_pool[k,s](x)"},
    // Concatenation and splits.
    {"28", "split0[a](concat[a](x, y)) => x"},
    {"29", "split1[a](concat[a](x, y)) => y"},
    {"30",
     "concat[0](concat[1](x, y), concat[1](z, w)) => concat[1](concat[0](x, z), concat[0](y, w))"},
    {"31", "concat[a](scale(x, w), scale(y, w)) => scale(concat[a](x, y), w)"},
    {"32", "concat[a](add(x, y), add(z, w)) => add(concat[a](x, z), concat[a](y, w))"},
    {"33", "concat[a](mul(x, y), mul(z, w)) => mul(concat[a](x, z), concat[a](y, w))"},
    {"34", "concat[a](map[f](x), map[f](y)) => map[f](concat[a](x, y))"},
    {"35", "concat[1](transpose(x), transpose(y)) => transpose(concat[0](x, y))"},
    {"36", "concat[1](matmul(x, y), matmul(x, z)) => matmul(x, concat[1](y, z))"},
    {"37", "matmul(concat[1](x, z), concat[0](y, w)) => add(matmul(x, y), matmul(z, w))"},
    {"38", "concat[0](conv[s](x, z), conv[s](y, z)) => conv[s](concat[0](x, y), z)"},
    {"38 depthwise",
     "concat[0](depthwise[s](x, z), depthwise[s](y, z)) => depthwise[s](concat[0](x, y), z)"},
    {"38 grouped",
     "concat[0](grouped[s](x, z), grouped[s](y, z)) => grouped[s](concat[0](x, y), z)"},
    {"39", "concat[1](conv[s](x, y), conv[s](x, z)) => conv[s](x, concat[0](y, z))"},
    {"40", "conv[s](concat[1](x, z), concat[1](y, w)) => add(conv[s](x, y), conv[s](z, w))"},
    {"41", "concat[1](avg_pool[k,s](x), avg_pool[k,s](y)) => avg_pool[k,s](concat[1](x, y))"},
    {"42", "concat[0](max_pool[k,s](x), max_pool[k,s](y)) => max_pool[k,s](concat[0](x, y))"},
    {"43", "concat[1](max_pool[k,s](x), max_pool[k,s](y)) => max_pool[k,s](concat[1](x, y))"},
    // What a split tensor is made of. It holds where x can be split.
    {"44", "concat[a](split0[a](x), split1[a](x)) => x"},
    {"45",
     "concat[1](depthwise[s](x, y), depthwise[s](z, w)) => depthwise[s](concat[1](x, z), "
     "concat[0](y, w))"},
    {"45 grouped",
     "concat[1](grouped[s](x, y), grouped[s](z, w)) => grouped[s](concat[1](x, z), concat[0](y, "
     "w))"},
    {"46", "concat[0](avg_pool[k,s](x), avg_pool[k,s](y)) => avg_pool[k,s](concat[0](x, y))"},
    {"47", "transpose(identity) => identity"},
    // Groups of neighbours are one group whose weights are zero between them.
    {"48", "grouped[s](x, y) => grouped[s](x, merge_groups[m](y))"},
};

}  // namespace

std::span<const Axiom> Axioms() { return kAxioms; }

Rule RuleOf(const Axiom& axiom) {
  absl::StatusOr<Rule> rule = ParseRule(axiom.text);
  if (!rule.ok())
    Fatal(absl::StrCat("axiom ", std::string(axiom.name), ": ", rule.status().message()));
  return *std::move(rule);
}

std::string AxiomsDigest() {
  Sha256 digest;
  for (const Axiom& axiom : kAxioms) {
    digest.Update(axiom.text);
    digest.Update("\n");
  }
  return digest.Hex();
}

}  // namespace heddle::substitution
