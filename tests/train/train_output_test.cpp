#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/support/ended.h"
#include "tests/support/files.h"
#include "tests/support/terminals.h"
#include "tests/train/train_in_fork.h"
#include "tests/train/train_program.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

namespace fs = std::filesystem;

// Flags of a run that would not end by itself and logs nothing after its first line.
Flags endless(const std::string& launch) {
  return Flags{"--config", config_file("pmean_linear.yaml"), "--replicas", "2"} +
         Flags{"--launch", launch, "--output", "run"} +
         set("trainer.steps=1000000000 trainer.log_every=1000000000");
}

}  // namespace

TEST_CASE("of two jobs that name one output folder, one gets it") {
  for (int round = 0; round < 6; ++round) {
    const TemporaryFolder folder;
    const std::string launch = round % 2 == 0 ? "processes" : "threads";
    const auto command = [&](const std::string& replicas) {
      return training(folder.path(), {"--config", config_file("pmean_linear.yaml"), "--replicas",
                                      replicas, "--launch", launch, "--output", "run"});
    };
    ChildProgram two(command("2"));
    ChildProgram three(command("3"));
    const Ended first = two.wait();
    const Ended second = three.wait();
    INFO(first.err << second.err);
    CHECK(first.status + second.status == 2);
    const bool has_two = first.status == 0;
    CHECK_THAT((has_two ? second : first).err,
               ContainsSubstring("output folder run holds a run already (its ") ||
                   ContainsSubstring("output folder run is in use: another run is going on"));
    const fs::path run = folder.path() / "run";
    CHECK(entries(run) == 7);
    CHECK(result_of(run)["replicas"] == (has_two ? 2 : 3));
    CHECK(read_json_lines(run / "metrics.jsonl").size() == 1);
    CHECK_THAT(read_text(run / "config.yaml"),
               ContainsSubstring(has_two ? "replicas: 2" : "replicas: 3"));
  }
}

TEST_CASE("a run whose output folder goes away in its midst says so and stops") {
  for (const std::string launch : {"processes", "threads"}) {
    for (const bool renamed : {false, true}) {
      const TemporaryFolder folder;
      ChildProgram program(training(folder.path(), endless(launch) + set("trainer.log_every=100")));
      const fs::path run = folder.path() / "run";
      REQUIRE(eventually([&] {
        std::error_code missing;
        return fs::file_size(run / "metrics.jsonl", missing) > 0 && !missing;
      }));
      // At once: while a folder is emptied, the run would still save into it.
      fs::rename(run, folder.path() / "other");
      if (!renamed) fs::remove_all(folder.path() / "other");
      const Ended end = program.wait();
      check_status(end, 1);
      // Whichever of its files was to be written next.
      CHECK_THAT(end.err, ContainsSubstring("the output folder run or its metrics.jsonl was "
                                            "removed, renamed or replaced during the run") ||
                              ContainsSubstring("was removed, renamed or replaced while it was "
                                                "written"));
      CHECK_THAT(lines_of(end.err).back(), ContainsSubstring("can't be saved: run/checkpoints "));
      CHECK(!fs::exists(run));
    }
  }
}

TEST_CASE("on a terminal progress comes by time, as wide as its window is, and lines before it") {
  if (!has_terminals()) {
    WARN("no terminal can be made here: /dev/pts is not mounted");
    return;
  }
  for (const std::string launch : {"processes", "threads"}) {
    const TemporaryFolder folder;
    const Terminal terminal(160);
    ChildProgram program([&] {
      if (::chdir(folder.path().c_str()) != 0) return 1;
      ::dup2(::fileno(terminal.stream()), STDOUT_FILENO);
      ::dup2(::fileno(terminal.stream()), STDERR_FILENO);
      become(train_command(endless(launch) + set("optimizer.lr=1e30 trainer.non_finite=skip")));
    });
    // It takes the place of a line of progress, if there is one yet.
    CHECK(terminal.shows("\r\x1b\\[Klockstep: warning: step [0-9]+ is skipped"));
    CHECK(terminal.shows("\r\x1b\\[K\\[>  *\\]  step [0-9]+/1000000000  epoch [0-9]+  [^\r]*left"));
    terminal.resize(30);
    CHECK(terminal.shows("\r\x1b\\[Kstep [0-9]+/1000000000\r"));
    ::kill(program.pid(), SIGTERM);
    CHECK(program.wait().status == 143);
  }
}

TEST_CASE("under mpirun, whose log looks like a terminal, progress is in lines") {
  if (!has_terminals()) {
    WARN("no terminal can be made here: /dev/pts is not mounted");
    return;
  }
  const TemporaryFolder folder;
  Terminal terminal(160);
  // As Open MPI 4 starts a task, which it binds to a core.
  ChildProgram program([&] {
    ::dup2(::fileno(terminal.stream()), STDOUT_FILENO);
    ::dup2(::open("/dev/null", O_RDONLY), STDIN_FILENO);
    for (const auto& [name, value] : {std::pair("OMPI_COMM_WORLD_RANK", "0"),
                                      {"OMPI_COMM_WORLD_SIZE", "1"},
                                      {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                                      {"OMPI_MCA_orte_hnp_uri", "65536.0;tcp://127.0.0.1:1"}}) {
      ::setenv(name, value, 1);
    }
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(::sched_getcpu()), &one);
    (void)!::sched_setaffinity(0, sizeof one, &one);
    return training(folder.path(),
                    endless("processes") + set("trainer.steps=2 trainer.log_every=1"))();
  });
  const Ended end = program.wait();
  check_status(end, 0);
  CHECK_THAT(terminal.text(), ContainsSubstring("step 2/2") && !ContainsSubstring("\x1b["));
  CHECK(result_of(folder.path() / "run").at("engine") == nlohmann::json{{"name", "mpi"}});
  if (const auto cores = ::sysconf(_SC_NPROCESSORS_ONLN); cores > 1) {
    CHECK_THAT(end.err, ContainsSubstring(str("this task may use 1 of this host's ", cores,
                                              " cores, and runs 2 replicas at once: mpirun "
                                              "--bind-to none gives it all\n")));
  }
}
