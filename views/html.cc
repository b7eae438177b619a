#include "views/html.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/one_line.h"

namespace heddle::views {
namespace {

// Colours have a contrast of at least 4.5 to their ground (WCAG AA).
constexpr std::string_view kStyle = R"css(
:root { color-scheme: light dark; --ground: #fff; --text: #1b1f24; --faint: #59636e; --line: #d1d9e0;
  --link: #0550ae; --raised: #f6f8fa; --warn: #9a3412; --bad: #b91c1c; --good: #136c36; --bar: #0969da; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171c; --text: #e6e9ed; --faint: #9aa4af; --line: #353c45;
  --link: #79b8ff; --raised: #1d2229; --warn: #f0a35c; --bad: #ff8f8f; --good: #6fce8d; --bar: #4f9cf7; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--text); font: 15px/1.5 system-ui, sans-serif; }
a { color: var(--link); }
a:focus-visible, button:focus-visible, input:focus-visible, [tabindex]:focus-visible { outline: 3px solid var(--bar); outline-offset: 2px; }
header.top { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; align-items: baseline; padding: .6rem 1rem;
  background: var(--raised); border-bottom: 1px solid var(--line); }
header.top .name { font-weight: 700; }
header.top .who { margin-left: auto; color: var(--faint); }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1rem; list-style: none; margin: 0; padding: 0; }
nav a { display: inline-block; padding: .15rem 0; }
nav a[aria-current] { color: var(--text); font-weight: 600; text-decoration: none; border-bottom: 2px solid var(--bar); }
main { padding: .5rem 1rem 3rem; max-width: 78rem; margin: 0 auto; }
.skip { position: absolute; left: -100rem; }
.skip:focus { left: 1rem; top: .5rem; background: var(--ground); padding: .3rem .6rem; }
h1 { font-size: 1.45rem; margin: .8rem 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 1.8rem 0 .4rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
caption { text-align: left; color: var(--faint); padding: .2rem 0; }
th, td { text-align: left; font-weight: 400; padding: .3rem .9rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
thead th { font-weight: 600; white-space: nowrap; }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.nowrap { white-space: nowrap; }
.wide { display: inline-block; min-width: 16rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1.2rem; margin: .6rem 0; }
dt { color: var(--faint); }
dd { margin: 0; overflow-wrap: anywhere; }
.tiles { display: flex; flex-wrap: wrap; gap: .6rem; padding: 0; margin: .6rem 0; list-style: none; }
.tiles li { background: var(--raised); border: 1px solid var(--line); border-radius: 6px; padding: .4rem .9rem; min-width: 7rem; }
.tiles b { display: block; font-size: 1.5rem; line-height: 1.3; font-variant-numeric: tabular-nums; }
.warn { color: var(--warn); } .bad { color: var(--bad); } .good { color: var(--good); } .faint { color: var(--faint); }
progress { width: 6rem; height: .7rem; accent-color: var(--bar); vertical-align: middle; }
pre { margin: 0; overflow-x: auto; font: 12.5px/1.45 ui-monospace, monospace; }
.trace td { font: 12.5px/1.45 ui-monospace, monospace; border: 0; padding: 0 .8rem 0 0; overflow-wrap: anywhere; white-space: pre-wrap; width: 50%; }
.trace td:first-child { width: 1%; color: var(--faint); }
.trace tr.differs td { background: var(--raised); }
svg { max-width: 100%; height: auto; }
figure { margin: .6rem 0; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 32rem), 1fr)); gap: 0 1.5rem; }
form.row { display: flex; flex-wrap: wrap; gap: .5rem; align-items: end; margin: .6rem 0; }
form.row div { max-width: 100%; }
label { display: block; color: var(--faint); }
input { max-width: 100%; }
input, button, .button { font: inherit; color: inherit; background: var(--ground); border: 1px solid var(--faint); border-radius: 5px; padding: .3rem .7rem; }
button, .button { background: var(--raised); cursor: pointer; text-decoration: none; display: inline-block; }
.actions { display: flex; flex-wrap: wrap; gap: .5rem; margin: .6rem 0; }
@media (max-width: 40rem) { dl { grid-template-columns: 1fr; } dd { margin-bottom: .4rem; } }
)css";

// Asks for the events of this page, and puts the live parts that they bring in place of the old ones. The
// keyboard's focus goes to the same link of the new part. A part with a field that somebody fills in, or
// with selected text, waits.
constexpr std::string_view kScript = R"js('use strict';
(() => {
  const status = document.getElementById('connection');
  if (!status || !window.EventSource) return;
  const say = (text) => { if (status.textContent !== text) status.textContent = text; };
  const inUse = (part) => {
    const active = document.activeElement;
    if (part.contains(active) && active.matches('input, select, textarea')) return true;
    const selection = document.getSelection();
    return selection && !selection.isCollapsed && part.contains(selection.anchorNode);
  };
  const replace = (old, part) => {
    const reachable = () => [...old.querySelectorAll('a, button, [tabindex]')];
    const active = document.activeElement;
    const at = old.contains(active) ? reachable().indexOf(active) : -1;
    const address = at >= 0 ? active.getAttribute('href') : null;
    old.replaceChildren(...part.childNodes);
    if (at < 0) return;
    const now = reachable();
    const next = (address && now.find((e) => e.getAttribute('href') === address)) || now[at];
    if (next) next.focus({preventScroll: true});
  };
  const update = (event) => {
    say('live');
    const fresh = new DOMParser().parseFromString(event.data, 'text/html');
    for (const part of fresh.querySelectorAll('[data-live]')) {
      const old = document.getElementById(part.id);
      if (old && old.innerHTML !== part.innerHTML && !inUse(old)) replace(old, part);
    }
  };
  const address = '/events?page=' + encodeURIComponent(location.pathname + location.search);
  let events = null;
  const close = () => {
    if (events) events.close();
    events = null;
  };
  // A browser opens at most six connections to a server. A hidden page gives its one back.
  const open = () => {
    if (events || document.hidden) return;
    const source = events = new EventSource(address);
    source.onopen = () => say('live');
    source.onerror = () => say(source.readyState === EventSource.CLOSED ?
        'not live: reload the page to follow changes' : 'not live: trying to connect again');
    source.addEventListener('parts', update);
  };
  document.addEventListener('visibilitychange', () => document.hidden ? close() : open());
  window.addEventListener('pagehide', close);
  window.addEventListener('pageshow', open);
  open();
})();
)js";

constexpr std::string_view kIcon =
    R"svg(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><g stroke="#0969da" stroke-width="2"><path d="M3 1v14M8 1v14M13 1v14"/></g><g stroke="#d55e00" stroke-width="2"><path d="M1 5h14M1 11h14"/></g></svg>
)svg";

constexpr char kLive[] = "data-live";  // attribute of parts that the script replaces

constexpr std::pair<const char*, const char*> kNavigation[] = {
    {"/", "Overview"},       {"/jobs", "Jobs"},       {"/machines", "Machines"},
    {"/records", "Records"}, {"/compare", "Compare"}, {"/whatif", "What if"}};

Html Navigation(const std::string& path) {
  Html entries;
  for (const auto& [address, name] : kNavigation) {
    Attributes attributes = {{"href", address}};
    if (path == address) attributes.emplace_back("aria-current", "page");
    entries += Element("li", Element("a", Text(name), attributes));
  }
  return Element("nav", Element("ul", entries), {{"aria-label", "Pages"}});
}

}  // namespace

std::string Escape(std::string_view text) {
  std::string escaped;
  while (true) {
    const size_t end = text.find('\n');
    for (const char c : OneLine(text.substr(0, end))) {
      switch (c) {
        case '&':
          escaped += "&amp;";
          break;
        case '<':
          escaped += "&lt;";
          break;
        case '>':
          escaped += "&gt;";
          break;
        case '"':
          escaped += "&quot;";
          break;
        case '\'':
          escaped += "&#39;";
          break;
        default:
          escaped += c;
      }
    }
    if (end == std::string_view::npos) return escaped;
    escaped += '\n';
    text.remove_prefix(end + 1);
  }
}

Html Text(std::string_view text) { return {Escape(text)}; }

std::string EncodeUrl(std::string_view text) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.' || c == '_' ||
        c == '~') {
      encoded += c;
    } else {
      encoded += '%';
      encoded += kDigits[static_cast<unsigned char>(c) >> 4];
      encoded += kDigits[static_cast<unsigned char>(c) & 15];
    }
  }
  return encoded;
}

Html Element(const char* tag, const Html& content, const Attributes& attributes) {
  Html element{absl::StrCat("<", tag)};
  for (const auto& [name, value] : attributes)
    absl::StrAppend(&element.markup, " ", name, "=\"", Escape(value), "\"");
  absl::StrAppend(&element.markup, ">", content.markup, "</", tag, ">");
  return element;
}

Html Link(const std::string& address, const Html& content) {
  return Element("a", content, {{"href", address}});
}

Html Progress(double done, double all, const std::string& label) {
  if (all <= 0) return {};
  return Element(
      "progress", {},
      {{"value", absl::StrCat(done)}, {"max", absl::StrCat(all)}, {"aria-label", label}});
}

HtmlTable::HtmlTable(std::string caption, std::vector<Column> columns)
    : caption_(std::move(caption)), columns_(std::move(columns)) {}

void HtmlTable::Add(const std::vector<Html>& cells) {
  Html row;
  for (size_t i = 0; i < columns_.size() && i < cells.size(); ++i) {
    Attributes attributes;
    if (i == 0) attributes.emplace_back("scope", "row");
    if (columns_[i].number) attributes.emplace_back("class", "number");
    row += Element(i == 0 ? "th" : "td", cells[i], attributes);
  }
  rows_ += Element("tr", row);
  rows_.markup += '\n';
}

Html HtmlTable::ToHtml(const std::string& none) const {
  if (empty()) return Element("p", Text(none), {{"class", "faint"}});
  Html head;
  for (const Column& column : columns_) {
    Attributes attributes = {{"scope", "col"}};
    if (column.number) attributes.emplace_back("class", "number");
    head += Element("th", Text(column.title), attributes);
  }
  // A region that scrolls has to be reachable by keyboard.
  return Element(
      "div",
      Element("table", Element("caption", Text(caption_)) + Element("thead", Element("tr", head)) +
                           Element("tbody", rows_)),
      {{"class", "scroll"}, {"tabindex", "0"}, {"role", "region"}, {"aria-label", caption_}});
}

Html Facts(const std::vector<std::pair<std::string, Html>>& facts) {
  Html list;
  for (const auto& [term, description] : facts) {
    if (description.markup.empty()) continue;
    list += Element("dt", Text(term)) + Element("dd", description);
  }
  return Element("dl", list);
}

Html Live(const char* id, const Html& content) {
  return Element("div", content, {{"id", id}, {kLive, ""}});
}

std::string Document(const Page& page) {
  const bool served = !page.path.empty();
  Html head{
      "<meta charset=\"utf-8\"/>"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>"};
  head += Element("title", Text(absl::StrCat(page.title, " - Heddle")));
  if (served) {
    head.markup +=
        "<link rel=\"stylesheet\" href=\"/style.css\"/><link rel=\"icon\" href=\"/icon.svg\"/>"
        "<script src=\"/script.js\" defer=\"defer\"></script>";
  } else {
    absl::StrAppend(&head.markup, "<style>", std::string(kStyle), "</style>");
  }
  Html body;
  if (served) {
    body += Element("a", Text("Skip to the content"), {{"class", "skip"}, {"href", "#content"}});
    Html top = Element("span", Text("Heddle"), {{"class", "name"}}) + Navigation(page.path);
    Html who = Text(page.caller);
    // Only a page with live parts has events to wait for.
    if (absl::StrContains(page.content.markup, kLive)) {
      who += Text(page.caller.empty() ? "" : ", ") +
             Element("span", Text("not live"), {{"id", "connection"}, {"role", "status"}});
    }
    top += Element("span", who, {{"class", "who"}});
    body += Element("header", top, {{"class", "top"}});
  }
  body += Element("main", page.content, {{"id", "content"}});
  return absl::StrCat(
      "<!DOCTYPE html>\n",
      Element("html", Element("head", head) + Html{"\n"} + Element("body", body), {{"lang", "en"}})
          .markup,
      "\n");
}

std::string_view Style() { return kStyle; }
std::string_view Script() { return kScript; }
std::string_view Icon() { return kIcon; }

}  // namespace heddle::views
