// Jobs whose output nobody reads for a while, as when `less` pauses: their pipe gets full.

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <sys/ioctl.h>
#include <unistd.h>

#include "framework/base/logging.h"
#include "framework/base/output.h"
#include "framework/base/text.h"
#include "framework/launch/launch.h"
#include "framework/launch/worker_process.h"
#include "tests/catch.h"
#include "tests/launch/launched.h"
#include "tests/support/ended.h"
#include "tests/support/occurrences.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

using std::chrono::milliseconds;

// Pipes and launchers have no room for so many lines.
constexpr std::size_t kLines = 4000;
const std::string kRest(100, '.');

std::string text_of(const Descriptor& pipe) {
  std::string all;
  std::vector<char> buffer(65'536);
  for (;;) {
    const ssize_t size = ::read(pipe.get(), buffer.data(), buffer.size());
    if (size <= 0) return all;
    all.append(buffer.data(), static_cast<std::size_t>(size));
  }
}

// A job whose `outputs` lead to a pipe.
struct Unread {
  Unread(const std::vector<int>& outputs, const std::function<void()>& replica,
         const LaunchOptions& options)
      : program([&, this] {
          for (const int output : outputs) ::dup2(pipe.second.get(), output);
          pipe.second.close();
          return launching(replica, options)();
        }) {
    pipe.second.close();
  }

  [[nodiscard]] bool is_full() const {
    int bytes = 0;
    return ::ioctl(pipe.first.get(), FIONREAD, &bytes) == 0 && bytes > 60'000;
  }
  [[nodiscard]] std::string text() const { return text_of(pipe.first); }

  std::pair<Descriptor, Descriptor> pipe = launcher::make_pipe();
  ChildProgram program;
};

void print_much() {
  for (std::size_t line = 0; line < kLines; ++line) std::cout << line << kRest << '\n';
}

}  // namespace

TEST_CASE("launch: prints wait for their reader, a stall names stdout, and none is a Timeout") {
  for (const LaunchMode mode : kModes) {
    for (const std::size_t printing : {0U, 1U}) {
      const LaunchOptions options{.replicas = 3,
                                  .mode = mode,
                                  .timeout = milliseconds(400),
                                  .stall_warning = milliseconds(200),
                                  .prints = Prints::all};
      INFO(text_of(options) << ", prints: " << printing);
      Unread job(
          {STDOUT_FILENO},
          [&] {
            if (own_index() == printing) print_much();
            meet();
          },
          options);
      // The first warning comes after 200 ms, the third after 800.
      const auto stalls = [&] { return count(job.program.err(), "stalled for"); };
      CHECK(eventually([&] { return stalls() >= 3; }));
      CHECK_THAT(job.program.err(),
                 ContainsSubstring("; a replica's print to stdout waits for its reader"));
      CHECK(count(job.text(), kRest + "\n") == kLines);
      check_status(job.program.wait(), 0);
    }
  }
}

TEST_CASE("launch: a print that waits on one host is no Timeout on another") {
  auto pipe = launcher::make_pipe();
  LaunchOptions options{
      .replicas = 2, .timeout = milliseconds(1000), .stall_warning = milliseconds(300)};
  options.hosts.prepare = [&](const std::string&) {
    ::dup2(pipe.second.get(), STDOUT_FILENO);
    pipe.second.close();
    return "";
  };
  const auto read = [&](const auto& launchers) {
    if (launchers.size() < 2) return;
    // The third warning comes after 1.2 s, and then one more.
    CHECK(eventually([&] { return count(launchers[1]->err(), "stalled for") >= 4; }));
    CHECK_THAT(launchers[1]->err(),
               ContainsSubstring("; a replica's print to stdout waits for its reader"));
    pipe.second.close();
    CHECK(count(text_of(pipe.first), kRest + "\n") == kLines);
  };
  const auto replica = [] {
    if (own_index() == 0) print_much();
    meet();
  };
  for (const Ended& ended : launched_on_hosts(replica, options, 2, read)) check_status(ended, 0);
}

TEST_CASE("launch: nobody waits for who reads log lines, of which the oldest are left out") {
  for (const LaunchMode mode : kModes) {
    const LaunchOptions options{.replicas = 2, .mode = mode, .timeout = milliseconds(2000)};
    INFO(text_of(options));
    const SharedNumbers is_done(2);
    Unread job(
        {STDOUT_FILENO, STDERR_FILENO},
        [&] {
          for (std::size_t line = 0; own_index() == 1 && line < kLines; ++line) {
            log_info(str(line, kRest));
          }
          meet();
          is_done[own_index()] = 1;
        },
        options);
    CHECK(eventually([&] { return is_done.set() == 2; }));
    CHECK(job.program.running());  // until the rest is read
    const std::string text = job.text();
    CHECK_THAT(text, ContainsSubstring(str("lockstep: ", kLines - 1, kRest, "\n")));
    // No line is cut, and missing lines are counted.
    const auto lines = lines_of(text);
    std::size_t left_out = 0;
    std::size_t whole = 0;
    for (const std::string& line : lines) {
      if (line.ends_with(kRest)) ++whole;
      const std::size_t at = line.find(" lines left out here");
      if (at != std::string::npos) left_out += std::stoul(line.substr(line.rfind(' ', at - 1)));
    }
    CHECK(left_out > 0);
    CHECK(whole + left_out == kLines);
    check_status(job.program.wait(), 0);
  }
}

TEST_CASE("launch: stops end a job whose prints and launcher nobody reads") {
  for (const LaunchMode mode : kModes) {
    for (const OnStop on_stop : {OnStop::end, OnStop::ask}) {
      const LaunchOptions options{.replicas = 2, .mode = mode, .on_stop = on_stop};
      INFO(text_of(options) << (on_stop == OnStop::ask ? ", asks" : ""));
      const SharedNumbers pids(2);
      Unread job(
          {STDOUT_FILENO, STDERR_FILENO},
          [&] {
            pids[own_index()] = ::getpid();
            if (own_index() == 0) print_much();
            meet();
          },
          options);
      REQUIRE(eventually([&] { return job.is_full() && pids.set() == 2; }));
      // The first signal only asks, and more are too early for 2 s.
      CHECK(eventually([&] {
        (void)::kill(job.program.pid(), SIGTERM);
        return !job.program.running();
      }));
      const Ended end = job.program.wait();
      check_status(end, 143);
      CHECK(all_ended(pids));
    }
  }
}
