#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "framework/base/bytes.h"

namespace lockstep {

/// How many copies of a symmetric buffer a host holds: one for each replica, or one that all of
/// them read and write.
enum class Copies { each, one };

/// Memory that the replicas of a group have allocated together: see Communicator::allocate.
struct SymmetricBuffer {
  /// This replica's copy, zero at first. Aligned to a page.
  Bytes own;
  /// Whether all replicas' `own` is the same memory.
  bool is_common = false;
  /// Keeps the memory; shared memory lives as long as any replica keeps it.
  std::shared_ptr<const void> memory;
};

/// Where something is in memory that the replicas of a host share.
struct SharedPlace {
  std::uint64_t extent = 0;  ///< which allocation; 0: none
  std::uint64_t at = 0;      ///< in it

  bool operator==(const SharedPlace&) const = default;
};

/// Throws CommError with the numbers if the host has less memory left than a buffer of `bytes`
/// takes.
void check_memory_left(std::size_t bytes);

/// One that is this replica's alone. CommError as above.
[[nodiscard]] SymmetricBuffer private_buffer(std::size_t bytes, bool is_common = false);

}  // namespace lockstep
