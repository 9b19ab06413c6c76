#include "framework/base/errors.h"

namespace lockstep {

int exit_status(const std::exception& error) noexcept {
  if (dynamic_cast<const ValueError*>(&error) != nullptr) return 2;
  if (dynamic_cast<const DataError*>(&error) != nullptr) return 2;
  if (dynamic_cast<const CommError*>(&error) != nullptr) return 3;
  return 1;
}

}  // namespace lockstep
