// Runs the programs that record.py ran with the real JAX, and compares.

#include "tests/jax/replay.h"

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/catch.h"
#include "tests/jax/program.h"

using namespace lockstep::testing;

namespace {

const std::vector<RecordedCase>& recorded_cases() {
  static const auto cases = read_cases(LOCKSTEP_SOURCE_DIR "/tests/jax/cases.json");
  return cases;
}

// In how many cases an operation stands, by where: see uses_of.
using Uses = std::map<std::string, int>;

bool is_gradient(const std::string& operation) {
  return operation == "grad" || operation == "value_and_grad";
}

// How a step is used that stands within these operations, outermost first.
std::set<std::string> uses_of(const std::vector<std::string>& around, bool refused) {
  if (refused) return {"refused"};
  std::set<std::string> uses;
  int gradients = 0;
  bool mapped = false;
  for (const std::string& operation : around) {
    if (!is_gradient(operation)) {
      uses.insert(operation);
      if (gradients > 0) uses.insert("differentiated outside of a map");
      mapped = true;
    } else {
      ++gradients;
      if (mapped) uses.insert("differentiated in a map");
    }
  }
  if (gradients == 0) uses.insert("forward");
  if (gradients > 1) uses.insert("differentiated twice");
  if (gradients > 0 && uses.count("shard_map") > 0) uses.insert("differentiated with shard_map");
  return uses;
}

void collect(const Body& body, bool refused, std::vector<std::string> around,
             std::map<std::string, std::set<std::string>>& uses) {
  for (const Step& step : body.steps) {
    uses[step.op].merge(uses_of(around, refused));
    if (!step.body) continue;
    around.push_back(step.op);
    collect(*step.body, refused, around, uses);
    around.pop_back();
  }
}

// Every use of every operation by the number of cases that have it.
std::map<std::string, Uses> all_uses() {
  std::map<std::string, Uses> all;
  for (const RecordedCase& one : recorded_cases()) {
    std::map<std::string, std::set<std::string>> uses;
    collect(one.program, !(one.lockstep ? *one.lockstep : one.jax).raises.empty(), {}, uses);
    for (const auto& [operation, its] : uses) {
      ++all[operation]["any"];
      for (const std::string& use : its) ++all[operation][use];
    }
  }
  return all;
}

}  // namespace

TEST_CASE("what JAX gives, or what is said to differ and why") {
  for (const RecordedCase& one : recorded_cases()) {
    INFO(one.name << (one.reason.empty() ? "" : " (not as JAX: " + one.reason + ")"));
    CHECK(replay(one) == "");
  }
}

TEST_CASE("JAX's recorded cases have names of their own, and differ from JAX only with a reason") {
  std::set<std::string> names;
  for (const RecordedCase& one : recorded_cases()) {
    INFO(one.name);
    CHECK(names.insert(one.name).second);
    if (one.lockstep) {
      CHECK_FALSE(one.reason.empty());
    } else if (!one.jax.raises.empty()) {
      CHECK((one.jax.raises == "ValueError" || one.jax.raises == "NameError"));
    }
  }
}

TEST_CASE("JAX's recorded cases cover every operation in every way to use it") {
  auto uses = all_uses();
  const auto covers = [&](const std::vector<const char*>& operations,
                          const std::vector<std::pair<const char*, int>>& least) {
    for (const char* operation : operations) {
      for (const auto& [use, cases] : least) {
        INFO(operation << ", " << use);
        CHECK(uses[operation][use] >= cases);
      }
    }
  };
  const std::vector<const char*> linear{
      "psum",     "pmean",    "all_gather", "psum_scatter", "all_to_all", "ragged_all_to_all",
      "ppermute", "pshuffle", "pswapaxes",  "pbroadcast"};
  const std::vector<const char*> extrema{"pmax", "pmin"};
  const std::vector<std::pair<const char*, int>> values{
      {"forward", 12}, {"pmap", 9}, {"vmap", 9}, {"shard_map", 2}, {"refused", 1}};
  const std::vector<std::pair<const char*, int>> slopes{{"differentiated in a map", 3},
                                                        {"differentiated outside of a map", 3},
                                                        {"differentiated with shard_map", 2}};
  covers(linear, values);
  covers(linear, slopes);
  covers(linear, {{"differentiated twice", 2}});
  covers(extrema, values);
  covers(extrema, slopes);
  covers({"pargmax", "pargmin", "axis_index", "axis_size"}, values);
  covers({"psum_number"}, {{"forward", 8}, {"refused", 1}, {"shard_map", 2}});
  covers({"pmap", "vmap", "shard_map"}, {{"any", 100}, {"refused", 10}});
  covers({"grad", "value_and_grad"}, {{"any", 10}});
}
