#pragma once

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep {

/// Throws a ValueError of the `parts`, as str() puts them together, unless `holds`.
template <typename... Parts>
void require(bool holds, const Parts&... parts) {
  if (!holds) [[unlikely]] {
    throw ValueError(lockstep::str(parts...));
  }
}

}  // namespace lockstep
