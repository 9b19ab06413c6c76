#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

/// A word that threads and processes share. Loads acquire and stores release: this orders a version
/// and the words that it guards without fences, which the thread sanitizer does not know. The order
/// costs nothing on x86.
class Word {
 public:
  [[nodiscard]] std::uint64_t load() const noexcept {
    return std::atomic_ref(raw_).load(std::memory_order_acquire);
  }
  void store(std::uint64_t value) noexcept {
    std::atomic_ref(raw_).store(value, std::memory_order_release);
  }
  /// Adds one. Returns the value before.
  std::uint64_t count() noexcept {
    return std::atomic_ref(raw_).fetch_add(1, std::memory_order_acq_rel);
  }
  /// Stores `value` and returns true if the word is `expected`.
  bool replace(std::uint64_t expected, std::uint64_t value) noexcept {
    return std::atomic_ref(raw_).compare_exchange_strong(expected, value,
                                                         std::memory_order_acq_rel);
  }

 private:
  static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free);
  mutable std::uint64_t raw_;  // atomic_ref takes no const
};

/// Writes `text` and a zero. A text that does not fit is cut and ends with "...".
void write_text(std::span<Word> words, std::string_view text) noexcept;
[[nodiscard]] std::string read_text(std::span<const Word> words);

}  // namespace lockstep
