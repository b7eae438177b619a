#include "compiler/classical/document.h"

#include <cmath>
#include <cstdint>
#include <exception>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace heddle::classical {
namespace {

using Json = nlohmann::json;
using Numbers = std::vector<double>;
using Array = std::vector<Value>;
using Object = std::vector<Member>;

constexpr size_t kMostErrorBytes = 200;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// The message of the JSON library without its prefix "[json.exception...] ". It may quote the file, so
// it is cut and holds printable characters only.
std::string Plain(const std::exception& error) {
  std::string text = error.what();
  const size_t end = text.find("] ");
  if (end != std::string::npos) text.erase(0, end + 2);
  if (text.size() > kMostErrorBytes) text.resize(kMostErrorBytes);
  for (char& c : text) {
    if (!absl::ascii_isprint(static_cast<unsigned char>(c))) c = '?';
  }
  return text;
}

// Builds the tree from the parser's events. Every function returns false to stop the parser.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(size_t bytes) : values_left_(bytes) {}

  bool null() override { return Add({}); }
  bool boolean(bool value) override { return Add({value ? 1.0 : 0.0}); }
  bool number_integer(int64_t value) override { return Add({static_cast<double>(value)}); }
  bool number_unsigned(uint64_t value) override { return Add({static_cast<double>(value)}); }
  bool number_float(double value, const std::string&) override { return Add({value}); }
  bool string(std::string& value) override { return Add({std::move(value)}); }
  bool binary(binary_t&) override { return Stop("a block of bytes, which no model has"); }
  bool key(std::string& name) override {
    std::get<Object>(open_.back().is).push_back({std::move(name), {}});
    return true;
  }
  bool start_object(size_t) override { return Open({Object()}); }
  bool start_array(size_t) override { return Open({Numbers()}); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool parse_error(size_t, const std::string&, const Json::exception& error) override {
    return Stop(Plain(error));
  }

  absl::StatusOr<Value> Result(bool parsed) && {
    if (parsed && error_.empty()) return std::move(root_);
    return absl::InvalidArgumentError(error_.empty() ? "it ends early" : error_);
  }

 private:
  bool Stop(std::string why) {
    if (error_.empty()) error_ = std::move(why);
    return false;
  }

  // Every value takes a byte of the file, except for those that an array of UBJSON only announces.
  bool Count() { return values_left_-- > 0 || Stop("it announces more values than it has bytes"); }

  bool Open(Value empty) {
    if (open_.size() >= kMostLevels)
      return Stop(absl::StrCat("it is nested more than ", kMostLevels, " levels deep"));
    if (!Count()) return false;
    open_.push_back(std::move(empty));
    return true;
  }

  bool Close() {
    Value done = std::move(open_.back());
    open_.pop_back();
    Place(std::move(done));
    return true;
  }

  bool Add(Value value) {
    if (!Count()) return false;
    Place(std::move(value));
    return true;
  }

  void Place(Value value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return;
    }
    auto& into = open_.back().is;
    if (auto* object = std::get_if<Object>(&into)) {
      object->back().value = std::move(value);
      return;
    }
    if (auto* numbers = std::get_if<Numbers>(&into)) {
      if (const double* number = std::get_if<double>(&value.is)) return numbers->push_back(*number);
      if (std::holds_alternative<std::monostate>(value.is)) return numbers->push_back(kNan);
      Array values;
      for (double number : *numbers) values.push_back(std::isnan(number) ? Value() : Value{number});
      into = std::move(values);
    }
    std::get<Array>(into).push_back(std::move(value));
  }

  size_t values_left_;
  std::vector<Value> open_;  // arrays and objects that are not closed yet, each in the one before
  Value root_;
  std::string error_;
};

// The text with null for every NaN that is not inside a string.
std::string WithNulls(std::string_view json) {
  std::string text;
  text.reserve(json.size());
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    if (!in_string && json.substr(i, 3) == "NaN") {
      text += "null";
      i += 2;
      continue;
    }
    if (in_string && json[i] == '\\' && i + 1 < json.size())
      text += json[i++];
    else if (json[i] == '"')
      in_string = !in_string;
    text += json[i];
  }
  return text;
}

}  // namespace

const Value* Value::Find(absl::string_view name) const {
  const Object* object = std::get_if<Object>(&is);
  if (object == nullptr) return nullptr;
  for (const Member& member : *object) {
    if (member.name == name) return &member.value;
  }
  return nullptr;
}

bool BeginsLikeJson(std::string_view bytes) {
  if (bytes.empty() || bytes[0] != '{') return false;
  const size_t next = bytes.find_first_not_of(" \t\r\n", 1);
  return next != std::string_view::npos && (bytes[next] == '"' || bytes[next] == '}');
}

absl::StatusOr<Value> ParseDocument(std::string_view bytes) {
  Builder builder(bytes.size());
  const bool json = BeginsLikeJson(bytes);
  std::string with_nulls;
  if (json && bytes.find("NaN") != std::string_view::npos) bytes = with_nulls = WithNulls(bytes);
  const bool parsed =
      Json::sax_parse(bytes.begin(), bytes.end(), &builder,
                      json ? Json::input_format_t::json : Json::input_format_t::ubjson);
  absl::StatusOr<Value> value = std::move(builder).Result(parsed);
  if (value.ok()) return value;
  return absl::InvalidArgumentError(
      absl::StrCat("no ", json ? "JSON: " : "UBJSON: ", value.status().message()));
}

}  // namespace heddle::classical
