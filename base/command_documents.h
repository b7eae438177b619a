// What a program's option tree says, in the forms that other tools read: a man page, and completion
// for shells. So these cannot differ from what the program does.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace heddle {

// The man page of a program, section 1, in troff. A hidden command or option is left out. The name of
// the program is the first word of its description, if a colon follows ("heddle-tracker: knows .."),
// else that of its App.
std::string ManPage(const CLI::App& program);

// The names of the shells that ShellCompletion knows.
const std::vector<std::string>& CompletionShells();

// A script that completes the program's commands, options and values in this shell; where it knows
// no values, the shell completes file names. `shell` must be one of CompletionShells.
std::string ShellCompletion(const CLI::App& program, std::string_view shell);

// What main returns when the command line is not run: 0 after --help and the like, which this
// prints; 2 after a mistake, which it tells in one line with the way out.
int EndOfParse(const CLI::App& program, const CLI::ParseError& error);

// Parses the command line of a program. nullopt: the program is to run. Else main returns this: EndOfParse.
std::optional<int> ParseCommandLine(CLI::App* program, int argc, char** argv);

// Adds the hidden flag --man-page, which prints the man page and ends the program.
void AddManPageFlag(CLI::App* program);

}  // namespace heddle
