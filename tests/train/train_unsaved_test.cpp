#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>

#include <linux/capability.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/formats/sample_files.h"
#include "tests/support/ended.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/train_in_fork.h"
#include "tests/train/train_program.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

namespace fs = std::filesystem;

// 40 steps of two replicas, with a checkpoint of about 600 KB after each ten.
const Flags& job() {
  static const Flags flags =
      Flags{"--config", config_file("fashion_mnist_mlp.yaml"), "--replicas", "2"} +
      Flags{"--output", "run", "--resume", "auto"} +
      set("model.hidden=[64] trainer.steps=40 checkpoint.every=10");
  return flags;
}

void require_done(bool is_done, const std::string& what) {
  if (!is_done) throw std::runtime_error(what + ": " + std::strerror(errno));
}

// In a fork's body, where Catch's macros mean nothing.
void expect(bool holds, const std::string& what, const Ended& end) {
  if (!holds) throw std::runtime_error(what + "\n" + end.out + end.err);
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string digest_of(const Ended& end) {
  const std::size_t at = end.out.find("parameters_sha256:");
  return at == std::string::npos ? "none" : end.out.substr(at, 85);
}

// Runs `body` in a fork, in a folder on a file system of its own with these limits, as root or in a
// namespace of the user's. The folder is mounted on one that is a mount everywhere, so that this
// can be kept from other processes.
void on_small_disk(const std::string& limits, const std::function<void(const fs::path&)>& body) {
  constexpr const char* kFolder = "/dev/shm";
  const Ended end = run_forked([&] {
    const int namespaces = CLONE_NEWNS | (::geteuid() == 0 ? 0 : CLONE_NEWUSER);
    require_done(::unshare(namespaces) == 0, "unshare");
    require_done(::mount("none", kFolder, nullptr, MS_PRIVATE, nullptr) == 0, "mount");
    require_done(::mount("none", kFolder, "tmpfs", 0, limits.c_str()) == 0, "mount");
    body(kFolder);
    return 0;
  });
  INFO(limits << "\n" << end.err);
  CHECK(end.status == 0);
}

// Programs that this fork of the test starts may write only where permissions let them, also as
// root.
void keep_to_permissions() {
  if (::geteuid() != 0) return;
  require_done(::prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0) == 0, "prctl");
}

const std::string& whole_digest() {
  static const std::string digest = [] {
    const TemporaryFolder folder;
    return digest_of(train(folder.path(), job()));
  }();
  return digest;
}

}  // namespace

TEST_CASE("a full disk ends the run or is a warning, and earlier checkpoints remain") {
  REQUIRE(contains(whole_digest(), "parameters_sha256:"));
  for (const std::string limits : {"size=1m", "nr_inodes=16"}) {
    on_small_disk(limits, [&](const fs::path& disk) {
      const Ended end = train(disk, job());
      expect(end.status == 1, "the status is not 1", end);
      expect(contains(end.err, "the checkpoint of step 20 can't be saved: run/checkpoints/") &&
                 contains(end.err, ": No space left on device"),
             "the message is another", end);
      expect(fs::read_symlink(disk / "run/checkpoints/latest") == "step-00000010" &&
                 !has_hidden(disk / "run/checkpoints"),
             "other checkpoints remain", end);
      const Ended again = train(disk, job() + set("checkpoint.save=none"));
      expect(again.status == 0 && contains(again.out, "going on after step 10 ") &&
                 digest_of(again) == whole_digest(),
             "it does not go on", again);
    });
    on_small_disk(limits, [&](const fs::path& disk) {
      const Ended end = train(disk, job() + set("checkpoint.on_error=warn"));
      expect(end.status == 0 && digest_of(end) == whole_digest(), "the run is disturbed", end);
      expect(contains(end.err, "warning: the checkpoint of step 20 can't be saved: "), "no warning",
             end);
      expect(fs::exists(disk / "run/result.json"), "no result", end);
    });
  }
}

TEST_CASE("a run whose last checkpoint can't be saved tells its result first") {
  on_small_disk("size=400k", [&](const fs::path& disk) {
    const Ended end = train(disk, job() + set("checkpoint.every=0"));
    expect(end.status == 1 && digest_of(end) == whole_digest() &&
               contains(end.err, "the checkpoint of step 40 can't be saved: "),
           "it ends otherwise", end);
    expect(fs::exists(disk / "run/result.json"), "no result", end);
  });
}

TEST_CASE("a folder that others own or that is gone is an error with its name") {
  const TemporaryFolder folder;
  const fs::path checkpoints = folder.path() / "run/checkpoints";
  fs::create_directories(checkpoints);
  fs::permissions(checkpoints, fs::perms(0555));
  constexpr uid_t kNobody = 65534;
  if (::geteuid() == 0) REQUIRE(::chown(checkpoints.c_str(), kNobody, kNobody) == 0);
  const Ended end = run_forked([&] {
    keep_to_permissions();
    const Ended unsaved = run_program(train_command(job()), folder.path());
    expect(unsaved.status == 1 &&
               contains(unsaved.err,
                        "the checkpoint of step 10 can't be saved: "
                        "run/checkpoints/.step-00000010.tmp") &&
               contains(unsaved.err, ": Permission denied"),
           "it ends otherwise", unsaved);
    return 0;
  });
  fs::permissions(checkpoints, fs::perms::owner_all);
  check_status(end, 0);
}

TEST_CASE(
    "a folder of checkpoints that becomes read-only or goes in mid-run is an error or a warning") {
  REQUIRE(contains(whole_digest(), "parameters_sha256:"));
  for (const std::string on_error : {"stop", "warn"}) {
    const TemporaryFolder folder;
    const fs::path run = folder.path() / "run";
    const fs::path checkpoints = run / "checkpoints";
    const Ended end = run_forked([&] {
      keep_to_permissions();
      const Flags flags = job() + set("trainer.steps=3000 checkpoint.on_error=" + on_error);
      ChildProgram program(train_command(flags), folder.path());
      require_done(eventually([&] { return fs::exists(checkpoints / "latest"); }), "no checkpoint");
      require_done(::chmod(checkpoints.c_str(), 0500) == 0, "chmod");
      const Ended ended = program.wait();
      require_done(::chmod(checkpoints.c_str(), 0700) == 0, "chmod");
      expect(ended.status == (on_error == "stop" ? 1 : 0), "the status is another", ended);
      expect(contains(ended.err, " can't be saved: run/checkpoints"), "the message is another",
             ended);
      return 0;
    });
    check_status(end, 0);
  }
  const TemporaryFolder folder;
  ChildProgram program(train_command(job() + set("trainer.steps=3000")), folder.path());
  REQUIRE(eventually([&] { return fs::exists(folder.path() / "run/checkpoints/latest"); }));
  fs::rename(folder.path() / "run", folder.path() / "moved");
  const Ended end = program.wait();
  check_status(end, 1);
  CHECK(contains(end.err, "run"));
  CHECK(!fs::exists(folder.path() / "run"));
  CHECK(fs::exists(folder.path() / "moved/checkpoints/latest/manifest.json"));
}

TEST_CASE("a cut picture of the test set ends a run after its steps, which are saved") {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& name, int gray, std::size_t bytes) {
    const std::string rows{'\0', static_cast<char>(gray)};
    folder.write(name, png_file({.color_type = 0}, rows).substr(0, bytes));
  };
  for (int i = 0; i < 8; ++i) {
    for (const std::string set : {"train", "test"}) {
      write(str(set, "/dark/", i, ".png"), i, 1000);
      write(str(set, "/light/", i, ".png"), 200 + i, 1000);
    }
  }
  write("test/light/5.png", 205, 50);
  folder.write("job.yaml",
               "model: {name: linear}\n"
               "data: {name: image_folder, root: ., height: 1, width: 1, channels: 1, batch_size: "
               "2}\nparallel: {replicas: 2}\ntrainer: {steps: 15}\n");
  const Flags flags{"--config", "job.yaml", "--output", "run"};
  for (const bool goes_on : {false, true}) {
    const Ended end = train(folder.path(), goes_on ? flags + Flags{"--resume", "auto"} : flags);
    check_status(end, 2);
    CHECK_THAT(end.err, ContainsSubstring("test/light/5.png"));
    if (goes_on) continue;
    CHECK_THAT(end.err, Catch::Matchers::EndsWith(
                            "\nthe state after step 15 is saved: once the data are mended, "
                            "--output run --resume auto --resume-with-changes goes on\n"));
  }
  // Its size is another then.
  write("test/light/5.png", 205, 1000);
  const Ended end =
      train(folder.path(), flags + Flags{"--resume", "auto", "--resume-with-changes"});
  check_status(end, 0);
  CHECK_THAT(end.out, ContainsSubstring("there is no step left to train") &&
                          ContainsSubstring("step 15: test accuracy "));
  const auto result = result_of(folder.path() / "run");
  const Ended whole =
      train(folder.path(), Flags{"--config", "job.yaml", "--output", "whole", "--quiet"});
  CHECK(whole.status == 0);
  const auto expected = result_of(folder.path() / "whole");
  for (const char* const field : {"steps", "loss", "eval", "parameters_sha256"}) {
    CHECK(result[field] == expected[field]);
  }
  CHECK(train(folder.path(), {"inspect", "run/checkpoints/latest"}).status == 0);
}
