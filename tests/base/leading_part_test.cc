#include "base/leading_part.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace heddle {
namespace {

// Against an index computed for every element.
TEST(LeadingPart, KeepsTheElementsWithSmallIndices) {
  std::mt19937 rng(1);
  for (int round = 0; round < 500; ++round) {
    std::vector<int64_t> shape, kept;
    int64_t count = 1;
    for (size_t rank = rng() % 5, d = 0; d < rank; ++d) {
      shape.push_back(static_cast<int64_t>(rng() % 5));
      const bool whole = rng() % 2 == 0;
      kept.push_back(whole ? shape.back() : static_cast<int64_t>(rng() % (shape.back() + 1)));
      count *= shape.back();
    }
    const size_t bytes = size_t{1} << rng() % 4;
    std::string from(static_cast<size_t>(count) * bytes, '\0'), wanted;
    for (char& c : from) c = static_cast<char>(rng());
    for (int64_t i = 0; i < count; ++i) {
      bool inside = true;
      int64_t rest = i;
      for (size_t d = shape.size(); d-- > 0; rest /= shape[d]) inside &= rest % shape[d] < kept[d];
      if (inside) wanted += from.substr(static_cast<size_t>(i) * bytes, bytes);
    }
    std::string found(wanted.size(), '\0');
    CopyLeadingPart(from.data(), shape, kept, bytes, found.data());
    EXPECT_EQ(found, wanted);
  }
}

}  // namespace
}  // namespace heddle
