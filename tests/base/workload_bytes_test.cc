#include "base/vocabulary/workload_bytes.h"

#include <gtest/gtest.h>

#include <string>

namespace heddle {
namespace {

TEST(WorkloadBytes, CountsInputsAndOutputsOnce) {
  EXPECT_EQ(BytesOfWorkload("program p(x: f32[2, 3], w: bf16[4] const) -> (y: f32[2]) {\n"
                            "  y[0] = 1.0\n}\n"),
            24 + 8 + 8);
  EXPECT_EQ(BytesOfWorkload("program p(n: i64[4] < 10 const, s: f64[]) -> (b: bool[5]) {}"),
            32 + 8 + 5);
  EXPECT_EQ(BytesOfWorkload("program p() -> (y: u8[0]) {}"), 0);
  EXPECT_EQ(BytesOfWorkload("program p(x: f32[2]) -> (y: f32[2]) { alloc t: f32[9] local { } }"),
            16)
      << "a buffer inside moves nothing from or to memory";
}

TEST(WorkloadBytes, OtherTextsHaveNone) {
  for (const std::string& text :
       {std::string(), std::string("a workload"), std::string("program p(x: f31[2]) -> () {}"),
        std::string("program p(x: f32[2) {}"), std::string("program p(x: f32[-2]) {}"),
        std::string("program p(x: f32[two]) {}"), std::string("program p(x: what[2]) {}"),
        std::string("program p(x: f32[4294967296, 4294967296]) {}"),
        std::string("program p(x: i8[9223372036854775807], y: i8[9223372036854775807]) {}")})
    EXPECT_EQ(BytesOfWorkload(text), 0) << text;
}

}  // namespace
}  // namespace heddle
