#include <csignal>
#include <filesystem>
#include <string>

#include "framework/storage/file.h"
#include "tests/catch.h"
#include "tests/support/files.h"
#include "trainers/bench/hosts/child_program.h"

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("a process that is killed while it writes a file leaves nothing of it") {
  const std::string text(1'000'000, 'x');
  for (int round = 0; round < 20; ++round) {
    const TemporaryFolder home;
    ChildProgram writer([&] {
      for (int i = 0;; ++i) write_file_atomically(home.path("file" + std::to_string(i)), text);
      return 0;
    });
    REQUIRE(eventually([&] { return entries(home.path()) >= 3; }));
    ::kill(writer.pid(), SIGKILL);
    CHECK(writer.wait().by_signal);
    for (const auto& entry : std::filesystem::directory_iterator(home.path())) {
      CHECK(entry.path().filename().string().rfind("file", 0) == 0);
      CHECK(entry.file_size() == text.size());
    }
  }
}
