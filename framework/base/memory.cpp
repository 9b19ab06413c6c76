#include "framework/base/memory.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <string_view>

#include <malloc.h>

#include "framework/base/control_groups.h"
#include "framework/base/limits.h"
#include "framework/base/text.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kNoLimit = std::numeric_limits<std::int64_t>::max();

// The names of files in a version of control groups.
struct GroupFiles {
  const char* limit;
  const char* used;
  const char* unused_files;  // in memory.stat
  const char* used_files;
};
constexpr GroupFiles kVersion2{"memory.max", "memory.current", "inactive_file", "active_file"};
constexpr GroupFiles kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes",
                               "total_inactive_file", "total_active_file"};

// Returns the bytes that a control group leaves. Pages of files count as used, but can be had.
std::size_t left_in(const fs::path& group, const GroupFiles& files) {
  const auto limit = number_in(group / files.limit);
  const auto used = number_in(group / files.used);
  if (!limit || !used) return kNoLimit;
  const auto most = static_cast<std::size_t>(*limit);
  const auto all = static_cast<std::size_t>(*used);
  const std::size_t of_files = field_of(group / "memory.stat", files.unused_files).value_or(0) +
                               field_of(group / "memory.stat", files.used_files).value_or(0);
  const std::size_t taken = all - std::min(all, of_files);
  return most - std::min(most, taken);
}

}  // namespace

std::size_t memory_of_host() {
  return std::min(field_of("/proc/meminfo", "MemAvailable:").value_or(kNoLimit),
                  left_in_control_groups());
}

std::size_t available_memory() {
  std::size_t left = memory_of_host();
  for (const MemoryLimit& limit : memory_limits()) left = std::min(left, limit.left());
  return left;
}

std::size_t available_shared_memory() {
  std::size_t left = memory_of_host();
  for (const MemoryLimit& limit : memory_limits()) {
    if (limit.counts_shared) left = std::min(left, limit.left());
  }
  return left;
}

std::size_t left_in_control_groups(const fs::path& root) {
  std::size_t left = kNoLimit;
  visit_control_groups(root, "memory", [&](const fs::path& group, int version) {
    left = std::min(left, left_in(group, version == 1 ? kVersion1 : kVersion2));
  });
  return left;
}

std::string lack_of_memory(std::size_t bytes) {
  constexpr std::size_t kLittle = std::size_t{1} << 20;  // less is not worth the question
  if (bytes <= kLittle) return {};
  const std::size_t available = available_memory();
  if (bytes <= available) return {};
  return text_of_bytes(std::min(bytes, kNoLimit)) + ", and " + text_of_bytes(available) +
         " of memory are left" + memory_limit_text();
}

std::string memory_numbers() {
  const fs::path status = "/proc/self/status";
  return "this process has used up to " + text_of_bytes(field_of(status, "VmHWM:").value_or(0)) +
         " of memory, and " + text_of_bytes(available_memory()) + " are left to it" +
         memory_limit_text();
}

std::string text_of_bytes(double bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  std::size_t unit = 0;
  for (; std::abs(bytes) >= 1024 && unit + 1 < std::size(units); ++unit) bytes /= 1024;
  return formatted(unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
}

std::size_t resident_memory() {
  const auto shares = field_of("/proc/self/smaps_rollup", "Pss:");
  return shares ? *shares : field_of("/proc/self/status", "VmRSS:").value_or(0);
}

bool has_own_malloc_settings() {
  const char* const tunables = std::getenv("GLIBC_TUNABLES");
  return std::getenv("MALLOC_TRIM_THRESHOLD_") != nullptr ||
         std::getenv("MALLOC_MMAP_THRESHOLD_") != nullptr ||
         (tunables != nullptr &&
          std::string_view(tunables).find("glibc.malloc.") != std::string_view::npos);
}

void keep_freed_memory() {
  [[maybe_unused]] static const bool done = [] {
    if (has_own_malloc_settings()) return false;
    // Larger blocks are mapped one by one: if kept, a gradient of 300 MiB would count twice.
    constexpr int kLargestKept = 32 << 20;
    ::mallopt(M_MMAP_THRESHOLD, kLargestKept);
    ::mallopt(M_TRIM_THRESHOLD, -1);  // never
    return true;
  }();
}

void release_freed_memory() {
  ::malloc_trim(0);
}

}  // namespace lockstep
