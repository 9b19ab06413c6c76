#include "framework/telemetry/run_folder.h"

#include <atomic>
#include <cstddef>
#include <ctime>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <sys/resource.h>
#include <sys/stat.h>

#include "framework/base/errors.h"
#include "framework/storage/file.h"
#include "tests/catch.h"
#include "tests/support/files.h"
#include "tests/support/refuse_calls.h"

namespace fs = std::filesystem;

namespace lockstep {

using namespace testing;
namespace {

std::time_t local_time(int year, int month, int day, int hour, int minute, int second) {
  std::tm local{};
  local.tm_year = year - 1900;
  local.tm_mon = month - 1;
  local.tm_mday = day;
  local.tm_hour = hour;
  local.tm_min = minute;
  local.tm_sec = second;
  local.tm_isdst = -1;
  return std::mktime(&local);
}

TEST_CASE("a new run folder is named after config and time", "[telemetry]") {
  const TemporaryFolder home;
  const fs::path runs = home.path() / "a" / "runs";
  const std::time_t now = local_time(2024, 3, 9, 7, 5, 1);
  const fs::path folder = new_run_folder("mlp", runs, now);
  CHECK(folder == runs / "mlp-20240309-070501");
  CHECK(fs::is_directory(folder));
}

TEST_CASE("a new run folder is never one that is there", "[telemetry]") {
  const TemporaryFolder home;
  const std::time_t now = local_time(2024, 12, 31, 23, 59, 59);
  CHECK(new_run_folder("x", home.path(), now).filename() == "x-20241231-235959");
  write_text(home.path() / "x-20241231-235959-2", "a file in the way");
  CHECK(new_run_folder("x", home.path(), now).filename() == "x-20241231-235959-3");
  CHECK(new_run_folder("x", home.path(), now).filename() == "x-20241231-235959-4");
}

TEST_CASE("runs that start at once get folders of their own", "[telemetry]") {
  const TemporaryFolder home;
  const std::time_t now = local_time(2024, 1, 1, 0, 0, 0);
  std::vector<fs::path> folders(8);
  std::atomic<int> waiting{static_cast<int>(folders.size())};
  std::vector<std::thread> threads;
  for (fs::path& folder : folders) {
    threads.emplace_back([&] {
      --waiting;
      while (waiting > 0) std::this_thread::yield();
      folder = new_run_folder("x", home.path(), now);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(std::set<fs::path>(folders.begin(), folders.end()).size() == folders.size());
}

TEST_CASE("a new run folder's name and place are checked", "[telemetry]") {
  const TemporaryFolder home;
  const auto name = GENERATE("", ".", "..", "a/b");
  CHECK_THROWS_AS(new_run_folder(name, home.path()), ValueError);
  CHECK_THROWS_WITH(new_run_folder(name, home.path()),
                    ContainsSubstring("can't be named '" + std::string(name) + "'"));
  write_text(home.path() / "file", "");
  CHECK_THROWS_WITH(
      new_run_folder("x", home.path() / "file"),
      ContainsSubstring((home.path() / "file").string()) && ContainsSubstring("can't be made"));
}

TEST_CASE("a run folder that is missing is made, one without a run is taken", "[telemetry]") {
  const TemporaryFolder home;
  const fs::path folder = home.path() / "deep" / "er";
  claim_run_folder(folder, "a: 1\n");
  CHECK(entries(folder) == 1);
  CHECK(read_text(folder / "config.yaml") == "a: 1\n");
  fs::remove(folder / "config.yaml");
  write_text(folder / "notes.txt", "mine");
  claim_run_folder(folder, "b: 1\n");
  CHECK(entries(folder) == 2);
  CHECK(read_text(folder / "notes.txt") == "mine");
}

TEST_CASE("a run goes on in its folder, but not beside another", "[telemetry]") {
  const TemporaryFolder home;
  const fs::path folder = home.path() / "run";
  CHECK_FALSE(holds_run(folder));
  {
    const RunFolderLock lock = claim_run_folder(folder, "a: 1\n");
    CHECK(holds_run(folder));
    CHECK_THROWS_WITH(
        RunFolderLock(folder, std::chrono::milliseconds(50)),
        "output folder " + folder.string() + " is in use: another run is going on there");
  }
  write_text(folder / "result.json", "{}");
  write_text(folder / "metrics.jsonl", "");
  const RunFolderLock lock(folder);
  reclaim_run_folder(lock, "b: 1\n");
  CHECK(read_text(folder / "config.yaml") == "b: 1\n");
  CHECK(entries(folder) == 2);
}

TEST_CASE("a run whose folder has no file but a FIFO does not go on there") {
  const TemporaryFolder home;
  write_text(home.path() / "config.yaml", "a: 1\n");
  for (const char* file : {"metrics.jsonl", "result.json", "config.yaml"}) {
    fs::remove(home.path() / file);
    REQUIRE(::mkfifo((home.path() / file).c_str(), 0600) == 0);
    const RunFolderLock lock(home.path());
    CHECK_THROWS_AS(reclaim_run_folder(lock, "b: 1\n"), ValueError);
    CHECK_THROWS_WITH(
        reclaim_run_folder(lock, "b: 1\n"),
        "output folder " + home.path().string() + ": its " + file + " is no regular file");
    CHECK(fs::is_fifo(home.path() / file));
    fs::remove(home.path() / file);
    write_text(home.path() / file, "a: 1\n");
  }
}

TEST_CASE("an output folder that is a loop of links is refused") {
  const TemporaryFolder home;
  fs::create_symlink("loop", home.path() / "loop");
  CHECK_THROWS_AS(claim_run_folder(home.path() / "loop", ""), ValueError);
  CHECK_THROWS_WITH(claim_run_folder(home.path() / "loop" / "run", ""),
                    ContainsSubstring("loop/run can't be read: Too many levels of symbolic links"));
}

TEST_CASE("of runs that want a folder at once, one gets it") {
  const bool nameless = GENERATE(true, false);  // whether the file system has files without names
  for (int round = 0; round < 20; ++round) {
    const TemporaryFolder home;
    std::vector<std::string> outcomes(4);
    std::vector<std::optional<RunFolderLock>> locks(outcomes.size());
    std::atomic<int> waiting{static_cast<int>(outcomes.size())};
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
      threads.emplace_back([&, i] {
        if (!nameless) refuse_nameless_files();
        --waiting;
        while (waiting > 0) std::this_thread::yield();
        try {
          locks[i].emplace(claim_run_folder(home.path() / "run", std::to_string(i)));
        } catch (const ValueError& error) {
          outcomes[i] = error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::vector<std::string> winners;
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
      if (outcomes[i].empty()) {
        winners.push_back(std::to_string(i));
      } else {
        CHECK_THAT(outcomes[i], ContainsSubstring("is in use: another run is going on there"));
      }
    }
    CHECK(winners == std::vector<std::string>{read_text(home.path() / "run/config.yaml")});
    CHECK(entries(home.path() / "run") == 1);
  }
}

TEST_CASE("who claims a folder removes what was left there by a run that was killed") {
  const TemporaryFolder home;
  for (const char* name : {".config.yaml.77-0.tmp", ".result.json.77-1.tmp", ".result.json.x",
                           "result.json.77-1.tmp", ".notes.77-0.tmp"}) {
    write_text(home.path() / name, "half a");
  }
  claim_run_folder(home.path(), "");
  CHECK(entries(home.path()) == 4);
  CHECK(!fs::exists(home.path() / ".config.yaml.77-0.tmp"));
  CHECK(!fs::exists(home.path() / ".result.json.77-1.tmp"));
}

TEST_CASE("a run folder that holds a run is refused", "[telemetry]") {
  const TemporaryFolder home;
  const std::string file = GENERATE("metrics.jsonl", "result.json", "checkpoints");
  write_text(home.path() / "config.yaml", "a: 1\n");
  if (file == "checkpoints") fs::create_directories(home.path() / file / "step-00000001");
  if (file != "checkpoints") write_text(home.path() / file, "{}\n");
  CHECK_THROWS_AS(claim_run_folder(home.path(), ""), ValueError);
  CHECK_THROWS_WITH(claim_run_folder(home.path(), ""),
                    ContainsSubstring(home.path().string()) &&
                        ContainsSubstring("holds a run already (its " + file + ")"));
}

TEST_CASE("a run folder in which a run has left nothing is free, but for a config of a user's") {
  const TemporaryFolder home;
  write_text(home.path() / "metrics.jsonl", "");
  fs::create_directories(home.path() / "checkpoints/.step-00000001.tmp");
  write_text(home.path() / "events.out.tfevents.1.users.1.0", "");
  {
    const RunFolderLock first = claim_run_folder(home.path(), "a: 1\n");
    CHECK_THROWS_WITH(
        claim_run_folder(home.path(), "b: 1\n"),
        "output folder " + home.path().string() + " is in use: another run is going on there");
    CHECK(fs::exists(home.path() / "events.out.tfevents.1.users.1.0"));  // not a run's
    write_text(home.path() / "events.out.tfevents.2.runs.1.0", "");
  }
  const RunFolderLock lock = claim_run_folder(home.path(), "b: 1\n");
  CHECK(lock.is_held());
  CHECK(read_text(home.path() / "config.yaml") == "b: 1\n");
  CHECK_FALSE(fs::exists(home.path() / "events.out.tfevents.2.runs.1.0"));
  const TemporaryFolder users;
  write_text(users.path() / "config.yaml", "# mine\n");
  const auto is_of_run = [](const std::string& text) { return text != "# mine\n"; };
  CHECK_THROWS_WITH(claim_run_folder(users.path(), "c: 1\n", is_of_run),
                    "output folder " + users.path().string() +
                        " has a config.yaml that no run has written: it would be lost; name "
                        "another folder");
  CHECK(read_text(users.path() / "config.yaml") == "# mine\n");
}

TEST_CASE("a run folder that can't be used is refused", "[telemetry]") {
  const TemporaryFolder home;
  const fs::path file = home.path() / "file";
  write_text(file, "");
  CHECK_THROWS_WITH(claim_run_folder(file, ""),
                    ContainsSubstring(file.string()) && ContainsSubstring("not a folder"));
  CHECK_THROWS_AS(claim_run_folder(file / "below", ""), ValueError);
  CHECK_THROWS_WITH(claim_run_folder(file / "below", ""),
                    ContainsSubstring((file / "below").string()));
}

TEST_CASE("a run folder that nothing can be written in is refused", "[telemetry]") {
  // No file can be opened while this is 0: unlike permissions, that holds for root too.
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit none{0, before.rlim_max};
  const TemporaryFolder home;
  std::string message;
  setrlimit(RLIMIT_NOFILE, &none);
  try {
    claim_run_folder(home.path(), "");
  } catch (const ValueError& error) {
    message = error.what();
  }
  setrlimit(RLIMIT_NOFILE, &before);
  CHECK_THAT(message,
             ContainsSubstring("output folder " + home.path().string() + " can't be opened") &&
                 ContainsSubstring("Too many open files"));
}

TEST_CASE("a file is written as a whole, over an old one too", "[telemetry]") {
  const TemporaryFolder home;
  const fs::path path = home.path() / "result.json";
  write_file_atomically(path, "first, and longer\n");
  CHECK(read_text(path) == "first, and longer\n");
  const std::string binary("a\0b\n", 4);
  write_file_atomically(path, binary);
  CHECK(read_text(path) == binary);
  write_file_atomically(path, "");
  CHECK(read_text(path).empty());
  CHECK(entries(home.path()) == 1);
}

TEST_CASE("a file is written as a whole where files have names from the beginning, too") {
  const TemporaryFolder home;
  std::string failure;
  std::thread([&] {
    refuse_nameless_files();
    write_file_atomically(home.path() / "file", "first");
    write_file_atomically(home.path() / "file", "second");
    try {
      fs::create_directories(home.path() / "folder" / "inside");
      write_file_atomically(home.path() / "folder", "x");
    } catch (const Error& error) {
      failure = error.what();
    }
  }).join();
  CHECK(read_text(home.path() / "file") == "second");
  CHECK_THAT(failure, ContainsSubstring((home.path() / "folder").string() + " can't be written"));
  CHECK(entries(home.path()) == 2);
}

TEST_CASE("a file is written as a whole where the file system has no links") {
  const TemporaryFolder home;
  bool is_again = true;
  std::thread([&] {
    refuse_exchange();
    refuse_links();
    CHECK(write_new_file(home.path() / "file", "first"));
    is_again = write_new_file(home.path() / "file", "other");
    write_file_atomically(home.path() / "second", "old");
    write_file_atomically(home.path() / "second", "new");
  }).join();
  CHECK_FALSE(is_again);
  CHECK(read_text(home.path() / "file") == "first");
  CHECK(read_text(home.path() / "second") == "new");
  CHECK(entries(home.path()) == 2);
}

TEST_CASE("a written file is readable as the umask says", "[telemetry]") {
  const TemporaryFolder home;
  const mode_t before = umask(027);
  write_file_atomically(home.path() / "file", "x");
  umask(before);
  CHECK((fs::status(home.path() / "file").permissions() & fs::perms::mask) ==
        static_cast<fs::perms>(0640));
}

TEST_CASE("readers see the old file or the new, never a part", "[telemetry]") {
  const TemporaryFolder home;
  const fs::path path = home.path() / "file";
  const std::string old_text(100'000, 'a');
  const std::string new_text(100'000, 'b');
  write_file_atomically(path, old_text);
  std::atomic<bool> done{false};
  int parts = 0;
  int reads = 0;
  std::thread reader([&] {
    do {
      const std::string text = read_text(path);
      parts += text != old_text && text != new_text ? 1 : 0;
      ++reads;
    } while (!done);
  });
  for (int i = 0; i < 20; ++i) write_file_atomically(path, i % 2 == 0 ? new_text : old_text);
  done = true;
  reader.join();
  CHECK(reads > 0);
  CHECK(parts == 0);
}

TEST_CASE("a file that can't be written is an error that names it", "[telemetry]") {
  const TemporaryFolder home;
  const fs::path missing = home.path() / "missing" / "file";
  CHECK_THROWS_AS(write_file_atomically(missing, "x"), Error);
  CHECK_THROWS_WITH(write_file_atomically(missing, "x"),
                    ContainsSubstring((home.path() / "missing").string()) &&
                        ContainsSubstring("No such file or directory"));
  // A folder can't be replaced by a file: the temporary file must be gone too.
  fs::create_directories(home.path() / "folder" / "inside");
  CHECK_THROWS_WITH(write_file_atomically(home.path() / "folder", "x"),
                    ContainsSubstring((home.path() / "folder").string() + " can't be written"));
  CHECK(entries(home.path()) == 1);
}

}  // namespace
}  // namespace lockstep
