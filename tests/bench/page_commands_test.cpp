// The pages' commands of bench take minutes: here their flags are read.

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/support/flag_rows.h"
#include "tests/support/pages.h"
#include "trainers/bench/flags.h"

using namespace lockstep::testing;

TEST_CASE("the page's table of flags is bench's") {
  lockstep::bench::Options options;
  CHECK(flag_rows(read_page("trainers/bench/README.md")) ==
        flag_rows(lockstep::bench::bench_flags(options)));
}

TEST_CASE("bench knows the flags of the pages' commands, and writes the pictures that they show") {
  int commands = 0;
  for (const std::string& name : pages_of("bench")) {
    const Page page = read_page(name);
    for (const PageBlock& block : page.blocks) {
      for (const PageCommand& command : commands_of(block)) {
        const std::size_t at = command.words.find("build/release/trainers/bench ");
        if (at == std::string::npos) continue;
        INFO(name << ": " << command.words);
        std::istringstream words(command.words.substr(at));
        std::vector<std::string> arguments;
        for (std::string word; words >> word && word != "#";) arguments.push_back(word);
        std::vector<const char*> argv;
        for (const std::string& argument : arguments) argv.push_back(argument.c_str());
        const auto options =
            lockstep::bench::parse_flags(static_cast<int>(argv.size()), argv.data());
        if (!options.plot.empty()) {
          CHECK(page.text.find(options.plot.string() + "\"") != std::string::npos);
          CHECK(std::filesystem::exists(std::filesystem::path(LOCKSTEP_SOURCE_DIR) /
                                        "trainers/bench" / options.plot));
        }
        ++commands;
      }
    }
  }
  CHECK(commands > 8);
}
