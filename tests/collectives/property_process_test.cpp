#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "framework/base/random.h"
#include "framework/launch/launch.h"
#include "framework/maps/pmap.h"
#include "tests/catch.h"
#include "tests/collectives/oracle.h"
#include "tests/collectives/property_cases.h"
#include "tests/collectives/property_program.h"
#include "tests/launch/launched.h"
#include "tests/support/ended.h"
#include "tests/support/programs.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr std::size_t kWorlds = 6;
constexpr std::int64_t kCases = 12;
constexpr std::size_t kDigests = kCases + 1;  // and one of a program
constexpr std::int64_t kMostReplicas = 12;

// Worlds of random cases, which every process makes for itself: tensors start no threads before
// the fork.
class RandomWorlds {
 public:
  RandomWorlds(const Key& key, std::int64_t processes) : key_(key) {
    for (std::size_t round = 0; round < kWorlds; ++round) {
      Draw draw(key.fold(round));
      World world = random_world(draw, kMostReplicas / processes);
      // The outermost axis has the processes, or a multiple of them.
      world.axes.insert(world.axes.begin(), {"job", processes});
      worlds_.push_back(std::move(world));
    }
  }

  const std::vector<World>& worlds() const { return worlds_; }
  static std::size_t numbers() { return kWorlds * kDigests * kMostReplicas; }

  // Runs `bind(world, body)` for each world; replicas leave their digests in `numbers`.
  template <typename Bind>
  void check(const SharedNumbers& numbers, const Bind& bind) const {
    for (std::size_t round = 0; round < worlds_.size(); ++round) {
      const World& world = worlds_[round];
      const auto cases = random_property_cases(key_.fold(round), world, kCases);
      const Program program(key_.fold(round).fold("program"), world);
      bind(world, [&] {
        const std::int64_t replica = world.replica();
        std::size_t slot = round * kDigests * kMostReplicas + static_cast<std::size_t>(replica);
        for (const PropertyCase& one : cases) {
          numbers[slot] = static_cast<std::int64_t>(one.check(replica));
          slot += kMostReplicas;
        }
        numbers[slot] = static_cast<std::int64_t>(program.run(replica));
      });
    }
  }

  // Returns the number of digests that replicas leave.
  std::size_t expected() const {
    std::size_t count = 0;
    for (const World& world : worlds_) count += kDigests * static_cast<std::size_t>(world.size());
    return count;
  }

 private:
  Key key_;
  std::vector<World> worlds_;
};

std::vector<Binding> all(const World& world, Binding binding) {
  return std::vector<Binding>(world.axes.size(), binding);
}

// Compares the bits of the sample in `processes` processes, whose axes `bind` binds, with those of
// nested pmaps in threads.
template <typename Bind>
void compare_with_threads(const RandomWorlds& sample, std::int64_t processes, const Bind& bind) {
  const SharedNumbers in_processes(RandomWorlds::numbers());
  const SharedNumbers in_threads(RandomWorlds::numbers());
  const Ended job = launched([&] { sample.check(in_processes, bind); },
                             {.replicas = processes, .axis_name = "job"});
  require_status(job, 0);
  const Ended maps = run_forked([&] {
    sample.check(in_threads, [](const World& world, const std::function<void()>& body) {
      bind_axes(world, all(world, Binding::pmap), 0, body);
    });
    return 0;
  });
  require_status(maps, 0);
  CHECK(in_processes.set() == sample.expected());
  std::size_t different = 0;
  for (std::size_t i = 0; i < RandomWorlds::numbers(); ++i) {
    different += in_processes[i] != in_threads[i] ? 1 : 0;
  }
  CHECK(different == 0);
}

}  // namespace

TEST_CASE("property in processes: calls that name the job's axis and those of lanes in it") {
  for (const std::int64_t processes : {2, 3}) {
    const RandomWorlds sample(
        property_key("lanes in processes").fold(static_cast<std::uint64_t>(processes)), processes);
    compare_with_threads(sample, processes,
                         [](const World& world, const std::function<void()>& body) {
                           bind_axes(world, all(world, Binding::vmap), 1, body);
                         });
  }
}

TEST_CASE("property in processes: a pmap over all replicas of the job, and maps in it") {
  const RandomWorlds sample(property_key("pmap over processes"), 2);
  compare_with_threads(sample, 2, [](const World& world, const std::function<void()>& body) {
    // Each process has one replica of the axis, with threads and lanes in it.
    Draw draw(Key(static_cast<std::uint64_t>(world.size())));
    std::vector<Binding> bindings = random_bindings(draw, world);
    pmap([&] { bind_axes(world, bindings, 1, body); }, {.axis_name = "job", .axis_size = 1})();
  });
}

TEST_CASE("property in processes: a mesh over all replicas of the job") {
  const RandomWorlds sample(property_key("mesh over processes"), 2);
  compare_with_threads(sample, 2, [](const World& world, const std::function<void()>& body) {
    bind_axes(world, all(world, Binding::mesh), 0, body);
  });
}
