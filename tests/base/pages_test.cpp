// The pages of the documentation hold together: links lead somewhere, and a test runs each command
// that a page shows.

#include "tests/support/pages.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/catch.h"

using namespace lockstep::testing;

namespace {

namespace fs = std::filesystem;

const fs::path kRoot = LOCKSTEP_SOURCE_DIR;

std::set<std::string> pages_there() {
  std::set<std::string> names{"README.md"};
  for (const char* tree : {"configs", "framework", "models", "tests", "trainers"}) {
    for (const auto& file : fs::recursive_directory_iterator(kRoot / tree)) {
      if (file.path().extension() == ".md") names.insert(file.path().lexically_relative(kRoot));
    }
  }
  return names;
}

// Returns the anchors of a page's headings, as GitHub makes them.
std::set<std::string> anchors_of(const Page& page) {
  std::set<std::string> anchors;
  for (const std::string& line : page.prose) {
    const std::size_t begin = line.find_first_not_of('#');
    if (begin == 0 || begin == std::string::npos || line[begin] != ' ') continue;
    std::string anchor;
    for (const char letter : line.substr(begin + 1)) {
      const auto code = static_cast<unsigned char>(letter);
      if (letter == ' ') {
        anchor += '-';
      } else if (std::isalnum(code) != 0 || letter == '-' || letter == '_' || code >= 0x80) {
        anchor += static_cast<char>(std::tolower(code));
      }
    }
    anchors.insert(anchor);
  }
  return anchors;
}

// Returns the test program that runs such a command of a page; "" for a command that builds or
// tests everything.
std::string runner_of(const std::string& command) {
  const std::vector<std::pair<std::regex, std::string>> known{
      {std::regex("\\./trainers/run\\.sh\\b.*--node-rank.*"), "hosts"},
      {std::regex("\\./trainers/run\\.sh\\b.*"), "train"},
      {std::regex("(sudo |cmake --build --preset release --target bench && )?"
                  "build/release/trainers/bench .*"),
       "bench"},
      {std::regex("cmake (--install|-G Ninja) .*"), "programs"},
      {std::regex("\\./tests/run\\.sh\\b.*|cmake --preset debug && .*|"
                  "gdb --args build/debug/tests/.*"),
       ""}};
  for (const auto& [words, runner] : known) {
    if (std::regex_match(command, words)) return runner;
  }
  FAIL("who runs this command of a page? " << command);
  return "";
}

}  // namespace

TEST_CASE("the table of pages has every page") {
  std::set<std::string> listed;
  for (const auto& [name, runners] : page_table()) listed.insert(name);
  CHECK(listed == pages_there());
}

TEST_CASE("every link of a page leads to what is there") {
  const std::regex link("\\]\\(([^)\\s]+)\\)|src=\"([^\"]+)\"");
  std::size_t links = 0;
  for (const std::string& name : pages_there()) {
    const Page page = read_page(name);
    for (const std::string& line : page.prose) {
      for (auto match = std::sregex_iterator(line.begin(), line.end(), link);
           match != std::sregex_iterator(); ++match) {
        const std::string target = (*match)[1].matched ? (*match)[1] : (*match)[2];
        if (target.starts_with("https://")) continue;
        ++links;
        INFO(name << ": " << target);
        const std::size_t hash = target.find('#');
        const std::string file = target.substr(0, hash);
        const fs::path there = file.empty()
                                   ? fs::path(name)
                                   : (fs::path(name).parent_path() / file).lexically_normal();
        CHECK(fs::exists(kRoot / there));
        if (hash == std::string::npos || !fs::exists(kRoot / there)) continue;
        CHECK(anchors_of(read_page(there)).contains(target.substr(hash + 1)));
      }
    }
  }
  CHECK(links > 80);
}

TEST_CASE("every command and program of a page is run by a test") {
  std::size_t commands = 0;
  for (const auto& [name, runners] : page_table()) {
    // The map's own commands are development's: they run for hours.
    if (name == "framework/README.md") continue;
    std::set<std::string> needed;
    for (const PageBlock& block : read_page(name).blocks) {
      INFO(name << "\n" << block.text);
      const std::set<std::string> known{"", "cmake", "console", "cpp", "mermaid", "sh", "yaml"};
      CHECK(known.contains(block.language));
      if (block.language == "cpp") needed.insert("programs");
      for (const PageCommand& command : commands_of(block)) {
        ++commands;
        needed.insert(runner_of(command.words));
      }
    }
    needed.erase("");
    INFO(name);
    CHECK(needed == runners);
  }
  CHECK(commands > 30);
}

TEST_CASE("the README is read in ten minutes") {
  const Page page = read_page("README.md");
  CHECK(std::ranges::count(page.text, '\n') <= 250);
  std::istringstream words(page.text);
  std::size_t count = 0;
  for (std::string word; words >> word;) ++count;
  CHECK(count <= 1800);
}
