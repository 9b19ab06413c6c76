#include "trainers/command_line.h"

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
    check_command_line(static_cast<int>(argv.size()), argv.data(), names);
    throw ValueError("");
  });
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

}  // namespace lockstep
