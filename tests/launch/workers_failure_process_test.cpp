#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/launch/launch.h"
#include "tests/catch.h"
#include "tests/launch/launched.h"
#include "tests/support/ended.h"
#include "tests/support/settings.h"

// Jobs whose replicas share workers, and the ends of such jobs.

using namespace lockstep;
using namespace lockstep::testing;

using std::chrono::milliseconds;

TEST_CASE("workers: the replica that threw is named, wherever it is") {
  Sample sample("replicas that throw");
  for (const std::int64_t workers : {1, 2, 3}) {
    for (const std::int64_t failing : {0, 1, 3}) {
      for (const bool before : {false, true}) {
        if (!sample.next()) continue;
        const auto body = [&](const SharedNumbers& pids) {
          pids[own_index()] = ::getpid();
          if (!before) meet();
          if (axis_index("data") == failing) throw DataError("image 7 is damaged");
          for (;;) meet();
        };
        INFO(failing << " of 4 on " << workers << (before ? " at once" : ""));
        {
          const SharedNumbers pids(4);
          const Ended end = launched([&] { body(pids); }, {.replicas = 4, .workers = workers});
          check_status(end, 2);
          const std::int64_t worker = worker_of(failing, 4, workers);
          const bool shared = shard(4, workers, worker).size > 1;
          CHECK(last_words(end) ==
                str("lockstep: error: replica ", failing, " (",
                    shared ? str("worker ", worker, ", ") : "", "pid ",
                    pids[static_cast<std::size_t>(failing)],
                    ") failed with DataError, exit status 2: image 7 is damaged\n"));
          CHECK(all_ended(pids));
          CHECK(end.seconds < 2);
        }
        const SharedNumbers pids(4);
        const Ended end = launched(
            [&] { body(pids); }, {.replicas = 4, .workers = workers, .mode = LaunchMode::threads});
        check_status(end, 2);
        CHECK(last_words(end) ==
              str("lockstep: error: DataError: replica ", failing, ": image 7 is damaged\n"));
      }
    }
  }
}

TEST_CASE("workers: one that dies takes its replicas with it, which are named") {
  const std::vector<std::pair<std::function<void()>, std::string>> deaths{
      {[] { (void)::raise(SIGKILL); }, "killed by signal 9 (Killed)"},
      {[] { ::_exit(7); }, "exited with status 7 before their functions returned"}};
  for (const auto& [die, how] : deaths) {
    for (const std::int64_t replicas : {4, 5}) {
      const SharedNumbers pids(static_cast<std::size_t>(replicas));
      const Ended end = launched(
          [&, &kill = die] {
            pids[own_index()] = ::getpid();
            meet();
            if (axis_index("data") == replicas - 1 || axis_index("data") == 1) {
              if (replicas == 4 && axis_index("data") == 3) kill();
              if (replicas == 5 && axis_index("data") == 1) kill();
            }
            for (;;) meet();
          },
          {.replicas = replicas, .workers = 2});
      check_status(end, 3);
      const std::string who = replicas == 4 ? str("replicas 2 and 3 (worker 1, pid ", pids[3])
                                            : str("replicas 0 to 2 (worker 0, pid ", pids[0]);
      CHECK(last_words(end) == str("lockstep: error: ", who, ") were lost: ", how, "\n"));
      CHECK(all_ended(pids));
    }
  }
}

TEST_CASE("workers: a replica that leaves out a collective is a mismatch that names it") {
  Sample sample("replicas that leave out");
  for (const LaunchMode mode : kModes) {
    for (const std::int64_t workers : {1, 2, 3}) {
      for (const std::size_t odd : {0U, 3U}) {
        if (!sample.next()) continue;
        INFO(odd << " of 4 on " << workers << " " << name_of(mode));
        const Ended end = launched(
            [&] {
              meet();
              if (own_index() != odd) meet();
            },
            {.replicas = 4, .workers = workers, .mode = mode});
        check_status(end, 3);
        CHECK_THAT(last_words(end), ContainsSubstring("CollectiveMismatch"));
        CHECK_THAT(last_words(end), ContainsSubstring(str("replica ", odd, " has returned")));
        CHECK(end.seconds < 5);
      }
    }
  }
}

TEST_CASE("workers: a replica that never hands over is a Timeout of the others") {
  for (const LaunchMode mode : kModes) {
    for (const std::int64_t workers : {1, 2}) {
      INFO(name_of(mode) << " on " << workers);
      const Ended end = launched(
          [] {
            meet();
            if (own_index() == 2) block();
            meet();
          },
          {.replicas = 4, .workers = workers, .mode = mode, .timeout = milliseconds(300)});
      check_status(end, 3);
      CHECK_THAT(last_words(end), ContainsSubstring("Timeout"));
      CHECK_THAT(last_words(end), ContainsSubstring("replica 2 has not arrived: it is running"));
      CHECK(end.seconds < 8);
    }
  }
}

TEST_CASE("workers: who waits for its turn, or for another worker's, is not late") {
  // Each turn takes less than the timeout, but a round of turns takes more.
  for (const std::int64_t workers : {1, 2}) {
    check_launched(
        [] {
          for (int round = 0; round < 2; ++round) {
            std::this_thread::sleep_for(milliseconds(own_index() == 5 ? 10 : 250));
            meet();
          }
        },
        {.replicas = 6, .workers = workers, .timeout = milliseconds(600)});
  }
}
