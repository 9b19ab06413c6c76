#include "tests/catch.h"
#include "tests/collectives/cases.h"
#include "tests/collectives/everywhere.h"

using namespace lockstep::testing;

TEST_CASE("collectives in processes: every case") {
  for (const auto& [replicas, cases] : cases_by_replicas(/*rounds=*/5)) {
    INFO(replicas << " replicas, " << cases.size() << " cases");
    for (const auto backend : {lockstep::Backend::automatic, lockstep::Backend::gloo}) {
      CHECK_NOTHROW(run_launched(cases, lockstep::LaunchMode::processes, backend));
    }
  }
}
