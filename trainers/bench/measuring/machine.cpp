#include "trainers/bench/measuring/machine.h"

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include <sys/utsname.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "framework/base/cores.h"
#include "framework/base/instruction_set.h"
#include "framework/base/text.h"
#include "framework/replicas/machine.h"

namespace lockstep::bench {
namespace {

// "" if the system does not say.
std::string cpu_model() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    return line.substr(std::min(line.find_first_not_of(" \t", line.find(':') + 1), line.size()));
  }
  return "";
}

std::string widest_vectors() {
  const InstructionSet best = best_instruction_set();
  return best == InstructionSet::avx512 ? "AVX-512" : best == InstructionSet::avx2 ? "AVX2" : "";
}

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
template <bool past_cache>
__attribute__((target("avx"))) void copy_vectors(std::byte* to, const std::byte* from,
                                                 std::size_t bytes) {
  auto* const vectors = reinterpret_cast<__m256i*>(to);
  const auto* const source = reinterpret_cast<const __m256i*>(from);
  for (std::size_t i = 0; i < bytes / sizeof(__m256i); i += 2) {
    const __m256i low = _mm256_load_si256(source + i);
    const __m256i high = _mm256_load_si256(source + i + 1);
    if constexpr (past_cache) {
      _mm256_stream_si256(vectors + i, low);
      _mm256_stream_si256(vectors + i + 1, high);
    } else {
      _mm256_store_si256(vectors + i, low);
      _mm256_store_si256(vectors + i + 1, high);
    }
  }
  _mm_sfence();
}
#endif

std::vector<Kind> kinds() {
  std::vector<Kind> result{{"memcpy", copy_by_memcpy}};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx")) {
    result.push_back({"normal stores", copy_vectors<false>});
    result.push_back({"non-temporal stores", copy_vectors<true>});
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

struct Free {
  void operator()(std::byte* bytes) const { std::free(bytes); }
};
using Buffer = std::unique_ptr<std::byte, Free>;

// In memory: every page was written to.
Buffer make_buffer(std::size_t bytes) {
  Buffer buffer(static_cast<std::byte*>(std::aligned_alloc(kAlignment, bytes)));
  if (buffer == nullptr) throw std::bad_alloc();
  std::memset(buffer.get(), 1, bytes);
  return buffer;
}

}  // namespace

MachineFacts machine_facts() {
  utsname system{};
  ::uname(&system);
  const std::time_t now = std::time(nullptr);
  std::tm date{};
  ::gmtime_r(&now, &date);
  std::array<char, 16> date_text{};
  std::strftime(date_text.data(), date_text.size(), "%Y-%m-%d", &date);
  double load = 0;
  (void)::getloadavg(&load, 1);
  const std::string cpu = cpu_model();
  return {.cpu = cpu.empty() ? system.machine : cpu,
          .cores = usable_cores(),
          .instructions = widest_vectors(),
          .memory_bytes = std::int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE),
          .last_cache_bytes = std::max(0L, ::sysconf(_SC_LEVEL3_CACHE_SIZE)),
          .load = load,
          .kernel = str(system.sysname, ' ', system.release),
          .date = date_text.data()};
}

MemoryBandwidth measure_memory_bandwidth(std::int64_t threads) {
  const std::size_t bytes = buffer_bytes();
  MemoryBandwidth best{.threads = threads, .bytes_per_second = 0, .how = ""};
  std::barrier together(threads);
  const auto work = [&](bool first) {
    const Buffer from = make_buffer(bytes);
    const Buffer to = make_buffer(bytes);
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
