// What the runtime expects of Abseil. Compiled twice: with Abseil, and with compiler/runtime/alone in
// its place, so both mean the same.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"

namespace {

TEST(Alone, NumbersAsText) {
  EXPECT_EQ(absl::StrCat(0), "0");
  EXPECT_EQ(absl::StrCat("a", -1, ",", 42u), "a-1,42");
  EXPECT_EQ(absl::StrCat(std::numeric_limits<int64_t>::min()), "-9223372036854775808");
  EXPECT_EQ(absl::StrCat(std::numeric_limits<int64_t>::max()), "9223372036854775807");
  EXPECT_EQ(absl::StrCat(std::numeric_limits<uint64_t>::max()), "18446744073709551615");
  EXPECT_EQ(absl::StrCat(std::numeric_limits<int32_t>::min()), "-2147483648");
  EXPECT_EQ(absl::StrCat(static_cast<unsigned short>(62), size_t{7}), "627");
}

TEST(Alone, HexadecimalNumbers) {
  EXPECT_EQ(absl::StrCat(absl::Hex(uint64_t{0xab01}, absl::kZeroPad16)), "000000000000ab01");
  EXPECT_EQ(absl::StrCat(absl::Hex(uint64_t{0}, absl::kZeroPad16)), "0000000000000000");
  EXPECT_EQ(absl::StrCat(absl::Hex(~uint64_t{0}, absl::kZeroPad16)), "ffffffffffffffff");
  EXPECT_EQ(absl::StrCat(absl::Hex(uint64_t{0xab01})), "ab01");
}

TEST(Alone, TextsAreJoined) {
  const std::string text = "text";
  const char* none = nullptr;
  EXPECT_EQ(absl::StrCat(), "");
  EXPECT_EQ(absl::StrCat(text, "-", text.c_str(), none), "text-text");
  std::string out = "begin ";
  absl::StrAppend(&out, text, 1, " ", text);
  EXPECT_EQ(out, "begin text1 text");
  EXPECT_EQ(absl::StrJoin(std::vector<std::string>{}, ", "), "");
  EXPECT_EQ(absl::StrJoin(std::vector<std::string>{"a", "", "b"}, ", "), "a, , b");
}

TEST(Alone, StatusKeepsCodeAndMessage) {
  const absl::Status good;
  EXPECT_TRUE(good.ok());
  EXPECT_EQ(good.message(), "");
  EXPECT_EQ(std::string(absl::Status(absl::StatusCode::kOk, "lost").message()), "");
  absl::Status bad = absl::InvalidArgumentError("no");
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(std::string(bad.message()), "no");
  bad.Update(absl::NotFoundError("later"));
  EXPECT_EQ(bad.code(), absl::StatusCode::kInvalidArgument);
  absl::Status first = absl::OkStatus();
  first.Update(bad);
  EXPECT_EQ(std::string(first.message()), "no");
}

TEST(Alone, EachErrorHasItsCode) {
  EXPECT_EQ(absl::NotFoundError("").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(absl::PermissionDeniedError("").code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(absl::ResourceExhaustedError("").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(absl::FailedPreconditionError("").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(absl::OutOfRangeError("").code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(absl::DataLossError("").code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(static_cast<int>(absl::StatusCode::kDataLoss), 15);
  EXPECT_EQ(static_cast<int>(absl::StatusCode::kAborted), 10);
}

TEST(Alone, SystemErrorsHaveCodeAndText) {
  using Code = absl::StatusCode;
  const std::pair<int, Code> codes[] = {{EINVAL, Code::kInvalidArgument},
                                        {ENAMETOOLONG, Code::kInvalidArgument},
                                        {ENOENT, Code::kNotFound},
                                        {EPERM, Code::kPermissionDenied},
                                        {EACCES, Code::kPermissionDenied},
                                        {EROFS, Code::kPermissionDenied},
                                        {ENOTDIR, Code::kFailedPrecondition},
                                        {EISDIR, Code::kFailedPrecondition},
                                        {EBADF, Code::kFailedPrecondition},
                                        {EMFILE, Code::kResourceExhausted},
                                        {ENFILE, Code::kResourceExhausted},
                                        {ENOMEM, Code::kResourceExhausted},
                                        {ENOSPC, Code::kResourceExhausted},
                                        {EAGAIN, Code::kUnavailable},
                                        {EIO, Code::kUnknown}};
  for (const auto& [number, code] : codes)
    EXPECT_EQ(absl::ErrnoToStatus(number, "x").code(), code) << number;
  EXPECT_EQ(std::string(absl::ErrnoToStatus(ENOENT, "cannot read x").message()),
            "cannot read x: No such file or directory");
}

absl::StatusOr<std::unique_ptr<const std::string>> MakeText(bool good) {
  if (!good) return absl::DataLossError("bad");
  return std::make_unique<std::string>("text");  // becomes a pointer to const
}

TEST(Alone, StatusOrHoldsAValueOrAnError) {
  auto text = MakeText(true);
  ASSERT_TRUE(text.ok());
  EXPECT_TRUE(text.status().ok());
  EXPECT_EQ(**text, "text");
  EXPECT_EQ((*text)->size(), 4u);
  const std::unique_ptr<const std::string> taken = std::move(text).value();
  EXPECT_EQ(*taken, "text");
  const auto none = MakeText(false);
  EXPECT_FALSE(none.ok());
  EXPECT_EQ(std::string(none.status().message()), "bad");
  const absl::StatusOr<std::string> copied = std::string("x");
  const absl::StatusOr<std::string> again = copied;
  EXPECT_EQ(again->size() + copied->size(), 2u);
}

TEST(Alone, AnErrorHasNoValue) {
  EXPECT_THROW(MakeText(false).value(), std::exception);
  const absl::StatusOr<int> bad = absl::DataLossError("");
  EXPECT_THROW(bad.value(), std::exception);
}

TEST(Alone, CleanupRunsAtTheEndOfItsScope) {
  int runs = 0;
  {
    const absl::Cleanup count = [&runs] { ++runs; };
    EXPECT_EQ(runs, 0);
  }
  EXPECT_EQ(runs, 1);
}

TEST(Alone, DurationsAreNanoseconds) {
  EXPECT_EQ(absl::ToDoubleNanoseconds(absl::Seconds(10)), 1e10);
  EXPECT_EQ(absl::ToDoubleNanoseconds(absl::Milliseconds(10)), 1e7);
}

}  // namespace
