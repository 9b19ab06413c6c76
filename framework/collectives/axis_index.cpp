#include "framework/collectives/axis_index.h"

#include "framework/axes/environment.h"

namespace lockstep {

std::int64_t axis_index(const AxisNames& axis_name, std::source_location where) {
  return place_of({"axis_index", axis_name, where}).index;
}

std::int64_t axis_size(const AxisNames& axis_name, std::source_location where) {
  return place_of({"axis_size", axis_name, where}).size;
}

}  // namespace lockstep
