#include "framework/comm/store.h"

#include <algorithm>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/base/waited.h"

namespace lockstep {
namespace {
constexpr std::chrono::milliseconds kLookAround{50};
}  // namespace

void MemoryStore::set(const std::string& key, const std::string& value) {
  {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
  }
  changed_.notify_all();
}

std::string MemoryStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  const auto there = [&] { return aborted_ || values_.find(key) != values_.end(); };
  Waited waited;
  while (!there()) {
    const auto rest = timeout - waited.look();
    if (rest <= rest.zero()) {
      throw Timeout(str("nobody published '", key, "' within ", timeout.count(), " ms"));
    }
    changed_.wait_for(lock, std::min<Waited::Clock::duration>(rest, kLookAround), there);
  }
  if (aborted_) throw Aborted(reason_);
  return values_.at(key);
}

void MemoryStore::abort(const std::string& reason) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!aborted_) reason_ = reason;
    aborted_ = true;
  }
  changed_.notify_all();
}

}  // namespace lockstep
