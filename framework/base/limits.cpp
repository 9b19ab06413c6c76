#include "framework/base/limits.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/memory.h"
#include "framework/base/text.h"

namespace lockstep {
namespace {

// A replica whose first thread has less overflows it: configs, models and backwards are nested.
constexpr std::size_t kLeastStack = std::size_t{512} << 10;

std::string text_of_size(std::size_t bytes) {
  return text_of_bytes(static_cast<std::int64_t>(bytes));
}

// "VmPeak:", in bytes.
std::size_t status_of_process(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name)) return std::stoull(line.substr(name.size())) * 1024;
  }
  return 0;
}

}  // namespace

std::optional<std::size_t> limit_of(int resource) noexcept {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return std::nullopt;
  if (limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

std::size_t addresses_in_use() {
  return status_of_process("VmSize:");
}

std::string address_limit_text() {
  const auto limit = limit_of(RLIMIT_AS);
  if (!limit) return "";
  return str("; of its ", text_of_size(*limit), " of addresses (ulimit -v) ",
             text_of_size(status_of_process("VmPeak:")), " have been in use");
}

std::string file_limit_text() {
  const auto limit = limit_of(RLIMIT_FSIZE);
  return limit ? str("; files may have no more than ", text_of_size(*limit), " (ulimit -f)") : "";
}

std::string thread_limit_text() {
  const auto processes = limit_of(RLIMIT_NPROC);
  return str(processes ? str("; this user may have ", *processes, " threads (ulimit -u)") : "",
             address_limit_text());
}

void require_stack() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_STACK, &limit) != 0) return;
  const rlim_t wanted = std::min<rlim_t>(kThreadStack, limit.rlim_max);
  if (limit.rlim_cur < wanted) {
    limit.rlim_cur = wanted;
    ::setrlimit(RLIMIT_STACK, &limit);
    ::getrlimit(RLIMIT_STACK, &limit);
  }
  require(limit.rlim_cur >= kLeastStack, "a stack may have no more than ",
          text_of_size(limit.rlim_cur), " here (ulimit -s), and replicas need ",
          text_of_size(kLeastStack), " at least: raise the limit");
}

}  // namespace lockstep
