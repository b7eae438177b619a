#include "views/html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/views/well_formed.h"

namespace heddle::views {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kHostileMarkup[] = "\"><script>alert('x')</script>&amp;\x1b[31m\xff";

TEST(Html, EscapesWhateverCouldBeMarkup) {
  EXPECT_EQ(Escape("a<b>&\"c'"), "a&lt;b&gt;&amp;&quot;c&#39;");
  EXPECT_EQ(Escape("gr\xC3\xB6\xC3\x9F"
                   "e\nline 2\r\ttab"),
            "gr\xC3\xB6\xC3\x9F"
            "e\nline 2  tab");
  EXPECT_EQ(Escape("caf\xe9 \x1b[31m\x01"), "caf?  [31m ");
}

TEST(Html, AddressesHaveNoOddCharacters) {
  EXPECT_EQ(EncodeUrl("a b&c=d/\xC3\xBC~"), "a%20b%26c%3Dd%2F%C3%BC~");
}

TEST(Html, AttributesCannotEnd) {
  const Html element = Element("a", Text(kHostileMarkup), {{"href", kHostileMarkup}});
  EXPECT_EQ(Malformed(element.markup), "");
  EXPECT_THAT(element.markup, Not(HasSubstr("<script")));
}

TEST(Html, TablesHaveCaptionsAndScopes) {
  HtmlTable table("Some things", {{"name"}, {"count", true}});
  EXPECT_TRUE(table.empty());
  EXPECT_THAT(table.ToHtml("nothing").markup, HasSubstr("nothing"));
  table.Add({Text(kHostileMarkup), Text("3")});
  const std::string markup = table.ToHtml("nothing").markup;
  EXPECT_EQ(Malformed(markup), "");
  EXPECT_THAT(markup, HasSubstr("<caption>Some things</caption>"));
  EXPECT_THAT(markup, HasSubstr("<th scope=\"col\" class=\"number\">count</th>"));
  EXPECT_THAT(markup, HasSubstr("<th scope=\"row\">"));
  EXPECT_THAT(markup, HasSubstr("<td class=\"number\">3</td>"));
  EXPECT_THAT(markup, Not(HasSubstr("nothing")));
}

TEST(Html, FactsWithoutTextAreLeftOut) {
  const std::string markup = Facts({{"one", Text("1")}, {"two", {}}}).markup;
  EXPECT_THAT(markup, HasSubstr("<dt>one</dt><dd>1</dd>"));
  EXPECT_THAT(markup, Not(HasSubstr("two")));
}

TEST(Html, ServedPagesReferToTheirStyleAndFilesHoldIt) {
  const Html content = Element("h1", Text("Jobs")) + Live("jobs", Text("none"));
  const std::string served = Document(
      {.title = kHostileMarkup, .path = "/jobs", .caller = kHostileMarkup, .content = content});
  EXPECT_EQ(Malformed(served), "");
  EXPECT_THAT(served, HasSubstr("href=\"/style.css\""));
  EXPECT_THAT(served, HasSubstr("<a href=\"/jobs\" aria-current=\"page\">Jobs</a>"));
  EXPECT_THAT(served, HasSubstr("Skip to the content"));
  EXPECT_THAT(served, HasSubstr("<html lang=\"en\">"));
  EXPECT_THAT(served, Not(HasSubstr("<style")));
  EXPECT_THAT(served, Not(HasSubstr("alert('x')")));
  EXPECT_THAT(served, HasSubstr("id=\"connection\""));
  EXPECT_THAT(Document({.title = "t", .path = "/", .caller = {}, .content = Text("still")}),
              Not(HasSubstr("id=\"connection\"")))
      << "without live parts there is nothing to wait for";
  const std::string file = Document({.title = "t", .path = {}, .caller = {}, .content = content});
  EXPECT_EQ(Malformed(file), "");
  EXPECT_THAT(file, HasSubstr("<style>"));
  EXPECT_THAT(file, Not(HasSubstr("script")));
  EXPECT_THAT(file, Not(HasSubstr("/style.css")));
}

TEST(Html, NoStyleOrScriptIsInThePage) {
  // The Content-Security-Policy forbids both, so what needs them would not work.
  EXPECT_THAT(std::string(Script()), HasSubstr("EventSource"));
  EXPECT_THAT(std::string(Script()), Not(HasSubstr("innerHTML =")));
  EXPECT_THAT(std::string(Script()), HasSubstr("document.hidden ? close() : open()"))
      << "hidden pages would use up the browser's connections";
  EXPECT_THAT(std::string(Style()), HasSubstr("prefers-color-scheme: dark"));
  EXPECT_EQ(Malformed(Icon()), "");
}

TEST(Malformed, FindsWhatIsWrong) {
  for (const char* bad :
       {"<a>", "</a>", "<a></b>", "<a b=c></a>", "a & b", "a > b", "<a <b></a>", "<a"})
    EXPECT_THAT(Malformed(bad), Not(IsEmpty())) << bad;
  for (const char* good :
       {"", "text", "<a/>", "<a b=\"c &gt; d\">&amp;</a>", "<!DOCTYPE html>\n<p></p>"})
    EXPECT_EQ(Malformed(good), "") << good;
}

}  // namespace
}  // namespace heddle::views
