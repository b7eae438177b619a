#include "base/command_documents.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/fatal.h"

namespace heddle {
namespace {

// One option or argument, as its user sees it.
struct Entry {
  std::vector<std::string> flags;  // "-o", "--output"; empty: an argument
  std::string name;                // of an argument, or of an option's value; empty: a flag
  std::string help;
  std::vector<std::string> choices;  // the only values; empty: any
  std::string range;                 // "1 to 64"; empty: any
  std::string preset;                // the default
  std::string variable;              // of the environment
  bool required = false;
  bool several = false;
};

// A command with the words that lead to it. The first one is the program itself.
struct Command {
  std::vector<std::string> words;
  std::string help;
  std::vector<Entry> options;
  std::vector<Entry> arguments;
  std::vector<std::string> children;

  std::string Path() const { return absl::StrJoin(words, " "); }
};

// The values of "TEXT:{a,b}".
std::vector<std::string> ChoicesOf(const std::string& type) {
  const size_t begin = type.find('{'), end = type.rfind('}');
  std::vector<std::string> choices;
  if (begin == std::string::npos || end == std::string::npos || end < begin) return choices;
  for (size_t at = begin + 1; at <= end;) {
    const size_t comma = std::min(type.find(',', at), end);
    choices.push_back(type.substr(at, comma - at));
    at = comma + 1;
  }
  return choices;
}

// "1 to 64" of "INT:INT in [1 - 64]".
std::string RangeOf(const std::string& type) {
  const size_t begin = type.find(" in ["), middle = type.find(" - ", begin), end = type.rfind(']');
  if (begin == std::string::npos || middle == std::string::npos || end == std::string::npos)
    return "";
  return absl::StrCat(type.substr(begin + 5, middle - begin - 5), " to ",
                      type.substr(middle + 3, end - middle - 3));
}

Entry EntryOf(const CLI::Option& option) {
  Entry entry;
  for (const std::string& name : option.get_snames()) entry.flags.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) entry.flags.push_back("--" + name);
  entry.help = option.get_description();
  entry.required = option.get_required();
  entry.preset = option.get_default_str();
  entry.variable = option.get_envname();
  if (entry.flags.empty()) entry.name = option.get_name(/*positional=*/true);
  if (option.get_items_expected_max() == 0) return entry;
  entry.several = option.get_items_expected_max() > 1;
  const std::string type = option.get_type_name();
  entry.choices = ChoicesOf(type);
  entry.range = RangeOf(type);
  if (!entry.flags.empty()) {
    entry.name = type.substr(0, type.find(':'));
    if (entry.name.empty()) entry.name = "TEXT";
  }
  return entry;
}

bool IsHidden(const std::string& group) { return group.empty(); }

void Collect(const CLI::App& app, std::vector<std::string> words, std::vector<Command>* commands) {
  const bool is_program = words.size() == 1;
  Command command{.words = words,
                  .help = app.get_description(),
                  .options = {},
                  .arguments = {},
                  .children = {}};
  for (const CLI::Option* option : app.get_options()) {
    // Each command has --help; the program's stands for all.
    if (IsHidden(option->get_group()) || (!is_program && option == app.get_help_ptr())) continue;
    Entry entry = EntryOf(*option);
    (entry.flags.empty() ? command.arguments : command.options).push_back(std::move(entry));
  }
  std::vector<const CLI::App*> children;
  for (const CLI::App* child : app.get_subcommands({})) {
    if (IsHidden(child->get_group()) || child->get_name().empty()) continue;
    children.push_back(child);
    command.children.push_back(child->get_name());
  }
  commands->push_back(std::move(command));
  words.emplace_back();
  for (const CLI::App* child : children) {
    words.back() = child->get_name();
    Collect(*child, words, commands);
  }
}

// The program, its commands, and their commands; each command comes before its own.
std::vector<Command> CommandsOf(const CLI::App& program) {
  std::string name = program.get_name(), help = program.get_description();
  // A parse takes the first argument for the name, which may be a path.
  if (const size_t colon = help.find(": "); colon != std::string::npos && colon < help.find(' ')) {
    name = help.substr(0, colon);
    help = help.substr(colon + 2);
  }
  if (name.empty()) Fatal("a program without a name has no man page");
  std::vector<Command> commands;
  Collect(program, {name}, &commands);
  commands.front().help = help;
  return commands;
}

// ---- the man page ----

// Text of a paragraph: what troff would take for its own is escaped.
std::string Troff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool begins_line = out.empty() || out.back() == '\n';
    if (begins_line && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

std::string Bold(std::string_view text) { return absl::StrCat("\\fB", Troff(text), "\\fR"); }
std::string Italic(std::string_view text) { return absl::StrCat("\\fI", Troff(text), "\\fR"); }

void AppendEntry(const Entry& entry, std::string* out) {
  absl::StrAppend(out, ".TP\n");
  if (entry.flags.empty()) {
    absl::StrAppend(out, Italic(entry.name));
  } else {
    absl::StrAppend(out, absl::StrJoin(entry.flags, ", ", [](std::string* text, const auto& flag) {
                      text->append(Bold(flag));
                    }));
    if (!entry.name.empty()) absl::StrAppend(out, " ", Italic(entry.name));
  }
  std::vector<std::string> notes;
  if (entry.required && !entry.flags.empty()) notes.push_back("required");
  if (!entry.choices.empty()) notes.push_back("one of " + absl::StrJoin(entry.choices, ", "));
  if (!entry.range.empty()) notes.push_back(entry.range);
  if (!entry.preset.empty()) notes.push_back("default: " + entry.preset);
  if (!entry.variable.empty()) notes.push_back("environment: " + entry.variable);
  absl::StrAppend(out, "\n", Troff(entry.help));
  if (!notes.empty()) absl::StrAppend(out, Troff(" (" + absl::StrJoin(notes, "; ") + ")"));
  absl::StrAppend(out, "\n");
}

std::string Synopsis(const Command& command) {
  std::string out = Bold(command.Path());
  if (!command.options.empty()) absl::StrAppend(&out, " [", Italic("OPTION"), "]...");
  if (!command.children.empty()) absl::StrAppend(&out, " ", Italic("COMMAND"), " ...");
  for (const Entry& argument : command.arguments) {
    const std::string name = absl::StrCat(Italic(argument.name), argument.several ? "..." : "");
    absl::StrAppend(&out, " ", argument.required ? name : absl::StrCat("[", name, "]"));
  }
  return out + "\n";
}

// ---- completion ----

// In single quotes of a shell. `for_fish`: there a backslash quotes inside as well.
std::string Quoted(std::string_view text, bool for_fish = false) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += for_fish ? "\\'" : "'\\''";
    } else if (c == '\\' && for_fish) {
      out += "\\\\";
    } else {
      out += c;
    }
  }
  return out + "'";
}

// The first part of a description. Shells show it beside a completion, where there is little room.
std::string Short(const std::string& help) {
  size_t end = help.size();
  for (const char* stop : {"; ", ": ", ", e.g. ", " ("}) end = std::min(end, help.find(stop));
  return help.substr(0, end);
}

// A shell function's name for a program.
std::string FunctionOf(const std::string& program) {
  std::string name = "_" + program;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// The options that a command takes: its own and, behind it, those of the program.
std::vector<const Entry*> OptionsOf(const Command& command, const Command& program) {
  std::vector<const Entry*> options;
  for (const Entry& option : command.options) options.push_back(&option);
  if (&command == &program) return options;
  for (const Entry& option : program.options) options.push_back(&option);
  return options;
}

// Words that may stand where the command's next word is: commands, or an argument's choices.
std::vector<std::string> WordsOf(const Command& command) {
  std::vector<std::string> words = command.children;
  for (const Entry& argument : command.arguments)
    words.insert(words.end(), argument.choices.begin(), argument.choices.end());
  return words;
}

// The function's beginning, the same for bash and zsh: `at` becomes the path of the command.
std::string FindCommand(const std::vector<Command>& commands, const std::string& words) {
  std::string out = absl::StrCat("  local at=", commands.front().Path(), " word\n  for word in ",
                                 words, "; do\n    case \"$at $word\" in\n");
  std::vector<std::string> paths;
  for (size_t i = 1; i < commands.size(); ++i)
    paths.push_back(absl::StrCat("\"", commands[i].Path(), "\""));
  if (!paths.empty()) {
    absl::StrAppend(&out, "      ", absl::StrJoin(paths, " | "), ") at=\"$at $word\" ;;\n");
  }
  return out + "      *) ;;\n    esac\n  done\n";
}

// One line of a `case` for each option with a value: the path and the flag, and what `line` writes.
std::string ValueCases(const std::vector<Command>& commands,
                       const std::function<std::string(const Entry&)>& line) {
  std::string out;
  for (const Command& command : commands) {
    for (const Entry* option : OptionsOf(command, commands.front())) {
      if (option->name.empty()) continue;
      std::vector<std::string> patterns;
      for (const std::string& flag : option->flags)
        patterns.push_back(absl::StrCat("\"", command.Path(), " ", flag, "\""));
      absl::StrAppend(&out, "    ", absl::StrJoin(patterns, " | "), ") ", line(*option), " ;;\n");
    }
  }
  return out;
}

std::string Bash(const std::vector<Command>& commands) {
  const std::string program = commands.front().Path(), function = FunctionOf(program);
  std::string out = absl::StrCat("# bash completion for ", program, ", made from its options\n",
                                 function, "() {\n");
  absl::StrAppend(&out,
                  "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - "
                  "1]} words=\n"
                  "  COMPREPLY=()\n"
                  "  # bash takes --option=value apart.\n"
                  "  if [ \"$current\" = \"=\" ]; then\n"
                  "    current=\n"
                  "  elif [ \"$previous\" = \"=\" ]; then\n"
                  "    previous=${COMP_WORDS[COMP_CWORD - 2]}\n"
                  "  fi\n",
                  FindCommand(commands, "\"${COMP_WORDS[@]:1:COMP_CWORD-1}\""));
  // Without words, bash completes file names (-o default).
  absl::StrAppend(&out, "  case \"$at $previous\" in\n", ValueCases(commands, [](const Entry& o) {
    return absl::StrCat("words=", Quoted(absl::StrJoin(o.choices, " ")));
  }));
  absl::StrAppend(&out, "    *)\n      case \"$at\" in\n");
  for (const Command& command : commands) {
    std::vector<std::string> flags;
    for (const Entry* option : OptionsOf(command, commands.front()))
      flags.insert(flags.end(), option->flags.begin(), option->flags.end());
    absl::StrAppend(&out, "        \"", command.Path(), "\")\n          if [[ $current == -* ]]; ",
                    "then words=", Quoted(absl::StrJoin(flags, " ")),
                    "; else words=", Quoted(absl::StrJoin(WordsOf(command), " ")),
                    "; fi\n          ;;\n");
  }
  return absl::StrCat(
      out, "        *) ;;\n      esac\n      ;;\n  esac\n",
      "  # shellcheck disable=SC2207  # no word has a blank\n",
      "  [ -z \"$words\" ] || COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n}\n",
      "complete -o default -F ", function, " ", program, "\n");
}

std::string Zsh(const std::vector<Command>& commands) {
  const std::string program = commands.front().Path(), function = FunctionOf(program);
  const auto item = [](const std::string& name, const std::string& help) {
    return Quoted(absl::StrCat(name, ":", help));
  };
  std::string out = absl::StrCat("#compdef ", program, "\n# zsh completion for ", program,
                                 ", made from its options\n", function, "() {\n");
  absl::StrAppend(&out, FindCommand(commands, "\"${words[@]:1:$((CURRENT - 2))}\""));
  absl::StrAppend(&out, "  case \"$at ${words[CURRENT - 1]}\" in\n",
                  ValueCases(commands,
                             [](const Entry& o) {
                               return o.choices.empty()
                                          ? std::string("_files; return")
                                          : absl::StrCat("compadd -- ",
                                                         absl::StrJoin(o.choices, " "), "; return");
                             }),
                  "    *) ;;\n  esac\n  local -a flags commands\n  case \"$at\" in\n");
  for (const Command& command : commands) {
    std::vector<std::string> flags, children;
    for (const Entry* option : OptionsOf(command, commands.front())) {
      for (const std::string& flag : option->flags)
        flags.push_back(item(flag, Short(option->help)));
    }
    for (const Command& child : commands) {
      if (child.words.size() != command.words.size() + 1 ||
          !std::equal(command.words.begin(), command.words.end(), child.words.begin()))
        continue;
      children.push_back(item(child.words.back(), Short(child.help)));
    }
    for (const Entry& argument : command.arguments) {
      for (const std::string& choice : argument.choices) children.push_back(item(choice, ""));
    }
    absl::StrAppend(&out, "    \"", command.Path(), "\")\n      flags=(", absl::StrJoin(flags, " "),
                    ")\n      commands=(", absl::StrJoin(children, " "), ")\n      ;;\n");
  }
  return absl::StrCat(out, "    *) ;;\n  esac\n",
                      "  if [[ $PREFIX == -* ]]; then\n    _describe -o option flags\n",
                      "  elif (( ${#commands} )); then\n    _describe command commands\n",
                      "  else\n    _files\n  fi\n}\ncompdef ", function, " ", program, "\n",
                      "# zsh loads this file as the function itself at the first completion.\n",
                      "if [[ ${funcstack[1]} == ", function, " ]]; then ", function, "; fi\n");
}

std::string Fish(const std::vector<Command>& commands) {
  const Command& program = commands.front();
  std::string out =
      absl::StrCat("# fish completion for ", program.Path(), ", made from its options\n");
  const auto line = [&](const std::string& condition, const std::string& rest,
                        const std::string& help) {
    absl::StrAppend(&out, "complete -c ", program.Path());
    if (!condition.empty()) absl::StrAppend(&out, " -n ", Quoted(condition, true));
    absl::StrAppend(&out, rest, " -d ", Quoted(Short(help), true), "\n");
  };
  for (const Command& command : commands) {
    std::vector<std::string> seen;
    for (size_t i = 1; i < command.words.size(); ++i)
      seen.push_back("__fish_seen_subcommand_from " + command.words[i]);
    const std::string here = absl::StrJoin(seen, "; and ");
    // Options of the program go with all its commands.
    for (const Entry& option : command.options) {
      std::string rest;
      for (const std::string& flag : option.flags) {
        absl::StrAppend(&rest, flag.starts_with("--") ? " -l " : " -s ",
                        flag.substr(flag.starts_with("--") ? 2 : 1));
      }
      if (!option.choices.empty()) {
        absl::StrAppend(&rest, " -x -a ", Quoted(absl::StrJoin(option.choices, " "), true));
      } else if (!option.name.empty()) {
        absl::StrAppend(&rest, " -r");
      }
      line(here, rest, option.help);
    }
    for (const Entry& argument : command.arguments) {
      if (argument.choices.empty()) continue;
      line(here, absl::StrCat(" -f -a ", Quoted(absl::StrJoin(argument.choices, " "), true)),
           argument.help);
    }
    if (command.children.empty()) continue;
    const std::string none =
        "not __fish_seen_subcommand_from " + absl::StrJoin(command.children, " ");
    for (const Command& child : commands) {
      if (child.words.size() != command.words.size() + 1 ||
          !std::equal(command.words.begin(), command.words.end(), child.words.begin()))
        continue;
      line(here.empty() ? none : absl::StrCat(here, "; and ", none), " -f -a " + child.words.back(),
           child.help);
    }
  }
  return out;
}

}  // namespace

std::string ManPage(const CLI::App& program) {
  const std::vector<Command> commands = CommandsOf(program);
  const Command& top = commands.front();
  std::string title = top.Path();
  std::transform(title.begin(), title.end(), title.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  std::string out = absl::StrCat(".TH ", title, " 1 \"\" \"", program.version(), "\" Heddle\n");
  absl::StrAppend(&out, ".SH NAME\n", top.Path(), " \\- ", Troff(top.help), "\n");
  absl::StrAppend(&out, ".SH SYNOPSIS\n", Synopsis(top));
  absl::StrAppend(&out, ".SH OPTIONS\n");
  if (commands.size() > 1) absl::StrAppend(&out, "These may stand before or behind a command.\n");
  for (const Entry& argument : top.arguments) AppendEntry(argument, &out);
  for (const Entry& option : top.options) AppendEntry(option, &out);
  if (commands.size() > 1) absl::StrAppend(&out, ".SH COMMANDS\n");
  for (size_t i = 1; i < commands.size(); ++i) {
    const Command& command = commands[i];
    absl::StrAppend(&out, ".SS ", Troff(command.Path()), "\n", Synopsis(command), ".PP\n",
                    Troff(command.help), "\n");
    for (const Entry& argument : command.arguments) AppendEntry(argument, &out);
    for (const Entry& option : command.options) AppendEntry(option, &out);
  }
  if (!program.get_footer().empty())
    absl::StrAppend(&out, ".SH EXAMPLE\n", Troff(program.get_footer()), "\n");
  return out;
}

const std::vector<std::string>& CompletionShells() {
  static const auto& shells = *new std::vector<std::string>{"bash", "zsh", "fish"};
  return shells;
}

std::string ShellCompletion(const CLI::App& program, std::string_view shell) {
  const std::vector<Command> commands = CommandsOf(program);
  if (shell == "bash") return Bash(commands);
  if (shell == "zsh") return Zsh(commands);
  if (shell == "fish") return Fish(commands);
  Fatal(absl::StrCat("no completion for the shell '", std::string(shell), "'"));
}

int EndOfParse(const CLI::App& program, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return program.exit(error);
  std::string name = CommandsOf(program).front().words.front();
  name = name.substr(name.rfind('/') + 1);  // npos + 1 is 0
  std::string told = error.what();
  std::replace(told.begin(), told.end(), '\n', ' ');
  std::fprintf(stderr, "%s: %s (see `%s --help`)\n", name.c_str(), told.c_str(), name.c_str());
  return 2;
}

std::optional<int> ParseCommandLine(CLI::App* program, int argc, char** argv) {
  try {
    program->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return EndOfParse(*program, error);
  }
  return std::nullopt;
}

void AddManPageFlag(CLI::App* program) {
  // Like --version: the text is in what ends the parse, and App::exit prints it.
  program
      ->add_flag_callback(
          "--man-page", [program] { throw CLI::CallForVersion(ManPage(*program), 0); },
          "Print the man page of this program")
      ->group("");
}

}  // namespace heddle
