// .npz files, whose bytes may come from anywhere.
#include "client/modules/npz.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <random>

namespace heddle::client {
namespace {

using ::testing::HasSubstr;

struct Entry {
  std::string name;
  std::string bytes;
  bool deflated = false;
};

std::string Number(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 255);
  return text;
}

std::string Deflate(const std::string& bytes) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(bytes.size() + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

// As Python's zipfile writes it for numpy.savez: with an extra field in each local header.
std::string Zip(const std::vector<Entry>& entries) {
  std::string file, directory;
  for (const Entry& entry : entries) {
    const std::string packed = entry.deflated ? Deflate(entry.bytes) : entry.bytes;
    const uLong crc =
        crc32_z(0, reinterpret_cast<const Bytef*>(entry.bytes.data()), entry.bytes.size());
    const std::string extra =
        Number(1, 2) + Number(16, 2) + Number(entry.bytes.size(), 8) + Number(packed.size(), 8);
    const std::string about =
        Number(0, 2) + Number(entry.deflated ? 8 : 0, 2) + Number(0, 4) + Number(crc, 4);
    directory += "PK\x01\x02" + Number(45, 2) + Number(45, 2) + about + Number(packed.size(), 4) +
                 Number(entry.bytes.size(), 4) + Number(entry.name.size(), 2) + Number(0, 12) +
                 Number(file.size(), 4) + entry.name;
    file += "PK\x03\x04" + Number(45, 2) + about + Number(0xFFFFFFFF, 4) + Number(0xFFFFFFFF, 4) +
            Number(entry.name.size(), 2) + Number(extra.size(), 2) + entry.name + extra + packed;
  }
  const size_t begin = file.size();
  return file + directory + "PK\x05\x06" + Number(0, 4) + Number(entries.size(), 2) +
         Number(entries.size(), 2) + Number(directory.size(), 4) + Number(begin, 4) + Number(0, 2);
}

std::string Array(float value, int64_t count) {
  NpyArray array{"f32", {count}, {}};
  for (int64_t i = 0; i < count; ++i)
    array.bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  return SerializeNpy(array);
}

TEST(Npz, HoldsArraysByName) {
  const auto arrays = ParseNpz(Zip({{"x.npy", Array(1, 3)}, {"y.npy", Array(2, 1000), true}}));
  ASSERT_TRUE(arrays.ok()) << arrays.status();
  ASSERT_EQ(arrays->size(), 2u);
  EXPECT_EQ(arrays->at("x").shape, std::vector<int64_t>{3});
  EXPECT_EQ(arrays->at("y").shape, std::vector<int64_t>{1000});
  EXPECT_EQ(SerializeNpy(arrays->at("y")), Array(2, 1000));
}

TEST(Npz, RefusalsNameTheProblem) {
  const auto said = [](const std::string& bytes) {
    return std::string(ParseNpz(bytes).status().message());
  };
  EXPECT_THAT(said(""), HasSubstr("numpy.savez"));
  EXPECT_THAT(said(Array(1, 3)), HasSubstr("not an .npz file"));
  EXPECT_THAT(said(Zip({})), HasSubstr("no arrays"));
  EXPECT_THAT(said(Zip({{"x.npy", "text"}})), HasSubstr("member 'x'"));
  EXPECT_THAT(said(Zip({{"x.npy", Array(1, 3)}, {"x", Array(1, 3)}})), HasSubstr("two arrays"));
  std::string damaged = Zip({{"x.npy", Array(1, 3)}});
  damaged[damaged.find("NUMPY") + 130] ^= 1;
  EXPECT_THAT(said(damaged), HasSubstr("checksum"));
  std::string encrypted = Zip({{"x.npy", Array(1, 3)}});
  encrypted[encrypted.find("PK\x01\x02") + 8] |= 1;
  EXPECT_THAT(said(encrypted), HasSubstr("encrypted"));
  std::string other = Zip({{"x.npy", Array(1, 3)}});
  other[other.find("PK\x01\x02") + 10] = 12;  // bzip2
  EXPECT_THAT(said(other), HasSubstr("numpy.savez"));
}

TEST(Npz, AnyPartOfAFileIsRefusedAndAnyChangeIsSurvived) {
  const std::string whole = Zip({{"x.npy", Array(1, 30)}, {"y.npy", Array(2, 100), true}});
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(ParseNpz(whole.substr(0, size)).ok()) << size;
  std::mt19937_64 rng(1);
  for (int i = 0; i < 20'000; ++i) {
    std::string changed = whole;
    for (uint64_t k = rng() % 4; k > 0; --k)
      changed[rng() % changed.size()] = static_cast<char>(rng());
    (void)ParseNpz(changed);
  }
}

TEST(Npz, AClaimOfMoreBytesThanThereCanBeTakesNoMemory) {
  std::string huge = Zip({{"x.npy", Array(1, 3), true}});
  const size_t at = huge.find("PK\x01\x02");
  huge.replace(at + 24, 4, Number(0xF0000000, 4));
  EXPECT_THAT(std::string(ParseNpz(huge).status().message()), HasSubstr("4 GiB"));
}

}  // namespace
}  // namespace heddle::client
