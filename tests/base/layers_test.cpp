#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/support/files.h"
#include "tests/support/programs.h"

namespace {

namespace fs = std::filesystem;

// The list of framework/README.md: a folder includes only itself and those before it.
const std::vector<std::string> kLayers{
    "base",    "storage", "keys",     "formats", "reduce",     "timeline",    "calls",
    "engines", "comm",    "groups",   "tree",    "axes",       "collectives", "maps",
    "launch",  "optim",   "training", "data",    "objectives", "checkpoint",  "telemetry"};
// Folders in comm/: none includes another.
const std::vector<std::string> kBackends{"shared", "gloo", "network"};

std::size_t place_of(const std::string& folder) {
  const auto found = std::find(kLayers.begin(), kLayers.end(), folder);
  REQUIRE(found != kLayers.end());
  return static_cast<std::size_t>(found - kLayers.begin());
}

std::vector<std::string> lines_of(const fs::path& path) {
  return lockstep::testing::lines_of(lockstep::testing::read_text(path));
}

}  // namespace

TEST_CASE("a folder of framework/ includes only those above it") {
  const fs::path framework = fs::path(LOCKSTEP_SOURCE_DIR) / "framework";
  const std::regex own_include(
      "#include \"(framework|models|trainers|tests)/(([a-z_]+)/)?(([a-z_]+)/)?.*");
  std::size_t files = 0;
  for (const auto& folder : fs::directory_iterator(framework)) {
    if (!folder.is_directory()) continue;
    const std::size_t place = place_of(folder.path().filename());
    for (const auto& file : fs::recursive_directory_iterator(folder)) {
      const std::string room = file.path().parent_path().filename();
      if (file.is_directory()) {
        INFO(file.path());
        CHECK(folder.path().filename() == "comm");
        CHECK(std::ranges::count(kBackends, file.path().filename().string()) == 1);
        continue;
      }
      ++files;
      for (const std::string& line : lines_of(file)) {
        INFO(file.path() << ": " << line);
        std::smatch match;
        if (std::regex_match(line, match, own_include)) {
          CHECK(match[1] == "framework");
          CHECK(match[3].matched);  // no layer includes lockstep.h, which is all of them
          if (match[3].matched) CHECK(place_of(match[3]) <= place);
          if (match[5].matched && std::ranges::count(kBackends, room) == 1) CHECK(match[5] == room);
        }
        if (place <= place_of("groups")) {
          CHECK(line.rfind("#include <torch/", 0) != 0);
          CHECK(line.rfind("#include <ATen/", 0) != 0);
          CHECK(line.rfind("#include <c10/", 0) != 0);
        }
        CHECK(line.rfind("#include <torch/torch.h>", 0) != 0);
      }
    }
  }
  CHECK(files > 50);
}

// The rooms around framework/, and what they may include beside themselves.
TEST_CASE("models and the rooms of trainers include only those below them") {
  const std::map<std::string, std::vector<std::string>> below{
      {"models", {"framework/"}},
      {"trainers", {"framework/", "models/"}},
      {"trainers/config", {"framework/", "models/"}},
      {"trainers/report", {"framework/", "trainers/config/"}},
      {"trainers/run", {"framework/", "models/", "trainers/config/", "trainers/report/"}},
      {"trainers/plan", {"framework/", "models/", "trainers/config/", "trainers/run/"}},
      {"trainers/commands",
       {"framework/", "models/", "trainers/config/", "trainers/report/", "trainers/run/",
        "trainers/plan/"}},
      {"trainers/bench", {"framework/", "models/", "trainers/"}},
      {"trainers/bench/hosts", {"framework/base/"}},
      {"trainers/bench/systems", {"framework/", "models/"}}};
  const std::regex own_include("#include \"((framework|models|trainers|tests)/.*)\"");
  for (const auto& [room, others] : below) {
    std::size_t includes = 0;
    for (const auto& file : fs::directory_iterator(fs::path(LOCKSTEP_SOURCE_DIR) / room)) {
      if (file.path().extension() != ".h" && file.path().extension() != ".cpp") continue;
      for (const std::string& line : lines_of(file)) {
        std::smatch match;
        if (!std::regex_match(line, match, own_include)) continue;
        const std::string header = match[1];
        INFO(file.path() << ": " << line);
        CHECK((header.starts_with(room + "/") ||
               std::ranges::any_of(
                   others, [&](const std::string& other) { return header.starts_with(other); })));
        ++includes;
      }
    }
    CHECK(includes > 2);
  }
}

TEST_CASE("the map lists the layers in their order") {
  std::vector<std::string> listed;
  const std::regex row("\\| `([a-z_]+)/` \\|.*");
  for (const std::string& line :
       lines_of(fs::path(LOCKSTEP_SOURCE_DIR) / "framework" / "README.md")) {
    std::smatch match;
    if (std::regex_match(line, match, row)) listed.push_back(match[1]);
  }
  CHECK(listed == kLayers);
}

TEST_CASE("namespace lockstep holds what lockstep.h shows, and each room has one for the rest") {
  const fs::path root(LOCKSTEP_SOURCE_DIR);
  const std::vector<std::string> shown = lines_of(root / "framework" / "lockstep.h");
  std::size_t internal = 0;
  for (const std::string& layer : kLayers) {
    for (const auto& file : fs::recursive_directory_iterator(root / "framework" / layer)) {
      if (file.path().extension() != ".h") continue;
      const std::string name = file.path().lexically_relative(root);
      const bool is_public =
          layer == "base" || std::ranges::count(shown, "#include \"" + name + "\"");
      INFO(name);
      const std::string own = layer == "launch" ? "launcher" : layer;  // launch() is a function
      CHECK(std::ranges::count(lines_of(file),
                               "namespace lockstep" + (is_public ? "" : "::" + own) + " {") == 1);
      if (!is_public) ++internal;
    }
  }
  CHECK(internal > 40);
}

// A program's std::locale::global() and setlocale() change what these write and read.
TEST_CASE("texts and numbers come from what no locale changes") {
  const std::regex by_locale(
      "std::o?stringstream|std::sto(f|d|ld)\\(|strto(f|d|ld)\\(|atof\\(|[^a-z_]v?s?n?printf\\(|"
      "scanf\\(|std::regex|std::(put|get)_(time|money)|setlocale|std::locale|strn?casecmp|strcoll|"
      "strerror|strsignal|[^:]::gai_strerror|fnmatch\\(|(^|[^a-z_])(to(lower|upper)|"
      "is(alnum|alpha|blank|digit|graph|print|punct|space|lower|upper|xdigit))\\(");
  // A function is free of it where it holds a ClassicLocale, and where it writes integers and
  // texts.
  const std::map<std::string, std::string> excused{
      {"framework/base/text.h", "TextStream, ClassicLocale and formatted()"},
      {"framework/base/text.cpp", "a ClassicLocale"},
      {"framework/base/limits.cpp", "a ClassicLocale"},
      {"framework/comm/link_speed.cpp", "a ClassicLocale"},
      {"framework/comm/network/host_and_port.cpp", "a ClassicLocale"},
      {"framework/launch/supervisor.cpp", "a ClassicLocale"},
      {"framework/training/float32_sums.cpp", "a ClassicLocale"},
      {"framework/launch/before_libraries.cpp", "before main()"},
      {"framework/training/float32_sums.cpp", "before main()"},
      {"framework/formats/jpeg_decoder.cpp", "an integer"},
      {"framework/formats/png_decoder.cpp", "texts"}};
  std::map<std::string, std::string> found;
  const fs::path root(LOCKSTEP_SOURCE_DIR);
  for (const char* tree : {"framework", "models", "trainers"}) {
    for (const auto& file : fs::recursive_directory_iterator(root / tree)) {
      const std::string name = file.path().lexically_relative(root);
      if (file.path().extension() != ".h" && file.path().extension() != ".cpp") continue;
      if (name.starts_with("trainers/bench/")) continue;  // a program, whose locale is its own
      for (const std::string& line : lines_of(file)) {
        const std::string code = line.substr(0, line.find("//"));
        if (!std::regex_search(code, by_locale)) continue;
        INFO(name << ": " << line);
        CHECK(excused.contains(name));
        found[name] = line;
      }
    }
  }
  CHECK(found.size() == excused.size());
}

// Two types of one name in one binary break the one-definition rule, and no tool of the build says
// so.
TEST_CASE("a name stands for one type in a namespace") {
  const std::regex opened("namespace( [A-Za-z_:]+)? \\{.*");
  const std::regex closed("\\}  // namespace.*");
  const std::regex defined(
      "(?:template <.*> )?(?:class|struct|enum class|union) (\\w+)(?: [^;]*)?");
  std::map<std::string, std::string> file_of;
  for (const char* tree : {"framework", "models", "trainers"}) {
    for (const auto& file :
         fs::recursive_directory_iterator(fs::path(LOCKSTEP_SOURCE_DIR) / tree)) {
      if (file.path().extension() != ".h" && file.path().extension() != ".cpp") continue;
      std::vector<std::string> namespaces;
      for (const std::string& line : lines_of(file)) {
        std::smatch match;
        if (std::regex_match(line, match, opened)) {
          namespaces.push_back(match[1].matched ? match[1].str() : " of the file");
        } else if (std::regex_match(line, closed)) {
          REQUIRE(!namespaces.empty());
          namespaces.pop_back();
        } else if (!namespaces.empty() && namespaces.back() != " of the file" &&
                   std::regex_match(line, match, defined)) {
          std::string name;
          for (const std::string& part : namespaces) name += part.substr(1) + "::";
          name += match[1];
          const auto [first, is_new] = file_of.emplace(name, file.path());
          INFO(name << " in " << file.path() << " and " << first->second);
          CHECK(is_new);
        }
      }
    }
  }
  CHECK(file_of.size() > 200);
}
