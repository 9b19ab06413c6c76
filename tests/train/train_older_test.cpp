// Runs that an older version began.

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/formats/sample_files.h"
#include "tests/support/ended.h"
#include "tests/train/same_run.h"
#include "tests/train/train_in_fork.h"
#include "tests/train/train_program.h"
#include "trainers/bench/testing/temporary_folder.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

namespace fs = std::filesystem;

// Takes keys out of the config that a checkpoint records: a version without them has saved it.
void forget_keys(storage::Manifest& manifest, const std::set<std::string>& keys) {
  std::string text;
  std::set<std::string> forgotten;
  for (const std::string& line : lines_of(manifest.texts.at("config"))) {
    const std::size_t begin = line.find_first_not_of(' ');
    const std::string key = line.substr(begin, line.find(':') - begin);
    if (begin == 2 && keys.contains(key)) {
      forgotten.insert(key);
    } else {
      text += line + "\n";
    }
  }
  REQUIRE(forgotten == keys);
  manifest.texts["config"] = text;
}

// A run of 8 steps whose defaults were others, as `then` says with keys, goes on after 4 of them
// without these keys.
struct OlderRun {
  TemporaryFolder folder{};
  std::string config;
  std::string then;
  std::set<std::string> younger{};  // the keys that its version did not have

  [[nodiscard]] Ended run(const std::string& output, const std::string& keys,
                          const Flags& flags = {}) const {
    folder.write("job.yaml", config);
    return train(folder.path(),
                 Flags{"--config", "job.yaml", "--output", output} + set(keys) + flags);
  }
  void must_run(const std::string& output, const std::string& keys) const {
    require_status(run(output, keys), 0);
  }
  // What it says of what stays as it was. The older version chose one more math thread.
  [[nodiscard]] std::vector<std::string> lines_of_resume() const {
    must_run("whole", then + " trainer.steps=8");
    must_run("run", then + " trainer.steps=4");
    rewrite_manifest(folder.path() / "run/checkpoints/latest", [&](storage::Manifest& manifest) {
      forget_keys(manifest, younger);
      ++manifest.counts.at("threads_per_replica");
    });
    const Ended end = run("run", "trainer.steps=8", {"--resume", "auto"});
    require_status(end, 0);
    check_same(folder.path() / "run", folder.path() / "whole");
    return lines_with(" stays ", end.out);
  }
  [[nodiscard]] std::int64_t usual_threads() const {
    return result_of(folder.path() / "whole")["threads_per_replica"];
  }
  [[nodiscard]] std::string threads_line() const {
    return str("  parallel.threads_per_replica stays ", usual_threads() + 1,
               ", as when the run began; this host would choose ", usual_threads());
  }
};

const std::string kAsBegun = ", as it was when the run began";

}  // namespace

TEST_CASE("a run of an older version keeps its defaults for pictures and averages, and says so") {
  const OlderRun older{
      .config =
          "model: {name: linear}\n"
          "data: {name: image_folder, root: pictures, height: 2, width: 2, channels: 1, "
          "batch_size: 2}\n"
          "optimizer: {name: sgd, lr: 0.5}\n"
          "parallel: {replicas: 1}\n"
          "trainer: {ema_decay: 0.9, eval_every: 4, log_every: 4}\n",
      .then = "data.exif=false data.crop_rounding=down trainer.ema_warmup=false",
      .younger = {"exif", "crop_rounding", "ema_warmup"}};
  // Five columns, of which the middle is taken; upright they are five rows.
  for (const int value : {10, 60, 110}) {
    for (const std::string part : {"train", "val"}) {
      for (const std::string kind : {"a", "b"}) {
        std::string rows;
        for (int row = 0; row < 2; ++row) {
          rows += '\0';
          for (int column = 0; column < 5; ++column) {
            rows += static_cast<char>(value + (kind == "a" ? 5 : 11 - 3 * row) * column);
          }
        }
        const fs::path file = older.folder.path() / "pictures" / part / kind / str(value, ".png");
        fs::create_directories(file.parent_path());
        write_text(file, png_file({.width = 5, .height = 2, .color_type = 0}, rows,
                                  value == 60 ? png_chunk("eXIf", exif_data(6)) : ""));
      }
    }
  }
  const std::vector<std::string> lines = older.lines_of_resume();
  CHECK(lines == std::vector<std::string>{"  data.exif stays false" + kAsBegun,
                                          "  data.crop_rounding stays down" + kAsBegun,
                                          "  trainer.ema_warmup stays false" + kAsBegun,
                                          older.threads_line()});
  // Each of them makes another run.
  const auto outcome = [&](const std::string& run) {
    const auto result = result_of(older.folder.path() / run);
    return std::pair(result["parameters_sha256"], result["validation"]);
  };
  for (const std::string key :
       {"data.exif=true", "data.crop_rounding=even", "trainer.ema_warmup=true"}) {
    INFO(key);
    const std::string output = "with " + key;
    older.must_run(output, older.then + " trainer.steps=8 " + key);
    CHECK(outcome(output) != outcome("whole"));
  }
}

TEST_CASE("a run of an older version reads its table as then, and says nothing of averages") {
  const OlderRun older{.config =
                           "model: {name: linear}\n"
                           "data: {name: csv, file: table.csv, test_file: table.csv, target: kind, "
                           "task: classification, batch_size: 2}\n"
                           "optimizer: {name: sgd, lr: 0.5}\n"
                           "parallel: {replicas: 1}\n"
                           "trainer: {eval_every: 4, log_every: 4}\n",
                       .then = "data.missing_values=[]",
                       .younger = {"missing_values", "ema_warmup"}};
  older.folder.write("table.csv", "x,kind\n1,EU\n2,NA\n3,EU\n4,NA\n5,EU\n");
  const std::vector<std::string> lines = older.lines_of_resume();
  CHECK(lines == std::vector<std::string>{"  data.missing_values stays []" + kAsBegun,
                                          older.threads_line()});
  CHECK_THAT(older.run("new", "trainer.steps=8").err, ContainsSubstring("it has 2 missing values"));
}
