#include "tests/collectives/everywhere.h"

#include <stdexcept>

#include "framework/base/text.h"
#include "framework/maps/pmap.h"

namespace lockstep::testing {

void expect(bool holds, const std::string& message) {
  if (!holds) throw std::runtime_error(message);
}

void add_cases(std::vector<Case>& cases, const std::string& name,
               const std::vector<std::int64_t>& replicas, const std::function<void()>& body) {
  for (const std::int64_t n : replicas) cases.push_back({str(name, ", ", n, " replicas"), n, body});
}

std::vector<Case> all_cases(std::int64_t rounds) {
  std::vector<Case> cases;
  for (const auto& some :
       {example_cases(), operator_cases(), ragged_cases(), in_place_cases(), random_cases(rounds),
        large_cases(), derivative_cases(), varying_cases(), error_cases()}) {
    cases.insert(cases.end(), some.begin(), some.end());
  }
  return cases;
}

void run_in_threads(const Case& one) {
  pmap([&] { one.body(); }, {.axis_name = "i", .axis_size = one.replicas})();
}

std::map<std::int64_t, std::vector<Case>> cases_by_replicas(std::int64_t rounds) {
  std::map<std::int64_t, std::vector<Case>> by_replicas;
  for (const Case& one : all_cases(rounds)) by_replicas[one.replicas].push_back(one);
  return by_replicas;
}

void run_launched(const std::vector<Case>& cases, LaunchMode mode, Backend backend,
                  std::int64_t workers) {
  const auto run_all = [&] {
    for (const Case& one : cases) {
      try {
        one.body();
      } catch (const std::exception& error) {
        throw std::runtime_error(one.name + ": " + error.what());
      }
    }
  };
  const std::int64_t replicas = cases.at(0).replicas;
  const int status = launch(run_all, {.replicas = replicas,
                                      .workers = workers,
                                      .mode = mode,
                                      .backend = backend,
                                      .axis_name = "i"});
  if (status != 0) {
    throw std::runtime_error(str("launch() of ", replicas, " replicas on ", workers,
                                 " workers returned ", status, "; stderr says why"));
  }
}

}  // namespace lockstep::testing
