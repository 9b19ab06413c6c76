#include <algorithm>
#include <csignal>

#include <sys/types.h>

#include "tests/catch.h"
#include "tests/support/ended.h"
#include "tests/support/programs.h"

using namespace lockstep::testing;

namespace {

std::vector<std::string> sorted_lines(const std::string& text) {
  auto lines = lines_of(text);
  std::sort(lines.begin(), lines.end());
  return lines;
}

}  // namespace

TEST_CASE("launch in a program with threads: replicas are the program started anew") {
  // The word shows that arguments arrive unchanged.
  const Ended ended = run_program({RELAUNCH_BINARY, "run", "two words, 'quoted'\n"});
  check_status(ended, 0);
  CHECK(sorted_lines(ended.out) ==
        std::vector<std::string>{"", "0 second 3", "[replica 1] ", "[replica 1] 0 second 3",
                                 "[replica 1] first 1 of 2 two words, 'quoted'",
                                 "[replica 2] 0 second 3", "first 0 of 2 two words, 'quoted'"});
  CHECK_THAT(ended.err, ContainsSubstring("lockstep: this program has several threads and can't be "
                                          "forked: its workers are the program started again, up "
                                          "to this call of launch()\n"));
}

TEST_CASE("launch in a program with threads: the root cause of the right launch") {
  const Ended ended = run_program({RELAUNCH_BINARY, "fail", "word"});
  CHECK(ended.status == 2);
  CHECK_THAT(ended.err, ContainsSubstring("lockstep: error: replica 1 (pid "));
  CHECK_THAT(ended.err,
             ContainsSubstring(") failed with DataError, exit status 2: row 3 is cut\n"));
  CHECK_THAT(lines_of(ended.err).back(), ContainsSubstring("row 3 is cut"));
}

TEST_CASE("launch in a program with threads: a job that loses a replica is started again") {
  const Ended ended = run_program({RELAUNCH_BINARY, "lose", "word"});
  check_status(ended, 0);
  CHECK_THAT(ended.err, ContainsSubstring("lost: exited with status 7 before its function "));
  CHECK_THAT(ended.err, ContainsSubstring("starting again in 0.001 s (restart 1 of 1)\n"));
  const auto lines = lines_of(ended.out);
  CHECK(std::ranges::count_if(lines,
                              [](const auto& line) { return line.ends_with("0 second 3"); }) == 3);
}

TEST_CASE("launch in a program with threads: replicas see that it is asked to stop") {
  ChildProgram program({RELAUNCH_BINARY, "stop", "word"});
  const auto begun = [&] {
    const auto lines = lines_of(program.out());
    return std::ranges::count_if(lines,
                                 [](const auto& line) { return line.ends_with("second 3"); });
  };
  REQUIRE(eventually([&] { return begun() == 3; }));
  (void)::kill(program.pid(), SIGTERM);
  const Ended ended = program.wait();
  check_status(ended, 128 + SIGTERM);
  const auto lines = sorted_lines(ended.out);
  CHECK(std::ranges::count(lines, "asked") == 1);
  CHECK(std::ranges::count(lines, "[replica 1] asked") == 1);
  CHECK(std::ranges::count(lines, "[replica 2] asked") == 1);
}

TEST_CASE("launch in a program with threads: nothing runs on when it is killed or stopped") {
  for (const int signal : {SIGKILL, SIGTERM}) {
    INFO("signal " << signal);
    ChildProgram program({RELAUNCH_BINARY, "wait", "word"});
    const auto waiting = [&] {
      std::vector<pid_t> pids;
      for (std::string line : lines_of(program.out())) {
        if (line[0] == '[') line = line.substr(line.find(' ', line.find(' ') + 1) + 1);
        if (line.find(" second 3") != std::string::npos) pids.push_back(std::stoi(line));
      }
      return pids;
    };
    REQUIRE(eventually([&] { return waiting().size() == 3; }));
    const auto pids = waiting();
    (void)::kill(program.pid(), signal);
    CHECK(eventually(
        [&] { return std::all_of(pids.begin(), pids.end(), [](pid_t p) { return ended(p); }); },
        std::chrono::milliseconds(2000)));
    CHECK(program.wait().status == 128 + signal);
  }
}
