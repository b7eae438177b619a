// The parts that HTML pages are made of. Text of others becomes markup through Text only, so no name of
// a job can be a tag.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::views {

// The text with what HTML, XML and attribute values would take for markup written out. A control
// character but a newline becomes a blank, and a byte that is no UTF-8 becomes '?'.
std::string Escape(std::string_view text);

// A piece of HTML that is also well-formed XML.
struct Html {
  std::string markup{};
  Html& operator+=(const Html& more) {
    markup += more.markup;
    return *this;
  }
};
inline Html operator+(Html left, const Html& right) { return left += right; }

Html Text(std::string_view text);
// The text with all but letters, digits and "-._~" as %XX, for a part of an address.
std::string EncodeUrl(std::string_view text);
// <tag>content</tag>, with attributes whose values are escaped.
using Attributes = std::vector<std::pair<std::string, std::string>>;
Html Element(const char* tag, const Html& content, const Attributes& attributes = {});
Html Link(const std::string& address, const Html& content);
// How far something has come, as a bar with its label for those who do not see it. Empty if there is
// nothing to do.
Html Progress(double done, double all, const std::string& label);

// A table with a caption. On a narrow screen it scrolls by itself.
class HtmlTable {
 public:
  struct Column {
    std::string title;
    bool number = false;  // aligns right
  };
  HtmlTable(std::string caption, std::vector<Column> columns);
  // As many cells as columns. The first cell names the row.
  void Add(const std::vector<Html>& cells);
  bool empty() const { return rows_.markup.empty(); }
  // `none` is shown instead of a table without rows.
  Html ToHtml(const std::string& none) const;

 private:
  const std::string caption_;
  const std::vector<Column> columns_;
  Html rows_;
};

// Terms with their descriptions. Those whose description is empty are left out.
Html Facts(const std::vector<std::pair<std::string, Html>>& facts);

// A part of a page that changes while it is looked at. The script of the page replaces it by its id.
Html Live(const char* id, const Html& content);

struct Page {
  std::string title;  // of the window, without the product's name
  std::string
      path;  // of the page: "/jobs"; marks its entry in the navigation. Empty: a file without navigation
  std::string caller;  // who looks; empty: not told
  Html content;        // begins with an <h1>
};
// The whole document. A served page refers to its style and script; a file holds its style.
std::string Document(const Page& page);
// What a served page refers to: /style.css, /script.js, /icon.svg.
std::string_view Style();
std::string_view Script();
std::string_view Icon();

}  // namespace heddle::views
