#pragma once

#include <vector>

#include "framework/base/errors.h"

namespace lockstep::testing {

/// All kinds of errors; the last is Aborted.
inline std::vector<ErrorKind> error_kinds() {
  std::vector<ErrorKind> kinds;
  for (int kind = 0; kind <= static_cast<int>(ErrorKind::aborted); ++kind) {
    kinds.push_back(static_cast<ErrorKind>(kind));
  }
  return kinds;
}

}  // namespace lockstep::testing
