#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace lockstep {

/// How many copies of a symmetric buffer a host holds: one for each replica, or one that all of
/// them read and write.
enum class Copies { each, one };

/// Memory that the replicas of a group have allocated together: see Communicator::allocate. It
/// lives as long as this object; shared memory lives as long as any replica's object.
class SymmetricBuffer {
 public:
  virtual ~SymmetricBuffer() = default;

  /// This replica's copy, zero at first. Aligned to a page.
  [[nodiscard]] virtual std::span<std::byte> own() const noexcept = 0;
  /// Whether all replicas' own() is the same memory.
  [[nodiscard]] virtual bool is_common() const noexcept = 0;

 protected:
  SymmetricBuffer() = default;
  SymmetricBuffer(const SymmetricBuffer&) = delete;
  SymmetricBuffer& operator=(const SymmetricBuffer&) = delete;
};

/// Throws CommError with the numbers if the host has less memory left than a buffer of `bytes`
/// takes.
void check_memory_left(std::size_t bytes);

/// One that is this replica's alone. CommError as above.
[[nodiscard]] std::shared_ptr<SymmetricBuffer> private_buffer(std::size_t bytes,
                                                              bool is_common = false);

}  // namespace lockstep
