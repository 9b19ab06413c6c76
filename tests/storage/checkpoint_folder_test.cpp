#include "framework/storage/checkpoint_folder.h"

#include <csignal>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <sys/resource.h>
#include <sys/stat.h>

#include "framework/base/errors.h"
#include "framework/storage/checkpoint_reader.h"
#include "tests/catch.h"
#include "tests/storage/sample_checkpoint.h"
#include "tests/support/files.h"
#include "tests/support/message_of.h"
#include "tests/support/refuse_calls.h"

using namespace lockstep;
using storage::CheckpointFolder;
using storage::CheckpointReader;
using storage::Manifest;
namespace fs = std::filesystem;
using Steps = std::vector<std::int64_t>;

namespace {

// A folder of checkpoints with samples of these steps.
class SavedSteps : private testing::TemporaryFolder, public CheckpointFolder {
 public:
  explicit SavedSteps(const Steps& steps = {}) : CheckpointFolder(TemporaryFolder::path()) {
    add(steps);
  }
  void add(const Steps& steps) const {
    for (const std::int64_t step : steps) testing::publish_sample(*this, step);
  }
  using TemporaryFolder::path;
  using TemporaryFolder::write;
};

unsigned mode_of(const fs::path& path) {
  return static_cast<unsigned>(fs::status(path).permissions() & fs::perms::mask);
}

std::string failure_of(const std::function<void()>& call) {
  return testing::message_of<Error>(call);
}

void verify(const CheckpointFolder& folder, std::int64_t step) {
  CheckpointReader(folder.of_step(step)).verify();
}

// Replaces `link` as a copy that follows links does.
void copy_followed(const fs::path& link) {
  const fs::path target = fs::canonical(link);
  fs::remove(link);
  fs::copy(target, link, fs::copy_options::recursive);
}

void run_in_thread(const std::function<void()>& work) {
  std::string failure;
  std::thread([&] { failure = failure_of(work); }).join();
  CHECK(failure == "no error");
}

}  // namespace

TEST_CASE("a checkpoint is published whole, and latest leads there") {
  const testing::TemporaryFolder home;
  const CheckpointFolder folder(home.path() / "run" / "checkpoints/");
  CHECK_THROWS_WITH(folder.begin(12), Catch::Matchers::EndsWith("No such file or directory"));
  fs::create_directory(home.path() / "run");
  CHECK(folder.steps().empty());
  CHECK(folder.best() == std::nullopt);
  CHECK(folder.of_step(12) == home.path() / "run" / "checkpoints" / "step-00000012");
  CHECK(folder.of_step(123456789012).filename() == "step-123456789012");
  Manifest manifest = testing::sample_manifest(12);
  const mode_t before = ::umask(027);
  folder.begin(12);
  testing::write_files(manifest, folder.unfinished(12));
  testing::write_text(folder.unfinished(12) / "stale", "of a killed writer");
  fs::create_directories(folder.unfinished(12) / "more" / "stale");
  CHECK(folder.steps().empty());
  folder.publish(manifest);
  ::umask(before);
  CHECK(folder.steps() == Steps{12});
  CHECK(CheckpointReader(folder.of_step(12)).manifest() == manifest);
  CHECK_NOTHROW(verify(folder, 12));
  CHECK(testing::entries(folder.of_step(12)) == 3);
  CHECK(fs::read_symlink(folder.path() / "latest") == "step-00000012");
  CHECK(testing::entries(folder.path()) == 2);

  CHECK(mode_of(folder.path()) == 0750);
  CHECK(mode_of(folder.of_step(12)) == 0750);
  CHECK(mode_of(folder.of_step(12) / "manifest.json") == 0640);
}

TEST_CASE("a checkpoint of the same step is replaced") {
  const auto replace = [](bool can_exchange) {
    const SavedSteps folder({3, 5});
    Manifest other = testing::sample_manifest(5);
    other.texts["new"] = "yes";
    other.files[0].name = "renamed";
    run_in_thread([&] {
      if (!can_exchange) testing::refuse_exchange();
      folder.begin(5);
      testing::write_files(other, folder.unfinished(5));
      folder.publish(other);
    });
    CHECK(CheckpointReader(folder.path() / "latest").manifest() == other);
    CHECK_NOTHROW(verify(folder, 5));
    CHECK(testing::entries(folder.of_step(5)) == 3);
    CHECK(testing::entries(folder.path()) == 3);
  };
  replace(true);
  replace(false);
}

TEST_CASE("the steps of a folder are those of its checkpoints") {
  const SavedSteps folder({7, 0, 1'000'000'000, 20});
  folder.begin(30);
  for (const char* name : {"step-", "step-8", "step-00000008x", "step--0000008", "step-000000008",
                           "step-99999999999999999999", "other"}) {
    fs::create_directory(folder.path() / name);
  }
  (void)folder.write("step-00000009", "a file");
  fs::create_directory_symlink("step-00000007", folder.path() / "step-00000010");
  CHECK(folder.steps() == Steps{1'000'000'000, 20, 7, 0});
  CHECK(fs::read_symlink(folder.path() / "latest") == "step-00000020");
}

TEST_CASE("best leads to the checkpoint that was set last, if it is there") {
  const SavedSteps folder({1, 2, 3});
  CHECK(folder.best() == std::nullopt);
  folder.set_best(2);
  CHECK(folder.best() == 2);
  CHECK(fs::read_symlink(folder.path() / "best") == "step-00000002");
  folder.set_best(3);
  CHECK(folder.best() == 3);
  CHECK(failure_of([&] { folder.set_best(4); }) ==
        folder.path("step-00000004") + " can't be linked to: No such file or directory");
  CHECK(folder.best() == 3);
  fs::remove_all(folder.of_step(3));
  CHECK(folder.best() == std::nullopt);
  fs::remove(folder.path() / "best");
  fs::create_directory_symlink(folder.of_step(1), folder.path() / "best");  // by a user
  CHECK(folder.best() == 1);
  fs::remove(folder.path() / "best");
  fs::create_directory_symlink("/", folder.path() / "best");
  CHECK(folder.best() == std::nullopt);
  fs::remove(folder.path() / "best");
  fs::create_symlink("best", folder.path() / "best");
  CHECK_THAT(failure_of([&] { (void)folder.best(); }),
             ContainsSubstring(folder.path("best") + " can't be read: "));
}

TEST_CASE("old checkpoints are removed, but not the best nor the latest") {
  const SavedSteps folder;
  folder.prune(1);
  folder.add({1, 2, 3, 4, 5});
  folder.prune(5);
  CHECK(folder.steps() == Steps{5, 4, 3, 2, 1});
  folder.prune(4);
  CHECK(folder.steps() == Steps{5, 4, 3, 2});
  folder.set_best(2);
  folder.prune(2);
  CHECK(folder.steps() == Steps{5, 4, 2});
  folder.set_best(5);
  folder.prune(2);
  CHECK(folder.steps() == Steps{5, 4});
  // A run goes on from an earlier step.
  folder.add({2, 3});
  folder.prune(1);
  CHECK(folder.steps() == Steps{5, 3});
  CHECK(testing::entries(folder.path()) == 4);
  CHECK_NOTHROW(verify(folder, 3));
  CHECK_THROWS_AS(folder.prune(0), ValueError);
  CHECK(folder.steps() == Steps{5, 3});
}

TEST_CASE("what killed writers have left is swept, and nothing else") {
  const SavedSteps folder;
  CheckpointFolder(folder.path() / "none").sweep();
  testing::publish_sample(folder, 1);
  folder.set_best(1);
  (void)folder.write(".hidden.tmp", "a user's");
  (void)folder.write("notes", "a user's");
  const std::ptrdiff_t before = testing::entries(folder.path());
  folder.begin(2);
  testing::write_text(folder.unfinished(2) / "manifest.json", "{");
  fs::create_directories(folder.path() / ".step-00000001.old.tmp" / "inside");
  fs::create_symlink("step-00000001", folder.path() / ".latest.tmp");
  fs::create_symlink("nowhere", folder.path() / ".best.tmp");
  folder.sweep();
  CHECK(testing::entries(folder.path()) == before);
  CHECK(folder.best() == 1);
  CHECK_NOTHROW(verify(folder, 1));
}

TEST_CASE("what killed writers have left is in nobody's way") {
  const SavedSteps folder({1, 2});
  fs::create_directories(folder.path() / ".step-00000001.old.tmp" / "inside");
  fs::create_directories(folder.path() / ".step-00000003.old.tmp" / "inside");
  fs::create_symlink("nowhere", folder.path() / ".latest.tmp");
  fs::create_directories(folder.path() / ".best.tmp" / "inside");
  testing::publish_sample(folder, 3);
  folder.set_best(3);
  folder.prune(1);
  CHECK(folder.steps() == Steps{3});
  CHECK(testing::entries(folder.path()) == 3);
}

TEST_CASE("checkpoints after a step are set aside, and latest leads to it") {
  const SavedSteps folder;
  CHECK(folder.set_aside_after(0) == 0);
  for (const std::int64_t step : {1, 2, 3}) testing::publish_sample(folder, step);
  CHECK(folder.set_aside_after(3) == 0);
  CHECK(folder.set_aside_after(1) == 2);
  CHECK(folder.steps() == Steps{1});
  CHECK(fs::read_symlink(folder.path() / "latest") == "step-00000001");
  CHECK_NOTHROW(CheckpointReader(folder.path() / "aside-step-00000003").verify());
  testing::publish_sample(folder, 3);
  folder.set_best(3);
  CHECK(folder.set_aside_after(1) == 1);
  CHECK_FALSE(fs::exists(fs::symlink_status(folder.path() / "best")));
  CHECK(testing::entries(folder.path()) == 4);
  testing::publish_sample(folder, 2);
  folder.set_best(1);
  CHECK(folder.set_aside_after(1) == 1);
  CHECK(folder.best() == 1);
}

TEST_CASE("a checkpoint that was about to be replaced or removed gets its name back, if whole") {
  const SavedSteps folder;
  for (const std::int64_t step : {1, 2, 3}) {
    testing::publish_sample(folder, step);
    fs::rename(folder.of_step(step),
               folder.path() / (".step-0000000" + std::to_string(step) + ".old.tmp"));
  }
  testing::publish_sample(folder, 2);  // the one that has replaced it
  fs::remove(folder.path() / ".step-00000003.old.tmp" / "manifest.json");
  folder.sweep();
  CHECK(folder.steps() == Steps{2, 1});
  verify(folder, 1);
  CHECK(testing::entries(folder.path()) == 3);  // with latest
}

TEST_CASE("a checkpoint under the name of another step is refused") {
  const SavedSteps folder({1});
  fs::rename(folder.of_step(1), folder.of_step(2));
  CHECK_THAT(failure_of([&] { verify(folder, 2); }),
             ContainsSubstring("step-00000002 has a checkpoint of another step: by "
                               "manifest.json it is of 1"));
  fs::rename(folder.of_step(2), folder.path() / "good");
  CHECK_NOTHROW(CheckpointReader(folder.path() / "good").verify());
  CHECK_THAT(failure_of([&] { CheckpointReader(folder.path()).verify(); }),
             ContainsSubstring("is no checkpoint: it has no manifest.json"));
  fs::remove(folder.path() / "latest");
  fs::create_directory_symlink("good", folder.path() / "latest");
  CHECK_THAT(failure_of([&] { CheckpointReader(folder.path()).verify(); }),
             ContainsSubstring("; did you mean " + folder.path("latest") + "?"));
}

TEST_CASE("several processes begin a checkpoint at once") {
  for (int round = 0; round < 20; ++round) {
    const testing::TemporaryFolder home;
    const CheckpointFolder folder(home.path() / "checkpoints");
    std::vector<std::string> failures(8);
    std::vector<std::thread> threads;
    for (std::string& failure : failures) {
      threads.emplace_back([&] { failure = failure_of([&] { folder.begin(1); }); });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(failures == std::vector<std::string>(8, "no error"));
    CHECK(fs::is_directory(folder.unfinished(1)));
  }
}

TEST_CASE("a folder of checkpoints that can't be written is an error with path and reason") {
  const testing::TemporaryFolder home;
  (void)home.write("file", "x");
  const CheckpointFolder below(home.path() / "file" / "below");
  CHECK(failure_of([&] { below.begin(1); }) ==
        home.path("file/below") + " can't be made: Not a directory");
  CHECK(below.steps().empty());
  const CheckpointFolder file(home.path() / "file");
  CHECK(failure_of([&] { file.begin(1); }) == home.path("file") + " can't be made: File exists");
  CHECK(failure_of([&] { (void)file.steps(); }) ==
        home.path("file") + " can't be read: Not a directory");
  CHECK_THAT(failure_of([&] { CheckpointFolder(home.path(std::string(300, 'x'))).begin(1); }),
             ContainsSubstring("can't be made: File name too long"));
  const CheckpointFolder folder(home.path());
  (void)home.write(".step-00000001.tmp", "in the way");
  CHECK(failure_of([&] { folder.begin(1); }) ==
        home.path(".step-00000001.tmp") + " can't be made: File exists");
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { folder.begin(-1); }, [&] { folder.set_best(-1); },
           [&] { folder.publish({.step = -1}); }, [&] { (void)folder.of_step(-1); }}) {
    CHECK_THROWS_AS(call(), ValueError);
  }
}

TEST_CASE("a checkpoint that is not whole is not published") {
  const SavedSteps folder;
  const Manifest old = testing::publish_sample(folder, 1);
  Manifest manifest = testing::sample_manifest(1);
  manifest.texts["new"] = "yes";
  const auto refused = [&](const std::string& part) {
    CHECK_THAT(failure_of([&] { folder.publish(manifest); }), ContainsSubstring(part));
    CHECK(CheckpointReader(folder.path() / "latest").manifest() == old);
    CHECK_NOTHROW(verify(folder, 1));
  };
  const std::string path = folder.unfinished(1).string();
  refused(path + " can't be read: No such file or directory");
  folder.begin(1);
  testing::write_files(manifest, folder.unfinished(1));
  fs::remove(folder.unfinished(1) / "replica-1.safetensors");
  refused(path + "/replica-1.safetensors: No such file or directory");
  testing::write_text(folder.unfinished(1) / "replica-1.safetensors", "cut");
  refused(path + "/replica-1.safetensors has 3 bytes");
  fs::remove(folder.unfinished(1) / "manifest.json");
  fs::create_directories(folder.unfinished(1) / "manifest.json" / "inside");
  testing::write_files(manifest, folder.unfinished(1));

  // A limit on the size of files acts like a full disk.
  struct rlimit before {};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  struct rlimit little = before;
  little.rlim_cur = 10;
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &little) == 0);
  const std::string message = failure_of([&] { folder.publish(manifest); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK_THAT(message, ContainsSubstring(
                          path + "/manifest.json can't be written: File too large; files may"));
  CHECK(CheckpointReader(folder.path() / "latest").manifest() == old);

  folder.publish(manifest);
  CHECK(CheckpointReader(folder.path() / "latest").manifest() == manifest);
  CHECK(testing::entries(folder.path()) == 2);
}

TEST_CASE("folders latest and best are read as checkpoints, and nothing takes their place") {
  for (const std::string link : {"latest", "best"}) {
    const SavedSteps folder({1, 2});
    folder.set_best(1);
    copy_followed(folder.path() / link);
    CHECK((link == "best" ? folder.best() : folder.latest()) == std::nullopt);
    for (const auto& call :
         std::vector<std::function<void()>>{[&] { folder.check_links(); }, [&] { folder.begin(3); },
                                            [&] { (void)folder.set_aside_after(1); }}) {
      CHECK_THAT(failure_of(call),
                 Catch::Matchers::StartsWith(folder.path(link) + " is a folder, as copies that "));
    }
    folder.sweep();
    CHECK(folder.steps() == Steps{2, 1});
    CHECK(testing::entries(folder.path()) == 4);
    const CheckpointReader reader(folder.path() / link);
    CHECK(reader.manifest().step == (link == "best" ? 1 : 2));
    CHECK_NOTHROW(reader.verify());
  }
}

TEST_CASE("where a file system has no links, latest and best are files that name a step") {
  const SavedSteps folder;
  run_in_thread([&] {
    testing::refuse_links();
    folder.add({1, 2});
    folder.set_best(1);
    folder.prune(1);
  });
  CHECK(testing::read_text(folder.path() / "latest") == "step-00000002\n");
  CHECK(testing::read_text(folder.path() / "best") == "step-00000001\n");
  CHECK(folder.latest() == 2);
  CHECK(folder.best() == 1);
  CHECK(folder.steps() == Steps{2, 1});
  CHECK(testing::entries(folder.path()) == 4);
  CHECK(CheckpointReader(folder.path() / "latest").folder() ==
        fs::canonical(folder.path()) / "step-00000002");
  CHECK(CheckpointFolder::resolved(folder.path() / "latest/") == folder.of_step(2));
  (void)folder.write("latest", "step-00000001\r\n");  // by another program
  CHECK(folder.latest() == 1);
  (void)folder.write("latest", "step-00000009");
  CHECK(folder.latest() == std::nullopt);
  for (const char* text : {"", "notes", "../step-00000001", "step-00000001/manifest.json"}) {
    (void)folder.write("latest", text);
    CHECK(folder.latest() == std::nullopt);
    CHECK(CheckpointFolder::resolved(folder.path() / "latest") == folder.path() / "latest");
  }
  testing::publish_sample(folder, 3);
  CHECK(fs::read_symlink(folder.path() / "latest") == "step-00000003");
}

TEST_CASE("a name is followed through links and files to a checkpoint's folder") {
  const testing::TemporaryFolder home;
  const CheckpointFolder folder(home.path() / "run");
  fs::create_directory(home.path() / "run");
  testing::publish_sample(folder, 1);
  fs::create_symlink("run/latest", home.path() / "first");
  fs::create_symlink(home.path() / "first", home.path() / "second");
  CHECK(fs::equivalent(CheckpointFolder::resolved(home.path() / "second/"), folder.of_step(1)));
  CHECK(CheckpointFolder::resolved(home.path() / "none") == home.path() / "none");
  CHECK(CheckpointFolder::resolved(folder.path()) == folder.path());
  fs::create_symlink("nowhere", home.path() / "dangling");
  CHECK(CheckpointFolder::resolved(home.path() / "dangling") == home.path() / "nowhere");
  fs::create_symlink("loop", home.path() / "loop");
  for (const char* name : {"loop", "loop/inside"}) {
    CHECK(testing::message_of<DataError>([&] {
            (void)CheckpointFolder::resolved(home.path() / name);
          }) == home.path(name) + " can't be read: Too many levels of symbolic links");
  }
}

TEST_CASE("a FIFO in place of latest or best is an error before a run goes on") {
  for (const char* link : {"latest", "best"}) {
    const SavedSteps folder({1});
    fs::remove(folder.path() / link);
    REQUIRE(::mkfifo(folder.path(link).c_str(), 0600) == 0);
    CHECK(testing::message_of<DataError>([&] { (void)folder.set_aside_after(1); }) ==
          folder.path(link) + " is no folder and no file");
    CHECK(testing::message_of<DataError>([&] { CheckpointReader(folder.path() / link); }) ==
          folder.path(link) + " is no checkpoint: it has no manifest.json");
  }
}

TEST_CASE("a folder of checkpoints that is removed meanwhile is an error with path and reason") {
  const testing::TemporaryFolder home;
  const CheckpointFolder folder(home.path() / "checkpoints");
  Manifest manifest = testing::sample_manifest(1);
  folder.begin(1);
  testing::write_files(manifest, folder.unfinished(1));
  fs::remove_all(folder.path());
  CHECK(failure_of([&] { folder.publish(manifest); }) ==
        folder.unfinished(1).string() + " can't be read: No such file or directory");
  CHECK(failure_of([&] { folder.set_best(1); }) ==
        folder.of_step(1).string() + " can't be linked to: No such file or directory");
  CHECK(folder.steps().empty());
  CHECK_NOTHROW(folder.prune(1));
  CHECK_NOTHROW(folder.sweep());
  testing::publish_sample(folder, 2);
  CHECK(folder.steps() == Steps{2});
}
