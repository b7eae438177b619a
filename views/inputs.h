// Fields and forms, as all pages have them.
#pragma once

#include <string>
#include <vector>

#include "views/html.h"

namespace heddle::views {

Html Input(const Attributes& attributes);
// A field with its label above it. `name` is its id, too.
Html Field(const std::string& name, const std::string& label, Attributes attributes);
Html NumberField(const std::string& name, const std::string& label, const std::string& value,
                 int least, int most);
Html Hidden(const std::string& name, const std::string& value);
// Values that browsers propose for fields with the attribute list="ID".
Html Proposals(const std::string& id, const std::vector<std::string>& values);

// The button that sends a form.
Html SendButton(const std::string& text);
// A button that sends a form, and the way back.
Html Buttons(const std::string& what, const std::string& back);
// Links that look like buttons.
Html ButtonLink(const std::string& address, const std::string& text, Attributes attributes = {});

// Forms whose fields stand in a row: one that asks for a page, and one that changes something.
Html GetForm(const std::string& address, const Html& content, Attributes attributes = {});
Html PostForm(const std::string& address, const Html& content, Attributes attributes = {});

}  // namespace heddle::views
