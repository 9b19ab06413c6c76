#include <filesystem>
#include <string>

#include <sys/stat.h>

#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/support/ended.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/train_in_fork.h"
#include "tests/train/train_program.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

namespace fs = std::filesystem;

// A run on a small table, in a folder that goes away.
class CopiedRun {
 public:
  CopiedRun() {
    std::string table = "x,y\n";
    for (int i = 0; i < 80; ++i) table += str(i % 17, ',', 3 * (i % 17) + i % 3, '\n');
    folder_.write("table.csv", table);
    folder_.write("run.yaml",
                  "model: {name: linear}\n"
                  "data: {name: csv, file: table.csv, target: y, batch_size: 8, validation: 0.2}\n"
                  "optimizer: {name: adam, lr: 0.01}\n"
                  "parallel: {replicas: 2}\n"
                  "trainer: {log_every: 5, eval_every: 5}\n"
                  "checkpoint: {every: 5, keep: 2, best: loss}\n");
    for (const char* run : {"whole", "run"})
      require_done(to_step(run == std::string("run") ? 10 : 20, run, {}));
  }

  [[nodiscard]] Ended to_step(int steps, const std::string& output, const Flags& more) const {
    return call(Flags{"--config", "run.yaml", "--output", output} +
                set(str("trainer.steps=", steps)) + more);
  }
  [[nodiscard]] Ended call(const Flags& flags) const { return train(folder_.path(), flags); }
  [[nodiscard]] fs::path path(const std::string& name) const { return folder_.path() / name; }

  // A new copy of the run, as `cp -rL` makes it, or with links.
  [[nodiscard]] std::string copied(fs::copy_options more = fs::copy_options::none) {
    const std::string name = str("copy-", ++copies_);
    fs::copy(path("run"), path(name), fs::copy_options::recursive | more);
    return name;
  }

  static void require_done(const Ended& ended) { require_status(ended, 0); }

 private:
  TemporaryFolder folder_;
  int copies_ = 0;
};

// What every command does with a checkpoint that is named so.
void use(const CopiedRun& runs, const std::string& checkpoint, const std::string& table) {
  INFO(checkpoint);
  CopiedRun::require_done(runs.call({"inspect", checkpoint}));
  CopiedRun::require_done(runs.call({"eval", "--quiet", "--checkpoint", checkpoint}));
  const Ended predicted = runs.call({"predict", "--checkpoint", checkpoint, "--split", "train"});
  CopiedRun::require_done(predicted);
  CHECK(predicted.out == table);
  const fs::path exported = runs.path("exported.safetensors");
  fs::remove(exported);
  CopiedRun::require_done(
      runs.call({"export", "--checkpoint", checkpoint, "--to", exported.string()}));
  CopiedRun::require_done(
      runs.to_step(1, "none", {"--dry-run", "--set", "model.init_from=" + checkpoint}));
}

}  // namespace

TEST_CASE("a run goes on from a copy that has followed links, and in it once these are away") {
  CopiedRun runs;
  const std::string copy = runs.copied();
  const fs::path checkpoints = runs.path(copy) / "checkpoints";
  REQUIRE(fs::is_directory(fs::symlink_status(checkpoints / "latest")));
  CHECK_THAT(runs.call({"inspect", copy}).out, ContainsSubstring("2 checkpoints"));
  const std::string latest = copy + "/checkpoints/latest";
  CopiedRun::require_done(runs.to_step(20, "elsewhere", {"--resume", latest}));
  CHECK(digest_of(runs.path("elsewhere")) == digest_of(runs.path("whole")));

  const auto files = [&] {
    return read_text(runs.path(copy) / "metrics.jsonl") +
           read_text(runs.path(copy) / "result.json");
  };
  const std::string before = files();
  for (const std::string& resume : {std::string("auto"), latest}) {
    const Ended ended = runs.to_step(20, copy, {"--resume", resume});
    check_status(ended, 2);
    CHECK_THAT(ended.err, ContainsSubstring(latest + " is a folder, as copies that follow links"));
  }
  CHECK(files() == before);
  for (const char* link : {"latest", "best"}) fs::remove_all(checkpoints / link);
  CopiedRun::require_done(runs.to_step(20, copy, {"--resume", "auto"}));
  CHECK(digest_of(runs.path(copy)) == digest_of(runs.path("whole")));
  CHECK(fs::read_symlink(checkpoints / "latest") == "step-00000020");
  CHECK(fs::is_symlink(checkpoints / "best"));
}

TEST_CASE("every command takes latest as a link, a copy or a file that names the step") {
  CopiedRun runs;
  const Ended table =
      runs.call({"predict", "--checkpoint", "run/checkpoints/step-00000010", "--split", "train"});
  CopiedRun::require_done(table);
  const std::string copy = runs.copied();
  const std::string latest = copy + "/checkpoints/latest";
  use(runs, latest, table.out);
  fs::remove_all(runs.path(latest));
  write_text(runs.path(latest), "step-00000010\n");
  use(runs, latest, table.out);
  fs::remove(runs.path(latest));
  fs::create_directory_symlink(runs.path("run") / "checkpoints/latest", runs.path(latest));
  use(runs, latest, table.out);

  const auto refused = [&](const Flags& flags, const std::string& reason) {
    const Ended ended = runs.call(flags);
    check_status(ended, 2);
    CHECK_THAT(ended.err, ContainsSubstring(latest + reason));
  };
  const auto all_refuse = [&](const std::string& reason) {
    refused({"inspect", latest}, reason);
    refused({"eval", "--checkpoint", latest}, reason);
    refused({"export", "--checkpoint", latest, "--to", "x.safetensors"}, reason);
    refused(
        {"--config", "run.yaml", "--resume", latest, "--output", "new", "--set", "trainer.steps=1"},
        reason);
    refused({"--config", "run.yaml", "--dry-run", "--set", "model.init_from=" + latest, "--set",
             "trainer.steps=1"},
            reason);
  };
  fs::remove(runs.path(latest));
  REQUIRE(::mkfifo(runs.path(latest).c_str(), 0600) == 0);
  all_refuse(" is no ");
  fs::remove(runs.path(latest));
  fs::create_symlink("latest", runs.path(latest));
  all_refuse(" can't be read: Too many levels of symbolic links");
}

TEST_CASE("a FIFO in place of a file of the run ends a resume at once") {
  CopiedRun runs;
  for (const std::string file :
       {"metrics.jsonl", "config.yaml", "result.json", "checkpoints/latest", "checkpoints/best"}) {
    const std::string copy = runs.copied(fs::copy_options::copy_symlinks);
    fs::remove_all(runs.path(copy) / file);
    REQUIRE(::mkfifo((runs.path(copy) / file).c_str(), 0600) == 0);
    const Ended ended = runs.to_step(20, copy, {"--resume", "auto"});
    INFO(file << ": " << ended.err);
    CHECK(ended.status == 2);
    CHECK_THAT(ended.err, ContainsSubstring(fs::path(file).filename()));
  }
}

TEST_CASE("what a run writes is for whom the umask says") {
  const mode_t before = ::umask(027);
  CopiedRun runs;
  ::umask(before);
  for (const auto& entry : fs::recursive_directory_iterator(runs.path("run"))) {
    if (entry.is_symlink()) continue;
    INFO(entry.path().string());
    const auto mode = static_cast<unsigned>(entry.status().permissions() & fs::perms::mask);
    CHECK(mode == (entry.is_directory() ? 0750 : 0640));
  }
}
