#include "tests/training/placements.h"

#include "framework/launch/launch.h"
#include "tests/catch.h"

namespace lockstep::testing {

void expect_contains(const std::string& text, const std::string& part) {
  expect(text.find(part) != std::string::npos, "'" + text + "' does not contain '" + part + "'");
}

void in_every_placement(std::int64_t replicas, const std::function<void()>& replica) {
  struct Placement {
    const char* name;
    Backend backend;
    std::int64_t workers;
  };
  for (const Placement& placement : {Placement{"shared memory", Backend::automatic, replicas},
                                     Placement{"Gloo", Backend::gloo, replicas},
                                     Placement{"one worker", Backend::automatic, 1}}) {
    INFO(placement.name << ", " << replicas << " replicas");
    CHECK(launch(replica, {.replicas = replicas,
                           .workers = placement.workers,
                           .mode = LaunchMode::threads,
                           .backend = placement.backend}) == 0);
  }
}

}  // namespace lockstep::testing
