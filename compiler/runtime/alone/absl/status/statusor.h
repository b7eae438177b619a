// The part of Abseil's StatusOr that the runtime uses; see README.md of compiler/runtime/alone.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "compiler/runtime/alone/absl/status/status.h"

namespace absl {
inline namespace heddle_alone {

// A value, or the error in its place. Taking the value of an error throws std::runtime_error.
template <typename T>
class [[nodiscard]] StatusOr {
 public:
  StatusOr(Status error) : status_(std::move(error)) {
    if (status_.ok()) status_ = Status(StatusCode::kInternal, "a success without a value");
  }
  template <typename U = T>
  requires(!std::is_same_v<std::remove_cvref_t<U>, StatusOr> &&
           !std::is_same_v<std::remove_cvref_t<U>, Status> &&
           std::is_constructible_v<T, U>) explicit(!std::is_convertible_v<U, T>) StatusOr(U&& value)
      : value_(std::forward<U>(value)) {}

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return Checked(*this); }
  const T& value() const& { return Checked(*this); }
  T&& value() && { return std::move(Checked(*this)); }
  T& operator*() & { return Checked(*this); }
  const T& operator*() const& { return Checked(*this); }
  T&& operator*() && { return std::move(Checked(*this)); }
  T* operator->() { return &Checked(*this); }
  const T* operator->() const { return &Checked(*this); }

 private:
  template <typename Self>
  static auto& Checked(Self& self) {
    if (!self.value_.has_value()) throw std::runtime_error(std::string(self.status_.message()));
    return *self.value_;
  }

  Status status_;
  std::optional<T> value_;
};

}  // namespace heddle_alone
}  // namespace absl
