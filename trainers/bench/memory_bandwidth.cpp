#include "trainers/bench/memory_bandwidth.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <new>
#include <thread>
#include <vector>

#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lockstep::bench {
namespace {

constexpr int kRounds = 5;
constexpr std::size_t kAlignment = 64;

using Copy = void (*)(std::byte* to, const std::byte* from, std::size_t bytes);
struct Kind {
  const char* name;
  Copy copy;
};

void copy_by_memcpy(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}

#if defined(__x86_64__)
__attribute__((target("avx"))) void copy_by_stores(std::byte* to, const std::byte* from,
                                                   std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += 64) {
    const __m256i low = _mm256_load_si256(reinterpret_cast<const __m256i*>(from + i));
    const __m256i high = _mm256_load_si256(reinterpret_cast<const __m256i*>(from + i + 32));
    _mm256_store_si256(reinterpret_cast<__m256i*>(to + i), low);
    _mm256_store_si256(reinterpret_cast<__m256i*>(to + i + 32), high);
  }
}

__attribute__((target("avx"))) void copy_past_cache(std::byte* to, const std::byte* from,
                                                    std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += 64) {
    const __m256i low = _mm256_load_si256(reinterpret_cast<const __m256i*>(from + i));
    const __m256i high = _mm256_load_si256(reinterpret_cast<const __m256i*>(from + i + 32));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i), low);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i + 32), high);
  }
  _mm_sfence();
}
#endif

std::vector<Kind> kinds() {
  std::vector<Kind> result{{"memcpy", copy_by_memcpy}};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx")) {
    result.push_back({"normal stores", copy_by_stores});
    result.push_back({"non-temporal stores", copy_past_cache});
  }
#endif
  return result;
}

// A copy's two buffers together are several times the last cache, however few threads share that.
std::size_t buffer_bytes() {
  const long last_cache = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
  constexpr std::size_t kLeast = std::size_t{128} << 20;
  return std::max(kLeast,
                  4 * static_cast<std::size_t>(std::max(0L, last_cache)) / kAlignment * kAlignment);
}

// Aligned, and in memory: every page was written to.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes)
      : bytes_(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kAlignment}))) {
    std::memset(bytes_, 1, bytes);
  }
  ~Buffer() { ::operator delete (bytes_, std::align_val_t{kAlignment}); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  [[nodiscard]] std::byte* get() const { return bytes_; }

 private:
  std::byte* bytes_;
};

}  // namespace

MemoryBandwidth measure_memory_bandwidth(std::int64_t threads) {
  const std::size_t bytes = buffer_bytes();
  MemoryBandwidth best{.threads = threads, .bytes_per_second = 0, .how = ""};
  std::barrier together(threads);
  const auto work = [&](bool first) {
    const Buffer from(bytes);
    const Buffer to(bytes);
    for (int round = 0; round < kRounds; ++round) {
      for (const Kind& kind : kinds()) {
        together.arrive_and_wait();
        const auto begin = std::chrono::steady_clock::now();
        kind.copy(to.get(), from.get(), bytes);
        together.arrive_and_wait();
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
        const double rate =
            2 * static_cast<double>(bytes) * static_cast<double>(threads) / seconds.count();
        if (first && rate > best.bytes_per_second) {
          best.bytes_per_second = rate;
          best.how = kind.name;
        }
      }
    }
  };
  std::vector<std::thread> others;
  for (std::int64_t i = 1; i < threads; ++i) others.emplace_back(work, false);
  work(true);
  for (std::thread& other : others) other.join();
  return best;
}

}  // namespace lockstep::bench
