#include <cstdint>
#include <set>

#include "tests/catch.h"
#include "tests/collectives/cases.h"
#include "tests/collectives/everywhere.h"
#include "tests/support/settings.h"

using namespace lockstep::testing;

TEST_CASE("collectives in processes: every case", "[slow]") {
  Sample sample("collectives in processes");
  for (const auto& [replicas, cases] : cases_by_replicas(/*rounds=*/5)) {
    INFO(replicas << " replicas, " << cases.size() << " cases");
    for (const auto backend : {lockstep::Backend::automatic, lockstep::Backend::gloo}) {
      if (!sample.next()) continue;
      CHECK_NOTHROW(run_launched(cases, lockstep::LaunchMode::processes, backend));
    }
  }
}

TEST_CASE("collectives on fewer workers than replicas: every case", "[slow]") {
  Sample sample("collectives on fewer workers");
  for (const auto& [replicas, cases] : cases_by_replicas(/*rounds=*/2)) {
    for (const std::int64_t workers : std::set{std::int64_t{1}, replicas / 2, replicas - 1}) {
      if (workers < 1 || !sample.next()) continue;
      INFO(replicas << " replicas on " << workers << " workers, " << cases.size() << " cases");
      // Both backends in turn.
      const auto backend =
          (replicas + workers) % 2 == 0 ? lockstep::Backend::automatic : lockstep::Backend::gloo;
      CHECK_NOTHROW(run_launched(cases, lockstep::LaunchMode::processes, backend, workers));
    }
  }
}
