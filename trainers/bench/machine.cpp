#include "trainers/bench/machine.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include <sys/utsname.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "framework/base/bytes.h"
#include "framework/base/cores.h"
#include "framework/base/instruction_set.h"
#include "framework/base/stream_copy.h"
#include "framework/base/text.h"
#include "framework/maps/machine.h"

namespace lockstep::bench {
namespace {

std::string widest_vectors() {
  const InstructionSet best = best_instruction_set();
  return best == InstructionSet::avx512 ? "AVX-512" : best == InstructionSet::avx2 ? "AVX2" : "";
}

constexpr int kRounds = 5;  // at most, and none after this time
constexpr std::chrono::milliseconds kEnough{800};

struct Kind {
  const char* name;
  void (*copy)(ConstBytes from, Bytes to);
};

#if defined(__x86_64__)
__attribute__((target("avx"))) void copy_by_normal_stores(ConstBytes from, Bytes to) {
  auto* const vectors = reinterpret_cast<__m256i*>(to.data());
  const auto* const source = reinterpret_cast<const __m256i*>(from.data());
  for (std::size_t i = 0; i < from.size() / sizeof(__m256i); i += 2) {
    const __m256i low = _mm256_loadu_si256(source + i);
    const __m256i high = _mm256_loadu_si256(source + i + 1);
    _mm256_storeu_si256(vectors + i, low);
    _mm256_storeu_si256(vectors + i + 1, high);
  }
}
#endif

std::vector<Kind> kinds() {
  std::vector<Kind> result{{"memcpy", copy_bytes}};
#if defined(__x86_64__)
  result.push_back({"non-temporal stores", stream_copy});
  if (__builtin_cpu_supports("avx")) result.push_back({"normal stores", copy_by_normal_stores});
#endif
  return result;
}

// The buffers of all threads, two each, are together several times the last cache, which they
// share.
std::size_t buffer_bytes(std::int64_t threads) {
  constexpr std::size_t kLeast = std::size_t{128} << 20;
  const auto last_cache = static_cast<std::size_t>(std::max(0L, ::sysconf(_SC_LEVEL3_CACHE_SIZE)));
  return std::max(kLeast, 2 * last_cache / static_cast<std::size_t>(threads) / 64 * 64);
}

}  // namespace

nlohmann::ordered_json machine_json() {
  utsname system{};
  ::uname(&system);
  const std::time_t now = std::time(nullptr);
  std::tm date{};
  ::gmtime_r(&now, &date);
  std::array<char, 16> date_text{};
  std::strftime(date_text.data(), date_text.size(), "%Y-%m-%d", &date);
  double load = 0;
  (void)::getloadavg(&load, 1);
  const std::string cpu = maps::cpu_model();
  return {{"cpu", cpu.empty() ? system.machine : cpu},
          {"instructions", widest_vectors()},
          {"cores", usable_cores()},
          {"memory_bytes", std::int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE)},
          {"last_cache_bytes", std::max(0L, ::sysconf(_SC_LEVEL3_CACHE_SIZE))},
          {"load", load},
          {"kernel", str(system.sysname, ' ', system.release)},
          {"date", date_text.data()}};
}

nlohmann::ordered_json bandwidth_json(std::int64_t threads) {
  const std::size_t bytes = buffer_bytes(threads);
  double best = 0;
  std::string how;
  std::barrier together(threads);
  std::atomic<bool> is_enough = false;
  const auto work = [&](bool first) {
    const std::vector<std::byte> from(bytes, std::byte{1});
    std::vector<std::byte> to = from;
    const auto first_copy = std::chrono::steady_clock::now();
    for (int round = 0; round < kRounds && !is_enough; ++round) {
      for (const Kind& kind : kinds()) {
        together.arrive_and_wait();
        const auto begin = std::chrono::steady_clock::now();
        kind.copy(from, to);
        if (first && std::chrono::steady_clock::now() - first_copy > kEnough) is_enough = true;
        together.arrive_and_wait();  // all see it, or nobody
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
        const double rate =
            2 * static_cast<double>(bytes) * static_cast<double>(threads) / seconds.count();
        if (first && rate > best) {
          best = rate;
          how = kind.name;
        }
      }
    }
  };
  // No jthreads: where one runs out of memory, the others would be waited for without end.
  std::vector<std::thread> others;
  for (std::int64_t i = 1; i < threads; ++i) others.emplace_back(work, false);
  work(true);
  for (std::thread& other : others) other.join();
  return {{"bytes_per_second", best}, {"threads", threads}, {"how", how}};
}

}  // namespace lockstep::bench
