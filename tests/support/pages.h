#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/files.h"

namespace lockstep::testing {

/// What stands between two lines of ``` on a page.
struct PageBlock {
  std::string language;  ///< as in ```sh
  std::string text;      ///< its lines, each with its end

  /// The file that the block shows, as its first line says in a comment: "# gpt.yaml". "": none.
  [[nodiscard]] std::string file() const {
    static const std::regex comment("(?://|#) (\\S+\\.\\w+)");
    const std::string first = text.substr(0, text.find('\n'));
    std::smatch match;
    return std::regex_match(first, match, comment) ? match[1].str() : "";
  }
};

/// A command of a page, on one line, and the lines that the page shows of what it prints.
struct PageCommand {
  std::string words;
  std::vector<std::string> shown = {};
};

/// A page of the documentation.
struct Page {
  std::string text;
  std::vector<PageBlock> blocks = {};
  std::vector<std::string> prose = {};  ///< the lines outside of blocks

  /// The first block that shows this file.
  [[nodiscard]] const PageBlock& showing(const std::string& file) const {
    for (const PageBlock& block : blocks) {
      if (block.file() == file) return block;
    }
    throw std::runtime_error("no block of the page shows " + file);
  }
};

/// A page of the repository, by its path.
inline Page read_page(const std::string& name) {
  Page page{.text = read_text(std::filesystem::path(LOCKSTEP_SOURCE_DIR) / name)};
  std::istringstream lines(page.text);
  bool is_inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) {
      if (!is_inside) page.blocks.push_back({.language = line.substr(3), .text = ""});
      is_inside = !is_inside;
    } else if (is_inside) {
      page.blocks.back().text += line + "\n";
    } else {
      page.prose.push_back(line);
    }
  }
  if (is_inside) throw std::runtime_error(name + ": a block does not end");
  return page;
}

/// The table of pages: who runs what each of them shows.
inline std::map<std::string, std::set<std::string>> page_table() {
  std::ifstream table(std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/pages.txt");
  std::map<std::string, std::set<std::string>> pages;
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    std::string name;
    if (!(words >> name) || name == "#") continue;
    for (std::string runner; words >> runner;) pages[name].insert(runner);
    pages.try_emplace(name);
  }
  return pages;
}

/// The pages of which `runner` runs something.
inline std::vector<std::string> pages_of(const std::string& runner) {
  std::vector<std::string> names;
  for (const auto& [name, runners] : page_table()) {
    if (runners.contains(runner)) names.push_back(name);
  }
  return names;
}

/// The commands of a block of sh, a line each, or of one of console, where they stand behind "$ ".
inline std::vector<PageCommand> commands_of(const PageBlock& block) {
  std::vector<PageCommand> commands;
  const bool has_output = block.language == "console";
  if (block.language != "sh" && !has_output) return commands;
  std::istringstream lines(block.text);
  bool goes_on = false;
  for (std::string line; std::getline(lines, line);) {
    const bool is_command = !has_output || goes_on || line.starts_with("$ ");
    if (!is_command) {
      if (commands.empty()) throw std::runtime_error("output without a command: " + line);
      commands.back().shown.push_back(line);
      continue;
    }
    std::string words = has_output && !goes_on ? line.substr(2) : line;
    const bool was_going_on = goes_on;
    goes_on = words.ends_with("\\") || words.ends_with("&&");
    if (words.ends_with("\\")) words.pop_back();
    if (was_going_on) {
      commands.back().words += " " + words;
    } else {
      commands.push_back({.words = words});
    }
  }
  return commands;
}

}  // namespace lockstep::testing
