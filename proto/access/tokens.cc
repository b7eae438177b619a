#include "proto/access/tokens.h"

#include <optional>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/sha256.h"
#include "base/status_macros.h"

namespace heddle {
namespace {

constexpr size_t kHashDigits = 64;

bool IsHash(std::string_view text) {
  return text.size() == kHashDigits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

absl::StatusOr<TokenFile::Entry> ParseEntry(const std::vector<std::string>& words) {
  int64_t expires = 0;
  if (words.size() != 5 || !IsHash(words[0]) || !absl::SimpleAtoi(words[4], &expires))
    return absl::InvalidArgumentError("a line is: SHA256 ROLE NAME TENANT EXPIRES");
  const std::string uri = absl::StrCat("heddle://", words[1], "/", words[2], "?tenant=", words[3]);
  HEDDLE_ASSIGN_OR_RETURN(Identity identity, ParseIdentity(uri));
  return TokenFile::Entry{std::move(identity), absl::FromUnixSeconds(expires)};
}

}  // namespace

absl::StatusOr<TokenFile::Entries> TokenFile::Parse(const std::string& text) {
  Entries entries;
  int number = 0;
  for (const absl::string_view whole : absl::StrSplit(text, '\n')) {
    ++number;
    const absl::string_view line = whole.substr(0, whole.find('#'));
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty()) continue;
    absl::StatusOr<Entry> entry = ParseEntry(words);
    if (!entry.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, ": ", entry.status().message()));
    }
    entries.insert_or_assign(words[0], *std::move(entry));
  }
  return entries;
}

absl::StatusOr<Identity> TokenFile::Find(std::string_view token, absl::Time now) const {
  const std::string hash = Sha256Hex(token);
  absl::MutexLock lock(&mutex_);
  if (const std::optional<absl::StatusOr<std::string>> text = file_.Changed()) {
    if (text->ok()) {
      entries_ = Parse(**text);
    } else if (absl::IsNotFound(text->status())) {
      entries_ = Entries();
    } else {
      entries_ = text->status();
    }
  }
  if (!entries_.ok()) {
    return absl::UnauthenticatedError(
        absl::StrCat("the scheduler cannot use its file of tokens: ", entries_.status().message()));
  }
  const auto found = entries_->find(hash);
  if (found == entries_->end())
    return absl::UnauthenticatedError(
        "the token is not known here; ask an operator for one (heddle-ca token)");
  if (found->second.expires <= now) {
    return absl::UnauthenticatedError(
        absl::StrCat("the token expired on ",
                     absl::FormatTime("%Y-%m-%d", found->second.expires, absl::UTCTimeZone()),
                     "; ask an operator for a new one (heddle-ca token)"));
  }
  return found->second.identity;
}

}  // namespace heddle
