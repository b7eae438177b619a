// Attributes of operators: what a node carries, what an operator declares, and typed reading.
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

using Shape = std::vector<int64_t>;  // one number a dimension

using Attr = std::variant<int64_t, double, std::string, Shape, std::vector<double>>;
using Attrs = std::map<std::string, Attr, std::less<>>;
std::string ToText(const Attr& attr);  // 3, 0.5, "edge", [1,2]

// What an attribute says about dimensions: how it changes when they stand in another order.
enum class AttrRole {
  kPlain,    // nothing
  kAxis,     // it is a dimension of the first operand
  kAxes,     // it is a set of them
  kOffsets,  // one a dimension: a distance in elements, such as a start or padding
  kFactors,  // one a dimension: a step or a number of repetitions
  kExtents,  // one a dimension: an extent
  kLayout,   // it names the layout itself
};

// One attribute that an operator declares.
struct AttrSpec {
  std::string_view name;
  Attr fallback;  // of nodes that do not have the attribute; also says its type
  AttrRole role = AttrRole::kPlain;
  bool number = false;  // it may be an integer where `fallback` is a float
};

// InvalidArgument, naming the attribute, if `attrs` holds one that is not declared or has another
// type than declared.
absl::Status CheckAttrs(std::span<const AttrSpec> specs, const Attrs& attrs);

// Reads attributes by their declaration: where the node has none, the declared default counts.
// Preconditions: CheckAttrs holds, and the name is declared with the type that is asked for;
// anything else ends the program. Refers to both arguments.
class OpAttrs {
 public:
  OpAttrs(std::span<const AttrSpec> specs, const Attrs& attrs) : specs_(specs), attrs_(attrs) {}

  bool Has(std::string_view name) const { return attrs_.find(name) != attrs_.end(); }
  const Attr& Get(std::string_view name) const;
  int64_t Int(std::string_view name) const { return std::get<int64_t>(Get(name)); }
  bool Flag(std::string_view name) const { return Int(name) != 0; }
  double Float(std::string_view name) const;  // of a number that is an integer, too
  const std::string& Text(std::string_view name) const { return std::get<std::string>(Get(name)); }
  const Shape& Ints(std::string_view name) const { return std::get<Shape>(Get(name)); }

 private:
  std::span<const AttrSpec> specs_;
  const Attrs& attrs_;
};

}  // namespace heddle::graph
