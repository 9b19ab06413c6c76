#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string>
#include <thread>

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/random.h"
#include "framework/base/text.h"
#include "framework/collectives/all_gather.h"
#include "framework/collectives/all_to_all.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/in_place.h"
#include "framework/collectives/psum.h"
#include "framework/launch/launch.h"
#include "tests/catch.h"
#include "tests/launch/launched.h"
#include "tests/support/ended.h"
#include "tests/support/settings.h"
#include "tests/support/traces.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

constexpr int kKills = 20;
// Each other replica should get its ReplicaLost within 100 ms of a replica's death; a busy machine
// may take longer, up to this.
constexpr std::int64_t kSoonMs = 15000;

struct Collective {
  const char* name;
  void (*call)(const at::Tensor& x);
  bool in_place = false;  // on shared memory, if the replicas have some
};

// The collectives take an x of (replicas, columns).
constexpr std::array<Collective, 7> kCollectives{{
    {"psum", [](const at::Tensor& x) { (void)psum(x, "data"); }},
    {"psum_scatter", [](const at::Tensor& x) { (void)psum_scatter(x, "data"); }},
    {"all_gather", [](const at::Tensor& x) { (void)all_gather(x[0], "data"); }},
    {"all_to_all", [](const at::Tensor& x) { (void)all_to_all(x, "data", 0, 0); }},
    {"psum_", [](const at::Tensor& x) { psum_(x, "data"); }, true},
    {"psum_scatter_into",
     [](const at::Tensor& x) { psum_scatter_into(x[axis_index("data")], x, "data"); }, true},
    {"all_gather_into",
     [](const at::Tensor& x) { all_gather_into(x, x[axis_index("data")], "data"); }, true},
}};

// One kill, drawn from `key`.
struct Kill {
  Kill(int number, const Key& key)
      : replicas(2 + number % 3),
        backend(number % 5 == 4 ? Backend::gloo : Backend::automatic),
        victim(key.fold("victim").bits() % static_cast<std::uint64_t>(replicas)),
        collective(kCollectives[key.fold("collective").bits() % kCollectives.size()]),
        mib(static_cast<std::int64_t>(8U << key.fold("size").bits() % 4)),
        moment(static_cast<double>(key.fold("moment").bits() >> 11U) * 0x1p-53) {}

  [[nodiscard]] std::string text() const {
    return str("replica ", victim, " of ", replicas, " in ", collective.name, " of ", mib, " MiB",
               backend == Backend::gloo ? " over gloo" : "");
  }

  std::int64_t replicas;
  Backend backend;
  std::size_t victim;
  Collective collective;
  std::int64_t mib;  // sent by a replica in all or, gathering, received
  double moment;     // in [0, 1), of the time in which the kill may come
};

// The replicas' reports to the test, each in its place.
struct Told {
  explicit Told(const Kill& kill)
      : pids(static_cast<std::size_t>(kill.replicas)),
        took_us(static_cast<std::size_t>(kill.replicas)),
        lost_at_ms(static_cast<std::size_t>(kill.replicas)) {}

  SharedNumbers pids;        // set once the replica runs its collectives
  SharedNumbers took_us;     // the time of its last collective
  SharedNumbers lost_at_ms;  // when it got its ReplicaLost
};

// Runs collectives without end, in each replica.
void run_until_lost(const Kill& kill, const Told& told) {
  // The launcher asks the others to end at once; here they have to find out for themselves.
  std::signal(SIGTERM, SIG_IGN);
  const std::size_t own = own_index();
  try {
    const std::int64_t columns = (kill.mib << 18) / kill.replicas;
    const at::Tensor x = kill.collective.in_place
                             ? symmetric_zeros({kill.replicas, columns}, at::kFloat, "data")
                             : at::ones({kill.replicas, columns});
    for (;;) {
      const auto begin = Clock::now();
      kill.collective.call(x);
      const auto took = std::chrono::duration_cast<microseconds>(Clock::now() - begin);
      told.took_us[own] = std::max<std::int64_t>(1, took.count());
      told.pids[own] = ::getpid();
    }
  } catch (const ReplicaLost&) {
    told.lost_at_ms[own] = now_ms();
    throw;
  } catch (const Error& error) {
    std::cerr << "ended with " << error.type() << ": " << error.what() << std::endl;
    throw;
  }
}

// The number of others that had a ReplicaLost, and the time from the kill to the last of these.
struct Outcome {
  std::size_t lost = 0;
  std::int64_t latest_ms = 0;
};

// Kills the replica and checks how the job ends.
Outcome check_kill(const Kill& kill) {
  const Told told(kill);
  ChildProgram program(launching([&] { run_until_lost(kill, told); },
                                 {.replicas = kill.replicas, .backend = kill.backend}));
  const auto all = static_cast<std::size_t>(kill.replicas);
  REQUIRE(eventually([&] { return told.pids.set() == all; }));
  Traces traces;
  traces.note(program.pid());
  for (const pid_t pid : told.pids.pids()) traces.note(pid);
  // The kill comes anywhere in a collective, or between two.
  std::this_thread::sleep_for(microseconds(static_cast<std::int64_t>(
      1.5 * kill.moment * static_cast<double>(told.took_us[kill.victim]))));
  // The launcher ends the others half a second after a death, on a busy machine perhaps before they
  // find out: it sleeps until they have.
  REQUIRE(::kill(program.pid(), SIGSTOP) == 0);
  const std::int64_t killed_at = now_ms();
  REQUIRE(::kill(told.pids.pids()[kill.victim], SIGKILL) == 0);
  CHECK(eventually([&] { return told.lost_at_ms.set() == all - 1; }));
  REQUIRE(::kill(program.pid(), SIGCONT) == 0);
  const Ended end = program.wait();

  check_status(end, 3);
  CHECK_THAT(end.err, Catch::Matchers::EndsWith(str("lockstep: error: replica ", kill.victim,
                                                    " (pid ", told.pids[kill.victim].load(),
                                                    ") was lost: killed by signal 9 (Killed)\n")));
  Outcome outcome{.lost = told.lost_at_ms.set()};
  CHECK(outcome.lost == all - 1);
  for (std::size_t i = 0; i < all; ++i) {
    outcome.latest_ms = std::max(outcome.latest_ms, told.lost_at_ms[i] - killed_at);
  }
  CHECK(outcome.latest_ms < kSoonMs);
  for (const pid_t pid : told.pids.pids()) CHECK(ended(pid));
  CHECK(children_of(::getpid()).empty());
  CHECK(traces.left().empty());
  return outcome;
}

}  // namespace

TEST_CASE("a replica killed in a large collective is a ReplicaLost of all others") {
  Sample sample("kills");
  int kills = 0;
  const Key key = Key(seed()).fold("kills");
  std::size_t others = 0;
  std::size_t lost = 0;
  std::int64_t shared_ms = 0;
  std::int64_t gloo_ms = 0;
  for (int number = 0; number < kKills * rounds(); ++number) {
    if (!sample.next()) continue;
    ++kills;
    const Kill kill(number, key.fold(static_cast<std::uint64_t>(number)));
    INFO("kill " << number << " with LOCKSTEP_SEED=" << seed() << ": " << kill.text());
    const Outcome outcome = check_kill(kill);
    others += static_cast<std::size_t>(kill.replicas) - 1;
    lost += outcome.lost;
    std::int64_t& longest = kill.backend == Backend::gloo ? gloo_ms : shared_ms;
    longest = std::max(longest, outcome.latest_ms);
  }
  std::cout << kills << " replicas killed in large collectives: ReplicaLost on " << lost << " of "
            << others << " others, after " << shared_ms << " ms at most in shared memory, "
            << gloo_ms << " ms over gloo; LOCKSTEP_SEED=" << seed() << std::endl;
}
