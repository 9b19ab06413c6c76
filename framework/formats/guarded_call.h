#pragma once

#include <csetjmp>
#include <type_traits>

namespace lockstep::formats {

/// Calls `step`, which calls a C library whose errors jump to `target`; returns whether none did.
/// Such a jump runs no destructors: `step` may neither have nor create an object that needs one.
/// What it leaves behind must be in variables outside of it.
template <typename Step>
[[nodiscard]] bool guarded_call(std::jmp_buf& target, const Step& step) {
  static_assert(std::is_trivially_destructible_v<Step>);
  if (setjmp(target) != 0) return false;  // NOLINT: the libraries know no other way
  step();
  return true;
}

}  // namespace lockstep::formats
