#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "framework/comm/symmetric_buffer.h"

namespace lockstep {

/// The symmetric buffers with one copy for several workers (Copies::one) that one of these workers
/// knows. Any thread.
class CommonBuffers {
 public:
  /// Where memory lies in such a buffer. All 0: it does not.
  struct Location {
    std::uint64_t buffer = 0;  ///< the same number in all workers that share it
    std::uint64_t offset = 0;

    bool operator==(const Location&) const = default;
  };

  /// A number that no other buffer on this host has.
  [[nodiscard]] static std::uint64_t new_number();

  /// `number` is one worker's new_number(), which all have agreed on.
  void add(std::uint64_t number, const std::shared_ptr<SymmetricBuffer>& buffer);

  [[nodiscard]] Location find(std::span<const std::byte> memory);

 private:
  struct Known {
    std::uint64_t number;
    std::weak_ptr<SymmetricBuffer> buffer;
  };
  std::mutex mutex_;
  std::vector<Known> known_;
};

}  // namespace lockstep
