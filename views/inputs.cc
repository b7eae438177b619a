#include "views/inputs.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace heddle::views {
namespace {

Html RowForm(const char* method, const std::string& address, const Html& content,
             Attributes attributes) {
  attributes.emplace_back("class", "row");
  attributes.emplace_back("method", method);
  attributes.emplace_back("action", address);
  return Element("form", content, attributes);
}

}  // namespace

Html Input(const Attributes& attributes) {
  Html input{"<input"};
  for (const auto& [name, value] : attributes)
    absl::StrAppend(&input.markup, " ", name, "=\"", Escape(value), "\"");
  input.markup += "/>";
  return input;
}

Html Field(const std::string& name, const std::string& label, Attributes attributes) {
  attributes.emplace_back("id", name);
  attributes.emplace_back("name", name);
  return Element("div", Element("label", Text(label), {{"for", name}}) + Input(attributes));
}

Html NumberField(const std::string& name, const std::string& label, const std::string& value,
                 int least, int most) {
  return Field(name, label,
               {{"type", "number"},
                {"value", value},
                {"min", absl::StrCat(least)},
                {"max", absl::StrCat(most)},
                {"required", "required"}});
}

Html Hidden(const std::string& name, const std::string& value) {
  return Input({{"type", "hidden"}, {"name", name}, {"value", value}});
}

Html Proposals(const std::string& id, const std::vector<std::string>& values) {
  Html options;
  for (const std::string& value : values)
    options += Element("option", Text(value), {{"value", value}});
  return Element("datalist", options, {{"id", id}});
}

Html SendButton(const std::string& text) {
  return Element("button", Text(text), {{"type", "submit"}});
}

Html Buttons(const std::string& what, const std::string& back) {
  return SendButton(what) + ButtonLink(back, "go back");
}

Html ButtonLink(const std::string& address, const std::string& text, Attributes attributes) {
  attributes.emplace_back("class", "button");
  attributes.emplace_back("href", address);
  return Element("a", Text(text), attributes);
}

Html GetForm(const std::string& address, const Html& content, Attributes attributes) {
  return RowForm("get", address, content, std::move(attributes));
}

Html PostForm(const std::string& address, const Html& content, Attributes attributes) {
  return RowForm("post", address, content, std::move(attributes));
}

}  // namespace heddle::views
