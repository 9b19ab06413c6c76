// The examples of parallelism on a mesh, over the members of a job.

#include <cstdint>

#include "framework/replicas/launch.h"
#include "tests/catch.h"
#include "tests/replicas/launched.h"
#include "tests/replicas/mesh_example.h"

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("jobs: tensor parallelism and a pipeline in data parallelism") {
  for (const std::int64_t members : {1, 2, 4}) {
    for (const LaunchMode mode : kModes) {
      for (const Backend backend : {Backend::automatic, Backend::gloo}) {
        const Ended ended = launched(
            [] {
              check_tensor_parallel_mlp();
              check_pipeline();
            },
            {.replicas = members, .mode = mode, .backend = backend});
        INFO(members << " " << name_of(mode) << ": " << ended.err);
        CHECK(ended.status == 0);
      }
    }
  }
}

TEST_CASE("jobs: tensor parallelism and a pipeline in data parallelism, on fewer workers") {
  for (const LaunchMode mode : kModes) {
    const Ended ended = launched(
        [] {
          check_tensor_parallel_mlp();
          check_pipeline();
        },
        {.replicas = 4, .workers = 2, .mode = mode});
    INFO(name_of(mode) << ": " << ended.err);
    CHECK(ended.status == 0);
  }
}
