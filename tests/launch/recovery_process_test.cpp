// Jobs that go on after an error that their replicas have caught.

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/ops/ones.h>

#include "framework/base/errors.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "framework/launch/launch.h"
#include "framework/maps/pmap.h"
#include "tests/catch.h"
#include "tests/launch/launched.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr std::int64_t kMembers = 3;
// Among all members' replicas, replica 0 throws, or falls out of step.
Tensor first_throws(const Tensor& x) {
  if (axis_index("n") == 0) throw DataError("the first replica's");
  return psum(x, "n");
}
Tensor first_falls_out_of_step(const Tensor& x) {
  return psum(axis_index("n") == 0 ? x[0] : x, "n");
}

std::string caught_from(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.type();
  }
  return "nothing";
}

}  // namespace

TEST_CASE("a job goes on after a map that has failed in it and was caught") {
  for (const LaunchMode mode : kModes) {
    for (Tensor (*const fails)(const Tensor&) : {first_throws, first_falls_out_of_step}) {
      for (const std::int64_t workers : {3, 2, 1}) {
        const SharedNumbers went_on(kMembers);
        const Backend backend = fails == first_throws ? Backend::automatic : Backend::gloo;
        check_launched(
            [&] {
              for (int round = 0; round < 3; ++round) {
                const std::string caught = caught_from([&] {
                  (void)pmap(fails, {.axis_name = "n"})(at::ones({2, 3}));
                });
                if (caught == "nothing" || caught == "Timeout") throw DataError("caught " + caught);
                if (psum(round, "data") != kMembers * round) throw DataError("a wrong sum");
              }
              went_on[own_index()] = 1;
            },
            {.replicas = kMembers, .workers = workers, .mode = mode, .backend = backend});
        CHECK(went_on.set() == kMembers);
      }
    }
  }
}

TEST_CASE("who catches a mismatch and calls again is told the same, as are all others") {
  for (const LaunchMode mode : kModes) {
    for (const std::int64_t workers : {3, 2, 1}) {
      const SharedNumbers told_the_same(kMembers);
      const Ended ended = launched(
          [&] {
            std::vector<std::string> verdicts;
            for (int call = 0; call < 3; ++call) {
              try {
                (void)psum(at::ones({own_index() == 0 ? 2 : 3}), "data");
              } catch (const CollectiveMismatch& error) {
                verdicts.emplace_back(error.verdict());
              }
            }
            const bool same =
                verdicts.size() == 3 && verdicts[1] == verdicts[0] && verdicts[2] == verdicts[0] &&
                verdicts[0].starts_with(
                    "replica 0 called psum over 'data' at recovery_process_test") &&
                verdicts[0].find(
                    " with (2) float32 while replicas 1 and 2 called psum over 'data' ") !=
                    std::string::npos;
            if (!same) throw DataError("was told " + (verdicts.empty() ? "nothing" : verdicts[0]));
            told_the_same[own_index()] = 1;
          },
          {.replicas = kMembers, .workers = workers, .mode = mode});
      INFO(ended.err);
      CHECK(told_the_same.set() == kMembers);
    }
  }
}
