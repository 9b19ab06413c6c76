#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace lockstep::comm {

/// A counter in memory that threads or processes share: one of them raises it, others wait for it.
/// Zeroed memory is a flag at 0. It may wrap around; waiters are never more than 2^31 behind.
///
/// What is written before a raise() is seen after a wait() for it.
class Flag {
 public:
  /// Raises it to `value` and wakes threads that sleep. No system call if none does.
  void raise(std::uint32_t value) noexcept;

  [[nodiscard]] std::uint32_t value() const noexcept;
  [[nodiscard]] bool reached(std::uint32_t value) const noexcept;

  /// How a wait behaves before it sleeps: it looks at the flag `spins` times without pause, then
  /// for the time `yielding`, giving other threads the core between looks.
  struct Patience {
    int spins = 0;
    std::chrono::nanoseconds yielding{0};
  };
  /// Waits. False if the flag has not reached `value` at `limit` after the end of patience.
  [[nodiscard]] bool wait(std::uint32_t value, Patience patience,
                          std::chrono::nanoseconds limit) const noexcept;

  /// Back to 0. Nobody may use it meanwhile.
  void reset() noexcept;

 private:
  mutable std::uint32_t value_;
  mutable std::uint32_t sleepers_;
};

}  // namespace lockstep::comm
