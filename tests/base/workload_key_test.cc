#include "base/vocabulary/workload_key.h"

#include <gtest/gtest.h>

namespace heddle {
namespace {

TEST(WorkloadKey, IsXxh3) {
  EXPECT_EQ(WorkloadKey(""), "2d06800538d394c2") << "of the empty string, by its specification";
  EXPECT_NE(WorkloadKey("a"), WorkloadKey("b"));
  EXPECT_EQ(WorkloadKey("a").size(), 16u);
}

}  // namespace
}  // namespace heddle
