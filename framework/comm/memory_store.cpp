#include "framework/comm/memory_store.h"

#include <algorithm>

#include "framework/base/errors.h"
#include "framework/base/waited.h"

namespace lockstep::comm {

void MemoryStore::set(const std::string& key, const std::string& value) {
  const MutexLock lock(mutex_);
  values_[key] = value;
  changed_.notify_all();
}

std::string MemoryStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  MutexLock lock(mutex_);
  Waited waited;
  while (!cancellation_.is_cancelled() && !values_.contains(key)) {
    const auto rest = timeout - waited.look();
    require<Timeout>(rest > rest.zero(), "nobody published '", key, "' within ", timeout.count(),
                     " ms");
    changed_.wait_for(lock, std::min<Waited::Clock::duration>(rest, std::chrono::milliseconds(50)));
  }
  cancellation_.check();
  return values_.at(key);
}

void MemoryStore::abort(const std::string& reason) noexcept {
  const MutexLock lock(mutex_);
  cancellation_.cancel(reason);
  changed_.notify_all();
}

}  // namespace lockstep::comm
