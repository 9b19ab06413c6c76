#include "trainers/bench/machine_facts.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <limits>

#include <sys/utsname.h>
#include <unistd.h>

#include "framework/base/text.h"
#include "framework/replicas/machine.h"

namespace lockstep::bench {
namespace {

// The value of the first line of a /proc file that begins with `key`: "key : value".
std::string proc_value(const char* file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const std::size_t value = line.find_first_not_of(" \t", line.find(':') + 1);
    return value == std::string::npos ? "" : line.substr(value);
  }
  return "";
}

std::int64_t memory_value(const char* key) {
  const std::string text = proc_value("/proc/meminfo", key);  // "1234 kB"
  return text.empty() ? 0 : std::stoll(text) * 1024;
}

std::string widest_vectors() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return "AVX-512";
  if (__builtin_cpu_supports("avx2")) return "AVX2";
#endif
  return "";
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
  const std::string cpu = proc_value("/proc/cpuinfo", "model name");
  return {.cpu = cpu.empty() ? system.machine : cpu,
          .cores = host_cores(),
          .instructions = widest_vectors(),
          .memory_bytes = memory_value("MemTotal"),
          .last_cache_bytes = std::max(0L, ::sysconf(_SC_LEVEL3_CACHE_SIZE)),
          .load = load,
          .kernel = str(system.sysname, ' ', system.release),
          .date = date_text.data()};
}

}  // namespace lockstep::bench
