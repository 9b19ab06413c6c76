#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace lockstep::comm {

/// A counter in memory that threads or processes share: one of them raises it, others wait for it.
/// Zeroed memory is a flag at 0. The counter may wrap around; waiters are never more than 2^31
/// behind.
///
/// What is written before a raise() is seen after a wait() for it.
class Flag {
 public:
  /// Raises it to `value` and wakes those who sleep: no system call if nobody does.
  void raise(std::uint32_t value) noexcept;

  [[nodiscard]] std::uint32_t value() const noexcept;
  [[nodiscard]] bool reached(std::uint32_t value) const noexcept;

  /// How long it is looked at before a wait sleeps: so many times without pause, then for so long
  /// letting others have the core in between.
  struct Patience {
    int spins = 0;
    std::chrono::nanoseconds yielding{0};
  };
  /// Whether it reached `value` within `limit` of the end of patience.
  [[nodiscard]] bool wait(std::uint32_t value, Patience patience,
                          std::chrono::nanoseconds limit) const noexcept;

  /// Back to 0, while nobody uses it.
  void reset() noexcept;

 private:
  mutable std::uint32_t value_;
  mutable std::uint32_t sleepers_;
};

}  // namespace lockstep::comm
