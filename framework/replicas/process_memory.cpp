#include "framework/replicas/process_memory.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <dlfcn.h>
#include <malloc.h>

#include "framework/base/limits.h"
#include "framework/base/memory.h"
#include "framework/base/mutex.h"
#include "framework/base/text.h"
#include "framework/comm/shared/host_memory.h"
#include "framework/replicas/launch.h"
#include "framework/replicas/machine.h"

namespace lockstep::replicas {
namespace {

// Threads of a replica beside those for math, which make batches and save.
constexpr std::int64_t kHelpers = 2;
// What LibTorch and others take at their first use.
constexpr std::size_t kRest = std::size_t{8} << 20;

// OpenBLAS's buffers, one for each of its threads and each that calls it. It keeps all that it had.
class BlasBuffers {
 public:
  // How many it still has to get for callers with so many math threads.
  [[nodiscard]] std::int64_t missing(std::int64_t callers, std::int64_t math_threads) const {
    if (alloc_ == nullptr || free_ == nullptr || threads_ == nullptr) return 0;
    return std::max(math_threads - at_start_, std::int64_t{0}) + callers - had_;
  }

  void get(std::int64_t count) {
    if (count <= 0) return;
    std::vector<void*> buffers;
    // Those that it has are given out first.
    for (std::int64_t i = 0; i < had_ + count; ++i) buffers.push_back(alloc_(0));
    for (void* const buffer : buffers) free_(buffer);
    had_ += count;
  }

 private:
  using Alloc = void* (*)(int);
  using Free = void (*)(void*);
  using Threads = int (*)();

  template <typename Function>
  static Function find(const char* name) {
    return reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, name));
  }

  Alloc alloc_ = find<Alloc>("blas_memory_alloc");
  Free free_ = find<Free>("blas_memory_free");
  Threads threads_ = find<Threads>("openblas_get_num_threads");
  std::int64_t at_start_ = threads_ != nullptr ? threads_() : 0;  // one for each thread
  std::int64_t had_ = 0;                                          // beside those
};

}  // namespace

void prepare_memory(const LaunchOptions& options) {
  const std::int64_t members = options.workers == 0 ? options.replicas : options.workers;
  const auto workers = static_cast<int>(members);
  const auto replicas = static_cast<int>(options.replicas);
  (void)comm::HostMemory::bytes_for(workers, replicas);
  const std::vector<MemoryLimit> limits = memory_limits();
  if (limits.empty()) return;
  static Mutex mutex;
  const MutexLock lock(mutex);
  static BlasBuffers buffers;
  // Otherwise each thread takes 64 MiB of addresses for a heap of its own.
  if (!has_own_malloc_settings()) ::mallopt(M_ARENA_MAX, 1);
  const std::int64_t running = options.mode == LaunchMode::threads ? members : 1;
  const std::int64_t math = math_threads(options.threads_per_replica, options.replicas);
  const std::int64_t missing = std::max<std::int64_t>(0, buffers.missing(running, math));
  const auto threads = static_cast<std::size_t>(running * (math + kHelpers));
  const std::size_t for_blas = static_cast<std::size_t>(missing) * kBlasBuffer;
  const std::size_t stacks = threads * kThreadStack;
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
  buffers.get(missing);
}

}  // namespace lockstep::replicas
