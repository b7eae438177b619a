#include "proto/access/revoked.h"

#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace heddle {
namespace {

std::string NameOf(const Identity& identity) {
  return absl::StrCat(RoleName(identity.role), "/", identity.name);
}

}  // namespace

absl::StatusOr<RevokedList::Names> RevokedList::Parse(const std::string& text) {
  Names names;
  int number = 0;
  for (const absl::string_view whole : absl::StrSplit(text, '\n')) {
    ++number;
    const absl::string_view line = absl::StripAsciiWhitespace(whole.substr(0, whole.find('#')));
    if (line.empty()) continue;
    const absl::StatusOr<Identity> identity = ParseIdentity(absl::StrCat("heddle://", line));
    if (!identity.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, " is not ROLE/NAME, such as user/ann"));
    }
    names.insert(NameOf(*identity));
  }
  return names;
}

absl::StatusOr<bool> RevokedList::Has(const Identity& identity) const {
  absl::MutexLock lock(&mutex_);
  if (const std::optional<absl::StatusOr<std::string>> text = file_.Changed()) {
    if (text->ok()) {
      names_ = Parse(**text);
    } else if (absl::IsNotFound(text->status())) {
      names_ = Names();
    } else {
      names_ = text->status();
    }
  }
  if (!names_.ok()) return names_.status();
  return names_->count(NameOf(identity)) > 0;
}

absl::Status RevokedList::Check(const Identity& identity) const {
  const absl::StatusOr<bool> revoked = Has(identity);
  if (!revoked.ok()) {
    return absl::UnauthenticatedError(
        absl::StrCat("the file `revoked` of this daemon's --tls-dir cannot be used: ",
                     revoked.status().message()));
  }
  if (!*revoked) return absl::OkStatus();
  return absl::UnauthenticatedError(absl::StrCat(
      NameOf(identity), " is revoked here; ask an operator for a certificate under another name"));
}

}  // namespace heddle
