#pragma once

#include <cstdint>

namespace lockstep::testing {

/// How many bytes this thread has asked `new` for since it began, and under a sanitizer malloc,
/// too. In programs that have this header's source.
[[nodiscard]] std::uint64_t allocated_bytes() noexcept;

/// The allocation with this number that any thread makes by `new` from now on, the first is 1,
/// throws std::bad_alloc; 0: none does. Not under a sanitizer. Returns what is left of the number
/// before: 0 if that allocation has failed.
std::int64_t fail_allocation(std::int64_t number) noexcept;

}  // namespace lockstep::testing
