#include "framework/comm/shared/flag.h"

#include <climits>
#include <ctime>

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace lockstep::comm {
namespace {

using Atomic = std::atomic_ref<std::uint32_t>;
static_assert(Atomic::is_always_lock_free);

void relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// The futex is not private: the memory may be other processes', too.
void sleep_while(std::uint32_t* word, std::uint32_t value, std::chrono::nanoseconds limit) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit);
  const timespec timeout{.tv_sec = seconds.count(), .tv_nsec = (limit - seconds).count()};
  ::syscall(SYS_futex, word, FUTEX_WAIT, value, &timeout, nullptr, 0);
}

void wake_all(std::uint32_t* word) {
  ::syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool has_come(std::uint32_t value, std::uint32_t awaited) {
  return static_cast<std::int32_t>(value - awaited) >= 0;
}

}  // namespace

// Either the raiser sees the sleeper, or the sleeper sees the raised value: both write before they
// read, in one order for all (sequential consistency). A sleeper that comes after the raise is
// refused by the system, because the word is not what it saw.
void Flag::raise(std::uint32_t value) noexcept {
  Atomic(value_).store(value);
  if (Atomic(sleepers_).load() != 0) wake_all(&value_);
}

std::uint32_t Flag::value() const noexcept {
  return Atomic(value_).load(std::memory_order_acquire);
}

bool Flag::reached(std::uint32_t value) const noexcept {
  return has_come(this->value(), value);
}

bool Flag::wait(std::uint32_t value, Patience patience,
                std::chrono::nanoseconds limit) const noexcept {
  for (int i = 0; i < patience.spins; ++i) {
    if (reached(value)) return true;
    relax();
  }
  auto now = std::chrono::steady_clock::now();
  // Each thread that gets the core meanwhile may keep it for milliseconds.
  for (const auto sleep = now + patience.yielding; now < sleep;) {
    if (reached(value)) return true;
    ::sched_yield();
    now = std::chrono::steady_clock::now();
  }
  const auto end = now + limit;
  Atomic(sleepers_).fetch_add(1);
  for (;;) {
    const std::uint32_t seen = Atomic(value_).load();
    const bool come = has_come(seen, value);
    const auto rest = end - std::chrono::steady_clock::now();
    if (come || rest <= std::chrono::nanoseconds(0)) {
      Atomic(sleepers_).fetch_sub(1);
      return come;
    }
    sleep_while(&value_, seen, rest);
  }
}

void Flag::reset() noexcept {
  Atomic(value_).store(0);
  Atomic(sleepers_).store(0);
}

}  // namespace lockstep::comm
