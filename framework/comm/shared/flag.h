#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace lockstep::comm {

/// A counter in memory that threads or processes share: one of them raises it, others wait for it.
/// Zeroed memory is a flag at 0. It may wrap around; waiters are never more than 2^31 behind.
///
/// Writes before a raise() are seen after a wait() for it.
class Flag {
 public:
  /// Raises it to `value` and wakes threads that sleep. If none does, this makes no system call.
  void raise(std::uint32_t value) noexcept;

  [[nodiscard]] std::uint32_t value() const noexcept;
  [[nodiscard]] bool reached(std::uint32_t value) const noexcept;

  /// The behaviour of a wait before it sleeps: it looks at the flag `spins` times without pause,
  /// then for the time `yielding`, giving other threads the core between looks.
  struct Patience {
    int spins = 0;
    std::chrono::nanoseconds yielding{0};
  };
  /// Waits. Returns false if the flag has not reached `value` at `limit` after the end of patience.
  [[nodiscard]] bool wait(std::uint32_t value, Patience patience,
                          std::chrono::nanoseconds limit) const noexcept;

  /// Sets the flag back to 0. Nobody may use it meanwhile.
  void reset() noexcept;

 private:
  mutable std::uint32_t value_;
  mutable std::uint32_t sleepers_;
};

}  // namespace lockstep::comm
