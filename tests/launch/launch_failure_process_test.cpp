#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <regex>
#include <stdexcept>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/types.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/launch/job_failure.h"
#include "framework/launch/launch.h"
#include "framework/maps/pmap.h"
#include "tests/catch.h"
#include "tests/collectives/cases.h"
#include "tests/launch/launched.h"
#include "tests/support/ended.h"
#include "tests/support/error_kinds.h"
#include "tests/support/settings.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

using std::chrono::milliseconds;

// One way for a replica to fail, and the launcher's status and message for it.
struct Failure {
  std::string name;
  std::function<void()> fail;
  int status;
  std::string message;  // after "replica K (pid P) "
};

std::vector<Failure> thrown() {
  const auto failed = [](const std::string& type, int status, const std::string& text) {
    return str("failed with ", type, ", exit status ", status, ": ", text);
  };
  return {
      {"a foreign exception", [] { throw std::out_of_range("beyond"); }, 1,
       failed("an exception", 1, "beyond")},
      {"something that is no exception", [] { throw 7; }, 1, ""},
      {"NameError", [] { (void)axis_index("nowhere"); }, 1,
       "failed with NameError, exit status 1: axis_index over 'nowhere' ("},
      {"ValueError", [] { throw ValueError("bad value"); }, 2,
       failed("ValueError", 2, "bad value")},
      {"DataError", [] { throw DataError("bad file"); }, 2, failed("DataError", 2, "bad file")},
      {"CommError", [] { throw CommError("no way"); }, 3, failed("CommError", 3, "no way")},
      {"Timeout", [] { throw Timeout("too late"); }, 3, failed("Timeout", 3, "too late")},
  };
}

std::vector<Failure> deaths() {
  return {
      {"exit(0)", [] { std::exit(0); }, 3,
       "was lost: exited with status 0 before its function returned"},
      {"_exit(7)", [] { ::_exit(7); }, 3,
       "was lost: exited with status 7 before its function returned"},
      {"SIGKILL", [] { (void)::raise(SIGKILL); }, 3, "was lost: killed by signal 9 (Killed)"},
      {"abort", [] { std::abort(); }, 3, "was lost: killed by signal 6 (Aborted)"},
      {"SIGSEGV", [] { (void)::raise(SIGSEGV); }, 3,
       "was lost: killed by signal 11 (Segmentation fault); replica 1 has been in code of its own "
       "for 0"},
  };
}

// Returns the last text on stderr, from the launcher's error on.
std::string lost(std::size_t replica, std::int64_t pid, const std::string& what) {
  return str("lockstep: error: replica ", replica, " (pid ", pid, ") ", what);
}

}  // namespace

TEST_CASE("launch: its status and last words say how a replica failed, not those it left waiting") {
  auto failures = thrown();
  for (const Failure& death : deaths()) failures.push_back(death);
  for (const Failure& failure : failures) {
    INFO(failure.name);
    const SharedNumbers pids(3);
    const Ended ended = launched(
        [&] {
          pids[own_index()] = ::getpid();
          meet();
          if (own_index() == 1) failure.fail();
          meet();
        },
        {.replicas = 3});
    check_status(ended, failure.status);
    CHECK(!ended.by_signal);
    CHECK(last_words(ended).rfind(lost(1, pids[1], failure.message), 0) == 0);
    CHECK(all_ended(pids));
  }
}

TEST_CASE("launch: an error of each type arrives from a process of the job as it was thrown") {
  for (const ErrorKind kind : error_kinds()) {
    const ErrorTraits& traits = traits_of(kind);
    INFO(traits.name);
    const Ended ended = launched([&] { throw_as(kind, "no"); }, {.replicas = 1});
    CHECK(ended.status == traits.exit_status);
    CHECK_THAT(last_words(ended), ContainsSubstring(str(" failed with ", traits.name,
                                                        ", exit status ", ended.status, ": no\n")));
  }
}

TEST_CASE("launch: an error that ends the hosts' meeting is of the same type on all of them") {
  for (const ErrorKind kind : error_kinds()) {
    const ErrorTraits& traits = traits_of(kind);
    INFO(traits.name);
    LaunchOptions options{.replicas = 2};
    options.hosts.allow_mixed = true;  // without the program's checksum, which takes a while
    options.hosts.prepare = [kind](const std::string& of_host_0) {
      if (!of_host_0.empty()) throw_as(kind, "no");
      return std::string("begin");
    };
    for (const Ended& ended : launched_on_hosts([] {}, options, 2)) {
      CHECK(ended.status == traits.exit_status);
      CHECK(last_words(ended) == str("lockstep: error: ", traits.name, ": host 1: no\n"));
    }
  }
}

TEST_CASE("launch: threads have the same status and name the replica that threw") {
  for (const Failure& failure : thrown()) {
    for (const std::int64_t failing : {0, 2}) {
      INFO(failure.name << " in " << failing);
      const Ended ended = launched(
          [&] {
            meet();
            if (axis_index("data") == failing) failure.fail();
            meet();
          },
          {.replicas = 3, .mode = LaunchMode::threads});
      check_status(ended, failure.status);
      CHECK_THAT(last_words(ended), ContainsSubstring(str("replica ", failing, ": ")));
      CHECK(lines_of(last_words(ended)).size() == 1);
    }
  }
}

TEST_CASE("launch: a replica that its error names already, as that of a map does, is named once") {
  const auto fail = [] { throw ValueError("bad value"); };
  for (const LaunchMode mode : kModes) {
    const Ended ended =
        launched(pmap(fail, {.axis_name = "inner", .axis_size = 1}), {.replicas = 1, .mode = mode});
    check_status(ended, 2);
    const std::string how = mode == LaunchMode::threads
                                ? "ValueError: replica 0: "
                                : " failed with ValueError, exit status 2: ";
    CHECK_THAT(last_words(ended), ContainsSubstring(how + "bad value"));
  }
}

TEST_CASE("launch: the root cause is named wherever it is, every time") {
  const std::vector<Failure> kinds{thrown()[3], deaths()[1], deaths()[2]};
  Sample sample("root causes");
  for (const Failure& kind : kinds) {
    for (const std::size_t failing : {0U, 1U, 3U}) {
      for (int repetition = 0; repetition < 3; ++repetition) {
        if (!sample.next()) continue;
        INFO(kind.name << " in " << failing << ", repetition " << repetition);
        const SharedNumbers pids(4);
        const Ended ended = launched(
            [&] {
              pids[own_index()] = ::getpid();
              if (repetition > 0) meet();  // or the replica fails while the others connect
              if (own_index() == failing) kind.fail();
              for (;;) meet();
            },
            {.replicas = 4});
        check_status(ended, kind.status);
        CHECK(last_words(ended).rfind(lost(failing, pids[failing], kind.message), 0) == 0);
      }
    }
  }
}

TEST_CASE(
    "launch: the last words end with the last 20 lines of the program on the lost replica's "
    "stderr") {
  for (const std::size_t failing : {0U, 2U}) {
    const SharedNumbers pids(3);
    const Ended ended = launched(
        [&] {
          pids[own_index()] = ::getpid();
          if (own_index() == failing) {
            for (int line = 1; line <= 30; ++line) {
              std::cerr << "line " << line << "\nlockstep: a line of ours\n";
            }
            std::cerr << "cut sh";
            (void)::raise(SIGKILL);
          }
          std::cerr << "not mine\n";
          meet();
        },
        {.replicas = 3});
    std::string expected = lost(failing, pids[failing], "was lost: killed by signal 9 (Killed)");
    expected += "\nits last lines on stderr:";
    for (int line = 12; line <= 30; ++line) expected += str("\n  | line ", line);
    CHECK(last_words(ended) == expected + "\n  | cut sh\n");
  }
}

// The launcher stands still until the replica is dead, and then reads the lines in parts.
TEST_CASE("launch: the last words have the last lines, however much came before them") {
  const SharedNumbers pids(1);
  const SharedNumbers go_on(1);
  ChildProgram program(launching(
      [&] {
        pids[0] = ::getpid();
        expect(eventually([&] { return go_on.set() == 1; }), "told to go on");
        for (int line = 1; line <= 3000; ++line) std::cerr << "line " << line << "\n";
        (void)::raise(SIGKILL);
      },
      {.replicas = 1}));
  REQUIRE(eventually([&] { return pids.set() == 1; }));
  (void)::kill(program.pid(), SIGSTOP);
  REQUIRE(eventually([&] { return stopped(program.pid()); }));
  go_on[0] = 1;
  CHECK(eventually([&] { return all_ended(pids); }));
  (void)::kill(program.pid(), SIGCONT);
  const Ended end = program.wait();
  CHECK(end.status == 3);
  std::string expected = lost(0, pids[0], "was lost: killed by signal 9 (Killed)");
  expected += "\nits last lines on stderr:";
  for (int line = 2981; line <= 3000; ++line) expected += str("\n  | line ", line);
  CHECK(last_words(end) == expected + "\n");
}

TEST_CASE("launch: a replica that does not come in time is a Timeout of those that wait") {
  const Ended ended = launched(
      [] {
        meet();
        if (own_index() == 1) block();
        meet();
      },
      {.replicas = 3, .timeout = milliseconds(300)});
  check_status(ended, 3);
  CHECK(std::regex_search(last_words(ended),
                          std::regex("^lockstep: error: replica [02] \\(pid [0-9]+\\) failed with "
                                     "Timeout, exit status 3: .*psum")));
}

TEST_CASE(
    "launch: the others end within 2 seconds, also stopped ones and those that ignore SIGTERM") {
  const SharedNumbers pids(4);
  const SharedNumbers failed_at(1);
  ChildProgram program(launching(
      [&] {
        if (own_index() == 2) std::signal(SIGTERM, SIG_IGN);
        meet();
        pids[own_index()] = ::getpid();
        if (own_index() == 1) (void)::raise(SIGSTOP);
        if (own_index() != 0) block();
        expect(eventually([&] { return pids.set() == 4 && stopped(pids.pids()[1]); }), "stopped");
        failed_at[0] = now_ms();
        throw DataError("the file ends early");
      },
      {.replicas = 4}));
  const Ended end = program.wait();
  const std::int64_t took_ms = now_ms() - failed_at[0];
  check_status(end, 2);
  CHECK(last_words(end) ==
        lost(0, pids[0], "failed with DataError, exit status 2: the file ends early\n"));
  CHECK(took_ms < 2000);
  CHECK(all_ended(pids));
}

TEST_CASE("launch: after_failure is told what replicas did, whatever has ended the job") {
  for (const LaunchMode mode : kModes) {
    for (const bool is_mismatch : {true, false}) {
      INFO(name_of(mode) << (is_mismatch ? ", out of step" : ", wrong"));
      const SharedNumbers told(1);
      LaunchOptions options{.replicas = 2, .mode = mode};
      options.after_failure = [&](const JobFailure& failure) {
        const auto has_met = [](const timeline::ReplicaRecording& recording) {
          return !recording.tracks.at(0).spans.empty();
        };
        const bool is_right = failure.replicas.size() == 2 && failure.host == 0 &&
                              std::ranges::all_of(failure.replicas, has_met) &&
                              failure.verdict.find(is_mismatch ? "CollectiveMismatch"
                                                               : "bad value") != std::string::npos;
        told[0] = is_right ? 1 : 2;
        throw DataError("no room");
      };
      const Ended ended = launched(
          [&] {
            meet();
            if (own_index() == 1) return;
            if (!is_mismatch) throw ValueError("bad value");
            meet();
          },
          options);
      check_status(ended, is_mismatch ? 3 : 2);
      CHECK(told[0] == 1);
      CHECK_THAT(ended.err, ContainsSubstring("warning: after_failure: DataError: no room\n"));
    }
  }
}

TEST_CASE("launch: a replica's death shows though a child of it holds its descriptors") {
  const SharedNumbers pids(2);
  const SharedNumbers grandchild(1);
  const Ended ended = launched(
      [&] {
        pids[own_index()] = ::getpid();
        if (own_index() == 1) {
          const pid_t child = ::fork();
          if (child == 0) block();
          grandchild[0] = child;
          (void)::raise(SIGKILL);
        }
        meet();
      },
      {.replicas = 2});
  (void)::kill(static_cast<pid_t>(grandchild[0]), SIGKILL);
  check_status(ended, 3);
  CHECK(last_words(ended) == lost(1, pids[1], "was lost: killed by signal 9 (Killed)\n"));
}

TEST_CASE("launch: nothing runs on when the launcher is killed") {
  const SharedNumbers pids(4);
  ChildProgram program(launching(
      [&] {
        if (own_index() == 2) std::signal(SIGTERM, SIG_IGN);
        meet();
        pids[own_index()] = ::getpid();
        if (own_index() == 1) (void)::raise(SIGSTOP);
        if (own_index() == 3) block();
        for (;;) meet();
      },
      {.replicas = 4}));
  REQUIRE(eventually([&] { return pids.set() == 4 && stopped(pids.pids()[1]); }));
  (void)::kill(program.pid(), SIGKILL);
  CHECK(eventually([&] { return all_ended(pids); }, milliseconds(2000)));
  CHECK(program.wait().status == 128 + SIGKILL);
}

TEST_CASE("launch: SIGTERM ends all replicas though nobody reads their output") {
  int pipe_ends[2];
  REQUIRE(::pipe(pipe_ends) == 0);
  const SharedNumbers pids(2);
  const int room = ::fcntl(pipe_ends[1], F_GETPIPE_SZ);
  ChildProgram program([&] {
    ::dup2(pipe_ends[1], STDOUT_FILENO);
    return launch(
        [&] {
          pids[own_index()] = ::getpid();
          while (own_index() == 1) std::cout << "nobody reads this line" << std::endl;
          block();
        },
        {.replicas = 2, .prints = Prints::all});
  });
  // The pipe has no room for one more line.
  CHECK(eventually([&] {
    int filled = 0;
    return ::ioctl(pipe_ends[0], FIONREAD, &filled) == 0 && filled > room - 2 * 4096;
  }));
  (void)::kill(program.pid(), SIGTERM);
  CHECK(program.wait(milliseconds(5000)).status == 128 + SIGTERM);
  CHECK(all_ended(pids));
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
}
