#include "worker/frame.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <random>

#include "proto/worker.pb.h"

namespace heddle::worker {
namespace {

v1::StageEvent MakeEvent(int64_t id, size_t bytes) {
  v1::StageEvent event;
  event.mutable_built()->set_candidate(id);
  event.mutable_built()->mutable_artifact()->set_shared_object(std::string(bytes, 'x'));
  return event;
}

TEST(Frame, SurvivesAnyCutting) {
  std::mt19937_64 rng(7);
  for (int round = 0; round < 50; ++round) {
    std::string stream;
    const int count = 1 + static_cast<int>(rng() % 20);
    for (int k = 0; k < count; ++k) stream += EncodeFrame(MakeEvent(k + 1, rng() % 3000)).value();
    FrameDecoder decoder;
    int seen = 0;
    for (size_t at = 0; at < stream.size();) {
      const size_t n = std::min<size_t>(stream.size() - at, 1 + rng() % 997);
      decoder.Append(std::string_view(stream).substr(at, n));
      at += n;
      v1::StageEvent event;
      while (decoder.Next(&event).value()) ASSERT_EQ(event.built().candidate(), ++seen);
    }
    EXPECT_EQ(seen, count);
  }
}

TEST(Frame, GarbageIsDataLossAndNeverWaitsForGigabytes) {
  FrameDecoder decoder;
  v1::StageEvent event;
  decoder.Append("\xff\xff\xff\x7f");
  EXPECT_EQ(decoder.Next(&event).status().code(), absl::StatusCode::kDataLoss);
  FrameDecoder other;
  other.Append(std::string("\x03\x00\x00\x00\xff\xff\xff", 7));
  EXPECT_EQ(other.Next(&event).status().code(), absl::StatusCode::kDataLoss);
}

TEST(Frame, TooLargeIsRefusedBeforeItIsSent) {
  EXPECT_FALSE(EncodeFrame(MakeEvent(1, kMaxFrameBytes)).ok());
  EXPECT_TRUE(EncodeFrame(MakeEvent(1, kMaxFrameBytes - 64)).ok());
}

TEST(Frame, BlockingReadSeesCleanAndCutEnds) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_TRUE(WriteFrame(ends[1], MakeEvent(5, 100)).ok());
  v1::StageEvent event;
  EXPECT_TRUE(ReadFrame(ends[0], &event).value());
  EXPECT_EQ(event.built().candidate(), 5);
  const std::string frame = EncodeFrame(MakeEvent(6, 100)).value();
  ASSERT_EQ(write(ends[1], frame.data(), 50), 50);
  close(ends[1]);
  EXPECT_EQ(ReadFrame(ends[0], &event).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(ReadFrame(ends[0], &event).value());
  close(ends[0]);
}

}  // namespace
}  // namespace heddle::worker
