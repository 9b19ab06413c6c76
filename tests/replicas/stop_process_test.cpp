// Jobs whose replicas are asked to end: OnStop::ask and stop_requested().

#include <csignal>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/collectives/psum.h"
#include "framework/replicas/launch.h"
#include "tests/catch.h"
#include "tests/collectives/cases.h"
#include "tests/replicas/launched.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr std::int64_t kReplicas = 4;

std::vector<LaunchOptions> stoppable_jobs() {
  std::vector<LaunchOptions> jobs;
  for (std::int64_t workers = 1; workers <= kReplicas; ++workers) {
    jobs.push_back({.replicas = kReplicas, .workers = workers, .on_stop = OnStop::ask});
  }
  jobs.push_back({.replicas = kReplicas, .backend = Backend::gloo, .on_stop = OnStop::ask});
  for (const std::int64_t workers : {1, 3, 4}) {
    jobs.push_back({.replicas = kReplicas,
                    .workers = workers,
                    .mode = LaunchMode::threads,
                    .on_stop = OnStop::ask});
  }
  return jobs;
}

std::string kind_of(const LaunchOptions& options) {
  return str(options.workers, " workers, ", name_of(options.mode),
             options.backend == Backend::gloo ? ", gloo" : "");
}

std::string asked_line(int signal) {
  return str("lockstep: warning: ", signal == SIGINT ? "Ctrl-C" : "SIGTERM",
             ": replicas end at their next step; a second one ends them at once\n");
}

std::string stopped_line(int signal) {
  return str("lockstep: error: stopped by ", signal == SIGINT ? "Ctrl-C" : "SIGTERM",
             "; all replicas have ended\n");
}

bool any_is_asked() {
  return psum(stop_requested() ? 1 : 0, "data") > 0;
}

// A job whose replicas run in steps until they are asked to end. Then each calls `act`.
struct Steps {
  explicit Steps(
      const LaunchOptions& options, std::function<void()> act = [] {})
      : asked(std::move(act)), program(launching([this] { run(); }, options)) {
    REQUIRE(eventually([&] { return pids.set() == kReplicas; }));
  }
  void run() {
    expect(!stop_requested(), "nobody has asked yet");
    while (!any_is_asked()) pids[own_index()] = ::getpid();
    saw[own_index()] = stop_requested() ? 1 : 0;
    asked();
  }
  void signal(int number) { (void)::kill(program.pid(), number); }

  SharedNumbers pids{kReplicas};
  SharedNumbers saw{kReplicas};
  std::function<void()> asked;
  ChildProgram program;
};

}  // namespace

TEST_CASE("a job that is asked to stop: every replica sees it, and the status names the signal") {
  for (const LaunchOptions& options : stoppable_jobs()) {
    for (const int signal : {SIGINT, SIGTERM}) {
      INFO(kind_of(options) << ", signal " << signal);
      Steps job(options);
      job.signal(signal);
      const Ended end = job.program.wait();
      INFO(end.err);
      CHECK(end.status == 128 + signal);
      CHECK(!end.by_signal);
      CHECK(job.saw.set() == kReplicas);
      CHECK_THAT(end.err, ContainsSubstring(asked_line(signal)));
      CHECK(last_words(end) == stopped_line(signal));
      CHECK(all_ended(job.pids));
    }
  }
}

TEST_CASE("a job that is asked to stop: the signal may come to the whole process group") {
  for (const int signal : {SIGINT, SIGTERM}) {
    Steps job({.replicas = kReplicas, .on_stop = OnStop::ask});
    REQUIRE(::kill(-job.program.pid(), signal) == 0);
    const Ended end = job.program.wait();
    INFO(end.err);
    CHECK(end.status == 128 + signal);
    CHECK(job.saw.set() == kReplicas);
    CHECK(last_words(end) == stopped_line(signal));
  }
}

TEST_CASE("a job that is asked to stop: the second signal, of either kind, ends it at once") {
  for (const LaunchOptions& options : stoppable_jobs()) {
    for (const int second : {SIGINT, SIGTERM}) {
      INFO(kind_of(options) << ", second signal " << second);
      Steps job(options, [] {
        for (;;) meet();
      });
      job.signal(SIGINT);
      REQUIRE(eventually([&] { return job.saw.set() == kReplicas; }));
      job.signal(second);
      const Ended end = job.program.wait();
      INFO(end.err);
      CHECK(end.status == 128 + second);
      CHECK(!end.by_signal);
      CHECK_THAT(last_words(end),
                 ContainsSubstring(second == SIGINT ? "stopped by Ctrl-C" : "stopped by SIGTERM"));
      CHECK(all_ended(job.pids));
    }
  }
}

TEST_CASE("a job that is asked to stop: what fails then is the root cause, with its status") {
  struct Case {
    std::function<void()> fail;
    int status;
    const char* text;
    bool in_threads;
  };
  const std::vector<Case> cases{
      {[] { throw DataError("no room to save"); }, 2, "no room to save", true},
      {[] { throw std::runtime_error("no disk"); }, 1, "no disk", true},
      {[] { (void)::raise(SIGKILL); }, 3, "lost: killed by signal 9 (Killed)", false}};
  for (const LaunchOptions& options : stoppable_jobs()) {
    for (const Case& failure : cases) {
      if (options.mode == LaunchMode::threads && !failure.in_threads) continue;
      INFO(kind_of(options) << ": " << failure.text);
      Steps job(options, [&] {
        if (own_index() == 2) failure.fail();
        meet();
      });
      job.signal(SIGTERM);
      const Ended end = job.program.wait();
      INFO(end.err);
      CHECK(end.status == failure.status);
      CHECK_THAT(last_words(end), ContainsSubstring(failure.text));
    }
  }
}

TEST_CASE("stop_requested: the end of others never sets it, nor a SIGTERM to a worker") {
  const SharedNumbers seen(1);
  const SharedNumbers pids(2);
  ChildProgram program(launching(
      [&] {
        if (own_index() == 1) (void)std::signal(SIGTERM, SIG_DFL);  // workers ignore it
        meet();
        pids[own_index()] = ::getpid();
        if (own_index() == 1) block();
        // Until the launcher ends it: it sees what the launcher does then.
        for (seen[0] = 1; seen[0] == 1;) seen[0] = stop_requested() ? 2 : 1;
        block();
      },
      {.replicas = 2, .on_stop = OnStop::ask}));
  REQUIRE(eventually([&] { return pids.set() == 2 && seen[0] != 0; }));
  (void)::kill(pids.pids()[1], SIGTERM);
  const Ended end = program.wait();
  INFO(end.err);
  CHECK(end.status == 3);
  CHECK(last_words(end) == str("lockstep: error: replica 1 (pid ", pids[1],
                               ") was lost: killed by signal 15 (Terminated)\n"));
  CHECK(seen[0] == 1);
}

TEST_CASE("stop_requested: false outside of a launch, and in the next one") {
  for (const LaunchMode mode : kModes) {
    const SharedNumbers running(1);
    ChildProgram program([&] {
      const LaunchOptions options{.replicas = 2, .mode = mode, .on_stop = OnStop::ask};
      const auto steps = [&] {
        while (!any_is_asked()) running[0] = 1;
      };
      const int first = stop_requested() ? 50 : launch(steps, options);
      if (first != 128 + SIGINT || stop_requested()) return 51;
      return launch([] { expect(!stop_requested(), "another job's"); }, options);
    });
    REQUIRE(eventually([&] { return running.set() == 1; }));
    (void)::kill(program.pid(), SIGINT);
    const Ended end = program.wait();
    INFO(end.err);
    CHECK(end.status == 0);
  }
}

TEST_CASE("OnStop::ask: a process that a thread has forked ends with its first signal") {
  const Ended end = launched(
      [] {
        const pid_t child = ::fork();
        if (child == 0) block();
        (void)::kill(child, SIGTERM);
        int status = 0;
        expect(::waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 128 + SIGTERM,
               "its end");
        expect(!stop_requested(), "it is the child that was stopped");
      },
      {.mode = LaunchMode::threads, .on_stop = OnStop::ask});
  INFO(end.err);
  CHECK(end.status == 0);
}
