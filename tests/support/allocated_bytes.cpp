#include "tests/support/allocated_bytes.h"

#include <algorithm>
#include <atomic>
#include <cstddef>

namespace {

thread_local std::uint64_t allocated = 0;
std::atomic<std::int64_t> until_failure = 0;

}  // namespace

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

// The sanitizers check what their own new and delete are used for, and tell of it. No header that
// g++ brings declares how.
extern "C" int __sanitizer_install_malloc_and_free_hooks(
    void (*on_malloc)(const volatile void* memory, std::size_t size),
    void (*on_free)(const volatile void* memory));

namespace {

void count_allocated(const volatile void*, std::size_t size) {
  allocated += size;
}
void ignore_freed(const volatile void*) {}

[[maybe_unused]] const int kInstalled =
    __sanitizer_install_malloc_and_free_hooks(count_allocated, ignore_freed);

}  // namespace

#else

#include <cstdlib>
#include <new>

// The forms for arrays and those that don't throw call this one, by the standard.
void* operator new(std::size_t size) {
  allocated += size;
  if (until_failure.load(std::memory_order_relaxed) > 0 && --until_failure == 0) {
    throw std::bad_alloc();
  }
  if (void* const memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}

void operator delete(void* memory) noexcept {
  std::free(memory);
}

void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

#endif

std::uint64_t lockstep::testing::allocated_bytes() noexcept {
  return allocated;
}

std::int64_t lockstep::testing::fail_allocation(std::int64_t number) noexcept {
  return std::max<std::int64_t>(0, until_failure.exchange(number));
}
