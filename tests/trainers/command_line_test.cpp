#include "trainers/commands/command_line.h"

#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"

namespace lockstep {
namespace {

std::string error_of_flags(const std::vector<std::string>& arguments) {
  std::vector<const char*> argv{"tool"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  const FlagNames names{"tool", {"--output", "--set"}, {"--dry-run", "--help"}};
  return testing::message_of<ValueError>([&] {
    (void)parse_command_line(static_cast<int>(argv.size()), argv.data(), names);
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

TEST_CASE("flags come with their values, in their order, and operands among them") {
  const FlagNames names{"tool", {"--set"}, {"--dry-run"}, 1};
  const std::vector<const char*> argv{"tool", "--set", "a", "folder", "--set=b=c", "--dry-run"};
  const auto arguments = parse_command_line(static_cast<int>(argv.size()), argv.data(), names);
  std::string all;
  for (const auto& [flag, value] : arguments) all += flag + "<" + value + ">";
  CHECK(all == "--set<a><folder>--set<b=c>--dry-run<>");
  CHECK(value_of(arguments, "--set") == "b=c");
  CHECK(value_of(arguments, "") == "folder");
  CHECK(value_of(arguments, "--dry-run") == "");
  CHECK(value_of(arguments, "--help") == std::nullopt);
  const std::vector<const char*> two{"tool", "folder", "stray"};
  CHECK_THROWS_WITH(parse_command_line(3, two.data(), names),
                    "'stray' is no flag; see tool --help");
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
