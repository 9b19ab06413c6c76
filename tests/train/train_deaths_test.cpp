#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <poll.h>
#include <pty.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "framework/base/text.h"
#include "framework/telemetry/event_file.h"
#include "framework/telemetry/failure_record.h"
#include "framework/telemetry/run_folder.h"
#include "tests/catch.h"
#include "tests/support/ended.h"
#include "tests/support/settings.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/terminals.h"
#include "tests/support/traces.h"
#include "tests/train/train_in_fork.h"
#include "tests/train/train_program.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// Well before any timeout, which is 60 s; the machine may have more to do than this.
constexpr std::chrono::seconds kSoon{15};

// A training run that would not end by itself, seen when it is in its midst.
class LongRun {
 public:
  explicit LongRun(const std::string& launch = "processes")
      : program_(training(folder_.path(),
                          {"--config", config_file("pmean_linear.yaml"), "--replicas", "3",
                           "--launch", launch, "--set", "trainer.steps=1000000000", "--set",
                           "trainer.log_every=1", "--quiet", "--output", "run"})) {
    if (!eventually([&] { return has_logged(folder()); }))
      throw std::runtime_error("train does not train: " + program_.err());
    replicas_ = children_of(program_.pid());
    traces_.note(program_.pid());
    for (const pid_t pid : replicas_) traces_.note(pid);
  }

  fs::path folder() const { return folder_.path() / "run"; }
  ChildProgram& program() { return program_; }
  const std::vector<pid_t>& replicas() const { return replicas_; }

  bool replicas_ended() const {
    return std::all_of(replicas_.begin(), replicas_.end(), [](pid_t pid) { return ended(pid); });
  }

  /// What is left once all has ended: sockets that listen, shared memory, half-written files.
  std::vector<fs::path> left_behind() const {
    std::vector<fs::path> left = traces_.left();
    for (const auto& entry : fs::directory_iterator(folder_.path() / "run")) {
      const std::string name = entry.path().filename();
      if (name == "checkpoints") {
        for (const auto& inside : fs::directory_iterator(entry.path())) {
          if (inside.path().filename().string()[0] == '.') left.push_back(inside.path());
        }
      } else if (name != "config.yaml" && name != "metrics.jsonl" && name != "failure.json" &&
                 name != kEventsFile && name != kReportFile &&
                 !name.starts_with(telemetry::kEventFileBegin)) {
        left.push_back(entry.path());
      }
    }
    return left;
  }

 private:
  TemporaryFolder folder_;
  ChildProgram program_;
  std::vector<pid_t> replicas_;
  Traces traces_;
};

}  // namespace

TEST_CASE("a replica killed in mid-training ends the job, 20 times out of 20") {
  std::set<std::string> named;
  for (std::size_t round = 0; round < 20; ++round) {
    LongRun run;
    REQUIRE(run.replicas().size() == 3);
    const pid_t victim = run.replicas()[round % 3];
    const auto killed = Clock::now();
    REQUIRE(::kill(victim, SIGKILL) == 0);
    const Ended end = run.program().wait();
    const auto took = Clock::now() - killed;
    INFO("round " << round << "\n" << end.err);
    CHECK(end.status == 3);
    CHECK(!end.by_signal);
    CHECK(took < kSoon);
    CHECK(end.out.empty());
    std::smatch found;
    const std::regex message("lockstep: error: (replica [0-2]) \\(pid " + std::to_string(victim) +
                             "\\) was lost: killed by signal 9 \\(Killed\\)\n");
    CHECK(std::regex_match(end.err, found, message));
    if (found.size() == 2) named.insert(found[1]);
    const FailureRecord failure = read_failure(run.folder() / "failure.json");
    CHECK("lockstep: error: " + failure.verdict + "\n" == end.err);
    REQUIRE(failure.replicas.size() == 3);
    for (const auto& replica : failure.replicas) {
      CHECK(replica.events.size() > 10);
      CHECK(replica.step.value_or(0) > 0);
    }
    if (round == 0) {
      const Ended told = train(run.folder(), {"inspect", "."});
      CHECK(told.status == 0);
      CHECK_THAT(told.out, ContainsSubstring(failure.verdict) && ContainsSubstring(", step "));
      CHECK_THAT(train(run.folder(), {"runs", "."}).out, ContainsSubstring("\n.    failed "));
    }
    CHECK(run.replicas_ended());
    CHECK(run.left_behind().empty());
  }
  CHECK(named == std::set<std::string>{"replica 0", "replica 1", "replica 2"});
}

TEST_CASE("signals that stop end training after a checkpoint, each with its exit status") {
  struct Stop {
    int signal;
    int status;
    std::string name;
    std::string further;
  };
  const std::string second = "a second one after 2 s ends them at once";
  const std::string twice = "Ctrl-C twice, 2 s apart, ends them at once";
  const std::vector<Stop> stops{{SIGINT, 130, "Ctrl-C", second},  {SIGTERM, 143, "SIGTERM", second},
                                {SIGHUP, 129, "SIGHUP", twice},   {SIGUSR1, 143, "SIGUSR1", twice},
                                {SIGUSR2, 143, "SIGUSR2", twice}, {SIGXCPU, 143, "SIGXCPU", twice}};
  for (const Stop& stop : stops) {
    for (const std::string launch : {"processes", "threads"}) {
      INFO(stop.name << ", " << launch);
      LongRun run(launch);
      const auto sent = Clock::now();
      REQUIRE(::kill(run.program().pid(), stop.signal) == 0);
      const Ended end = run.program().wait();
      CHECK(Clock::now() - sent < kSoon);
      CHECK(end.status == stop.status);
      CHECK(!end.by_signal);
      CHECK(end.out.empty());
      CHECK(end.err == "lockstep: warning: " + stop.name + ": replicas end at their next step; " +
                           stop.further + "\nlockstep: error: stopped by " + stop.name +
                           "; all replicas have ended\n");
      CHECK(fs::exists(run.folder() / "checkpoints/latest/manifest.json"));
      CHECK(run.replicas_ended());
      CHECK(run.left_behind().empty());
    }
  }
}

TEST_CASE("a closed terminal ends training after a checkpoint") {
  if (!has_terminals()) {
    WARN("no terminal can be made here: /dev/pts is not mounted");
    return;
  }
  for (const std::string launch : {"processes", "threads"}) {
    INFO(launch);
    const TemporaryFolder folder;
    const std::vector<std::string> command = train_command(
        {"--config", config_file("pmean_linear.yaml"), "--replicas", "2", "--launch", launch,
         "--set", "trainer.steps=1000000000", "--set", "trainer.log_every=1", "--output", "run"});
    int terminal = -1;
    const pid_t pid = ::forkpty(&terminal, nullptr, nullptr, nullptr);
    REQUIRE(pid >= 0);
    if (pid == 0) {
      if (::chdir(folder.path().c_str()) == 0) become(command);
      ::_exit(98);
    }
    CHECK(eventually([&] {
      std::array<char, 4096> shown{};
      pollfd polled{terminal, POLLIN, 0};
      while (::poll(&polled, 1, 0) > 0 && ::read(terminal, shown.data(), shown.size()) > 0)
        continue;
      return has_logged(folder.path() / "run");
    }));
    ::close(terminal);
    int status = 0;
    const bool has_ended = eventually([&] { return ::waitpid(pid, &status, WNOHANG) == pid; });
    if (!has_ended) ::kill(pid, SIGKILL);
    REQUIRE(has_ended);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 129);
    CHECK(fs::exists(folder.path() / "run/checkpoints/latest/manifest.json"));
  }
}

TEST_CASE("a run that was started to ignore SIGHUP, as by nohup, goes on after it") {
  const TemporaryFolder folder;
  const Flags flags =
      Flags{"--config", config_file("pmean_linear.yaml"), "--replicas", "2", "--output", "run"} +
      set("trainer.steps=1000000000 trainer.log_every=1");
  ChildProgram program(
      Flags{"/bin/sh", "-c", "trap '' HUP; exec \"$@\"", "sh"} + train_command(flags),
      folder.path());
  const auto lines = [&] {
    std::ifstream metrics(folder.path() / "run/metrics.jsonl");
    return std::count(std::istreambuf_iterator<char>(metrics), {}, '\n');
  };
  REQUIRE(eventually([&] { return lines() > 0; }));
  REQUIRE(::kill(-program.pid(), SIGHUP) == 0);
  const auto before = lines();
  CHECK(eventually([&] { return lines() > before + 100; }));
  REQUIRE(::kill(-program.pid(), SIGTERM) == 0);
  const Ended end = program.wait();
  check_status(end, 143);
  CHECK_THAT(end.err, !ContainsSubstring("SIGHUP"));
}

TEST_CASE("a run hears the signals that its parent has blocked, as the JVM's threads do") {
  for (const std::string launch : {"processes", "threads"}) {
    INFO(launch);
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    LongRun run(launch);
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    REQUIRE(::kill(run.program().pid(), SIGTERM) == 0);
    check_status(run.program().wait(kSoon), 143);
    CHECK(fs::exists(run.folder() / "checkpoints/latest/manifest.json"));
  }
}

TEST_CASE("a killed launcher leaves no replica and nothing else behind") {
  LongRun run;
  REQUIRE(run.replicas().size() == 3);
  REQUIRE(::kill(run.program().pid(), SIGKILL) == 0);
  CHECK(eventually([&] { return run.replicas_ended(); }, kSoon));
  CHECK(run.program().wait().status == 128 + SIGKILL);
  CHECK(run.left_behind().empty());
}

TEST_CASE("train needs no standard streams, and no signal about children") {
  Sample sample("closed streams of train");
  for (const std::string launch : {"processes", "threads"}) {
    for (const std::string streams : {"<&- >&- 2>&-", "<&-", ">&-", "2>&-"}) {
      if (!sample.next()) continue;
      INFO(launch << " " << streams);
      const TemporaryFolder folder;
      ChildProgram program(Flags{"/bin/sh", "-c", "trap '' CHLD; exec \"$@\" " + streams, "sh"} +
                               train_command({"--config", config_file("pmean_linear.yaml"),
                                              "--launch", launch, "--output", "run"}),
                           folder.path());
      CHECK(program.wait(std::chrono::seconds(30)).status == 0);
      CHECK(fs::exists(folder.path() / "run/result.json"));
    }
  }
}
