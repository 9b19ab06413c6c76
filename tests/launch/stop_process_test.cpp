// Jobs whose replicas are asked to end: OnStop::ask and stop_requested().

#include <atomic>
#include <csignal>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/collectives/psum.h"
#include "framework/launch/launch.h"
#include "tests/catch.h"
#include "tests/collectives/cases.h"
#include "tests/launch/launched.h"
#include "tests/support/ended.h"
#include "tests/support/settings.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr std::int64_t kReplicasToStop = 4;

// A signal, launch()'s status after it, and its name in messages.
struct Stop {
  int signal;
  int status;
  const char* name;
};
constexpr Stop kStops[] = {{SIGINT, 130, "Ctrl-C"},   {SIGTERM, 143, "SIGTERM"},
                           {SIGHUP, 129, "SIGHUP"},   {SIGUSR1, 143, "SIGUSR1"},
                           {SIGUSR2, 143, "SIGUSR2"}, {SIGXCPU, 143, "SIGXCPU"}};

std::vector<LaunchOptions> stoppable_jobs() {
  std::vector<LaunchOptions> jobs;
  for (std::int64_t workers = 1; workers <= kReplicasToStop; ++workers) {
    jobs.push_back({.replicas = kReplicasToStop, .workers = workers, .on_stop = OnStop::ask});
  }
  jobs.push_back({.replicas = kReplicasToStop, .backend = Backend::gloo, .on_stop = OnStop::ask});
  for (const std::int64_t workers : {1, 3, 4}) {
    jobs.push_back({.replicas = kReplicasToStop,
                    .workers = workers,
                    .mode = LaunchMode::threads,
                    .on_stop = OnStop::ask});
  }
  return jobs;
}

bool is_common(const Stop& stop) {
  return stop.signal == SIGINT || stop.signal == SIGTERM;
}

std::string asked_line(const Stop& stop) {
  return str("lockstep: warning: ", stop.name, ": replicas end at their next step; ",
             is_common(stop) ? "a second one after 2 s ends them at once\n"
                             : "Ctrl-C twice, 2 s apart, ends them at once\n");
}

std::string stopped_line(const Stop& stop) {
  return str("lockstep: error: stopped by ", stop.name, "; all replicas have ended\n");
}

bool any_is_asked() {
  return psum(stop_requested() ? 1 : 0, "data") > 0;
}

// A job whose replicas run in steps until they are asked to end. Then each replica calls `act`.
struct Steps {
  explicit Steps(
      const LaunchOptions& options, std::function<void()> act = [] {})
      : asked(std::move(act)), program(launching([this] { run(); }, options)) {
    REQUIRE(eventually([&] { return pids.set() == kReplicasToStop; }));
  }
  void run() {
    expect(!stop_requested(), "nobody has asked yet");
    while (!any_is_asked()) pids[own_index()] = ::getpid();
    saw[own_index()] = stop_requested() ? 1 : 0;
    asked();
  }
  void signal(int number) { (void)::kill(program.pid(), number); }

  SharedNumbers pids{kReplicasToStop};
  SharedNumbers saw{kReplicasToStop};
  std::function<void()> asked;
  ChildProgram program;
};

}  // namespace

TEST_CASE("a job that is asked to stop: every replica sees it, and the status names the signal") {
  Sample sample("jobs asked to stop");
  for (const LaunchOptions& options : stoppable_jobs()) {
    for (const Stop& stop : kStops) {
      // Only the launcher tells signals apart, so the rare ones need fewer kinds of jobs.
      if (!is_common(stop) &&
          (options.workers != kReplicasToStop || options.backend == Backend::gloo))
        continue;
      if (!sample.next()) continue;
      INFO(text_of(options) << ", " << stop.name);
      Steps job(options);
      job.signal(stop.signal);
      const Ended end = job.program.wait();
      check_status(end, stop.status);
      CHECK(!end.by_signal);
      CHECK(job.saw.set() == kReplicasToStop);
      CHECK_THAT(end.err, ContainsSubstring(asked_line(stop)));
      CHECK(last_words(end) == stopped_line(stop));
      CHECK(all_ended(job.pids));
    }
  }
}

TEST_CASE(
    "a job that is asked to stop: the signal may come to the whole process group, and twice") {
  for (const Stop& stop : kStops) {
    INFO(stop.name);
    Steps job({.replicas = kReplicasToStop, .on_stop = OnStop::ask}, meet);
    REQUIRE(::kill(-job.program.pid(), stop.signal) == 0);
    job.signal(stop.signal);
    const Ended end = job.program.wait();
    check_status(end, stop.status);
    CHECK(job.saw.set() == kReplicasToStop);
    CHECK(last_words(end) == stopped_line(stop));
  }
}

TEST_CASE("a job that is asked to stop: only Ctrl-C or SIGTERM again, 2 s later, ends it at once") {
  constexpr std::int64_t kPatienceMs = 2000;
  for (const LaunchMode mode : kModes) {
    for (const bool is_int : {false, true}) {
      const Stop& last = kStops[is_int ? 0 : 1];
      INFO(name_of(mode) << ", " << last.name);
      Steps job({.replicas = kReplicasToStop, .mode = mode, .on_stop = OnStop::ask}, [] {
        for (;;) meet();
      });
      const auto has_said = [&](const std::string& text) {
        return eventually([&] { return job.program.err().find(text) != std::string::npos; });
      };
      job.signal(SIGUSR1);
      REQUIRE(eventually([&] { return job.saw.set() == kReplicasToStop; }));
      // Two signals of one kind would be one if the first is still to be delivered.
      const int own_first = kStops[is_int ? 1 : 0].signal;
      for (const int asks : {own_first, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU}) job.signal(asks);
      CHECK(job.program.running());
      job.signal(last.signal);
      // The system may deliver the last of several signals first.
      REQUIRE(has_said(": replicas end at their next step; one that comes "));
      CHECK(has_said(" s later ends them at once\n"));
      const std::int64_t first = now_ms();  // the launcher has seen the first signal by now
      REQUIRE(eventually([&] { return now_ms() > first + kPatienceMs; }));
      for (const int asks : {SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU}) job.signal(asks);
      CHECK(job.program.running());
      job.signal(last.signal);
      const Ended end = job.program.wait();
      check_status(end, last.status);
      CHECK(!end.by_signal);
      CHECK_THAT(last_words(end), ContainsSubstring(str("stopped by ", last.name)));
      CHECK(all_ended(job.pids));
    }
  }
}

TEST_CASE(
    "a job that is asked to stop: of SIGUSR1 and SIGTERM, in whatever order, none is second") {
  for (const auto& [first, second] : {std::pair(SIGUSR1, SIGTERM), std::pair(SIGTERM, SIGUSR1)}) {
    Steps job({.replicas = kReplicasToStop, .on_stop = OnStop::ask}, meet);
    job.signal(first);
    job.signal(second);
    check_status(job.program.wait(), 143);
    CHECK(job.saw.set() == kReplicasToStop);
  }
}

TEST_CASE("a job that ends at once by any of the signals says which, and leaves nobody behind") {
  Sample sample("jobs ended at once");
  for (const LaunchMode mode : kModes) {
    for (const Stop& stop : kStops) {
      for (const std::int64_t replicas : {3, 5}) {
        // A terminal's Ctrl-C reaches the whole process group.
        for (const bool whole_group : {false, true}) {
          if (!is_common(stop) && (replicas == 5 || whole_group)) continue;
          if (!sample.next()) continue;
          INFO(replicas << " " << name_of(mode) << ", " << stop.name << ", group " << whole_group);
          const SharedNumbers pids(static_cast<std::size_t>(replicas));
          ChildProgram program(launching(
              [&] {
                pids[own_index()] = ::getpid();
                for (;;) meet();
              },
              {.replicas = replicas, .workers = replicas == 5 ? 2 : 3, .mode = mode}));
          REQUIRE(eventually([&] { return pids.set() == static_cast<std::size_t>(replicas); }));
          (void)::kill(whole_group ? -program.pid() : program.pid(), stop.signal);
          const Ended end = program.wait();
          check_status(end, stop.status);
          CHECK(!end.by_signal);
          CHECK(last_words(end) == (mode == LaunchMode::processes
                                        ? stopped_line(stop)
                                        : str("lockstep: error: stopped by ", stop.name, "\n")));
          CHECK(all_ended(pids));
        }
      }
    }
  }
}

TEST_CASE("the end of one worker's processor time asks the whole job to stop") {
  Steps job({.replicas = kReplicasToStop, .on_stop = OnStop::ask});
  (void)::kill(static_cast<pid_t>(job.pids[2]), SIGXCPU);
  const Ended end = job.program.wait();
  check_status(end, 143);
  CHECK(job.saw.set() == kReplicasToStop);
  CHECK(last_words(end) == stopped_line({SIGXCPU, 143, "SIGXCPU"}));
}

namespace {

std::atomic<std::int64_t>* handled = nullptr;

}  // namespace

TEST_CASE("signals for which the program has a handler, or which it ignores, are left alone") {
  for (const OnStop on_stop : {OnStop::ask, OnStop::end}) {
    for (const LaunchMode mode : kModes) {
      INFO(name_of(mode) << ", " << (on_stop == OnStop::ask ? "ask" : "end"));
      const SharedNumbers running(2);
      const SharedNumbers count(1);
      const SharedNumbers ends(1);
      ChildProgram program([&] {
        handled = &count[0];
        const auto own = [](int) { ++*handled; };
        for (const int signal : {SIGINT, SIGUSR1}) (void)std::signal(signal, own);
        for (const int signal : {SIGHUP, SIGUSR2}) (void)std::signal(signal, SIG_IGN);
        const auto replica = [&] {
          do {
            expect(!stop_requested(), "nobody has asked");
            running[own_index()] = 1;
          } while (psum(ends[0] == 0 ? 0 : 1, "data") < 2);
        };
        const int status = launch(replica, {.replicas = 2, .mode = mode, .on_stop = on_stop});
        struct sigaction after {};
        ::sigaction(SIGUSR1, nullptr, &after);
        return status != 0 ? status : after.sa_handler == own ? 0 : 50;
      });
      REQUIRE(eventually([&] { return running.set() == 2; }));
      for (const int signal : {SIGHUP, SIGUSR2, SIGUSR1}) (void)::kill(program.pid(), signal);
      CHECK(eventually([&] { return count[0] == 1; }));
      (void)::kill(program.pid(), SIGINT);
      CHECK(eventually([&] { return count[0] == 2; }));
      ends[0] = 1;
      const Ended end = program.wait();
      check_status(end, 0);
      CHECK_THAT(end.err, !ContainsSubstring("stopped by"));
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
  Sample sample("failures of jobs asked to stop");
  for (const LaunchOptions& options : stoppable_jobs()) {
    for (const Case& failure : cases) {
      if (options.mode == LaunchMode::threads && !failure.in_threads) continue;
      if (!sample.next()) continue;
      INFO(text_of(options) << ": " << failure.text);
      Steps job(options, [&] {
        if (own_index() == 2) failure.fail();
        meet();
      });
      job.signal(SIGTERM);
      const Ended end = job.program.wait();
      check_status(end, failure.status);
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
        // Until its end the replica notes if the launcher asks it to stop.
        for (seen[0] = 1; seen[0] == 1;) seen[0] = stop_requested() ? 2 : 1;
        block();
      },
      {.replicas = 2, .on_stop = OnStop::ask}));
  REQUIRE(eventually([&] { return pids.set() == 2 && seen[0] != 0; }));
  (void)::kill(pids.pids()[1], SIGTERM);
  const Ended end = program.wait();
  check_status(end, 3);
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
    check_status(program.wait(), 0);
  }
}

TEST_CASE("OnStop::ask: a process that a thread has forked ends with its first signal") {
  check_launched(
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
}
