#include "compiler/graph/core/attributes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/fatal.h"

namespace heddle::graph {
namespace {

constexpr const char* kTypeNames[] = {"an integer", "a float", "text", "integers", "floats"};
static_assert(std::variant_size_v<Attr> == std::size(kTypeNames));

const AttrSpec* Find(std::span<const AttrSpec> specs, std::string_view name) {
  const auto spec =
      std::find_if(specs.begin(), specs.end(), [&](const AttrSpec& s) { return s.name == name; });
  return spec == specs.end() ? nullptr : &*spec;
}

}  // namespace

std::string ToText(const Attr& attr) {
  struct Printer {
    std::string operator()(int64_t v) const { return absl::StrCat(v); }
    std::string operator()(double v) const { return absl::StrCat(v); }
    std::string operator()(const std::string& v) const { return absl::StrCat("\"", v, "\""); }
    std::string operator()(const Shape& v) const {
      return absl::StrCat("[", absl::StrJoin(v, ","), "]");
    }
    std::string operator()(const std::vector<double>& v) const {
      return absl::StrCat("[", absl::StrJoin(v, ","), "]");
    }
  };
  return std::visit(Printer(), attr);
}

std::string ExactText(const Attrs& attrs) {
  struct Printer {
    std::string operator()(int64_t v) const { return absl::StrCat("i", v); }
    std::string operator()(double v) const { return absl::StrFormat("f%a", v); }
    std::string operator()(const std::string& v) const {
      return absl::StrCat("s", v.size(), ":", v);
    }
    std::string operator()(const Shape& v) const {
      return absl::StrCat("I", absl::StrJoin(v, ","));
    }
    std::string operator()(const std::vector<double>& v) const {
      std::string text = "F";
      for (double x : v) absl::StrAppendFormat(&text, "%a,", x);
      return text;
    }
  };
  std::string text;
  for (const auto& [name, value] : attrs)
    absl::StrAppend(&text, " ", name, "=", std::visit(Printer(), value));
  return text;
}

absl::Status CheckAttrs(std::span<const AttrSpec> specs, const Attrs& attrs) {
  for (const auto& [name, value] : attrs) {
    const AttrSpec* spec = Find(specs, name);
    if (spec == nullptr)
      return absl::InvalidArgumentError(absl::StrCat("has no attribute '", name, "'"));
    const bool integer = spec->number && std::holds_alternative<int64_t>(value);
    if (integer || value.index() == spec->fallback.index()) continue;
    return absl::InvalidArgumentError(absl::StrCat("takes ", kTypeNames[spec->fallback.index()],
                                                   " as attribute '", name, "', not ",
                                                   kTypeNames[value.index()]));
  }
  for (const AttrSpec& spec : specs) {
    if (!spec.required || attrs.find(spec.name) != attrs.end()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("lacks the attribute '", std::string(spec.name), "'"));
  }
  return absl::OkStatus();
}

const Attr& OpAttrs::Get(std::string_view name) const {
  const auto found = attrs_.find(name);
  if (found != attrs_.end()) return found->second;
  const AttrSpec* spec = Find(specs_, name);
  if (spec == nullptr) {
    Fatal(absl::StrCat("an operator reads the attribute '",
                       absl::string_view(name.data(), name.size()),
                       "', which its definition does not declare"));
  }
  return spec->fallback;
}

double OpAttrs::Float(std::string_view name) const {
  const Attr& value = Get(name);
  const auto* whole = std::get_if<int64_t>(&value);
  return whole != nullptr ? static_cast<double>(*whole) : std::get<double>(value);
}

}  // namespace heddle::graph
