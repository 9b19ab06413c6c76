#include "trainers/commands/command_line.h"

#include <optional>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/number_text.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"
#include "tests/support/programs.h"

namespace lockstep {
namespace {

std::int64_t tool_number(const std::string& text) {
  const auto parsed = parse_number<std::int64_t>(text);
  require(parsed.has_value(), "'", text, "' is no number");
  return *parsed;
}

// A tool, and what its arguments have set.
struct Tool {
  std::string output;
  std::string sets;
  std::int64_t count = 0;
  bool is_dry = false;
  std::optional<std::string> operand;

  [[nodiscard]] CommandLine line(bool takes_operand = false) {
    CommandLine line{
        .program = "tool",
        .usage = "[flags]",
        .what = "Does what a tool does.",
        .flags = {{"--output", "DIR", "Where to", lockstep::sets(output)},
                  {"--set", "KEY", "Again and again",
                   [this](const Argument& given) { sets += given.flag + "<" + given.value + ">"; }},
                  {"--count", "N", "How many", lockstep::sets(count, tool_number)},
                  {"--dry-run", "", "Do nothing", lockstep::sets(is_dry)}},
        .more = "It does no more.\n"};
    if (takes_operand) line.operand = [this](const std::string& given) { operand = given; };
    return line;
  }
};

bool parse_tool(const std::vector<std::string>& arguments, const CommandLine& line) {
  std::vector<const char*> argv{"tool"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  return parse_command_line(static_cast<int>(argv.size()), argv.data(), line);
}

std::string error_of_flags(const std::vector<std::string>& arguments) {
  Tool tool;
  return testing::message_of<ValueError>([&] {
    (void)parse_tool(arguments, tool.line());
    throw ValueError("");
  });
}

std::string command_in(const std::vector<std::string>& arguments) {
  std::vector<const char*> argv{"tool"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  return command_of(static_cast<int>(argv.size()), argv.data(), "tool", {"run", "export"});
}

}  // namespace

TEST_CASE("flags with their values and flags alone are let through") {
  CHECK(error_of_flags({}).empty());
  CHECK(error_of_flags({"--output", "run", "--dry-run", "--set=a=--b", "--set", "a=1"}).empty());
  CHECK(error_of_flags({"--output=--dry-run", "--set", "-1", "--output="}).empty());
}

TEST_CASE("a flag that lacks its value is said so, and takes no other flag for it") {
  CHECK(error_of_flags({"--dry-run", "--output"}) == "--output lacks its value; see tool --help");
  CHECK(error_of_flags({"--output", "--dry-run"}) ==
        "--output lacks its value: --dry-run follows (if that is meant: --output=--dry-run); see "
        "tool --help");
  CHECK_THAT(error_of_flags({"--set", "--sett", "a=1"}),
             ContainsSubstring("--set lacks its value"));
}

TEST_CASE("a flag that takes no value is given none") {
  CHECK(error_of_flags({"--dry-run=false"}) ==
        "--dry-run takes no value, but is given 'false'; see tool --help");
}

TEST_CASE("what is no flag is said so, with what may be meant") {
  CHECK(error_of_flags({"--outptu", "x"}) ==
        "unknown flag --outptu (did you mean '--output'?); see tool --help");
  CHECK(error_of_flags({"--set", "a=1", "stray", "--wrong"}) ==
        "'stray' is no flag; see tool --help");
  CHECK(error_of_flags({"-x"}) == "unknown flag -x; see tool --help");
  CHECK(error_of_flags({"-dry-run"}) ==
        "unknown flag -dry-run (did you mean '--dry-run'?); see tool --help");
  CHECK(error_of_flags({"--" + std::string(1'000'000, 'x')}).size() < 200);
}

TEST_CASE("flags set their variables, in their order, and an operand stands among them") {
  Tool tool;
  const std::string longest(1'000'000, 'x');
  CHECK(parse_tool(
      {"--set", "a,b", "folder", "--set=b=c\nd", "--dry-run", "--count=7", "--output=" + longest},
      tool.line(true)));
  CHECK(tool.sets == "--set<a,b>--set<b=c\nd>");
  CHECK(tool.operand == "folder");
  CHECK(tool.is_dry);
  CHECK(tool.count == 7);
  CHECK(tool.output == longest);
  CHECK(error_of_flags({"--count", "many"}) == "--count: 'many' is no number");
  // A line that takes several gets all of them, in their order.
  std::vector<std::string> operands;
  CommandLine line = tool.line();
  line.operand = [&](const std::string& given) { operands.push_back(given); };
  line.has_many = true;
  CHECK(parse_tool({"a", "--dry-run", "-", "b"}, line));
  CHECK(operands == std::vector<std::string>{"a", "-", "b"});
  CHECK(error_of_flags({"-"}) == "unknown flag -; see tool --help");
  CHECK_THROWS_WITH(parse_tool({"folder", "stray"}, tool.line(true)),
                    "'stray' is no flag; see tool --help");
}

TEST_CASE("the help shows the table, and sets nothing") {
  Tool tool;
  CHECK_FALSE(parse_tool({"--dry-run", "--help", "--count", "many"}, tool.line()));
  CHECK_FALSE(tool.is_dry);
  CHECK(help_text(tool.line()) ==
        "Does what a tool does.\n\nUsage:\n  tool [flags]\n\n"
        "      --output DIR  Where to\n"
        "      --set KEY     Again and again\n"
        "      --count N     How many\n"
        "      --dry-run     Do nothing\n"
        "      --help        Print this and end\n"
        "\nIt does no more.\n");
  CommandLine line = tool.line();
  line.flags[0].help = "Many";
  for (int i = 0; i < 40; ++i) line.flags[0].help += " words";
  for (const std::string& shown : testing::lines_of(help_text(line))) {
    INFO(shown);
    CHECK((shown.size() <= 100 && !shown.ends_with(' ')));
  }
}

TEST_CASE("the first argument may be a command") {
  CHECK(command_in({}).empty());
  CHECK(command_in({"--help", "run"}).empty());
  CHECK(command_in({"export", "--help"}) == "export");
  CHECK(testing::message_of<ValueError>([] { (void)command_in({"exprot"}); }) ==
        "unknown command 'exprot' (did you mean 'export'?): there are run, export; see tool "
        "--help");
}

}  // namespace lockstep
