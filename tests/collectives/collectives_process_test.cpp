#include <map>
#include <vector>

#include "tests/catch.h"
#include "tests/collectives/cases.h"
#include "tests/collectives/everywhere.h"

using namespace lockstep::testing;

TEST_CASE("collectives in processes: every case") {
  std::map<std::int64_t, std::vector<Case>> by_replicas;
  for (const Case& one : all_cases(/*rounds=*/5)) by_replicas[one.replicas].push_back(one);
  for (const auto& [replicas, cases] : by_replicas) {
    INFO(replicas << " replicas, " << cases.size() << " cases");
    CHECK_NOTHROW(run_in_processes(cases, lockstep::Backend::automatic));
    CHECK_NOTHROW(run_in_processes(cases, lockstep::Backend::gloo));
  }
}
