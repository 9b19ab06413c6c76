// Runs the programs that record.py ran with the real JAX, and compares.

#include "tests/jax/replay.h"

#include <map>
#include <set>
#include <string>

#include "tests/catch.h"
#include "tests/jax/program.h"

using namespace lockstep::testing;

namespace {

const std::vector<RecordedCase>& recorded_cases() {
  static const auto cases = read_cases(LOCKSTEP_SOURCE_DIR "/tests/jax/cases.json");
  return cases;
}

void collect_operations(const Body& body, std::map<std::string, int>& counts) {
  for (const Step& step : body.steps) {
    ++counts[step.op];
    if (step.body) collect_operations(*step.body, counts);
  }
}

}  // namespace

TEST_CASE("what JAX gives, or what is said to differ and why") {
  for (const RecordedCase& one : recorded_cases()) {
    INFO(one.name << (one.reason.empty() ? "" : " (not as JAX: " + one.reason + ")"));
    CHECK(replay(one) == "");
  }
}

TEST_CASE("JAX's recorded cases cover every operation, and differ from JAX only with a reason") {
  std::set<std::string> names;
  std::map<std::string, int> counts;
  for (const RecordedCase& one : recorded_cases()) {
    INFO(one.name);
    CHECK(names.insert(one.name).second);
    if (one.lockstep) {
      CHECK_FALSE(one.reason.empty());
    } else if (!one.jax.raises.empty()) {
      CHECK((one.jax.raises == "ValueError" || one.jax.raises == "NameError"));
    }
    collect_operations(one.program, counts);
  }
  for (const char* operation :
       {"psum",      "pmean",         "pmax",         "pmin",       "pargmax",
        "pargmin",   "all_gather",    "psum_scatter", "all_to_all", "ragged_all_to_all",
        "ppermute",  "pshuffle",      "pswapaxes",    "pbroadcast", "axis_index",
        "axis_size", "psum_number",   "pmap",         "vmap",       "shard_map",
        "grad",      "value_and_grad"}) {
    INFO(operation);
    CHECK(counts[operation] >= 8);
  }
}
