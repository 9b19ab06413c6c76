#include "framework/base/limits.h"

#include <algorithm>
#include <cstring>
#include <system_error>

#include <sys/resource.h>
#include <unistd.h>

#include "framework/base/control_groups.h"
#include "framework/base/memory.h"
#include "framework/base/number_text.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::size_t own_bytes(const char* key) {
  return field_of("/proc/self/status", key).value_or(0);
}

// Counts the threads of this process' user, as far as its processes are seen here.
std::size_t threads_of_user() {
  std::size_t threads = 0;
  std::error_code error;
  for (fs::directory_iterator entry("/proc", error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    const bool is_process = parse_number<pid_t>(entry->path().filename().native()).has_value();
    const fs::path status = entry->path() / "status";
    if (!is_process || field_of(status, "Uid:").value_or(0) != ::getuid()) continue;
    threads += field_of(status, "Threads:").value_or(0);
  }
  return threads;
}

// True if so many threads may have been too many: some may have ended since.
bool is_near(std::size_t threads, std::size_t most) {
  constexpr std::size_t kFew = 64;
  return threads + std::max(kFew, most / 8) >= most;
}

}  // namespace

std::optional<std::size_t> limit_of(int resource) noexcept {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return std::nullopt;
  if (limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

std::vector<MemoryLimit> memory_limits() {
  std::vector<MemoryLimit> limits;
  if (const auto bytes = limit_of(RLIMIT_AS)) {
    limits.push_back({.name = "addresses (ulimit -v)",
                      .counts_shared = true,
                      .bytes = *bytes,
                      .used = own_bytes("VmSize:"),
                      .highest = own_bytes("VmPeak:")});
  }
  if (const auto bytes = limit_of(RLIMIT_DATA)) {
    const std::size_t used = own_bytes("VmData:");
    limits.push_back({.name = "private memory (ulimit -d)",
                      .counts_shared = false,
                      .bytes = *bytes,
                      .used = used,
                      .highest = used});
  }
  std::ranges::sort(limits, {}, &MemoryLimit::left);
  return limits;
}

std::string memory_limit_text() {
  const std::vector<MemoryLimit> limits = memory_limits();
  if (limits.empty()) return "";
  const MemoryLimit& limit = limits.front();
  return str("; of its ", text_of_bytes(limit.bytes), " of ", limit.name, " ",
             text_of_bytes(limit.highest), " have been in use");
}

std::string file_limit_text() {
  const auto limit = limit_of(RLIMIT_FSIZE);
  return limit ? str("; files may have no more than ", text_of_bytes(*limit), " (ulimit -f)") : "";
}

std::string text_of_errno(int number) {
  const ClassicLocale classic;
  const std::string text = std::strerror(number);
  if (number == EFBIG) return text + file_limit_text();
  const auto files = number == EMFILE ? limit_of(RLIMIT_NOFILE) : std::nullopt;
  return files ? str(text, "; a process may have no more than ", *files, " (ulimit -n)") : text;
}

std::string thread_limit_text(const fs::path& root) {
  std::string text = memory_limit_text();
  visit_control_groups(root, "pids", [&](const fs::path& group, int /*version*/) {
    const auto now = number_in(group / "pids.current");
    const auto most = number_in(group / "pids.max");
    if (!now || !most) return;
    if (!is_near(static_cast<std::size_t>(*now), static_cast<std::size_t>(*most))) return;
    text += str("; a control group has ", *now, " of the ", *most,
                " threads that it may have (its pids.max)");
  });
  if (const auto most = limit_of(RLIMIT_NPROC)) {
    const std::size_t now = threads_of_user();
    // A container's user may have threads that are not seen here: better this than no reason.
    if (is_near(now, *most) || text.empty()) {
      text += str("; this user has ", now, " threads here, and may have ", *most, " (ulimit -u)");
    }
  }
  return text;
}

}  // namespace lockstep
