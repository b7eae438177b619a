#include "client/modules/npz.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "base/status_macros.h"

namespace heddle::client {
namespace {

// The ZIP format, by PKWARE's APPNOTE.TXT: offsets into the fixed parts of its records.
constexpr std::string_view kEndMark = "PK\x05\x06";     // end of central directory, 22 bytes
constexpr std::string_view kMemberMark = "PK\x01\x02";  // a member in the directory, 46 bytes
constexpr std::string_view kLocalMark = "PK\x03\x04";   // a member's own header, 30 bytes
constexpr size_t kEndBytes = 22, kMemberBytes = 46, kLocalBytes = 30;
constexpr size_t kLongestComment = 65535;
constexpr uint32_t kStored = 0, kDeflated = 8;
constexpr uint32_t kEncrypted = 1;
constexpr uint32_t kElsewhere = 0xFFFFFFFF;  // the number is in an extra field (more than 4 GiB)

constexpr size_t kMostMembers = 4096;
constexpr size_t kMostArchiveBytes = size_t{4} << 30;

absl::Status InvalidArchive(const std::string& what) { return absl::InvalidArgumentError(what); }

// A little-endian number of `size` bytes; the caller has checked that they are there.
uint32_t NumberAt(std::string_view bytes, size_t at, size_t size) {
  uint32_t value = 0;
  for (size_t i = 0; i < size; ++i)
    value |= static_cast<uint32_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  return value;
}

struct Member {
  std::string name;
  uint32_t flags = 0, method = 0, crc = 0;
  size_t packed_bytes = 0, bytes = 0, offset = 0;
};

// Whether bytes [at, at + size) exist.
bool Holds(std::string_view bytes, size_t at, size_t size) {
  return at <= bytes.size() && size <= bytes.size() - at;
}

absl::StatusOr<std::vector<Member>> ReadDirectory(std::string_view bytes) {
  const absl::Status bad =
      InvalidArchive("not an .npz file (numpy.savez writes one), or cut short");
  if (bytes.size() < kEndBytes) return bad;
  const size_t from = bytes.size() - std::min(bytes.size(), kEndBytes + kLongestComment);
  const size_t end = bytes.substr(from).rfind(kEndMark);
  if (end == std::string_view::npos || !Holds(bytes, from + end, kEndBytes)) return bad;
  const size_t count = NumberAt(bytes, from + end + 10, 2);
  size_t at = NumberAt(bytes, from + end + 16, 4);
  if (count > kMostMembers)
    return InvalidArchive(fmt::format("it has more than {} members", kMostMembers));
  std::vector<Member> members;
  for (size_t i = 0; i < count; ++i) {
    if (!Holds(bytes, at, kMemberBytes) || bytes.substr(at, 4) != kMemberMark) return bad;
    Member member;
    member.flags = NumberAt(bytes, at + 8, 2);
    member.method = NumberAt(bytes, at + 10, 2);
    member.crc = NumberAt(bytes, at + 16, 4);
    const uint32_t packed = NumberAt(bytes, at + 20, 4), size = NumberAt(bytes, at + 24, 4);
    const uint32_t offset = NumberAt(bytes, at + 42, 4);
    const size_t name_bytes = NumberAt(bytes, at + 28, 2);
    const size_t rest = NumberAt(bytes, at + 30, 2) + size_t{NumberAt(bytes, at + 32, 2)};
    if (!Holds(bytes, at + kMemberBytes, name_bytes)) return bad;
    member.name = std::string(bytes.substr(at + kMemberBytes, name_bytes));
    if (packed == kElsewhere || size == kElsewhere || offset == kElsewhere)
      return InvalidArchive("it has more than 4 GiB; save the arrays as .npy files");
    member.packed_bytes = packed;
    member.bytes = size;
    member.offset = offset;
    members.push_back(std::move(member));
    at += kMemberBytes + name_bytes + rest;
  }
  return members;
}

// The member's bytes, which the caller has limited. nullopt: they do not unpack to as many.
std::optional<std::string> Inflated(std::string_view packed, size_t bytes) {
  std::string result(bytes, '\0');
  z_stream stream = {};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return std::nullopt;  // without zlib's header
  const absl::Cleanup end = [&stream] { inflateEnd(&stream); };
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(result.data());
  stream.avail_out = static_cast<uInt>(result.size());
  if (inflate(&stream, Z_FINISH) != Z_STREAM_END || stream.avail_out != 0) return std::nullopt;
  return result;
}

absl::StatusOr<std::string> Unpack(std::string_view bytes, const Member& member) {
  const auto bad = [&member](const std::string& why) {
    return InvalidArchive(fmt::format("its member '{}' {}", absl::CHexEscape(member.name), why));
  };
  if ((member.flags & kEncrypted) != 0) return bad("is encrypted");
  if (!Holds(bytes, member.offset, kLocalBytes) || bytes.substr(member.offset, 4) != kLocalMark)
    return bad("is not where the directory says");
  const size_t begin = member.offset + kLocalBytes + NumberAt(bytes, member.offset + 26, 2) +
                       NumberAt(bytes, member.offset + 28, 2);
  if (!Holds(bytes, begin, member.packed_bytes)) return bad("is cut short");
  const std::string_view packed = bytes.substr(begin, member.packed_bytes);
  std::optional<std::string> whole;
  if (member.method == kStored && member.bytes == packed.size()) {
    whole = std::string(packed);
  } else if (member.method == kDeflated) {
    whole = Inflated(packed, member.bytes);
  } else if (member.method != kStored) {
    return bad("is compressed in another way than NumPy does; save it with numpy.savez");
  }
  if (!whole) return bad("is damaged");
  const uLong crc = crc32_z(0, reinterpret_cast<const Bytef*>(whole->data()), whole->size());
  if (crc != member.crc) return bad("is damaged: its checksum differs");
  return *std::move(whole);
}

}  // namespace

absl::StatusOr<std::map<std::string, NpyArray>> ParseNpz(std::string_view bytes) {
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<Member> members, ReadDirectory(bytes));
  size_t total = 0;
  std::map<std::string, NpyArray> arrays;
  for (const Member& member : members) {
    total += member.bytes;
    // Deflate makes at most about 1030 bytes of one; a larger claim is a lie that would take memory.
    if (total > kMostArchiveBytes || member.bytes > (bytes.size() + 64) * 1032)
      return InvalidArchive("its arrays have more than 4 GiB; save them as .npy files");
    HEDDLE_ASSIGN_OR_RETURN(const std::string file, Unpack(bytes, member));
    absl::StatusOr<NpyArray> array = ParseNpy(file);
    std::string name =
        member.name.ends_with(".npy") ? member.name.substr(0, member.name.size() - 4) : member.name;
    name = absl::CHexEscape(name);
    if (!array.ok())
      return InvalidArchive(
          fmt::format("its member '{}': {}", name, std::string(array.status().message())));
    if (!arrays.emplace(name, *std::move(array)).second)
      return InvalidArchive(fmt::format("it has two arrays called '{}'", name));
  }
  if (arrays.empty()) return InvalidArchive("it holds no arrays");
  return arrays;
}

absl::StatusOr<std::map<std::string, NpyArray>> ReadNpzFile(const std::string& path) {
  HEDDLE_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  absl::StatusOr<std::map<std::string, NpyArray>> arrays = ParseNpz(bytes);
  if (!arrays.ok()) return InvalidArchive(path + ": " + std::string(arrays.status().message()));
  return arrays;
}

}  // namespace heddle::client
