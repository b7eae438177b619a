#include "worker/supervisor/blob_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "proto/chunks.h"

namespace heddle::worker {
namespace {

using ::testing::HasSubstr;
using Blobs = google::protobuf::RepeatedPtrField<v1::BlobRef>;

class BlobCacheTest : public ::testing::Test {
 protected:
  BlobCacheTest() : folder_(absl::StrCat(::testing::TempDir(), "/blob_cache", getpid())) {
    std::filesystem::remove_all(folder_);
    Open(1000);
  }
  ~BlobCacheTest() override { std::filesystem::remove_all(folder_); }

  void Open(int64_t limit_bytes) {
    cache_.reset();
    auto cache = BlobCache::Open(folder_, limit_bytes);
    ASSERT_TRUE(cache.ok()) << cache.status();
    cache_ = *std::move(cache);
  }
  static Blobs List(const std::vector<std::string>& texts) {
    Blobs blobs;
    for (const std::string& text : texts) {
      v1::BlobRef& blob = *blobs.Add();
      blob.set_sha256(Sha256Hex(text));
      blob.set_bytes(static_cast<int64_t>(text.size()));
    }
    return blobs;
  }
  std::unique_ptr<BlobCache::Fetch> Begin(const std::vector<std::string>& texts) {
    auto fetch = cache_->Begin(List(texts));
    EXPECT_TRUE(fetch.ok()) << fetch.status();
    return fetch.ok() ? *std::move(fetch) : nullptr;
  }
  static absl::Status Send(BlobCache::Fetch& fetch, const std::string& text) {
    absl::Status status;
    SendChunks(Sha256Hex(text), text, [&](v1::Chunk chunk) {
      status = fetch.Take(chunk);
      return status.ok();
    });
    return status;
  }
  // How many of these blobs were not here. Afterwards all are.
  int Fetch(const std::vector<std::string>& texts) {
    const auto fetch = Begin(texts);
    for (const v1::BlobRef& blob : fetch->wanted().blobs()) {
      for (const std::string& text : texts) {
        if (Sha256Hex(text) == blob.sha256()) {
          EXPECT_TRUE(Send(*fetch, text).ok());
        }
      }
    }
    EXPECT_TRUE(fetch->complete());
    return fetch->wanted().blobs_size();
  }
  std::string PathOf(const std::string& text) {
    return BlobPath(cache_->folder(), Sha256Hex(text));
  }

  const std::string folder_;
  std::unique_ptr<BlobCache> cache_;
  const std::string a_ = std::string(400, 'a'), b_ = std::string(400, 'b'),
                    c_ = std::string(400, 'c');
};

TEST_F(BlobCacheTest, BlobsAreFetchedOnce) {
  EXPECT_EQ(Fetch({a_, b_}), 2);
  EXPECT_EQ(Fetch({a_, b_}), 0);
  EXPECT_EQ(cache_->counts().hits, 2);
  EXPECT_EQ(cache_->counts().misses, 2);
  EXPECT_EQ(cache_->counts().bytes, 800);
  EXPECT_GT(cache_->counts().free_bytes, 0);
  Open(1000);
  EXPECT_EQ(Fetch({b_, a_}), 0) << "also after a restart";
}

TEST_F(BlobCacheTest, TheOldestGoesFirst) {
  Fetch({a_});
  Fetch({b_});
  Fetch({a_});
  EXPECT_EQ(Fetch({c_}), 1);
  EXPECT_EQ(Fetch({a_}), 0);
  EXPECT_EQ(Fetch({b_}), 1);
}

TEST_F(BlobCacheTest, WhatAStageUsesStays) {
  auto running = Begin({a_, b_});
  ASSERT_TRUE(Send(*running, a_).ok());
  ASSERT_TRUE(Send(*running, b_).ok());
  const auto refused = cache_->Begin(List({c_}));
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status()));
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("--blob-cache-mib"));
  EXPECT_TRUE(std::filesystem::exists(PathOf(a_)));
  running.reset();
  EXPECT_EQ(Fetch({c_}), 1);
}

TEST_F(BlobCacheTest, DamagedBlobsAreFetchedAgain) {
  Fetch({a_, b_});
  std::string damaged = a_;
  damaged[7] = 'x';
  std::ofstream(PathOf(a_), std::ios::binary) << damaged;
  std::ofstream(PathOf(b_), std::ios::binary) << "short";
  EXPECT_EQ(Fetch({b_}), 1) << "its size differs";
  Open(1000);
  EXPECT_EQ(Fetch({a_}), 1) << "its digest differs";
  EXPECT_EQ(Fetch({a_}), 0);
}

TEST_F(BlobCacheTest, OnlyTheWantedBlobIsTaken) {
  const auto fetch = Begin({a_, b_});
  EXPECT_TRUE(absl::IsInvalidArgument(Send(*fetch, b_))) << "not its turn";
  v1::Chunk chunk;
  chunk.set_name(Sha256Hex(a_));
  chunk.set_data(std::string(400, 'x'));
  chunk.set_last(true);
  EXPECT_TRUE(absl::IsDataLoss(fetch->Take(chunk)));
  EXPECT_FALSE(std::filesystem::exists(PathOf(a_)));
  const auto again = Begin({a_});
  chunk.set_last(false);
  EXPECT_TRUE(again->Take(chunk).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(again->Take(chunk))) << "too long";
  Blobs bad = List({a_});
  bad[0].set_sha256("../../etc/passwd");
  EXPECT_TRUE(absl::IsInvalidArgument(cache_->Begin(bad).status()));
}

TEST_F(BlobCacheTest, WorkersOfOneHostDoNotShareAFolder) {
  const auto other = BlobCache::Open(folder_, 1000);
  ASSERT_TRUE(other.ok());
  EXPECT_NE((*other)->folder(), cache_->folder());
}

}  // namespace
}  // namespace heddle::worker
