// Pictures that can't be decoded, in train and its commands.

#include <cstdint>
#include <filesystem>
#include <string>

#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/formats/sample_files.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/train_in_fork.h"
#include "tests/train/train_program.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

namespace fs = std::filesystem;

std::string picture(std::uint8_t gray) {
  std::string rows;
  for (int y = 0; y < 4; ++y)
    rows += std::string(1, '\0') + std::string(4, static_cast<char>(gray));
  return png_file({.width = 4, .height = 4, .color_type = 0}, rows);
}

const std::string kJob =
    "model: {name: linear}\n"
    "data: {name: image_folder, root: pictures, height: 4, width: 4, channels: 1, batch_size: 2}\n"
    "optimizer: {name: sgd, lr: 0.1}\n"
    "parallel: {replicas: 2}\n"
    "trainer: {epochs: 3}\n";

// Two classes, dark and light; of three sets, of which two have damaged pictures.
struct Pictures {
  Pictures() {
    folder.write("job.yaml", kJob);
    for (const auto& [set, count] : {std::pair{"train", 5}, {"val", 2}, {"test", 2}}) {
      for (const std::string name : {"dark", "light"}) {
        const std::string place = str("pictures/", set, "/", name, "/");
        fs::create_directories(folder.path(place));
        for (int i = 0; i < count; ++i) {
          const int gray = (name == "dark" ? 20 : 200) + 5 * i;
          folder.write(str(place, i, ".png"), picture(static_cast<std::uint8_t>(gray)));
        }
      }
    }
  }
  void damage() const {
    folder.write("pictures/train/dark/1a.png", "");
    folder.write("pictures/train/light/4.png", picture(1).substr(0, 50));
    folder.write("pictures/test/dark/0.png", "no picture");
  }
  [[nodiscard]] Ended run(const Flags& flags) const {
    return train(folder.path(), Flags{"--config", "job.yaml"} + flags);
  }
  [[nodiscard]] nlohmann::json result(const std::string& run) const {
    return read_json(folder.path() / run / "result.json");
  }

  TemporaryFolder folder;
};

const Flags kSkip = set("data.on_damaged=skip");

}  // namespace

TEST_CASE("damaged pictures that are skipped are named, and the run is as if they were not there") {
  const Pictures job;
  job.folder.write("pictures/train/light/4.png", "");
  fs::remove(job.folder.path("pictures/train/light/4.png"));
  fs::remove(job.folder.path("pictures/test/dark/0.png"));
  REQUIRE(job.run({"--output", "whole"}).status == 0);
  const auto digest = job.result("whole")["parameters_sha256"];
  job.damage();

  const Ended stopped = job.run({"--output", "stopped"});
  CHECK(stopped.status == 2);
  CHECK_THAT(stopped.err, ContainsSubstring(".png'"));

  for (const std::string launch : {"processes", "threads"}) {
    const Ended end = job.run(kSkip + Flags{"--output", launch, "--launch", launch});
    INFO(end.err);
    REQUIRE(end.status == 0);
    CHECK_THAT(
        end.err,
        ContainsSubstring(
            "lockstep: warning: image_folder: of 11 pictures in 'pictures/train' 2 are damaged "
            "and left out, as data.on_damaged: skip says: dark/1a.png, light/4.png; train "
            "check says what is wrong with each\n") &&
            ContainsSubstring("of 4 pictures in 'pictures/test' 1 is damaged and left out, as "
                              "data.on_damaged: skip says: dark/0.png;") &&
            ContainsSubstring("lockstep: data: train 9 samples (2 damaged are left out), "
                              "validation 4 samples, test 3 samples (1 damaged is left out)\n"));
    CHECK(job.result(launch)["parameters_sha256"] == digest);
    CHECK(job.result(launch)["eval"] == job.result("whole")["eval"]);
  }
  // Workers that are the program started again take the launcher's list.
  const Ended again =
      run_program(Flags{"/usr/bin/env", "LD_PRELOAD=" SECOND_THREAD} +
                      train_command(Flags{"--config", "job.yaml", "--output", "again"} + kSkip +
                                    set("checkpoint=none")),
                  job.folder.path());
  INFO(again.err);
  REQUIRE(again.status == 0);
  CHECK(job.result("again")["parameters_sha256"] == digest);
  const std::size_t first = again.err.find("2 are damaged");
  REQUIRE(first != std::string::npos);
  CHECK(again.err.find("2 are damaged", first + 1) == std::string::npos);
}

TEST_CASE("a resumed run skips the same pictures, or says which have changed") {
  const Pictures job;
  job.damage();
  const Flags flags = kSkip + Flags{"--output", "run"};
  REQUIRE(job.run(flags + set("trainer.epochs=1")).status == 0);
  const Ended longer = job.run(flags + Flags{"--resume", "auto"});
  INFO(longer.err);
  REQUIRE(longer.status == 0);
  REQUIRE(job.run(kSkip + Flags{"--output", "whole"}).status == 0);
  CHECK(job.result("run")["parameters_sha256"] == job.result("whole")["parameters_sha256"]);

  job.folder.write("pictures/train/dark/1a.png", picture(30));
  job.folder.write("pictures/train/light/2.png", "");
  const Ended changed = job.run(flags + Flags{"--resume", "auto"} + set("trainer.epochs=4"));
  CHECK(changed.status == 2);
  CHECK_THAT(changed.err,
             ContainsSubstring("the training set of 9 samples has other contents: light/2.png is "
                               "damaged now, dark/1a.png is no longer among the damaged"));
  // With stop the damaged ones count as samples.
  const Ended stop = job.run(Flags{"--output", "run", "--resume", "auto"});
  CHECK(stop.status == 2);
  CHECK_THAT(stop.err, ContainsSubstring("the training set had 9 samples and has 11"));
}

TEST_CASE("train eval skips as its run did") {
  const Pictures job;
  job.damage();
  REQUIRE(job.run(kSkip + Flags{"--output", "run"}).status == 0);
  const Ended eval = train(job.folder.path(), {"eval", "--checkpoint", "run/checkpoints/latest"});
  INFO(eval.err);
  CHECK(eval.status == 0);
  CHECK_THAT(eval.err, ContainsSubstring("of 4 pictures in 'pictures/test' 1 is damaged"));
  const Ended stop =
      train(job.folder.path(),
            Flags{"eval", "--checkpoint", "run/checkpoints/latest"} + set("data.on_damaged=stop"));
  CHECK(stop.status == 2);
  CHECK_THAT(stop.err, ContainsSubstring("pictures/test/dark/0.png"));
}
