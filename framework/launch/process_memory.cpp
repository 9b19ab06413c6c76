#include "framework/launch/process_memory.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <dlfcn.h>
#include <malloc.h>
#include <sys/resource.h>

#include "framework/base/limits.h"
#include "framework/base/memory.h"
#include "framework/base/text.h"
#include "framework/comm/shared/host_memory.h"
#include "framework/launch/launch.h"
#include "framework/maps/machine.h"

namespace lockstep::launcher {
namespace {

// A replica's threads beside its math threads: they make batches and save.
constexpr std::int64_t kHelpers = 2;
// A thread's stack if the first thread's has no limit; otherwise that limit.
constexpr std::size_t kUnlimitedStack = std::size_t{2} << 20;
// LibTorch and others take this much at their first use.
constexpr std::size_t kRest = std::size_t{8} << 20;

// OpenBLAS's buffers, one for each of its threads and each caller. OpenBLAS keeps the buffers of
// its ended threads, for callers, too.
struct BlasBuffers {
  template <typename Function>
  static Function* find(const char* name) {
    return reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
  }

  // Returns how many buffers callers with so many math threads need; 0 for another BLAS.
  [[nodiscard]] std::int64_t needed(std::int64_t callers, std::int64_t math_threads) const {
    return at_start == 0 ? 0 : std::max(math_threads, at_start) + callers;
  }
  void get(std::int64_t count) {
    if (count <= had) return;
    had = count;
    for (const std::int64_t threads : {had, at_start}) set_threads(static_cast<int>(threads));
  }

  int (*get_threads)() = find<int()>("openblas_get_num_threads");
  void (*set_threads)(int) = find<void(int)>("openblas_set_num_threads");
  std::int64_t at_start = get_threads != nullptr && set_threads != nullptr ? get_threads() : 0;
  std::int64_t had = at_start;
};

}  // namespace

void prepare_memory(const LaunchOptions& options) {
  const std::int64_t members = options.workers == 0 ? options.replicas : options.workers;
  const auto workers = static_cast<int>(members);
  const auto replicas = static_cast<int>(options.replicas);
  (void)comm::HostMemory::bytes_for(workers, replicas);
  const std::vector<MemoryLimit> limits = memory_limits();
  if (limits.empty()) return;
  static BlasBuffers blas;  // launch() runs in one thread at a time
  // Otherwise each thread takes 64 MiB of addresses for a heap of its own.
  if (!has_own_malloc_settings()) ::mallopt(M_ARENA_MAX, 1);
  const std::int64_t running = options.mode == LaunchMode::threads ? members : 1;
  const std::int64_t math = maps::math_threads(options.threads_per_replica, options.replicas);
  const auto threads = static_cast<std::size_t>(running * (math + kHelpers));
  const std::int64_t buffers = blas.needed(running, math);
  const std::size_t for_blas =
      static_cast<std::size_t>(std::max(buffers - blas.had, std::int64_t{0})) * kBlasBuffer;
  const std::size_t stacks = threads * limit_of(RLIMIT_STACK).value_or(kUnlimitedStack);
  for (const MemoryLimit& limit : limits) {
    const std::size_t shared =
        limit.counts_shared ? comm::HostMemory::addresses_for(workers, replicas) : 0;
    const std::size_t bytes = for_blas + stacks + shared + kRest;
    require(bytes <= limit.left(), "a process may have no more than ", text_of_bytes(limit.bytes),
            " of ", limit.name, ", of which ", text_of_bytes(limit.used), " are in use, and ",
            counted(running, "replica"), " with ", counted(math, "math thread"),
            " each would take ", text_of_bytes(bytes),
            " more, beside data and tensors: ", text_of_bytes(for_blas), " for BLAS, ",
            text_of_bytes(stacks), " for the stacks of ", threads, " threads",
            shared > 0 ? str(", ", text_of_bytes(shared), " to share") : "",
            ": raise the limit, or set parallel.threads_per_replica lower");
  }
  blas.get(buffers);
}

}  // namespace lockstep::launcher
