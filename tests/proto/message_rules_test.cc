// What spans several fields of a message.
#include "proto/message_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/vocabulary/workload_key.h"

namespace heddle {
namespace {

using ::testing::HasSubstr;

v1::StageStart Start(v1::StageKind kind) {
  v1::StageStart start;
  start.set_kind(kind);
  switch (kind) {
    case v1::STAGE_IMPORT:
      start.mutable_import();
      break;
    case v1::STAGE_PROPOSE:
      start.mutable_propose()->set_count(2);
      break;
    case v1::STAGE_BUILD:
      start.mutable_build();
      break;
    case v1::STAGE_PROFILE:
      start.mutable_profile();
      break;
    case v1::STAGE_UPDATE:
      start.mutable_update();
      break;
    case v1::STAGE_COMPILE:
      start.mutable_compile();
      break;
    case v1::STAGE_COMPARE:
      start.mutable_compare();
      break;
    default:
      start.mutable_plan();
  }
  return start;
}

void AddTask(const std::string& workload, google::protobuf::RepeatedPtrField<v1::TaskInfo>* tasks) {
  v1::TaskInfo& task = *tasks->Add();
  task.set_workload(workload);
  task.set_key(WorkloadKey(workload));
}

std::string Refusal(const v1::StageStart& start, const v1::StageEvent& event) {
  return std::string(CheckEvent(start, event).message());
}

TEST(MessageRules, AStageNeedsTheSpecOfItsKind) {
  for (int kind = v1::STAGE_IMPORT; kind <= v1::STAGE_PLAN; ++kind) {
    v1::StageStart start = Start(static_cast<v1::StageKind>(kind));
    EXPECT_EQ(CheckStart(start), absl::OkStatus()) << kind;
    start.set_kind(static_cast<v1::StageKind>(kind % v1::STAGE_PLAN + 1));
    EXPECT_THAT(std::string(CheckStart(start).message()), HasSubstr("without its spec")) << kind;
  }
  v1::StageStart start = Start(v1::STAGE_BUILD);
  start.set_blob_folder("/etc");
  EXPECT_THAT(std::string(CheckStart(start).message()), HasSubstr("the worker sets it"));
  start = Start(v1::STAGE_BUILD);
  start.set_time_limit_ms(int64_t{25} * 3600 * 1000);
  EXPECT_THAT(std::string(CheckStart(start).message()), HasSubstr("time_limit_ms"));
}

// Every event is for some kind of stage, and no event but the last is for all.
TEST(MessageRules, AStageSendsEventsOfItsKind) {
  const auto* events = v1::StageEvent::descriptor()->FindOneofByName("event");
  for (int i = 0; i < events->field_count(); ++i) {
    const auto event = static_cast<v1::StageEvent::EventCase>(events->field(i)->number());
    int kinds = 0;
    for (int kind = v1::STAGE_IMPORT; kind <= v1::STAGE_PLAN; ++kind) {
      v1::StageStart start = Start(static_cast<v1::StageKind>(kind));
      if (event == v1::StageEvent::kWanted) start.add_blobs();
      kinds += MayEmit(start, event);
    }
    EXPECT_GT(kinds, 0) << events->field(i)->name();
    const bool any = event == v1::StageEvent::kFinished || event == v1::StageEvent::kWanted;
    EXPECT_EQ(kinds == v1::STAGE_PLAN, any) << events->field(i)->name();
  }
  EXPECT_FALSE(MayEmit(Start(v1::STAGE_PLAN), v1::StageEvent::EVENT_NOT_SET));
  v1::StageEvent event;
  EXPECT_THAT(Refusal(Start(v1::STAGE_BUILD), event), HasSubstr("an empty event"));
  event.mutable_import();
  EXPECT_EQ(Refusal(Start(v1::STAGE_BUILD), event), "import is not for STAGE_BUILD to send");
}

TEST(MessageRules, TasksHaveTheKeysOfTheirWorkloads) {
  const v1::StageStart start = Start(v1::STAGE_IMPORT);
  v1::StageEvent event;
  auto* tasks = event.mutable_import()->mutable_tasks();
  AddTask("one", tasks);
  AddTask("two", tasks);
  EXPECT_EQ(CheckEvent(start, event), absl::OkStatus());
  tasks->at(1).set_key(WorkloadKey("three"));
  EXPECT_THAT(Refusal(start, event), HasSubstr("import.tasks[1].key"));
  tasks->at(1).clear_key();
  EXPECT_THAT(Refusal(start, event), HasSubstr("import.tasks[1] has no key"));
  tasks->at(1) = tasks->at(0);
  EXPECT_THAT(Refusal(start, event), HasSubstr("like that of a task before it"));
}

TEST(MessageRules, OnlyAPlanNamesTasksThatAreKnownWithoutTheirWorkload) {
  v1::StageStart start = Start(v1::STAGE_PLAN);
  v1::StageEvent event;
  auto* tasks = event.mutable_planned()->mutable_tasks();
  AddTask("one", tasks);
  tasks->at(0).clear_workload();
  EXPECT_THAT(Refusal(start, event), HasSubstr("planned.tasks[0].key"));
  start.mutable_plan()->add_times()->set_workload_key(tasks->at(0).key());
  EXPECT_EQ(CheckEvent(start, event), absl::OkStatus());
  v1::StageEvent import;
  *import.mutable_import()->mutable_tasks() = *tasks;
  EXPECT_FALSE(CheckEvent(Start(v1::STAGE_IMPORT), import).ok());
  // A task of two plans comes once, with a weight for each.
  *tasks->Add() = v1::TaskInfo(tasks->at(0));
  EXPECT_THAT(Refusal(start, event), HasSubstr("like that of a task before it"));
}

TEST(MessageRules, AnAnswerIsASuccessOrATypedFailure) {
  const v1::StageStart build = Start(v1::STAGE_BUILD), profile = Start(v1::STAGE_PROFILE);
  v1::StageEvent event;
  event.mutable_built();
  EXPECT_THAT(Refusal(build, event), HasSubstr("either an artifact or a failure"));
  event.mutable_built()->mutable_artifact();
  EXPECT_EQ(CheckEvent(build, event), absl::OkStatus());
  event.mutable_built()->mutable_failure()->set_outcome(v1::OUTCOME_BUILD_ERROR);
  EXPECT_THAT(Refusal(build, event), HasSubstr("either an artifact or a failure"));
  event.mutable_built()->clear_artifact();
  EXPECT_EQ(CheckEvent(build, event), absl::OkStatus());
  for (const v1::Outcome outcome : {v1::OUTCOME_UNSPECIFIED, v1::OUTCOME_OK, v1::OUTCOME_LOST}) {
    event.mutable_built()->mutable_failure()->set_outcome(outcome);
    EXPECT_FALSE(CheckEvent(build, event).ok()) << outcome;
  }
  v1::Measurement& measured = *event.mutable_profiled()->mutable_measurement();
  measured.set_outcome(v1::OUTCOME_OK);
  EXPECT_THAT(Refusal(profile, event), HasSubstr("OUTCOME_OK without samples_ns"));
  measured.add_samples_ns(5);
  EXPECT_EQ(CheckEvent(profile, event), absl::OkStatus());
  measured.set_outcome(v1::OUTCOME_RUN_CRASH);
  EXPECT_THAT(Refusal(profile, event), HasSubstr("OUTCOME_RUN_CRASH with samples_ns"));
  measured.clear_samples_ns();
  EXPECT_EQ(CheckEvent(profile, event), absl::OkStatus());
  measured.set_outcome(v1::OUTCOME_LOST);
  EXPECT_FALSE(CheckEvent(profile, event).ok());
}

TEST(MessageRules, NoMoreComesThanWasAskedFor) {
  const v1::StageStart propose = Start(v1::STAGE_PROPOSE);
  v1::StageEvent event;
  for (const char* trace : {"a", "b"})
    event.mutable_candidates()->add_candidates()->set_trace(trace);
  EXPECT_EQ(CheckEvent(propose, event), absl::OkStatus());
  event.mutable_candidates()->mutable_candidates(1)->set_trace("a");
  EXPECT_THAT(Refusal(propose, event), HasSubstr("like that of a candidate before it"));
  event.mutable_candidates()->mutable_candidates(1)->set_trace("b");
  event.mutable_candidates()->mutable_candidates(1)->set_id(7);
  EXPECT_THAT(Refusal(propose, event), HasSubstr("the scheduler sets it"));
  event.mutable_candidates()->mutable_candidates(1)->set_id(0);
  event.mutable_candidates()->add_candidates();
  EXPECT_THAT(Refusal(propose, event), HasSubstr("2 were asked for"));
  v1::StageStart import = Start(v1::STAGE_IMPORT);
  import.add_blobs()->set_sha256(std::string(64, 'a'));
  event.mutable_wanted()->add_blobs()->set_sha256(std::string(64, 'a'));
  EXPECT_EQ(CheckEvent(import, event), absl::OkStatus());
  event.mutable_wanted()->add_blobs()->set_sha256(std::string(64, 'a'));
  EXPECT_THAT(Refusal(import, event), HasSubstr("wanted.blobs[1]"));
}

TEST(MessageRules, AGainLiesWithinItsInterval) {
  const v1::StageStart compare = Start(v1::STAGE_COMPARE);
  v1::StageEvent event;
  v1::Gain& gain = *event.mutable_compared()->mutable_gain();
  gain.set_ratio(1.2);
  gain.set_low(1.1);
  gain.set_high(1.3);
  EXPECT_EQ(CheckEvent(compare, event), absl::OkStatus());
  gain.set_low(1.25);
  EXPECT_THAT(Refusal(compare, event), HasSubstr("outside its interval"));
}

}  // namespace
}  // namespace heddle
