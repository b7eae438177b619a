#include "compiler/codegen/llvm/table_lookup.h"

#include <bit>
#include <utility>

#include "compiler/machine/core_speed.h"
#include "llvm/IR/IntrinsicsX86.h"

namespace heddle::codegen {

using llvm::Value;

namespace {

// Elements in a cycle that are loaded one by one and put together into a vector. An element takes
// three instructions, one of which only a single unit executes. A gather that is not fast takes as
// long.
constexpr double kSinglyPerCycle = 0.5;
constexpr int kNarrowestGathered = 32;  // bits; narrower elements are loaded one by one

// vpshufb reads the number of one of 16 bytes, and a place with this bit finds 0.
constexpr int kZeroing = 128;

int64_t Quotient(int64_t a, int64_t b) { return (a + b - 1) / b; }  // rounded up

bool IsPair(const Lookup& lookup) { return lookup.in_two != llvm::Intrinsic::not_intrinsic; }

}  // namespace

std::optional<Lookup> FindLookup(const LookupUnit& unit, int bits) {
  using namespace llvm::Intrinsic;
  switch (bits) {
    case 8:
      if (unit.avx512vbmi)
        return Lookup{64, 64, x86_avx512_permvar_qi_512, x86_avx512_vpermi2var_qi_512};
      if (unit.avx512bw) return Lookup{64, 16, x86_avx512_pshuf_b_512, not_intrinsic};
      if (unit.avx2) return Lookup{32, 16, x86_avx2_pshuf_b, not_intrinsic};
      return std::nullopt;
    case 16:
      if (unit.avx512bw)
        return Lookup{32, 32, x86_avx512_permvar_hi_512, x86_avx512_vpermi2var_hi_512};
      return std::nullopt;
    case 32:
      if (unit.avx512f)
        return Lookup{16, 16, x86_avx512_permvar_si_512, x86_avx512_vpermi2var_d_512};
      if (unit.avx2) return Lookup{8, 8, x86_avx2_permd, not_intrinsic};
      return std::nullopt;
    case 64:
      if (unit.avx512f) return Lookup{8, 8, x86_avx512_permvar_di_512, x86_avx512_vpermi2var_q_512};
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

bool IsWorthLookup(const LookupUnit& unit, const Lookup& lookup, int bits, int64_t elements,
                   int64_t lanes, bool loads_table) {
  const int64_t registers = Quotient(elements, lookup.entries);
  const int64_t found = IsPair(lookup) ? Quotient(registers, 2) : registers;
  const int64_t selected = found - 1;
  const int64_t tested = std::bit_width(static_cast<uint64_t>(selected));
  const int64_t instructions =
      Quotient(lanes, lookup.lanes) * (found + selected + tested) + (loads_table ? registers : 0);
  const double gathered = unit.fast_gather && bits >= kNarrowestGathered
                              ? machine::CoreSpeed().gathered_per_cycle
                              : kSinglyPerCycle;
  return static_cast<double>(instructions) <= static_cast<double>(lanes) / gathered;
}

Value* EmitLookup(llvm::IRBuilder<>& builder, const Lookup& lookup,
                  const std::vector<Value*>& table, Value* places) {
  const auto splat = [&](int64_t value) {
    return llvm::ConstantInt::get(places->getType(), static_cast<uint64_t>(value));
  };
  const auto registers = static_cast<int64_t>(table.size());
  Value* within = places;
  if (lookup.entries < lookup.lanes && registers * lookup.entries > kZeroing)
    within = builder.CreateAnd(places, splat(lookup.entries - 1));
  // What a lane finds if its place lies in the k-th part of the table, which `reach` elements make.
  std::vector<Value*> found;
  const size_t step = IsPair(lookup) ? 2 : 1;
  for (size_t k = 0; k < table.size(); k += step) {
    found.push_back(
        k + 1 < table.size() && step == 2
            ? builder.CreateIntrinsic(lookup.in_two, {}, {table[k], within, table[k + 1]})
            : builder.CreateIntrinsic(lookup.in_one, {}, {table[k], within}));
  }
  for (int64_t reach = static_cast<int64_t>(step) * lookup.entries; found.size() > 1; reach *= 2) {
    Value* upper = builder.CreateICmpNE(builder.CreateAnd(places, splat(reach)), splat(0));
    std::vector<Value*> joined;
    for (size_t k = 0; k < found.size(); k += 2) {
      joined.push_back(k + 1 < found.size() ? builder.CreateSelect(upper, found[k + 1], found[k])
                                            : found[k]);
    }
    found = std::move(joined);
  }
  return found[0];
}

}  // namespace heddle::codegen
