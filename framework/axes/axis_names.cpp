#include "framework/axes/axis_names.h"

#include "framework/base/text.h"

namespace lockstep {

std::string AxisNames::text() const {
  if (names_.size() == 1) return "'" + names_[0] + "'";
  return names_.empty() ? "()" : "('" + join(names_, "', '") + "')";
}

}  // namespace lockstep
