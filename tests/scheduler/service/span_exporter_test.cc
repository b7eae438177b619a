// What a collector gets of spans, and what becomes of them when it does not want them or is not there.
#include "scheduler/service/telemetry/span_exporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/daemon/http_server.h"

namespace heddle::scheduler {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr absl::Duration kLimit = absl::Seconds(20);

// A collector that answers as the test says, by default with 200, and keeps what came.
class Collector {
 public:
  Collector() {
    auto server = HttpServer::Start({.address = "127.0.0.1:0"}, [this](const HttpRequest& request) {
      absl::MutexLock lock(&mutex_);
      requests_.push_back(request);
      return answer_ ? answer_(requests_.size())
                     : HttpResponse{.content_type = "application/json", .body = "{}"};
    });
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  std::string address() const { return "http://" + server_->address(); }
  // Called with the number of the request, from 1.
  void Answer(std::function<HttpResponse(size_t)> answer) {
    absl::MutexLock lock(&mutex_);
    answer_ = std::move(answer);
  }
  std::vector<HttpRequest> requests() const {
    absl::MutexLock lock(&mutex_);
    return requests_;
  }

 private:
  mutable absl::Mutex mutex_;
  std::vector<HttpRequest> requests_ ABSL_GUARDED_BY(mutex_);
  std::function<HttpResponse(size_t)> answer_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<HttpServer> server_;  // ends before what its handler uses
};

SpanExporter::Options Quick(const std::string& collector) {
  return {.collector = collector,
          .pause = absl::Milliseconds(5),
          .limit = absl::Seconds(5),
          .longest_pause = absl::Milliseconds(20)};
}

TraceSpan Span(const std::string& id = "0123456789abcdef") {
  TraceSpan span;
  span.trace_id = "00112233445566778899aabbccddeeff";
  span.span_id = id;
  span.name = "profile";
  span.start_unix_ns = 1'700'000'000'123'456'789;
  span.end_unix_ns = 1'700'000'001'000'000'000;
  return span;
}

void Await(const std::function<bool()>& holds) {
  const absl::Time limit = absl::Now() + kLimit;
  while (!holds() && absl::Now() < limit) absl::SleepFor(absl::Milliseconds(2));
  EXPECT_TRUE(holds());
}

TEST(OtlpJson, HasTheFieldsOfTheProtocol) {
  TraceSpan root = Span(), stage = Span("fedcba9876543210");
  stage.parent_id = root.span_id;
  stage.attributes = {{"heddle.job", "j1"}, {"heddle.attempt", int64_t{7'000'000'000}}};
  stage.failed = true;
  stage.message = "bad \xff byte";
  const nlohmann::json request = nlohmann::json::parse(OtlpJson({root, stage}));
  const nlohmann::json expected = nlohmann::json::parse(R"json({"resourceSpans": [{
    "resource": {"attributes": [
      {"key": "service.name", "value": {"stringValue": "heddle-scheduler"}}]},
    "scopeSpans": [{"scope": {"name": "heddle"}, "spans": [
      {"traceId": "00112233445566778899aabbccddeeff", "spanId": "0123456789abcdef", "name": "profile",
       "kind": 1, "startTimeUnixNano": "1700000000123456789", "endTimeUnixNano": "1700000001000000000",
       "attributes": [], "status": {"code": 1}},
      {"traceId": "00112233445566778899aabbccddeeff", "spanId": "fedcba9876543210",
       "parentSpanId": "0123456789abcdef", "name": "profile", "kind": 1,
       "startTimeUnixNano": "1700000000123456789", "endTimeUnixNano": "1700000001000000000",
       "attributes": [{"key": "heddle.job", "value": {"stringValue": "j1"}},
                      {"key": "heddle.attempt", "value": {"intValue": "7000000000"}}],
       "status": {"code": 2, "message": "bad \ufffd byte"}}]}]}]})json");
  EXPECT_EQ(request, expected);
}

TEST(SpanExporter, SendsWhatIsAddedInFewRequests) {
  Collector collector;
  auto exporter = SpanExporter::Start(Quick(collector.address() + "/"));
  ASSERT_TRUE(exporter.ok()) << exporter.status();
  for (int i = 0; i < 3; ++i) (*exporter)->Add(Span());
  Await([&] { return (*exporter)->counts().sent == 3; });
  for (const HttpRequest& request : collector.requests()) {
    EXPECT_EQ(request.method, "POST");
    EXPECT_EQ(request.path, "/v1/traces");
    EXPECT_EQ(request.headers.at("content-type"), "application/json");
  }
  EXPECT_LE(collector.requests().size(), 3u);
}

TEST(SpanExporter, ABusyCollectorIsTriedAgain) {
  Collector collector;
  collector.Answer([](size_t number) { return HttpResponse{.status = number < 3 ? 503 : 200}; });
  auto exporter = SpanExporter::Start(Quick(collector.address()));
  ASSERT_TRUE(exporter.ok());
  (*exporter)->Add(Span());
  Await([&] { return (*exporter)->counts().sent == 1; });
  EXPECT_THAT(collector.requests(), SizeIs(3));
  EXPECT_EQ(collector.requests()[0].body, collector.requests()[2].body);
  EXPECT_EQ((*exporter)->counts().dropped, 0);
}

TEST(SpanExporter, WhatTheCollectorRefusesIsCountedAndNotSentAgain) {
  Collector collector;
  collector.Answer([](size_t number) {
    return number == 1
               ? HttpResponse{.status = 400, .body = R"({"code": 3, "message": "no such field"})"}
               : HttpResponse{.body = R"({"partialSuccess": {"rejectedSpans": "1"}})"};
  });
  auto exporter = SpanExporter::Start(Quick(collector.address()));
  ASSERT_TRUE(exporter.ok());
  (*exporter)->Add(Span());
  Await([&] { return (*exporter)->counts().refused == 1; });
  (*exporter)->Add(Span());
  Await([&] { return (*exporter)->counts().refused == 2; });
  EXPECT_EQ((*exporter)->counts().sent, 0);
  EXPECT_THAT(collector.requests(), SizeIs(2));
}

// Whoever adds a span never waits, and what waits has a limit.
TEST(SpanExporter, WithoutACollectorTheQueueStaysBounded) {
  SpanExporter::Options options = Quick("http://127.0.0.1:1");
  options.most_waiting = 10;
  options.most_in_request = 5;
  options.goodbye = absl::Milliseconds(100);
  auto exporter = SpanExporter::Start(options);
  ASSERT_TRUE(exporter.ok());
  const absl::Time begin = absl::Now();
  for (int i = 0; i < 10'000; ++i) (*exporter)->Add(Span());
  EXPECT_LT(absl::Now() - begin, absl::Seconds(5));
  const SpanExporter::Counts counts = (*exporter)->counts();
  EXPECT_GE(counts.dropped, 10'000 - 15);
  EXPECT_EQ(counts.sent, 0);
  const absl::Time end = absl::Now();
  exporter->reset();
  EXPECT_LT(absl::Now() - end, absl::Seconds(5));
}

// A collector that takes the connection and says nothing does not hold up the end.
TEST(SpanExporter, ASilentCollectorDoesNotHoldUpTheEnd) {
  std::atomic<bool> over = false;
  Collector collector;
  collector.Answer([&](size_t) {
    const absl::Time limit = absl::Now() + kLimit;
    while (!over && absl::Now() < limit) absl::SleepFor(absl::Milliseconds(5));
    return HttpResponse{};
  });
  SpanExporter::Options options = Quick(collector.address());
  options.limit = absl::Minutes(1);
  options.goodbye = absl::Milliseconds(200);
  auto exporter = SpanExporter::Start(options);
  ASSERT_TRUE(exporter.ok());
  (*exporter)->Add(Span());
  absl::SleepFor(absl::Milliseconds(100));
  const absl::Time end = absl::Now();
  exporter->reset();
  EXPECT_LT(absl::Now() - end, absl::Seconds(10));
  over = true;
}

TEST(SpanExporter, WhatWaitsAtTheEndIsSent) {
  Collector collector;
  SpanExporter::Options options = Quick(collector.address());
  options.pause = absl::Minutes(1);
  auto exporter = SpanExporter::Start(options);
  ASSERT_TRUE(exporter.ok());
  (*exporter)->Add(Span());
  exporter->reset();
  ASSERT_THAT(collector.requests(), SizeIs(1));
  EXPECT_THAT(collector.requests()[0].body, HasSubstr("0123456789abcdef"));
}

TEST(SpanExporter, AddressesThatAreNoneAreRefused) {
  for (const char* address : {"", "127.0.0.1:4318", "ftp://127.0.0.1", "http://", "http://a b",
                              "http://user:pw@127.0.0.1:4318", "http://127.0.0.1:4318/?x=1"}) {
    const auto exporter = SpanExporter::Start({.collector = address});
    EXPECT_TRUE(absl::IsInvalidArgument(exporter.status())) << address;
    EXPECT_THAT(std::string(exporter.status().message()), HasSubstr("http://127.0.0.1:4318"));
  }
}

}  // namespace
}  // namespace heddle::scheduler
