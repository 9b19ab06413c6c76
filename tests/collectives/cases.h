#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::testing {

/// A promise of collectives, whoever runs the replicas: `body` runs in each of `replicas` replicas
/// with the axis "i" bound, and throws an error if the promise is broken.
struct Case {
  std::string name;
  std::int64_t replicas;
  std::function<void()> body;
};

/// Adds the same case for each of several numbers of replicas, which its name says.
void add_cases(std::vector<Case>& cases, const std::string& name,
               const std::vector<std::int64_t>& replicas, const std::function<void()>& body);

/// Throws a std::runtime_error with `message` unless `holds`: Catch2's own checks are for one
/// thread.
void expect(bool holds, const std::string& message);

/// The design's examples, with their numbers.
[[nodiscard]] std::vector<Case> example_cases();
/// Random calls against a serial oracle, `rounds` of them for each way to call an operator and
/// number of replicas.
[[nodiscard]] std::vector<Case> random_cases(std::int64_t rounds);
/// all_to_all, pswapaxes, ppermute, pshuffle, pbroadcast, pargmax and pargmin: examples with their
/// numbers, and refusals.
[[nodiscard]] std::vector<Case> operator_cases();
/// The same for ragged_all_to_all.
[[nodiscard]] std::vector<Case> ragged_cases();
/// psum_, psum_scatter_into and the like, on symmetric memory and elsewhere.
[[nodiscard]] std::vector<Case> in_place_cases();
/// Messages of some megabytes.
[[nodiscard]] std::vector<Case> large_cases();
/// First and second derivatives against finite differences, and closed forms at ties.
[[nodiscard]] std::vector<Case> derivative_cases();
/// pvary and psum_invariant: values, memory and derivatives.
[[nodiscard]] std::vector<Case> varying_cases();
/// Refusals, with their whole messages.
[[nodiscard]] std::vector<Case> error_cases();

[[nodiscard]] std::vector<Case> all_cases(std::int64_t rounds);

}  // namespace lockstep::testing
