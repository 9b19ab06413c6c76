#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <vector>

#include "framework/maps/pmap.h"
#include "tests/jax/program.h"

namespace lockstep::testing {

/// One entry an argument; the static one is not mapped.
inline std::vector<std::optional<std::int64_t>> in_axes_of(const Step& step) {
  auto axes = step.in_axes;
  if (step.static_argument) axes.push_back(std::nullopt);
  return axes;
}

inline OutAxes out_axes_of(const Step& step) {
  const auto& axes = step.out_axes;
  if (step.out_for_all) return axes.at(0) ? OutAxes(*axes[0]) : OutAxes(std::nullopt);
  if (axes.size() != 2) throw std::runtime_error("out_axes has more entries than the replay knows");
  return {axes[0], axes[1]};
}

}  // namespace lockstep::testing
