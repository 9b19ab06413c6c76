// The binary `train`.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <link.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include "framework/replicas/address_space.h"
#include "trainers/train_main.h"

namespace {

// What LibTorch registers of itself when it is loaded takes this much of the addresses.
constexpr std::size_t kLibTorchsStart = std::size_t{64} << 20;
constexpr std::size_t kMiB = std::size_t{1} << 20;

std::size_t addresses_in_use() {
  const int file = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  char text[64] = "0";  // "pages …"
  (void)!::read(file, text, sizeof text - 1);
  ::close(file);
  return std::strtoull(text, nullptr, 10) * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

int is_openblas(dl_phdr_info* library, std::size_t /*size*/, void* found) {
  if (std::strstr(library->dlpi_name, "libopenblas") != nullptr) *static_cast<bool*>(found) = true;
  return 0;
}

// The threads for each of which OpenBLAS takes a buffer when it is loaded.
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
    for (const char* const name : {"OPENBLAS_NUM_THREADS=", "OMP_NUM_THREADS="}) {
      if (std::strncmp(*environment, name, std::strlen(name)) != 0) continue;
      const std::size_t number = std::strtoull(*environment + std::strlen(name), nullptr, 10);
      if (number > 0) threads = std::min(threads, number);
    }
  }
  return threads;
}

// With too few addresses (ulimit -v) the libraries' own starts go on for ever, or end the program
// without a reason. It runs before them, and so uses nothing but the system.
void check_addresses(int /*argc*/, char** /*argv*/, char** environment) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  const std::size_t used = addresses_in_use();
  const std::size_t threads = threads_of_openblas(environment);
  const std::size_t needed = used + kLibTorchsStart + threads * lockstep::replicas::kBlasBuffer;
  if (needed <= limit.rlim_cur) return;
  char text[400];
  const int size = std::snprintf(
      text, sizeof text,
      "lockstep: error: a process may have no more than %zu MiB of addresses here (ulimit -v), and "
      "this program takes %zu MiB before it begins: its libraries %zu MiB, and OpenBLAS %zu MiB "
      "for "
      "each of %zu threads. Raise the limit, or set OPENBLAS_NUM_THREADS=1\n",
      static_cast<std::size_t>(limit.rlim_cur) / kMiB, needed / kMiB,
      (used + kLibTorchsStart) / kMiB, lockstep::replicas::kBlasBuffer / kMiB, threads);
  (void)!::write(STDERR_FILENO, text, static_cast<std::size_t>(size));
  ::_exit(2);
}

[[gnu::section(".preinit_array"),
  gnu::used]] void (*const kBeforeLibraries)(int, char**, char**) = check_addresses;

}  // namespace

int main(int argc, char** argv) {
  return lockstep::train_main(argc, argv);
}
