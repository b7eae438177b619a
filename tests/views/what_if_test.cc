#include "views/what_if.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/views/well_formed.h"

namespace heddle::views {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(WhatIfPage, ShowsTimesAndWhatChanges) {
  WhatIf what_if;
  what_if.worlds = {{"as it is", 100, 200}, {kHostile, 60, 140}, {"policy x", 100.2, 230}};
  what_if.jobs = {{"j1", kHostile, "ann", 90, {100, 70, 100}}};
  what_if.simulated = 3;
  what_if.left_out = {"2 paused"};
  what_if.trials_as_one = 7;
  what_if.took_s = 0.25;
  const std::string page = WhatIfPage(&what_if).markup;
  EXPECT_EQ(Malformed(page), "");
  EXPECT_THAT(page, AllOf(HasSubstr("2m20s (-1m00s)"), HasSubstr("3m50s (+30.0s)"),
                          HasSubstr("1m10s (-30.0s)"), HasSubstr("<svg"), HasSubstr(" data-live"),
                          Not(HasSubstr("<script"))));
  EXPECT_THAT(page, HasSubstr("<td class=\"number\">1m40s</td>"))
      << "a change of less than a hundredth is none";
  EXPECT_THAT(page,
              AllOf(HasSubstr("showing 1 of 3 simulated jobs"), HasSubstr("Left out: 2 paused."),
                    HasSubstr("7 trials of a task are simulated as one"),
                    HasSubstr("the simulation took 250ms")));
}

TEST(WhatIfPage, SaysWhyThereIsNothing) {
  EXPECT_THAT(WhatIfPage(nullptr).markup, HasSubstr("is being simulated"));
  WhatIf what_if;
  what_if.missing = kHostile;
  EXPECT_EQ(Malformed(WhatIfPage(&what_if).markup), "");
  EXPECT_THAT(WhatIfPage(&what_if).markup, Not(HasSubstr("<svg")));
}

}  // namespace
}  // namespace heddle::views
