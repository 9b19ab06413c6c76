#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "framework/base/range.h"

namespace lockstep {

inline constexpr std::size_t kPage = 4096;

[[nodiscard]] constexpr std::size_t whole_pages(std::size_t bytes) {
  return round_up(bytes, kPage);
}

/// Maps `bytes` of a file from `offset` on (both whole pages) for reading and writing, shared and
/// left out of core dumps. Unmapped when the last pointer is gone. CommError if the system refuses.
[[nodiscard]] std::shared_ptr<std::byte> map_shared(int descriptor, std::size_t offset,
                                                    std::size_t bytes);
/// The same for `bytes` of zeros that belong to this process alone.
[[nodiscard]] std::shared_ptr<std::byte> map_private(std::size_t bytes);

/// A word that threads and processes share. All loads acquire and all stores release. This orders a
/// version and the words that it guards without fences, which the thread sanitizer does not know.
/// On x86 it costs nothing.
class Word {
 public:
  [[nodiscard]] std::uint64_t load() const noexcept {
    return std::atomic_ref(raw_).load(std::memory_order_acquire);
  }
  void store(std::uint64_t value) noexcept {
    std::atomic_ref(raw_).store(value, std::memory_order_release);
  }
  /// Adds one and returns the value before.
  std::uint64_t count() noexcept {
    return std::atomic_ref(raw_).fetch_add(1, std::memory_order_acq_rel);
  }
  /// Stores `value` if the word is `expected`.
  bool replace(std::uint64_t expected, std::uint64_t value) noexcept {
    return std::atomic_ref(raw_).compare_exchange_strong(expected, value,
                                                         std::memory_order_acq_rel);
  }

 private:
  static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free);
  mutable std::uint64_t raw_;  // atomic_ref takes no const
};

}  // namespace lockstep
