// Jobs that are started again after they have lost a replica: LaunchOptions::max_restarts.

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/ops/ones.h>
#include <sys/wait.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/collectives/psum.h"
#include "framework/launch/launch.h"
#include "framework/maps/pmap.h"
#include "tests/catch.h"
#include "tests/collectives/cases.h"
#include "tests/launch/launched.h"
#include "tests/support/ended.h"
#include "tests/support/occurrences.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

using std::chrono::milliseconds;

// Returns the options of a job of three replicas that may be started again at once.
LaunchOptions restarted(std::int64_t max_restarts) {
  return {.replicas = 3, .max_restarts = max_restarts, .restart_delay = milliseconds(1)};
}

std::string restart_line(const char* seconds, int restart, int of) {
  return str("lockstep: warning: starting again in ", seconds, " s (restart ", restart, " of ", of,
             ")\n");
}

// Returns how many times this process has opened or mapped a file whose name contains `part`.
std::int64_t held(const std::string& part) {
  std::int64_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string name = std::filesystem::read_symlink(entry.path(), gone);
    count += name.find(part) != std::string::npos ? 1 : 0;
  }
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (!part.empty()) count += line.find(part) != std::string::npos ? 1 : 0;
  }
  return count;
}

bool has_children() {
  return ::waitpid(-1, nullptr, WNOHANG) >= 0;
}

}  // namespace

TEST_CASE("launch: a job that loses a replica is started again, and knows it") {
  for (const std::int64_t workers : {0, 1, 2}) {
    for (const Backend backend : {Backend::automatic, Backend::gloo}) {
      INFO(workers << " workers" << (backend == Backend::gloo ? ", gloo" : ""));
      LaunchOptions options = restarted(3);
      options.workers = workers;
      options.backend = backend;
      const SharedNumbers finished_after(3);
      const SharedNumbers lost_pids(3);
      const SharedNumbers told(4);
      options.before_restart = [&](std::int64_t restart) {
        ++told[static_cast<std::size_t>(restart)];
        if (!all_ended(lost_pids)) throw std::runtime_error("a replica of the first try is left");
      };
      const Ended end = launched(
          [&] {
            meet();
            if (launch_restarts() == 0) {
              lost_pids[own_index()] = ::getpid();
              meet();
              if (own_index() == 1) (void)::raise(SIGKILL);
            }
            for (int step = 0; step < 10; ++step) meet();
            finished_after[own_index()] = launch_restarts();
          },
          options);
      check_status(end, 0);
      for (std::size_t i = 0; i < 3; ++i) CHECK(finished_after[i] == 1);
      CHECK(told[1] == 1);
      CHECK(told.set() == 1);
      CHECK_THAT(end.err, ContainsSubstring("lost: killed by signal 9 (Killed)\n" +
                                            restart_line("0.001", 1, 3)));
      CHECK(count(end.err, "lockstep: 3 replicas ") == 1);
    }
  }
}

TEST_CASE("launch: when the restarts are used up, the job ends with its last failure") {
  const SharedNumbers runs(1);
  const SharedNumbers pids(3);
  const Ended end = launched(
      [&] {
        pids[own_index()] = ::getpid();
        meet();
        if (own_index() == 2) {
          ++runs[0];
          std::cerr << "try " << launch_restarts() << "\n";
          ::_exit(7);
        }
        meet();
      },
      restarted(2));
  check_status(end, 3);
  CHECK(runs[0] == 3);
  CHECK_THAT(end.err, ContainsSubstring("  | try 0\n" + restart_line("0.001", 1, 2)));
  CHECK_THAT(end.err, ContainsSubstring("  | try 1\n" + restart_line("0.002", 2, 2)));
  CHECK(last_words(end) == str("lockstep: error: replica 2 (pid ", pids[2],
                               ") was lost: exited with status 7 before its function returned\n"
                               "its last lines on stderr:\n  | try 2\n"));
  CHECK(all_ended(pids));
}

TEST_CASE("launch: only what loses a replica starts a job again") {
  struct Failure {
    std::function<void()> fail;
    int status;  // without a restart
  };
  const std::vector<Failure> failures{
      {[] { throw ValueError("bad value"); }, 2},
      {[] { throw DataError("bad file"); }, 2},
      {[] { throw std::out_of_range("beyond"); }, 1},
      {[] { (void)psum(at::ones({7}), "data"); }, 3},  // out of step with meet()
      {[] { throw ReplicaLost("it went away"); }, 0},
      {[] { throw Timeout("too late"); }, 0},
      {[] { std::abort(); }, 0},
      {[] { std::exit(0); }, 0}};
  for (std::size_t i = 0; i < failures.size(); ++i) {
    INFO("failure " << i);
    const Ended end = launched(
        [&] {
          meet();
          if (own_index() == 1 && launch_restarts() == 0) failures[i].fail();
          meet();
        },
        restarted(1));
    check_status(end, failures[i].status);
    CHECK((end.err.find("starting again") != std::string::npos) == (failures[i].status == 0));
  }
}

TEST_CASE("launch: a job that stands still is started again") {
  LaunchOptions options = restarted(1);
  options.timeout = milliseconds(300);
  const SharedNumbers pids(3);
  const Ended end = launched(
      [&] {
        if (launch_restarts() > 0) return meet();
        pids[own_index()] = ::getpid();
        (void)::raise(SIGSTOP);
      },
      options);
  check_status(end, 0);
  CHECK_THAT(end.err, ContainsSubstring("have been stopped by a signal for longer than 300 ms\n" +
                                        restart_line("0.001", 1, 1)));
  CHECK(all_ended(pids));
}

TEST_CASE("launch: Ctrl-C and SIGTERM end the wait for a restart") {
  for (const OnStop on_stop : {OnStop::end, OnStop::ask}) {
    for (const int signal : {SIGINT, SIGTERM}) {
      LaunchOptions options = restarted(3);
      options.restart_delay = milliseconds(60'000);
      options.on_stop = on_stop;
      ChildProgram program(launching([] { ::_exit(7); }, options));
      REQUIRE(eventually(
          [&] { return program.err().find(restart_line("60", 1, 3)) != std::string::npos; }));
      (void)::kill(program.pid(), signal);
      const Ended end = program.wait(milliseconds(30'000));
      check_status(end, 128 + signal);
      CHECK(!end.by_signal);
      CHECK(last_words(end) == str("lockstep: error: stopped by ",
                                   signal == SIGINT ? "Ctrl-C" : "SIGTERM",
                                   "; all replicas have ended\n"));
    }
  }
}

TEST_CASE("launch: a job that was asked to stop is not started again") {
  LaunchOptions options = restarted(3);
  options.on_stop = OnStop::ask;
  const SharedNumbers running(3);
  ChildProgram program(launching(
      [&] {
        while (psum(stop_requested() ? 1 : 0, "data") == 0) running[own_index()] = 1;
        if (own_index() == 1) (void)::raise(SIGKILL);
        meet();
      },
      options));
  REQUIRE(eventually([&] { return running.set() == 3; }));
  (void)::kill(program.pid(), SIGINT);
  const Ended end = program.wait();
  check_status(end, 3);
  CHECK_THAT(last_words(end), ContainsSubstring("was lost: killed by signal 9 (Killed)"));
  CHECK_THAT(end.err, !ContainsSubstring("starting again"));
}

TEST_CASE("launch: what before_restart throws ends it, and nothing is left of the former try") {
  LaunchOptions options = restarted(3);
  options.before_restart = [](std::int64_t restart) {
    throw DataError(str("no restart ", restart));
  };
  const Ended end = run_forked([&] {
    try {
      return launch([] { ::_exit(7); }, options);
    } catch (const DataError& error) {
      std::cerr << error.what() << "\n";
    }
    return has_children() || held("lockstep-host") > 0 ? 50 : launch(meet, {.replicas = 2});
  });
  check_status(end, 0);
  CHECK_THAT(end.err, ContainsSubstring("no restart 1\n"));
}

TEST_CASE("launch: no process, descriptor or memory is left of a job that is started again") {
  constexpr std::int64_t kRestarts = 4;
  LaunchOptions options = restarted(kRestarts);
  const SharedNumbers open(kRestarts + 1);
  const Ended end = run_forked([&] {
    const std::int64_t before = held("");
    options.before_restart = [&](std::int64_t) {
      expect(!has_children(), "a process is left");
      expect(held("") == before, "a descriptor is left");
      expect(held("lockstep-host") == 0, "memory is left");
    };
    const int status = launch(
        [&] {
          meet();
          if (own_index() == 0) open[static_cast<std::size_t>(launch_restarts())] = held("");
          meet();
          if (launch_restarts() < kRestarts && own_index() == 1) (void)::raise(SIGKILL);
          meet();
        },
        options);
    return has_children() || held("") != before || held("lockstep-host") != 0 ? 50 : status;
  });
  check_status(end, 0);
  for (std::size_t i = 1; i <= kRestarts; ++i) CHECK(open[i] == open[0]);
}

TEST_CASE("launch: before_restart may map, and what it changes is seen by the new replicas") {
  LaunchOptions options = restarted(1);
  std::int64_t changed = 0;
  options.before_restart = [&](std::int64_t) {
    const Tensor ones =
        pmap([] { return psum(at::ones({1}), "i"); }, {.axis_name = "i", .axis_size = 3})();
    changed = ones.sum().item<std::int64_t>();
  };
  const Ended end = launched(
      [&] {
        if (launch_restarts() == 0) ::_exit(7);
        expect(changed == 9, "the sum over three replicas");
      },
      options);
  check_status(end, 0);
  CHECK_THAT(end.err, !ContainsSubstring("several threads"));
}

TEST_CASE("launch: options for restarts that make no sense are refused") {
  CHECK(refusal_of({.max_restarts = -1}) == "launch: max_restarts is -1; it must not be negative");
  CHECK(refusal_of({.mode = LaunchMode::threads, .max_restarts = 2}) ==
        "launch: max_restarts is 2 with LaunchMode::threads; it must be 0, as a thread that "
        "crashes ends the program");
  CHECK(refusal_of({.restart_delay = milliseconds(-1)}) ==
        "launch: restart_delay is -1 ms; it must be from 0 to 60000");
  CHECK(refusal_of({.restart_delay = milliseconds(60'001)}) ==
        "launch: restart_delay is 60001 ms; it must be from 0 to 60000");
  CHECK(launch_restarts() == 0);
}
