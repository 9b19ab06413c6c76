#include "trainers/bench/reports/operation.h"

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep::bench {
namespace {

constexpr Operation kAll[] = {Operation::all_reduce, Operation::reduce_scatter,
                              Operation::all_gather};

}  // namespace

const char* name_of(Operation operation) {
  switch (operation) {
    case Operation::all_reduce:
      return "all_reduce";
    case Operation::reduce_scatter:
      return "reduce_scatter";
    case Operation::all_gather:
      return "all_gather";
  }
  return "";
}

std::vector<std::string> operation_names() {
  std::vector<std::string> names;
  for (const Operation operation : kAll) names.emplace_back(name_of(operation));
  return names;
}

Operation parse_operation(const std::string& name) {
  for (const Operation operation : kAll) {
    if (name == name_of(operation)) return operation;
  }
  const auto names = operation_names();
  throw ValueError(str("unknown operation '", name, "'", did_you_mean(name, names), "; there are ",
                       join(names)));
}

std::int64_t usable_size(Operation operation, std::int64_t replicas, std::int64_t bytes) {
  const std::int64_t step = static_cast<std::int64_t>(sizeof(float)) *
                            (operation == Operation::all_reduce ? 1 : replicas);
  return (bytes + step - 1) / step * step;
}

double bus_bytes(Operation operation, std::int64_t replicas, std::int64_t bytes) {
  const auto n = static_cast<double>(replicas);
  return (operation == Operation::all_reduce ? 2 : 1) * (n - 1) / n * static_cast<double>(bytes);
}

double moved_bytes(Operation operation, std::int64_t replicas, std::int64_t bytes) {
  const auto n = static_cast<double>(replicas);
  const auto s = static_cast<double>(bytes);
  switch (operation) {
    case Operation::all_reduce:
      return 2 * n * s;
    case Operation::reduce_scatter:
      return n * s + s;
    case Operation::all_gather:
      return 2 * (n - 1) * s;
  }
  return 0;
}

}  // namespace lockstep::bench
