#include "compiler/onnx/standard/standard.h"

#include <algorithm>
#include <climits>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/fatal.h"

namespace heddle::onnx {
namespace {

constexpr std::string_view kTable =
#include "compiler/onnx/standard/operators.inc"
    ;
constexpr std::string_view kMl =
#include "compiler/onnx/standard/ml.inc"
    ;
constexpr std::string_view kMicrosoft =
#include "compiler/onnx/standard/microsoft.inc"
    ;

constexpr const char* kTypeNames[] = {
    "undefined",      "float",      "uint8",          "int8",       "uint16",     "int16",
    "int32",          "int64",      "string",         "bool",       "float16",    "double",
    "uint32",         "uint64",     "complex64",      "complex128", "bfloat16",   "float8e4m3fn",
    "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "uint4",      "int4",       "float4e2m1",
    "float8e8m0",     "uint2",      "int2",           "float6e2m3", "float6e3m2",
};

std::vector<std::string_view> Words(std::string_view line) {
  std::vector<std::string_view> words;
  for (size_t begin = 0; begin < line.size();) {
    const size_t end = std::min(line.find(' ', begin), line.size());
    if (end > begin) words.push_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

int Number(std::string_view digits) { return std::atoi(std::string(digits).c_str()); }

[[noreturn]] void Malformed(std::string_view what) {
  Fatal(absl::StrCat("the table of ONNX operators does not say what '", std::string(what), "' is"));
}

// The set of one type by its name.
ElementTypes Single(std::string_view name) {
  if (name == "seq") return ElementTypes{1} << kSequence;
  if (name == "optional") return ElementTypes{1} << kOptional;
  if (name == "map") return ElementTypes{1} << kMap;
  const auto found = std::find(std::begin(kTypeNames), std::end(kTypeNames), name);
  if (found == std::end(kTypeNames)) Malformed(name);
  return ElementTypes{1} << (found - std::begin(kTypeNames));
}

// "activations:strings=Tanh,Tanh"
AttributeRule ParseAttribute(std::string_view word) {
  AttributeRule rule;
  const size_t colon = word.find(':'), equals = word.find('=', colon);
  rule.name = word.substr(0, colon);
  std::string_view type = word.substr(
      colon + 1, equals == std::string_view::npos ? std::string_view::npos : equals - colon - 1);
  if (type.back() == '!') rule.required = true, type.remove_suffix(1);
  std::string upper(type);
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (!AttributeProto::AttributeType_Parse(upper, &rule.type)) Malformed(word);
  if (equals == std::string_view::npos) return rule;
  const std::string text(word.substr(equals + 1));
  rule.fallback.set_name(std::string(rule.name));
  rule.fallback.set_type(rule.type);
  const auto each = [&](auto add) {
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(',', begin), text.size());
      add(text.substr(begin, end - begin));
      begin = end + 1;
    }
  };
  switch (rule.type) {
    case AttributeProto::INT:
      rule.fallback.set_i(std::atoll(text.c_str()));
      break;
    case AttributeProto::FLOAT:
      rule.fallback.set_f(std::strtof(text.c_str(), nullptr));
      break;
    case AttributeProto::STRING:
      rule.fallback.set_s(text);
      break;
    case AttributeProto::INTS:
      each([&](const std::string& v) { rule.fallback.add_ints(std::atoll(v.c_str())); });
      break;
    case AttributeProto::STRINGS:
      each([&](const std::string& v) { rule.fallback.add_strings(v); });
      break;
    default:
      Malformed(word);
  }
  return rule;
}

// "v_initial*0~:V"; the type is looked up later.
OperandRule ParseOperand(std::string_view word) {
  OperandRule rule;
  const size_t colon = word.rfind(':');
  rule.variable = word.substr(colon + 1);
  std::string_view name = word.substr(0, colon);
  if (const size_t star = name.rfind('*'); star != std::string_view::npos) {
    rule.mode = OperandRule::Mode::kVariadic;
    rule.least = Number(name.substr(star + 1));
    rule.same_type = name.back() != '~';
    name = name.substr(0, star);
  } else if (name.back() == '?') {
    rule.mode = OperandRule::Mode::kOptional;
    name.remove_suffix(1);
  }
  rule.name = name;
  return rule;
}

using Source = OperatorRule::Source;

struct Table {
  std::map<std::string_view, int> newest;  // opset of each domain
  Standard rules;
  std::map<std::string_view, std::vector<std::string_view>> domains;
};

class Parser {
 public:
  Table Run() {
    for (const auto& [source, text] : {std::pair{Source::kStandard, kTable},
                                       {Source::kMl, kMl},
                                       {Source::kRuntime, kMicrosoft}}) {
      source_ = source;
      ParseText(text);
    }
    return std::move(table_);
  }

 private:
  void ParseText(std::string_view text) {
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      const std::vector<std::string_view> words = Words(text.substr(begin, end - begin));
      if (!words.empty()) ParseLine(words);
      begin = end + 1;
    }
  }

  void ParseLine(const std::vector<std::string_view>& words) {
    if (words[0] == "source") return;
    if (words[0] == "newest") {
      table_.newest[source_ == Source::kMl ? kMlDomain : ""] = Number(words[1]);
    } else if (words[0] == "types") {
      for (size_t i = 2; i < words.size(); ++i) sets_[words[1]] |= Single(words[i]);
    } else if (words[0] == "domain") {
      table_.domains[words[1]].assign(words.begin() + 2, words.end());
    } else {
      ParseOperator(words);
    }
  }

  void ParseOperator(const std::vector<std::string_view>& words) {
    OperatorRule rule;
    rule.name = words[0];
    rule.source = source_;
    rule.since = Number(words[1]);
    rule.removed = words.back() == "removed";
    std::map<std::string_view, ElementTypes> variables;
    int part = 0;
    for (size_t i = 2; i < words.size() && !rule.removed; ++i) {
      const std::string_view word = words[i];
      if (word == "|") {
        ++part;
      } else if (part == 1 || part == 2) {
        (part == 1 ? rule.inputs : rule.outputs).push_back(ParseOperand(word));
      } else if (part == 3) {
        rule.attributes.push_back(ParseAttribute(word));
      } else {
        const size_t equals = word.find('=');
        variables[word.substr(0, equals)] = Set(word.substr(equals + 1));
      }
    }
    for (auto* operands : {&rule.inputs, &rule.outputs}) {
      for (OperandRule& o : *operands) {
        const auto variable = variables.find(o.variable);
        o.types = variable != variables.end() ? variable->second : Set(o.variable);
        if (variable == variables.end()) o.variable = {};
      }
    }
    table_.rules[rule.name].push_back(std::move(rule));
  }

  ElementTypes Set(std::string_view name) const {
    const auto found = sets_.find(name);
    return found != sets_.end() ? found->second : Single(name);
  }

  Table table_;
  Source source_ = Source::kStandard;  // of the text that is parsed
  std::map<std::string_view, ElementTypes> sets_;
};

const Table& TheTable() {
  static const auto* table = new Table(Parser().Run());
  return *table;
}

}  // namespace

std::string ElementTypeName(int type) {
  if (type < 0 || type >= static_cast<int>(std::size(kTypeNames))) return absl::StrCat("#", type);
  return kTypeNames[type];
}

std::string ElementTypeNames(ElementTypes types) {
  std::vector<std::string> names;
  for (int i = 0; i < static_cast<int>(std::size(kTypeNames)); ++i) {
    if (types >> i & 1) names.push_back(kTypeNames[i]);
  }
  if (types >> kSequence & 1) names.push_back("sequence");
  if (types >> kOptional & 1) names.push_back("optional");
  if (types >> kMap & 1) names.push_back("map");
  std::string text;
  for (size_t i = 0; i < names.size(); ++i)
    absl::StrAppend(&text, i == 0 ? "" : i + 1 == names.size() ? " or " : ", ", names[i]);
  return text;
}

const AttributeRule* OperatorRule::Attribute(std::string_view attribute) const {
  for (const AttributeRule& a : attributes) {
    if (a.name == attribute) return &a;
  }
  return nullptr;
}

const OperandRule* OperatorRule::At(const std::vector<OperandRule>& list, int i) {
  if (i < static_cast<int>(list.size())) return &list[i];
  const bool more = !list.empty() && list.back().mode == OperandRule::Mode::kVariadic;
  return more ? &list.back() : nullptr;
}

int OperatorRule::Fewest(const std::vector<OperandRule>& list) {
  int fewest = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    const int before = static_cast<int>(i);
    if (list[i].mode == OperandRule::Mode::kRequired) fewest = before + 1;
    if (list[i].mode == OperandRule::Mode::kVariadic && list[i].least > 0)
      fewest = before + list[i].least;
  }
  return fewest;
}

int OperatorRule::Most(const std::vector<OperandRule>& list) {
  const bool any = !list.empty() && list.back().mode == OperandRule::Mode::kVariadic;
  return any ? INT_MAX : static_cast<int>(list.size());
}

int NewestOpset(std::string_view domain) {
  const auto found = TheTable().newest.find(IsStandard(domain) ? "" : domain);
  return found == TheTable().newest.end() ? INT_MAX : found->second;
}

std::string OperatorKey(std::string_view domain, std::string_view op_type) {
  std::string key;
  if (!IsStandard(domain)) key.append(domain).append(1, '.');
  return key.append(op_type);
}

const OperatorRule* FindRule(std::string_view key, int opset) {
  const auto found = AllRules().find(key);
  if (found == AllRules().end()) return nullptr;
  const OperatorRule* newest = nullptr;
  for (const OperatorRule& rule : found->second) {
    if (rule.since <= opset) newest = &rule;
  }
  return newest;
}

const Standard& AllRules() { return TheTable().rules; }

const std::map<std::string_view, std::vector<std::string_view>>& OtherDomains() {
  return TheTable().domains;
}

}  // namespace heddle::onnx
