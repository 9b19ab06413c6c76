#pragma once

#include <string>

#include "framework/base/errors.h"
#include "framework/base/scoped_value.h"

namespace lockstep {

/// Why this thread's collectives, maps and launches are refused, as the innermost CallsRefused
/// says; nullptr: they are not.
inline constinit thread_local const char* refusal_here = nullptr;

/// While it lives, this thread's collectives, maps and launches are Errors that end with `reason`:
/// for what must not wait for others.
class CallsRefused : ScopedValue<const char*> {
 public:
  explicit CallsRefused(const char* reason) noexcept : ScopedValue(refusal_here, reason) {}
};

/// Throws Error where they are refused; `call` names what was called.
[[noreturn]] inline void throw_refused(const std::string& call) {
  throw Error(call + ": " + refusal_here);
}

}  // namespace lockstep
