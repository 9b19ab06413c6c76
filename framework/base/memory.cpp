#include "framework/base/memory.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include <malloc.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// The number behind `key` in a file of lines "key number" or "key: number kB".
std::optional<std::size_t> field_of(const fs::path& file, const std::string& key) {
  std::ifstream lines(file);
  std::string name;
  std::string rest;
  while (lines >> name && std::getline(lines, rest)) {
    if (name != key) continue;
    const std::size_t unit = rest.find("kB") == std::string::npos ? 1 : 1024;
    return std::stoull(rest) * unit;
  }
  return std::nullopt;
}

// None where the file says "max", or nothing.
std::optional<std::size_t> number_in(const fs::path& file) {
  std::ifstream text(file);
  std::size_t number = 0;
  if (text >> number) return number;
  return std::nullopt;
}

// What a control group leaves: pages of files count as used there, but can be had.
std::size_t left_in(const fs::path& group) {
  const auto limit = number_in(group / "memory.max");
  const auto used = number_in(group / "memory.current");
  if (!limit || !used) return std::numeric_limits<std::size_t>::max();
  const std::size_t taken =
      *used - std::min(*used, field_of(group / "memory.stat", "inactive_file").value_or(0));
  return *limit - std::min(*limit, taken);
}

}  // namespace

std::size_t available_memory() {
  std::size_t available =
      field_of("/proc/meminfo", "MemAvailable:").value_or(std::numeric_limits<std::size_t>::max());
  // Version 2 of control groups: the line "0::/path". A limit holds for all that is below it.
  std::ifstream own("/proc/self/cgroup");
  std::string line;
  while (std::getline(own, line)) {
    if (line.rfind("0::/", 0) != 0) continue;
    const fs::path root = "/sys/fs/cgroup";
    for (fs::path group = line.substr(4);; group = group.parent_path()) {
      available = std::min(available, left_in(root / group));
      if (group.empty()) break;
    }
  }
  return available;
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
  static const bool done = [] {
    if (has_own_malloc_settings()) return false;
    // Larger ones are mapped each by itself: kept, a gradient's of 300 MiB would count twice.
    constexpr int kLargestKept = 32 << 20;
    ::mallopt(M_MMAP_THRESHOLD, kLargestKept);
    ::mallopt(M_TRIM_THRESHOLD, -1);  // never
    return true;
  }();
  (void)done;
}

void release_freed_memory() {
  ::malloc_trim(0);
}

}  // namespace lockstep
