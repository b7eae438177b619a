// What `heddle jobs trace` draws of jobs, whether they have ended or not.
#include "client/views/trace_events.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace heddle::client {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

void AddSpan(v1::StageKind kind, int64_t begin_s, int64_t end_s, v1::Timeline* timeline) {
  v1::StageSpan& span = *timeline->add_spans();
  span.set_job("j1");
  span.set_kind(kind);
  span.set_worker("w1");
  span.set_slot("cpu0");
  span.set_start_unix_ns(begin_s * kSecond);
  span.set_end_unix_ns(end_s * kSecond);
}

// A job that began at 100 s; with stages from 101 s to 103 s and from 104 s on.
std::pair<v1::Job, v1::Timeline> Begun() {
  std::pair<v1::Job, v1::Timeline> begun;
  begun.first.set_id("j1");
  begun.first.mutable_spec()->set_name("model");
  begun.first.set_created_unix_ns(100 * kSecond);
  AddSpan(v1::STAGE_IMPORT, 101, 103, &begun.second);
  AddSpan(v1::STAGE_PROFILE, 104, 0, &begun.second);
  return begun;
}

std::map<std::string, nlohmann::json> SlicesOf(const std::pair<v1::Job, v1::Timeline>& job,
                                               int64_t now_s) {
  std::map<std::string, nlohmann::json> slices;
  for (const nlohmann::json& event : TraceEvents({job}, now_s * kSecond)) {
    if (event.at("ph") == "X") slices[event.at("name")] = event;
  }
  return slices;
}

TEST(TraceEvents, WhatGoesOnLastsUntilNow) {
  auto slices = SlicesOf(Begun(), 110);
  ASSERT_EQ(slices.size(), 3u);
  EXPECT_EQ(slices["j1 model"]["ts"], 0.0);
  EXPECT_EQ(slices["j1 model"]["dur"], 10e6);
  EXPECT_EQ(slices["import j1"]["dur"], 2e6);
  EXPECT_EQ(slices["profile j1"]["ts"], 4e6);
  EXPECT_EQ(slices["profile j1"]["dur"], 6e6);
  EXPECT_EQ(slices["j1 model"]["args"]["running"], true);
  EXPECT_EQ(slices["profile j1"]["args"]["running"], true);
  EXPECT_FALSE(slices["import j1"]["args"].contains("running"));
  // A clock that is behind the service's makes nothing negative.
  EXPECT_EQ(SlicesOf(Begun(), 90)["profile j1"]["dur"], 0.0);
}

TEST(TraceEvents, AStageGoesOnNoLongerThanItsJob) {
  std::pair<v1::Job, v1::Timeline> ended = Begun();
  ended.first.set_finished_unix_ns(105 * kSecond);
  auto slices = SlicesOf(ended, 110);
  EXPECT_EQ(slices["j1 model"]["dur"], 5e6);
  EXPECT_EQ(slices["profile j1"]["dur"], 1e6);
  for (auto& [name, slice] : slices) EXPECT_FALSE(slice["args"].contains("running")) << name;
}

}  // namespace
}  // namespace heddle::client
