// Trainings whose output nobody reads for a while.

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <fcntl.h>
#include <termios.h>
#include <unistd.h>

#include "framework/base/descriptor.h"
#include "tests/catch.h"
#include "tests/support/ended.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/terminals.h"
#include "tests/train/train_program.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

namespace fs = std::filesystem;

Flags flags_of(const std::string& launch, const std::string& steps) {
  return Flags{"--config", config_file("pmean_linear.yaml"), "--replicas", "2", "--output", "run"} +
         set("parallel.timeout_s=1 trainer.log_every=1 trainer.eval_every=0 trainer.steps=" +
             steps + " parallel.launch=" + launch);
}

}  // namespace

TEST_CASE("training goes on to its end while nobody reads, and then the newest lines come") {
  for (const std::string launch : {"processes", "threads"}) {
    INFO(launch);
    const TemporaryFolder folder;
    const Flags flags = flags_of(launch, "2000");
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    const Descriptor reads(ends[0]);
    Descriptor writes(ends[1]);
    ChildProgram program([&] {
      ::dup2(writes.get(), STDOUT_FILENO);
      ::dup2(writes.get(), STDERR_FILENO);
      if (::chdir(folder.path().c_str()) == 0) become(train_command(flags));
      return 1;
    });
    writes.close();
    REQUIRE(eventually([&] { return fs::exists(folder.path() / "run/result.json"); },
                       std::chrono::minutes(5)));
    CHECK(program.running());
    std::string text;
    std::vector<char> buffer(65'536);
    for (ssize_t size = 1; size > 0;) {
      size = ::read(reads.get(), buffer.data(), buffer.size());
      if (size > 0) text.append(buffer.data(), static_cast<std::size_t>(size));
    }
    CHECK(program.wait().status == 0);
    CHECK_THAT(text,
               ContainsSubstring("lines left out here, which nobody read in time\n") &&
                   ContainsSubstring("\nstep 2000/2000 ") &&
                   ContainsSubstring("parameters_sha256:   " + digest_of(folder.path() / "run")));
    CHECK(fs::exists(folder.path() / "run/checkpoints/latest/manifest.json"));
  }
}

TEST_CASE("training goes on under Ctrl-S, shows the newest after Ctrl-Q, and saves at SIGTERM") {
  if (!has_terminals()) {
    WARN("no terminal can be made here: /dev/pts is not mounted");
    return;
  }
  for (const std::string launch : {"processes", "threads"}) {
    INFO(launch);
    const TemporaryFolder folder;
    const Terminal terminal(160);
    const int screen = ::fileno(terminal.stream());
    ChildProgram program([&] {
      if (::chdir(folder.path().c_str()) != 0) return 1;
      ::dup2(screen, STDOUT_FILENO);
      ::dup2(screen, STDERR_FILENO);
      become(train_command(flags_of(launch, "1000000000")));
    });
    const auto lines = [&] {
      std::ifstream metrics(folder.path() / "run/metrics.jsonl");
      return std::count(std::istreambuf_iterator<char>(metrics), {}, '\n');
    };
    REQUIRE(terminal.shows("step [0-9]+/1000000000"));
    for (const bool ends : {false, true}) {
      REQUIRE(::tcflow(screen, TCOOFF) == 0);  // as Ctrl-S does
      const auto before = lines();
      REQUIRE(eventually([&] { return lines() > before + 300; }));
      if (ends) break;
      REQUIRE(::tcflow(screen, TCOON) == 0);
      CHECK(terminal.shows("step [0-9]+/1000000000"));
    }
    ::kill(program.pid(), SIGTERM);
    CHECK(program.wait().status == 143);
    CHECK(fs::exists(folder.path() / "run/checkpoints/latest/manifest.json"));
  }
}
