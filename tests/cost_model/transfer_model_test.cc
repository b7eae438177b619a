// The model of other tasks that one search hands to the next.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "cost_model/search/methods.h"
#include "cost_model/search/strategies.h"
#include "cost_model/transfer/transfer_samples.h"
#include "tests/cost_model/matmul_space.h"

namespace heddle::cost_model {
namespace {

using testing::MatmulTask;
using testing::Measure;
using testing::Traces;

std::unique_ptr<Search> NewAnnealing(Task task, uint64_t seed) {
  return MakeModelSearch(std::move(task), *FindMethod("annealing"), seed);
}

// Told of 48 measurements of another task.
Task TaughtTask() {
  const auto teacher = NewAnnealing(MatmulTask({.tiles = 2}), 1);
  EXPECT_TRUE(teacher->Update(Measure(*teacher->Propose(48))).ok());
  EXPECT_EQ(teacher->TransferModel(), "") << "it knew no others";
  const std::vector<RelatedSamples> transfer_samples = {{teacher->TransferSamples(), 0.5}};
  Task task = MatmulTask({});
  task.others = std::make_shared<const OtherTasks>(JoinTransferSamples(transfer_samples));
  return task;
}

// What one search fitted to others serves the next one as if it had fitted it itself.
TEST(TransferModel, ServesTheNextSearch) {
  const auto fitting = NewAnnealing(TaughtTask(), 2);
  const std::string model = fitting->TransferModel();
  const auto given = NewAnnealing(MatmulTask({}), 2);
  ASSERT_TRUE(given->BeginWith(model).ok());
  EXPECT_EQ(given->TransferModel(), "") << "not its own work";
  EXPECT_EQ(given->Report().other_tasks, 1);
  EXPECT_EQ(given->Report().other_samples, 48);
  const std::vector<Candidate> first = *fitting->Propose(16);
  EXPECT_EQ(Traces(*given->Propose(16)), Traces(first));
  EXPECT_EQ(given->Save(), fitting->Save());
  const auto resumed = NewAnnealing(MatmulTask({}), 2);
  ASSERT_TRUE(resumed->Restore(fitting->Save()).ok());
  EXPECT_EQ(resumed->TransferModel(), "") << "who fitted it is long past";

  // What is slow is said to be fast: for this task the others mislead, for the next they need not.
  std::vector<Result> lies = Measure(first);
  for (Result& lie : lies) lie.seconds = 1e-6 / lie.seconds;
  ASSERT_TRUE(fitting->Update(lies).ok());
  ASSERT_TRUE(fitting->Report().transfer_misleads);
  const auto next = NewAnnealing(MatmulTask({.tiles = 3}), 5);
  ASSERT_TRUE(next->BeginWith(fitting->TransferModel()).ok());
  EXPECT_FALSE(next->Report().transfer_misleads);
  EXPECT_EQ(next->Report().other_weight, 1);
  EXPECT_TRUE(next->Propose(8)->at(1).prediction.has_value());
}

TEST(TransferModel, OfAnotherKindIsRefused) {
  const std::string model = NewAnnealing(TaughtTask(), 2)->TransferModel();
  ASSERT_NE(model, "");
  const auto refused = [](Search& search, const std::string& blob) {
    const std::string before = search.Save();
    EXPECT_EQ(search.BeginWith(blob).code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(search.Save(), before) << "nothing has changed";
  };
  const auto annealing = NewAnnealing(MatmulTask({}), 2);
  std::string damaged = model;
  damaged[model.size() / 2] = static_cast<char>(damaged[model.size() / 2] ^ 1);
  refused(*annealing, "");
  refused(*annealing, damaged);
  refused(*annealing, annealing->Save());
  refused(*MakeModelSearch(MatmulTask({}), *FindMethod("regression"), 2), model);
  Method other_features = *FindMethod("annealing");
  other_features.without = {"side"};
  refused(*MakeModelSearch(MatmulTask({}), other_features, 2), model);
  const auto random = MakeRandomSearch(MatmulTask({}), 2);
  EXPECT_TRUE(random->BeginWith(model).ok());
  EXPECT_EQ(random->TransferModel(), "");
}

}  // namespace
}  // namespace heddle::cost_model
