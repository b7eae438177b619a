#include "base/files/blob_store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace heddle {
namespace {

class BlobStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = absl::StrCat(::testing::TempDir(), "/blobs", getpid());
    std::filesystem::remove_all(directory_);
    auto store = BlobStore::Open(directory_);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string Put(const std::string& text) {
    auto writer = store_->NewWriter();
    EXPECT_TRUE((*writer)->Append(text).ok());
    auto digest = (*writer)->Commit("");
    EXPECT_TRUE(digest.ok()) << digest.status();
    return *digest;
  }
  absl::StatusOr<std::string> Get(const std::string& digest) {
    auto reader = store_->NewReader(digest);
    if (!reader.ok()) return reader.status();
    std::string all;
    while (true) {
      auto piece = (*reader)->Next(7);
      if (!piece.ok() || piece->empty())
        return piece.ok() ? absl::StatusOr<std::string>(all) : piece;
      all += *piece;
    }
  }
  std::string directory_;
  std::unique_ptr<BlobStore> store_;
};

TEST_F(BlobStoreTest, RoundTripUnderTheKnownDigest) {
  const std::string digest = Put("abc");
  EXPECT_EQ(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(*Get(digest), "abc");
  EXPECT_EQ(Put("abc"), digest) << "twice is no error";
  for (const std::string text : {"abc", "abd"}) {
    const auto writer = store_->NewWriter();
    ASSERT_TRUE((*writer)->Append(text).ok());
    ASSERT_TRUE((*writer)->Commit("").ok());
    EXPECT_EQ((*writer)->known(), text == "abc");
  }
}

TEST_F(BlobStoreTest, AWrongDigestLeavesNothing) {
  auto writer = store_->NewWriter();
  ASSERT_TRUE((*writer)->Append("abc").ok());
  EXPECT_TRUE(absl::IsDataLoss((*writer)->Commit(std::string(64, '0')).status()));
  writer->reset();
  EXPECT_TRUE(std::filesystem::is_empty(directory_ + "/incoming"));
}

TEST_F(BlobStoreTest, DamageOnDiskIsFound) {
  const std::string digest = Put("a model");
  std::ofstream(absl::StrCat(directory_, "/", digest.substr(0, 2), "/", digest)) << "a mOdel";
  EXPECT_TRUE(absl::IsDataLoss(Get(digest).status()));
  EXPECT_TRUE(absl::IsNotFound(Get(digest).status())) << "it is gone, and may be stored again";
  EXPECT_EQ(Put("a model"), digest);
  EXPECT_EQ(*Get(digest), "a model");
}

TEST_F(BlobStoreTest, HasComparesTheSizeAndKeepsTheBlob) {
  const std::string digest = Put("abc");
  EXPECT_TRUE(store_->Has(digest, 3));
  EXPECT_FALSE(store_->Has(digest, 4));
  EXPECT_FALSE(store_->Has(std::string(64, 'a'), 3));
  EXPECT_FALSE(store_->Has("../../etc/passwd", 3));
  ASSERT_EQ(store_->List().size(), 1u);
  EXPECT_EQ(store_->List()[0].digest, digest);
  EXPECT_EQ(store_->List()[0].size_bytes, 3);
  const absl::Time hour_ago = absl::Now() - absl::Hours(1);
  EXPECT_FALSE(store_->RemoveIfUnusedSince(digest, hour_ago));
  const auto old = std::filesystem::file_time_type::clock::now() - std::chrono::hours(2);
  std::filesystem::last_write_time(BlobPath(directory_, digest), old);
  EXPECT_TRUE(store_->Has(digest, 3));
  EXPECT_FALSE(store_->RemoveIfUnusedSince(digest, hour_ago)) << "Has marked it as used";
  std::filesystem::last_write_time(BlobPath(directory_, digest), old);
  EXPECT_TRUE(store_->RemoveIfUnusedSince(digest, hour_ago));
  EXPECT_FALSE(store_->Has(digest, 3));
  EXPECT_TRUE(store_->Remove(digest).ok());
}

TEST_F(BlobStoreTest, NamesThatAreNoDigestAreNotFound) {
  for (const char* name : {"", "../../etc/passwd", "zz"})
    EXPECT_TRUE(absl::IsNotFound(Get(name).status())) << name;
  EXPECT_TRUE(absl::IsNotFound(Get(std::string(64, 'a')).status()));
}

TEST_F(BlobStoreTest, HalfWrittenBlobsAreClearedAtTheNextStart) {
  std::ofstream(directory_ + "/incoming/1-1") << "half";
  ASSERT_TRUE(BlobStore::Open(directory_).ok());
  EXPECT_TRUE(std::filesystem::is_empty(directory_ + "/incoming"));
}

}  // namespace
}  // namespace heddle
