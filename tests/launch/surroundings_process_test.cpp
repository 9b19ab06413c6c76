// Jobs in their surroundings: how they were started, who stops them, and what replicas do to their
// process.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <poll.h>
#include <signal.h>
#include <sys/fsuid.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "framework/launch/launch.h"
#include "framework/maps/pmap.h"
#include "framework/timeline/step_times.h"
#include "tests/catch.h"
#include "tests/collectives/cases.h"
#include "tests/launch/launched.h"
#include "tests/support/ended.h"
#include "tests/support/message_of.h"
#include "tests/support/settings.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Returns the kinds of jobs of three replicas.
std::vector<LaunchOptions> kinds() {
  return {{.replicas = 3},
          {.replicas = 3, .backend = Backend::gloo},
          {.replicas = 3, .workers = 2},
          {.replicas = 3, .mode = LaunchMode::threads},
          {.replicas = 3, .workers = 1, .mode = LaunchMode::threads}};
}

void ignore_ends_of_children() {
  (void)::signal(SIGCHLD, SIG_IGN);
}

void reap_unasked() {
  struct sigaction action {};
  action.sa_flags = SA_NOCLDWAIT;
  action.sa_handler = SIG_DFL;
  (void)::sigaction(SIGCHLD, &action, nullptr);
}

void take_all_ends() {
  struct sigaction action {};
  action.sa_handler = [](int) {
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
  };
  (void)::sigaction(SIGCHLD, &action, nullptr);
}

// Returns true if each of the job's replicas has a pause of so many seconds.
bool all_were_paused(double least) {
  const auto replicas = timeline::read_replicas(timeline::track_here->recorder());
  return std::ranges::all_of(replicas, [&](const timeline::ReplicaRecording& replica) {
    return std::ranges::any_of(replica.tracks.back().spans, [&](const auto& span) {
      return span.kind == timeline::SpanKind::pause &&
             static_cast<double>(span.end - span.begin) * 1e-9 > least;
    });
  });
}

constexpr int kTellPause = 2;

// A job that goes on until its test ends it.
struct Endless {
  explicit Endless(LaunchOptions options) : program(launching([this] { run(); }, options)) {
    REQUIRE(eventually([&] { return pids.set() == 3; }));
  }
  void run() {
    int told = 0;
    while (told == 0) {
      meet();
      pids[own_index()] = ::getpid();
      told = psum(at::full({}, own_index() == 0 ? end[0].load() : 0), "data").item<int>();
    }
    if (told == kTellPause && own_index() == 0)
      expect(eventually([] { return all_were_paused(2); }), "the recorder has the pause of all");
  }

  SharedNumbers pids{3};
  SharedNumbers end{1};
  ChildProgram program;
};

int overflow(int depth) {
  volatile char room[4096];
  room[0] = static_cast<char>(depth);
  return depth < 0 ? room[0] : overflow(depth + 1) + room[0];
}

void fault() {
  volatile int* volatile nowhere = nullptr;  // g++ must not know it
  *nowhere = 1;
}

void take_too_much() {
  std::vector<char> much;
  much.reserve(std::size_t{1} << 60);
  char* volatile seen = much.data();  // or g++ may leave it out
  (void)seen;
}

constexpr std::int64_t kManyBytes = std::int64_t{50} << 20;

}  // namespace

TEST_CASE("launch: a job ends though the ends of children are ignored, or taken by others") {
  for (const auto& prepare : {ignore_ends_of_children, reap_unasked, take_all_ends}) {
    for (const std::int64_t workers : {3, 2}) {
      const auto ended_with = [&](const std::function<void()>& replica) {
        ChildProgram program([&] {
          prepare();
          return launch(replica, {.replicas = 3, .workers = workers});
        });
        return program.wait(seconds(20));
      };
      check_status(ended_with(meet), 0);
      const Ended failed = ended_with([] {
        if (own_index() == 1) throw DataError("bad file");
        meet();
      });
      CHECK(failed.status == 2);
      CHECK_THAT(last_words(failed),
                 ContainsSubstring("failed with DataError, exit status 2: bad"));
      const Ended lost = ended_with([] {
        if (own_index() == 2) ::_exit(7);
        meet();
      });
      CHECK(lost.status == 3);
      CHECK_THAT(last_words(lost), ContainsSubstring("replica"));
    }
  }
}

TEST_CASE("launch: what SIGCHLD does in the program is as before") {
  const Ended ended = run_forked([] {
    ignore_ends_of_children();
    const int status = launch(meet, {.replicas = 2});
    struct sigaction now {};
    ::sigaction(SIGCHLD, nullptr, &now);
    return now.sa_handler == SIG_IGN ? status : 50;
  });
  CHECK(ended.status == 0);
}

TEST_CASE("launch: closed standard streams take nothing from a job") {
  Sample sample("closed streams");
  for (const LaunchOptions& options : kinds()) {
    for (int closed = 1; closed < 8; ++closed) {
      if (!sample.next()) continue;
      INFO(text_of(options) << ", closed: " << closed);
      ChildProgram program([&] {
        for (int stream = 0; stream < 3; ++stream) {
          if ((closed >> stream) % 2 == 1) ::close(stream);
        }
        return launch(
            [] {
              const std::string much(100'000, '.');
              for (int round = 1; round <= 3; ++round) {
                std::cout << "out" << much << std::endl;
                std::fprintf(stderr, "err%s\n", much.c_str());
                const Tensor sum = psum(at::full({50'000}, round), "data");
                if (!sum.equal(at::full({50'000}, 3 * round))) ::_exit(9);
              }
            },
            options);
      });
      const Ended ended = program.wait(seconds(30));
      CHECK(ended.status == 0);
      const bool out = (closed & 2) == 0;
      const bool err = (closed & 4) == 0;
      CHECK((ended.out.find("out") != std::string::npos) == out);
      CHECK((ended.err.find("err") != std::string::npos) == err);
    }
  }
}

TEST_CASE("launch: a job that is paused for longer than its timeout goes on, and has recorded it") {
  for (LaunchOptions options : kinds()) {
    INFO(text_of(options));
    options.timeout = milliseconds(1000);
    Endless job(options);
    const auto everyone = [&] {
      auto pids = job.pids.pids();
      pids.push_back(job.program.pid());
      return pids;
    };
    (void)::kill(-job.program.pid(), SIGSTOP);
    for (const pid_t pid : everyone()) CHECK(eventually([&] { return stopped(pid); }));
    ::poll(nullptr, 0, 2500);  // what is to pass unseen
    (void)::kill(-job.program.pid(), SIGCONT);
    job.end[0] = kTellPause;
    check_status(job.program.wait(), 0);
  }
}

TEST_CASE("launch: a job on several hosts that is paused as a whole goes on, whoever wakes first") {
  for (const std::size_t first : {0U, 1U}) {
    for (const int later_ms : {0, 400, 3000}) {
      const bool is_short = later_ms < 1000;
      INFO("host " << first << " wakes first, by " << later_ms << " ms");
      const SharedNumbers pids(4);
      const SharedNumbers rounds(1);
      const SharedNumbers end(1);
      const auto replica = [&] {
        pids[own_index()] = ::getpid();
        double told = 0;
        while (told == 0) {
          if (own_index() == 0) ++rounds[0];
          told = psum(at::full({}, own_index() == 0 ? end[0].load() : 0), "data").item<double>();
        }
      };
      const auto goes_on = [&] {
        const std::int64_t before = rounds[0];
        return eventually([&] { return rounds[0] > before + 10; });
      };
      const auto pause = [&](const auto& launchers) {
        if (launchers.size() < 2) return;
        CHECK(eventually([&] { return pids.set() == 4; }));
        CHECK(goes_on());
        for (const auto& launcher : launchers) (void)::kill(-launcher->pid(), SIGSTOP);
        for (const pid_t pid : pids.pids()) CHECK(eventually([&] { return stopped(pid); }));
        ::poll(nullptr, 0, 2500);  // what is to pass unseen
        (void)::kill(-launchers[first]->pid(), SIGCONT);
        ::poll(nullptr, 0, later_ms);
        (void)::kill(-launchers[1 - first]->pid(), SIGCONT);
        if (is_short) CHECK(goes_on());
        end[0] = 1;
      };
      const LaunchOptions options{.replicas = 4, .timeout = milliseconds(1000)};
      const auto ended = launched_on_hosts(replica, options, 2, pause);
      for (const Ended& host : ended) check_status(host, is_short ? 0 : 3);
      if (is_short) continue;
      CHECK(last_words(ended[0]) == last_words(ended[1]));
      CHECK_THAT(last_words(ended[0]), ContainsSubstring(str("host ", 1 - first, " (")) &&
                                           ContainsSubstring("has said nothing for 1 s"));
    }
  }
}

TEST_CASE("launch: a launcher that is paused while it waits for others meets them") {
  for (const std::int64_t first : {0, 1}) {
    INFO("host " << first << " comes first");
    LaunchOptions options{.replicas = 2};
    options.hosts.rank = first;
    options.hosts.meet_timeout = milliseconds(5000);
    const auto pause = [&](const auto& launchers) {
      if (launchers.size() > 1) return;
      const ChildProgram& one = *launchers[0];
      const std::string waits =
          first == 0 ? " waits for the others at " : " waits, for 5 s at most";
      CHECK(eventually([&] { return one.err().find(waits) != std::string::npos; }));
      (void)::kill(-one.pid(), SIGSTOP);
      ::poll(nullptr, 0, 6000);  // what is to pass unseen
      (void)::kill(-one.pid(), SIGCONT);
    };
    for (const Ended& ended : launched_on_hosts(meet, options, 2, pause)) check_status(ended, 0);
  }
}

TEST_CASE("launch: the recorder has when a replica was stopped, and for how long") {
  const SharedNumbers pids(2);
  const Ended ended = launched(
      [&] {
        pids[own_index()] = ::getpid();
        meet();
        if (own_index() == 1) (void)::raise(SIGSTOP);
        if (own_index() == 0) {
          const auto pauses = [] {
            std::vector<timeline::Recorder::Span> spans;
            const auto replicas = timeline::read_replicas(timeline::track_here->recorder());
            for (const auto& track : replicas.at(1).tracks)
              if (track.track == "launcher") spans = track.spans;
            return spans;
          };
          const auto is_paused = [&](bool is_over) {
            const auto spans = pauses();
            return spans.size() == 1 && spans[0].kind == timeline::SpanKind::pause &&
                   (spans[0].end != 0) == is_over;
          };
          expect(eventually([&] { return is_paused(false); }), "it is paused");
          (void)::kill(pids.pids()[1], SIGCONT);
          expect(eventually([&] { return is_paused(true); }), "the pause is over");
        }
        meet();
      },
      {.replicas = 2});
  check_status(ended, 0);
}

TEST_CASE("launch: when all workers are stopped the launcher ends the job") {
  for (const Backend backend : {Backend::automatic, Backend::gloo}) {
    for (const std::int64_t workers : {3, 2}) {
      Endless job(
          {.replicas = 3, .workers = workers, .backend = backend, .timeout = milliseconds(300)});
      for (const pid_t pid : job.pids.pids()) (void)::kill(pid, SIGSTOP);
      const Ended ended = job.program.wait(seconds(20));
      check_status(ended, 3);
      CHECK_THAT(last_words(ended), ContainsSubstring("Timeout"));
      CHECK(all_ended(job.pids));
    }
  }
  const SharedNumbers pid(1);
  ChildProgram alone(launching(
      [&] {
        pid[0] = ::getpid();
        block();
      },
      {.timeout = milliseconds(300)}));
  REQUIRE(eventually([&] { return pid.set() == 1; }));
  (void)::kill(pid.pids()[0], SIGSTOP);
  const Ended ended = alone.wait(seconds(20));
  CHECK(ended.status == 3);
  CHECK(last_words(ended) == str("lockstep: error: Timeout: replica 0 (pid ", pid[0],
                                 ") has been stopped by a signal for longer than 300 ms\n"));
}

TEST_CASE("launch: one that waits and is stopped does not leave the others' end to nobody") {
  const SharedNumbers pids(2);
  ChildProgram program(launching(
      [&] {
        meet();
        pids[own_index()] = ::getpid();
        if (own_index() == 0) block();
        // The replica is stopped in the midst of its wait.
        (void)::signal(SIGALRM, [](int) { (void)::raise(SIGSTOP); });
        const itimerval soon{.it_interval = {}, .it_value = {.tv_sec = 0, .tv_usec = 300'000}};
        (void)::setitimer(ITIMER_REAL, &soon, nullptr);
        meet();
      },
      {.replicas = 2, .timeout = milliseconds(2000)}));
  const Ended ended = program.wait(seconds(30));
  check_status(ended, 3);
  CHECK_THAT(last_words(ended),
             ContainsSubstring(str("lockstep: error: Timeout: replica 1 (pid ", pids[1],
                                   ") has been stopped by a signal for longer than 2000 ms in a "
                                   "wait: replica 1 waits in psum over 'data' at launched.cpp")));
  CHECK_THAT(last_words(ended), ContainsSubstring(": replica 0 has not arrived: it is running, "));
  CHECK(all_ended(pids));
}

TEST_CASE("launch: an error of 50 MB is told in short, and as the root cause") {
  for (const LaunchOptions& options : kinds()) {
    INFO(text_of(options));
    const Ended ended = launched(
        [] {
          meet();
          if (own_index() == 1) throw DataError("line 7: " + std::string(kManyBytes, 'x'));
          for (;;) meet();
        },
        options);
    CHECK(ended.status == 2);
    CHECK_THAT(last_words(ended), ContainsSubstring("replica 1"));
    CHECK_THAT(last_words(ended), ContainsSubstring("DataError"));
    CHECK_THAT(last_words(ended), ContainsSubstring("line 7: xxxx"));
    CHECK_THAT(last_words(ended), ContainsSubstring(" bytes more)"));
    CHECK(last_words(ended).size() < 40'000);
  }
}

TEST_CASE("launch: a line that never ends takes no memory, and its last state is kept") {
  for (const std::size_t writer : {0U, 1U}) {
    const SharedNumbers grown(1);
    const Ended ended = run_forked([&] {
      const auto peak = [] {
        rusage use{};
        ::getrusage(RUSAGE_SELF, &use);
        return use.ru_maxrss;  // in KiB
      };
      const auto before = peak();
      const int status = launch(
          [&] {
            if (own_index() == writer) {
              std::cerr << "it begins\n";
              const std::string bar(1000, '#');
              for (std::int64_t done = 0; done < kManyBytes / 1000; ++done) {
                std::cerr << "\r" << bar << done;
              }
              std::cerr << "\rthe last state" << std::flush;
              throw DataError("no more");
            }
            meet();
          },
          {.replicas = 2});
      grown[0] = (peak() - before) << 10;
      return status;
    });
    CHECK(ended.status == 2);
    CHECK(grown[0] < kManyBytes / 2);
    const std::string words = last_words(ended);
    CHECK_THAT(words, ContainsSubstring(str("replica ", writer, " (pid ")));
    CHECK_THAT(words, ContainsSubstring("\n  | it begins\n  | the last state\n"));
    CHECK(words.size() < 1000);
    CHECK(static_cast<std::int64_t>(ended.err.size()) > kManyBytes);  // nothing is left out
  }
}

TEST_CASE("launch: two threads of a program do not launch at once") {
  const Ended ended = run_forked([] {
    std::string refused;
    const int status = launch(
        [&] {
          if (own_index() == 0) {
            std::thread other(
                [&] { refused = message_of<ValueError>([] { (void)launch([] {}); }); });
            other.join();
          }
          meet();
        },
        {.replicas = 2, .mode = LaunchMode::threads});
    std::cerr << refused << "\n";
    return status + launch(meet, {.replicas = 2, .mode = LaunchMode::threads});
  });
  CHECK(ended.status == 0);
  CHECK_THAT(ended.err, ContainsSubstring("launch: another thread of this program is in it; "));
}

TEST_CASE("pmap: a process that is forked after it maps and launches as its parent does") {
  const auto sum = [] {
    const Tensor ones =
        pmap([] { return psum(at::ones({1}), "i"); }, {.axis_name = "i", .axis_size = 3})();
    expect(ones.sum().item<float>() == 9, "the sum over three replicas");
  };
  const Ended ended = run_forked([&] {
    sum();
    const pid_t child = ::fork();
    if (child == 0) {
      sum();
      ::_exit(launch(meet, {.replicas = 2}) == 0 ? 7 : 1);
    }
    int status = 0;
    expect(::waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7, "its end");
    sum();
    const int launched = launch(meet, {.replicas = 2});
    sum();
    return launched;
  });
  check_status(ended, 0);
  CHECK_THAT(ended.err, !ContainsSubstring("started again"));
}

TEST_CASE("launch: a forked process without collectives is the replica's own business") {
  for (const LaunchOptions& options : kinds()) {
    check_launched(
        [] {
          meet();
          const pid_t child = ::fork();
          if (child == 0) {
            const std::string refused = message_of<ValueError>(meet);
            ::_exit(refused.find("a process that a replica has forked") < refused.size() ? 5 : 1);
          }
          int status = 0;
          expect(::waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 5, "its end");
          meet();
        },
        options);
  }
}

TEST_CASE("launch: exit in a replica that is a thread ends the job as one that died") {
  const auto in_map = [] {
    pmap(
        [] {
          // One thread of a process exits: C leaves open what two exit() calls at once do.
          static std::atomic_flag exits = ATOMIC_FLAG_INIT;
          if (axis_index("i") % 2 == 1 && !exits.test_and_set()) std::exit(0);
          (void)psum(at::ones({1}), "i");
        },
        {.axis_size = 2})();
  };
  for (const LaunchOptions& options : kinds()) {
    INFO(text_of(options));
    const Ended ended = launched(
        [] {
          meet();
          if (own_index() == 1) std::exit(0);
          meet();
        },
        options);
    check_status(ended, 3);
    CHECK_THAT(ended.err, ContainsSubstring("replica 1"));
    const bool is_thread = options.mode == LaunchMode::threads || options.workers == 2;
    if (is_thread) {
      CHECK_THAT(ended.err, ContainsSubstring("lockstep: error: replica 1 called exit(0) before "
                                              "its function returned\n"));
    }
    const Ended mapped = launched(in_map, options);
    CHECK(mapped.status == 3);
    CHECK_THAT(mapped.err,
               ContainsSubstring(" of pmap over 'i' at surroundings_process_test.cpp:"));
    CHECK_THAT(mapped.err, ContainsSubstring(" called exit(0) before its function returned\n"));
  }
}

TEST_CASE("launch: a crash of threads names the replica") {
  struct Crash {
    const char* name;
    std::function<void()> crash;
    int signal;
    const char* text;
  };
  const std::vector<Crash> crashes{
      {"a fault", fault, SIGSEGV, "11 (Segmentation fault)"},
      {"no stack left", [] { std::cerr << overflow(0); }, SIGSEGV, "11 (Segmentation fault)"},
      {"a signal", [] { (void)::raise(SIGBUS); }, SIGBUS, "7 (Bus error)"},
      {"abort", [] { std::abort(); }, SIGABRT, "6 (Aborted)"}};
  Sample sample("crashes");
  for (const LaunchOptions& options : kinds()) {
    for (const Crash& kind : crashes) {
      if (!sample.next()) continue;
      INFO(text_of(options) << ": " << kind.name);
      const Ended ended = run_forked([&] {
        const rlimit none{};
        ::setrlimit(RLIMIT_CORE, &none);
        for (const Crash& other : crashes) (void)::signal(other.signal, SIG_DFL);  // not Catch2's
        return launch(
            [&] {
              meet();
              if (own_index() == 1) kind.crash();
              meet();
            },
            options);
      });
      INFO(ended.err);
      if (options.mode == LaunchMode::threads) {
        CHECK(ended.status == 128 + kind.signal);
      } else {
        CHECK(ended.status == 3);
      }
      if (options.mode == LaunchMode::threads || options.workers == 2) {
        CHECK_THAT(ended.err, ContainsSubstring(str("lockstep: error: replica 1 was killed by "
                                                    "signal ",
                                                    kind.text, "\n")));
      }
    }
  }
}

TEST_CASE("launch: a handler of the program's own for crashes is left alone") {
  const Ended ended = run_forked([] {
    (void)::signal(SIGSEGV, [](int) { ::_exit(77); });
    return launch(
        [] {
          meet();
          if (own_index() == 1) fault();
          meet();
        },
        {.replicas = 2, .mode = LaunchMode::threads});
  });
  CHECK(ended.status == 77);
}

TEST_CASE("launch: memory that has run out is told with numbers") {
  const std::vector<std::function<void()>> ways{take_too_much,
                                                [] { (void)at::empty({std::int64_t{1} << 50}); },
                                                [] { pmap(take_too_much, {.axis_size = 2})(); }};
  Sample sample("ways out of memory");
  for (const LaunchOptions& options : kinds()) {
    for (std::size_t way = 0; way < ways.size(); ++way) {
      if (!sample.next()) continue;
      INFO(text_of(options) << ", way " << way);
      const Ended ended = launched(
          [&] {
            meet();
            if (own_index() == 1 || way == 2) ways[way]();
            meet();
          },
          options);
      check_status(ended, 1);
      CHECK_THAT(last_words(ended), ContainsSubstring("out of memory: "));
      CHECK_THAT(last_words(ended), ContainsSubstring("this process has used up to "));
      CHECK_THAT(last_words(ended), !ContainsSubstring("bad_alloc"));
      if (way == 1) {
        CHECK_THAT(last_words(ended),
                   ContainsSubstring("LibTorch tried to allocate 4503599627370496 bytes; "));
      }
    }
  }
}

TEST_CASE("launch: a process too many (ulimit -u) is an error with the limit and its number") {
  const Ended ended = run_forked([] {
    constexpr uid_t kSomebody = 54'321;  // root has no limit; fsuid 0 keeps its files
    if (::getuid() == 0) {
      if (::setresuid(kSomebody, kSomebody, 0) != 0) return 1;
      ::setfsuid(0);
    }
    const rlimit one{1, 1};
    ::setrlimit(RLIMIT_NPROC, &one);
    const auto start = [] { (void)launch([] {}, {.replicas = 2}); };
    std::cerr << message_of<CommError>(start);
    return 0;
  });
  check_status(ended, 0);
  CHECK_THAT(ended.err, ContainsSubstring("launch: cannot start worker 0: Resource temporarily") &&
                            ContainsSubstring(", and may have 1 (ulimit -u)"));
}
