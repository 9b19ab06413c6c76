#pragma once

#include <cstdint>

namespace lockstep::testing {

/// A TCP port of the loopback at which nobody listens.
[[nodiscard]] std::uint16_t free_port();

}  // namespace lockstep::testing
