// The examples of parallelism on a mesh, over the members of a job.

#include <cstdint>
#include <utility>
#include <vector>

#include "framework/launch/launch.h"
#include "tests/catch.h"
#include "tests/launch/launched.h"
#include "tests/maps/mesh_example.h"
#include "tests/support/settings.h"

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("jobs: tensor parallelism and a pipeline in data parallelism, on fewer workers too") {
  const std::vector<std::pair<std::int64_t, std::int64_t>> jobs{{1, 1}, {2, 2}, {4, 4}, {4, 2}};
  Sample sample("examples on a mesh");
  for (const auto& [members, workers] : jobs) {
    for (const LaunchMode mode : kModes) {
      for (const Backend backend : {Backend::automatic, Backend::gloo}) {
        if (!sample.next()) continue;
        check_launched(
            [] {
              check_tensor_parallel_mlp();
              check_pipeline();
            },
            {.replicas = members, .workers = workers, .mode = mode, .backend = backend});
      }
    }
  }
}
