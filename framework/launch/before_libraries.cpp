// Ends a program with replicas, with a reason, if the process' limits are too low for its libraries
// to start. Where a process may map little memory (ulimit -v, -d), OpenBLAS's start would go on for
// ever, and LibTorch's would end the program without a reason. With a small stack (ulimit -s) the
// program would crash.
//
// The code runs before any constructor, also those of C++'s streams, LibTorch and the framework: it
// uses only constants and the system's C functions.

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <fcntl.h>
#include <link.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include "framework/launch/process_memory.h"

namespace lockstep::launcher {
namespace {

// LibTorch's registries and others take this much when libraries start.
constexpr std::size_t kLibrariesStart = std::size_t{64} << 20;
constexpr std::size_t kKiB = std::size_t{1} << 10;
constexpr std::size_t kMiB = std::size_t{1} << 20;
// Functions recurse over nested configs, models and backwards.
constexpr std::size_t kLeastStack = 512 * kKiB;

// A limit on mapped memory, and the column of /proc/self/statm that counts against it.
struct Mapped {
  __rlimit_resource resource;
  const char* name;
  std::size_t column;
};
constexpr Mapped kMapped[] = {{RLIMIT_AS, "addresses (ulimit -v)", 0},
                              {RLIMIT_DATA, "private memory (ulimit -d)", 5}};

std::size_t mapped_now(std::size_t column) {
  const int file = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  char text[200] = "";  // pages: "size resident shared text library data dirty"
  (void)!::read(file, text, sizeof text - 1);
  ::close(file);
  char* rest = text;
  for (; column > 0; --column) (void)std::strtoull(rest, &rest, 10);
  return std::strtoull(rest, nullptr, 10) * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

int is_openblas(dl_phdr_info* library, std::size_t /*size*/, void* found) {
  if (std::strstr(library->dlpi_name, "libopenblas") != nullptr) *static_cast<bool*>(found) = true;
  return 0;
}

// Returns how many threads OpenBLAS starts; each takes a buffer. OpenBLAS knows no CPU quota.
std::size_t threads_of_openblas(const char* const* environment) {
  bool is_there = false;
  ::dl_iterate_phdr(is_openblas, &is_there);
  if (!is_there) return 0;
  cpu_set_t cores;
  CPU_ZERO(&cores);
  std::size_t threads = ::sched_getaffinity(0, sizeof cores, &cores) == 0
                            ? static_cast<std::size_t>(CPU_COUNT(&cores))
                            : 1;
  for (; *environment != nullptr; ++environment) {
    // OpenBLAS with OpenMP takes its buffers before it reads OPENBLAS_NUM_THREADS.
    constexpr std::string_view kName = "OMP_NUM_THREADS=";
    if (!std::string_view(*environment).starts_with(kName)) continue;
    const std::size_t number = std::strtoull(*environment + kName.size(), nullptr, 10);
    if (number > 0) threads = std::min(threads, number);
  }
  return threads;
}

// Writes an error, with arguments as printf()'s, and ends the program.
[[noreturn, gnu::format(printf, 1, 2)]] void refuse(const char* format, ...) {
  char text[400];
  std::va_list values;
  va_start(values, format);
  const int size = std::vsnprintf(text, sizeof text, format, values);
  va_end(values);
  (void)!::write(STDERR_FILENO, text, static_cast<std::size_t>(size));
  ::_exit(2);
}

void check_limits(int /*argc*/, char** /*argv*/, char** environment) {
  rlimit stack{};
  if (::getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur < kLeastStack) {
    refuse(
        "lockstep: error: a stack may have no more than %zu KiB here (ulimit -s), and this program "
        "needs %zu KiB at least. Raise the limit\n",
        static_cast<std::size_t>(stack.rlim_cur) / kKiB, kLeastStack / kKiB);
  }
  for (const Mapped& mapped : kMapped) {
    rlimit limit{};
    if (::getrlimit(mapped.resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) continue;
    const std::size_t libraries = mapped_now(mapped.column) + kLibrariesStart;
    const std::size_t threads = threads_of_openblas(environment);
    const std::size_t needed = libraries + threads * kBlasBuffer;
    if (needed <= limit.rlim_cur) continue;
    refuse(
        "lockstep: error: a process may have no more than %zu MiB of %s here, and this program "
        "takes %zu MiB before it begins: its libraries %zu MiB, and OpenBLAS %zu MiB for each of "
        "%zu threads. Raise the limit, or set OMP_NUM_THREADS=1\n",
        static_cast<std::size_t>(limit.rlim_cur) / kMiB, mapped.name, needed / kMiB,
        libraries / kMiB, kBlasBuffer / kMiB, threads);
  }
}

}  // namespace
}  // namespace lockstep::launcher

// Only programs may have this section: they link with this name (framework/CMakeLists.txt).
extern "C" [[gnu::section(".preinit_array"), gnu::used]] void (*const lockstep_before_libraries)(
    int, char**, char**) = lockstep::launcher::check_limits;
