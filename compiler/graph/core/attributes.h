// Attributes of operators: what a node carries, what an operator declares, and how they are read
// with their types.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"

namespace heddle::graph {

using Shape = std::vector<int64_t>;  // one number for each dimension

using Attr = std::variant<int64_t, double, std::string, Shape, std::vector<double>>;
using Attrs = std::map<std::string, Attr, std::less<>>;
std::string ToText(const Attr& attr);  // 3, 0.5, "edge", [1,2]; numbers are rounded, for people
// All attributes, so that two lists have the same text only if they are equal (any two NaNs are).
std::string ExactText(const Attrs& attrs);

// What an attribute says about dimensions. It decides how the attribute changes when the order of
// the dimensions does.
enum class AttrRole {
  kPlain,    // nothing
  kAxis,     // a dimension of the first operand
  kAxes,     // a set of such dimensions
  kOffsets,  // for each dimension, a distance in elements, such as a start or padding
  kFactors,  // for each dimension, a step or a number of repetitions
  kExtents,  // for each dimension, an extent
  kLayout,   // the name of the layout itself
};

// One attribute that an operator declares.
struct AttrSpec {
  std::string_view name;
  Attr fallback;  // the value if a node lacks the attribute; also gives its type
  AttrRole role = AttrRole::kPlain;
  bool number = false;    // may be an integer where `fallback` is a float
  bool required = false;  // has no default: `fallback` only gives the type
};

// InvalidArgument, naming the attribute, if `attrs` holds one that is not declared or does not have
// the declared type, or lacks a required one.
absl::Status CheckAttrs(std::span<const AttrSpec> specs, const Attrs& attrs);

// Reads attributes by their declaration. If the node lacks an attribute, its declared default
// counts. Preconditions: CheckAttrs holds, and the name is declared with the requested type;
// otherwise the program ends. Keeps references to both arguments.
class OpAttrs {
 public:
  OpAttrs(std::span<const AttrSpec> specs, const Attrs& attrs) : specs_(specs), attrs_(attrs) {}

  bool Has(std::string_view name) const { return attrs_.find(name) != attrs_.end(); }
  const Attr& Get(std::string_view name) const;
  int64_t Int(std::string_view name) const { return std::get<int64_t>(Get(name)); }
  bool Flag(std::string_view name) const { return Int(name) != 0; }
  double Float(std::string_view name) const;  // also of a number that is an integer
  const std::string& Text(std::string_view name) const { return std::get<std::string>(Get(name)); }
  const Shape& Ints(std::string_view name) const { return std::get<Shape>(Get(name)); }

 private:
  std::span<const AttrSpec> specs_;
  const Attrs& attrs_;
};

}  // namespace heddle::graph
