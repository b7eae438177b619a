// What the parser changes only for a while. Private to parse.cc.
#pragma once

#include <string>
#include <unordered_map>
#include <utility>

namespace heddle::ir {

// Makes a name visible while it lives; an outer meaning comes back afterwards.
template <typename T>
class Scoped {
 public:
  using Map = std::unordered_map<std::string, T>;
  Scoped(Map& map, const std::string& name, T value) : map_(map), name_(name), old_(map[name]) {
    map_[name_] = std::move(value);
  }
  ~Scoped() { map_[name_] = std::move(old_); }
  Scoped(const Scoped&) = delete;
  Scoped& operator=(const Scoped&) = delete;

 private:
  Map& map_;
  std::string name_;
  T old_;
};

class Deeper {
 public:
  explicit Deeper(int& depth) : depth_(depth) { ++depth_; }
  ~Deeper() { --depth_; }

 private:
  int& depth_;
};

}  // namespace heddle::ir
