#pragma once

#include <string>

#include "framework/base/scoped_value.h"

namespace lockstep {

/// While it lives, this thread's collectives, maps and launches are Errors that end with `reason`:
/// for what must not wait for others.
class CallsRefused : ScopedValue<const char*> {
 public:
  explicit CallsRefused(const char* reason) noexcept;
};

/// The reason of the innermost guard, or nullptr.
[[nodiscard]] const char* refusal_of_calls() noexcept;

/// Throws Error where a guard lives; `call` names what was called.
[[noreturn]] void throw_refused(const std::string& call);

}  // namespace lockstep
