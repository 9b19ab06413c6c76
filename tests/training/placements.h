#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tests/collectives/everywhere.h"

namespace lockstep::testing {

/// As expect(), that `text` contains `part`.
void expect_contains(const std::string& text, const std::string& part);

/// Runs `replica` in jobs of `replicas` threads: in shared memory, over Gloo, and on fewer workers.
/// Fails the test with the placement's name where a replica throws.
void in_every_placement(std::int64_t replicas, const std::function<void()>& replica);

}  // namespace lockstep::testing
