// Bytes that several owners share and nobody changes: a string, or a view of a mapped file.
//
// Programs that handle large models call KeepLargeBytesIn, so that such bytes need no memory of their
// own.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace heddle {

// Cheap to copy. The bytes live as long as a copy of this object does.
class SharedBytes {
 public:
  SharedBytes() = default;  // null: there are no bytes, not even none
  SharedBytes(std::nullptr_t) {}
  SharedBytes(std::shared_ptr<const std::string> text) {
    if (text != nullptr) view_ = *text;
    owner_ = std::move(text);
  }
  // `owner` keeps `view` alive.
  SharedBytes(std::shared_ptr<const void> owner, std::string_view view)
      : owner_(std::move(owner)), view_(view) {}
  // Holds the text, or keeps it in a file (KeepLargeBytesIn).
  static SharedBytes Of(std::string text);
  // The same for bytes that belong to somebody else: they are copied.
  static SharedBytes Copy(std::string_view bytes);

  const std::string_view& operator*() const { return view_; }
  const std::string_view* operator->() const { return &view_; }
  friend bool operator==(const SharedBytes& bytes, std::nullptr_t) {
    return bytes.owner_ == nullptr;
  }

 private:
  std::shared_ptr<const void> owner_;
  std::string_view view_;
};

// From now on, Of and Copy write bytes that are at least `min_bytes` long to a file in `folder`, and
// map it. The file has no name, so it ends with the process. The system may write its pages to disk
// and drop them from memory. If the file cannot be written, the bytes stay in memory. Call this once,
// before there are other threads.
void KeepLargeBytesIn(const std::string& folder, size_t min_bytes = size_t{1} << 20);

}  // namespace heddle
