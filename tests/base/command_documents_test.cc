#include "base/command_documents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace heddle {
namespace {

using testing::HasSubstr;
using testing::Not;

// A program with what ours have: flags, values of each kind, arguments, commands in commands, and
// something hidden of each kind.
struct Program {
  CLI::App app{"Weaves cloth: quickly", "weave"};
  int picks = 12;
  std::string pattern, address, file;
  std::vector<std::string> threads;
  bool loud = false;

  Program() {
    app.set_version_flag("--version", "weave 1.2");
    app.footer("weave cloth.txt");
    app.add_option("--server", address, "Where it's woven")->envname("WEAVE_SERVER");
    app.add_flag("-v,--verbose", loud, "Say more");
    app.add_flag("--secret", loud, "Hidden flag")->group("");
    CLI::App* start = app.add_subcommand("start", "Begin a cloth; the loom must be free");
    start->add_option("file", file, "A file \\ of '-' and .dots")->required();
    start->add_option("-p,--picks", picks, ".Picks a minute")
        ->check(CLI::Range(1, 64))
        ->capture_default_str();
    start->add_option("--pattern", pattern, "Pattern")->check(CLI::IsMember({"twill", "satin"}));
    CLI::App* stock = app.add_subcommand("stock", "What there is");
    CLI::App* sell = stock->add_subcommand("sell", "Sell threads");
    sell->add_option("threads", threads, "Threads");
    app.add_subcommand("hidden", "Hidden command")->group("");
    AddManPageFlag(&app);
  }
};

TEST(ManPage, HasEveryCommandAndOption) {
  const Program program;
  const std::string page = ManPage(program.app);
  EXPECT_THAT(page, HasSubstr(".TH WEAVE 1 \"\" \"weave 1.2\" Heddle\n"));
  EXPECT_THAT(page, HasSubstr(".SH NAME\nweave \\- Weaves cloth: quickly\n"));
  EXPECT_THAT(page, HasSubstr("\\fB\\-\\-server\\fR \\fITEXT\\fR\n"
                              "Where it's woven (environment: WEAVE_SERVER)\n"));
  EXPECT_THAT(page, HasSubstr(".SS weave start\n"));
  EXPECT_THAT(page, HasSubstr(".SS weave stock sell\n"));
  EXPECT_THAT(page, HasSubstr("\\fB\\-p\\fR, \\fB\\-\\-picks\\fR \\fIINT\\fR\n"
                              "\\&.Picks a minute (1 to 64; default: 12)\n"));
  EXPECT_THAT(page, HasSubstr("Pattern (one of twill, satin)\n"));
  EXPECT_THAT(page, HasSubstr("\\fIfile\\fR\nA file \\e of '\\-' and .dots\n"));
  EXPECT_THAT(page, HasSubstr("[\\fIthreads\\fR...]\n"));
  EXPECT_THAT(page, HasSubstr(".SH EXAMPLE\nweave cloth.txt\n"));
}

TEST(ManPage, LeavesOutWhatIsHidden) {
  const Program program;
  for (const std::string& text :
       {ManPage(program.app), ShellCompletion(program.app, "bash"),
        ShellCompletion(program.app, "zsh"), ShellCompletion(program.app, "fish")}) {
    EXPECT_THAT(text, Not(HasSubstr("hidden")));
    EXPECT_THAT(text, Not(HasSubstr("secret")));
    EXPECT_THAT(text, Not(HasSubstr("man-page")));
  }
}

TEST(ManPage, TakesTheNameFromTheDescription) {
  CLI::App app("heddle-loom: holds the cloth; on four legs", "bin/heddle-loom");
  const std::string page = ManPage(app);
  EXPECT_THAT(page, HasSubstr(".TH HEDDLE-LOOM 1 "));
  EXPECT_THAT(page, HasSubstr("heddle-loom \\- holds the cloth; on four legs\n"));
  EXPECT_THAT(page, Not(HasSubstr(".SH COMMANDS")));
  EXPECT_THAT(ShellCompletion(app, "bash"), HasSubstr("_heddle_loom heddle-loom\n"));
}

TEST(ManPage, TheFlagEndsTheParse) {
  Program program;
  std::vector<std::string> words = {"--man-page"};
  try {
    program.app.parse(words);
    FAIL() << "nothing was thrown";
  } catch (const CLI::CallForVersion& text) {
    EXPECT_EQ(std::string(text.what()), ManPage(program.app));
    EXPECT_EQ(text.get_exit_code(), 0);
  }
}

TEST(ShellCompletion, ZshDescribesWhatItOffers) {
  const Program program;
  const std::string script = ShellCompletion(program.app, "zsh");
  EXPECT_THAT(script, HasSubstr("#compdef weave\n"));
  // Up to the first pause of the sentence, in quotes.
  EXPECT_THAT(script, HasSubstr("commands=('start:Begin a cloth' 'stock:What there is')"));
  EXPECT_THAT(script, HasSubstr("'--server:Where it'\\''s woven'"));
  EXPECT_THAT(script, HasSubstr("\"weave start --pattern\") compadd -- twill satin; return ;;"));
  EXPECT_THAT(script, HasSubstr("\"weave start -p\" | \"weave start --picks\") _files; return ;;"));
  EXPECT_THAT(script, HasSubstr("\"weave stock sell --server\") _files; return ;;"));
}

TEST(ShellCompletion, FishOffersCommandsWhereTheyStand) {
  const Program program;
  const std::string script = ShellCompletion(program.app, "fish");
  EXPECT_THAT(script, HasSubstr("complete -c weave -n 'not __fish_seen_subcommand_from start stock'"
                                " -f -a start -d 'Begin a cloth'\n"));
  EXPECT_THAT(script,
              HasSubstr("complete -c weave -n '__fish_seen_subcommand_from stock; and not "
                        "__fish_seen_subcommand_from sell' -f -a sell -d 'Sell threads'\n"));
  EXPECT_THAT(script, HasSubstr("complete -c weave -n '__fish_seen_subcommand_from start' "
                                "-l pattern -x -a 'twill satin' -d 'Pattern'\n"));
  EXPECT_THAT(script, HasSubstr("complete -c weave -l server -r -d 'Where it\\'s woven'\n"));
  EXPECT_THAT(script, HasSubstr("complete -c weave -s v -l verbose -d 'Say more'\n"));
}

TEST(ShellCompletionDeathTest, RefusesAnUnknownShell) {
  const Program program;
  EXPECT_DEATH(ShellCompletion(program.app, "csh"), "no completion for the shell 'csh'");
}

TEST(EndOfParse, AMistakeIsOneLineWithTheWayOut) {
  CLI::App app("heddle-example: shows a mistake");
  std::string error;
  try {
    app.parse("--unheard-of");
    ADD_FAILURE() << "it was taken";
  } catch (const CLI::ParseError& mistake) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(EndOfParse(app, mistake), 2);
    error = testing::internal::GetCapturedStderr();
  }
  EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 1) << error;
  EXPECT_TRUE(error.starts_with("heddle-example: ")) << error;
  EXPECT_NE(error.find("--unheard-of"), std::string::npos) << error;
  EXPECT_NE(error.find("`heddle-example --help`"), std::string::npos) << error;
}

TEST(ParseCommandLine, TellsWhetherTheProgramIsToRun) {
  const auto parse = [](std::vector<std::string> words) {
    CLI::App app("An example whose name is in its path.");
    app.add_flag("--known");
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    return ParseCommandLine(&app, static_cast<int>(argv.size()), argv.data());
  };
  EXPECT_EQ(parse({"bin/example", "--known"}), std::nullopt);
  testing::internal::CaptureStdout();
  EXPECT_EQ(parse({"bin/example", "--help"}), 0);
  EXPECT_NE(testing::internal::GetCapturedStdout().find("--known"), std::string::npos);
  testing::internal::CaptureStderr();
  EXPECT_EQ(parse({"bin/example", "--unheard-of"}), 2);
  const std::string error = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(error.starts_with("example: ")) << error;
  EXPECT_NE(error.find("(see `example --help`)\n"), std::string::npos) << error;
}

}  // namespace
}  // namespace heddle
