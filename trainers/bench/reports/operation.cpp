#include "trainers/bench/reports/operation.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/range.h"
#include "framework/base/text.h"

namespace lockstep::bench {
namespace {

constexpr const char* kNames[] = {"all_reduce", "reduce_scatter", "all_gather"};

}  // namespace

const char* name_of(Operation operation) {
  return kNames[static_cast<std::size_t>(operation)];
}

Operation parse_operation(const std::string& name) {
  const std::vector<std::string> names(std::begin(kNames), std::end(kNames));
  const auto found = std::ranges::find(names, name);
  if (found != names.end()) return static_cast<Operation>(found - names.begin());
  throw ValueError(str("unknown operation '", name, "'", did_you_mean(name, names), "; there are ",
                       join(names)));
}

std::int64_t usable_size(Operation operation, std::int64_t replicas, std::int64_t bytes) {
  const std::int64_t step = static_cast<std::int64_t>(sizeof(float)) *
                            (operation == Operation::all_reduce ? 1 : replicas);
  return round_up(bytes, step);
}

double bus_bytes(Operation operation, std::int64_t replicas, std::int64_t bytes) {
  const auto n = static_cast<double>(replicas);
  return (operation == Operation::all_reduce ? 2 : 1) * (n - 1) / n * static_cast<double>(bytes);
}

double moved_bytes(Operation operation, std::int64_t replicas, std::int64_t bytes) {
  const auto n = static_cast<double>(replicas);
  const double buffers = operation == Operation::all_reduce       ? 2 * n
                         : operation == Operation::reduce_scatter ? n + 1
                                                                  : 2 * (n - 1);
  return buffers * static_cast<double>(bytes);
}

}  // namespace lockstep::bench
