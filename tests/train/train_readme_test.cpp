// What the pages say of `train`, as written there: configs, commands and what they print.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/random.h"
#include "framework/base/text.h"
#include "framework/telemetry/event_file.h"
#include "tests/catch.h"
#include "tests/formats/idx_files.h"
#include "tests/formats/sample_files.h"
#include "tests/support/files.h"
#include "tests/support/pages.h"
#include "tests/train/train_in_fork.h"
#include "tests/train/train_program.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

namespace fs = std::filesystem;

// A picture of noise, of which one half is bright: the right or lower one in one class, the other
// in the other.
std::string picture(std::uint64_t number, bool is_second, bool is_across = true) {
  constexpr std::uint32_t kHeight = 36, kWidth = 44;
  std::string rows;
  for (std::uint32_t y = 0; y < kHeight; ++y) {
    rows += '\0';  // no filter
    for (std::uint32_t x = 0; x < kWidth; ++x) {
      const std::uint64_t noise = Key(number).draw(y * kWidth + x) >> 57;
      const bool is_bright = (is_across ? x >= kWidth / 2 : y >= kHeight / 2) == is_second;
      rows += static_cast<char>(noise + (is_bright ? 120 : 0));
    }
  }
  return png_file({.width = kWidth, .height = kHeight, .color_type = 0}, rows);
}

// The folder `pictures` with its three sets.
void write_pictures(const TemporaryFolder& folder) {
  std::uint64_t number = 0;
  for (const auto& [set, count] : {std::pair{"train", 70}, {"val", 10}, {"test", 20}}) {
    for (const std::string name : {"left", "right"}) {
      const std::string place = str("pictures/", set, "/", name);
      for (int i = 0; i < count; ++i) {
        folder.write(str(place, "/", i, ".png"), picture(number++, name == "right"));
      }
    }
  }
}

// Few pictures, in two classes that do not change where left and right do.
void write_few(const TemporaryFolder& folder) {
  for (std::uint64_t i = 0; i < 100; ++i) {
    const bool is_low = i % 2 == 1;
    folder.write(str("few/", is_low ? "low" : "high", "/", i, ".png"), picture(i, is_low, false));
  }
}

// Noise that looks like Fashion-MNIST's files, in the folder `fashion`.
void write_fashion(const TemporaryFolder& folder) {
  for (const auto& [set, count] : {std::pair{"train", 400U}, {"t10k", 100U}}) {
    std::string pixels(count * 784, '\0'), labels(count, '\0');
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      pixels[i] = static_cast<char>(Key(count).draw(i) >> 56);
    }
    for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<char>(i % 10);
    folder.write(str("fashion/", set, "-images-idx3-ubyte"), idx_header({count, 28, 28}) + pixels);
    folder.write(str("fashion/", set, "-labels-idx1-ubyte"), idx_header({count}) + labels);
  }
}

// A folder in which a page's commands run as in the repository's, but fast: Fashion-MNIST is small,
// and trainings are of one epoch.
void prepare(const TemporaryFolder& folder) {
  const fs::path source = LOCKSTEP_SOURCE_DIR;
  fs::create_directory_symlink(source / "configs", folder.path() / "configs");
  fs::copy_file(source / "README.md", folder.path() / "README.md");
  write_fashion(folder);
  write_pictures(folder);
  write_few(folder);
  for (int i = 0; i < 3; ++i) folder.write(str("holidays/", i, ".png"), picture(900, i == 1));
  folder.write("trainers/run.sh", str(R"(#!/bin/sh
[ $# -gt 0 ] || set -- --config configs/pmean_linear.yaml --replicas 4
case "$*" in *configs/fashion_mnist*) set -- "$@" --set data.root=fashion ;; esac
case "$*" in
  *configs/pmean_linear*) ;;
  --config*) set -- "$@" --set trainer.epochs=1 --set trainer.log_every=1 ;;
esac
exec ')",
                                      train_command({})[0], "' \"$@\"\n"));
  fs::permissions(folder.path("trainers/run.sh"), fs::perms::owner_all);
}

// A line without what differs between machines and runs: numbers, digests, libraries, who waited.
std::string masked(std::string line) {
  for (const auto& [what, by] :
       {std::pair{"  [0-9]+% waiting( for replica [0-9]+)?", ""}, std::pair{"[0-9a-f]{64}", "#"},
        std::pair{"[0-9]+([.,:][0-9]+)*( ([KMG]i)?B)?", "#"},
        std::pair{"math threads", "math thread"}, std::pair{"LibTorch .*", "LibTorch"},
        std::pair{"[ \t]+", " "}}) {
    line = std::regex_replace(line, std::regex(what), by);
  }
  return line;
}

// Whether `out` has the lines, in their order. "…" stands for any others.
void check_shown(const std::vector<std::string>& shown, const std::string& out) {
  std::vector<std::string> lines = lines_of(out);
  std::ranges::transform(lines, lines.begin(), masked);
  auto from = lines.begin();
  for (const std::string& line : shown) {
    if (line == "…") continue;
    INFO("the page shows: " << line);
    from = std::find(from, lines.end(), masked(line));
    REQUIRE(from != lines.end());
    ++from;
  }
}

}  // namespace

TEST_CASE("a folder of pictures is trained on by the page's YAML alone") {
  const TemporaryFolder folder;
  write_pictures(folder);
  folder.write("pictures.yaml", read_page("trainers/README.md").showing("pictures.yaml").text);
  must_train(folder.path(), Flags{"--config", "pictures.yaml", "--output", "run"} +
                                // Shorter, and without what makes left and right alike.
                                set("model.depth=8 data.batch_size=8 data.flip=false "
                                    "trainer.epochs=3 trainer.eval_every=5"));
  const auto result = result_of(folder.path() / "run");
  CHECK(result["validation"].contains("accuracy"));
  CHECK(fs::exists(folder.path() / "run/checkpoints/best"));
  CHECK(result["eval"]["accuracy"] > 0.9);
}

TEST_CASE("the page's config for few pictures learns them, as it is written") {
  const TemporaryFolder folder;
  write_few(folder);
  folder.write("few.yaml", read_page("trainers/README.md").showing("few_pictures.yaml").text);
  const Ended run = must_train(folder.path(), {"--config", "few.yaml", "--output", "run"});
  CHECK_THAT(run.out, !ContainsSubstring("at its end alone"));
  CHECK(result_of(folder.path() / "run")["validation"]["accuracy"] == 1);
  CHECK(result_of(folder.path() / "run")["best"]["step"] > 0);
}

TEST_CASE("the example with categories and gaps reaches what its head says") {
  const TemporaryFolder folder;
  fs::create_directory_symlink(fs::path(LOCKSTEP_SOURCE_DIR) / "configs",
                               folder.path() / "configs");
  must_train(folder.path(), {"--config", "configs/penguins.yaml", "--output", "run"});
  CHECK(result_of(folder.path() / "run")["eval"]["accuracy"] >= 0.98);
}

TEST_CASE("the pages' commands of train do and print what the pages show") {
  int commands = 0;
  for (const std::string& name : pages_of("train")) {
    const TemporaryFolder folder;
    prepare(folder);
    const Page page = read_page(name);
    for (const PageBlock& block : page.blocks) {
      if (!block.file().empty()) folder.write(block.file(), block.text);
      for (const PageCommand& command : commands_of(block)) {
        if (!command.words.starts_with("./trainers/run.sh")) continue;
        INFO(name << ": " << command.words);
        const Ended end = run_program({"/bin/sh", "-c", command.words + " 2>&1"}, folder.path());
        INFO(end.out);
        REQUIRE(end.status == 0);
        check_shown(command.shown, end.out);
        ++commands;
      }
    }
    if (name != "trainers/README.md") continue;
    // What it shows of a file, and of a run's folder.
    const std::string header = lines_of(read_text(folder.path("predictions.csv")))[0];
    CHECK_THAT(page.text, ContainsSubstring("\n" + header + "\n"));
    for (const auto& entry : fs::directory_iterator(folder.path("runs/mlp"))) {
      std::string file = entry.path().filename();
      if (fs::is_directory(entry)) file += "/";
      if (file.starts_with(telemetry::kEventFileBegin)) file = str(telemetry::kEventFileBegin, "*");
      INFO(file);
      CHECK_THAT(page.text, ContainsSubstring("| `" + file + "` |"));
    }
  }
  CHECK(commands > 20);
}

TEST_CASE("the page's parts of a config are read") {
  const TemporaryFolder folder;
  int parts = 0;
  for (const PageBlock& block : read_page("trainers/README.md").blocks) {
    if (block.language != "yaml" || !block.file().empty()) continue;
    folder.write("part.yaml",
                 "model: {name: mlp, hidden: [8]}\ndata: {name: synthetic}\n" + block.text);
    const Ended end = train(folder.path(), {"--config", "part.yaml", "--print-config"});
    INFO(block.text << end.err);
    CHECK(end.status == 0);
    ++parts;
  }
  CHECK(parts == 1);
}

TEST_CASE("the page has every section of train's keys") {
  const TemporaryFolder folder;
  const std::string page = read_page("trainers/README.md").text;
  const Ended end = train(folder.path(), {"keys"});
  REQUIRE(end.status == 0);
  int keys = 0;
  for (const std::string& line : lines_of(end.out)) {
    std::smatch key;
    if (!std::regex_search(line, key, std::regex("^([a-z]+)\\.([a-z_]+):"))) continue;
    ++keys;
    CHECK_THAT(page, ContainsSubstring("\n| `" + key[1].str() + "` | "));
  }
  CHECK(keys > 60);
}
