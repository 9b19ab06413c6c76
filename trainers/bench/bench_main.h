#pragma once

namespace lockstep::bench {

/// The binary `bench`: measures what its flags say, or is a worker of itself. Returns the exit
/// status, and prints errors.
[[nodiscard]] int bench_main(int argc, const char* const* argv);

}  // namespace lockstep::bench
