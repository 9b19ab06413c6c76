#pragma once

#include <cstdint>

namespace lockstep::testing {

/// How many bytes this thread has asked `new` for since it began, and under a sanitizer malloc,
/// too. In programs that have this header's source.
[[nodiscard]] std::uint64_t allocated_bytes() noexcept;

}  // namespace lockstep::testing
