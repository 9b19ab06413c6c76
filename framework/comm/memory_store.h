#pragma once

#include <chrono>
#include <map>
#include <string>

#include "framework/base/mutex.h"
#include "framework/comm/cancellation.h"
#include "framework/comm/store.h"

namespace lockstep::comm {

/// A store for replicas that are threads of one process.
class MemoryStore final : public Store {
 public:
  void set(const std::string& key, const std::string& value) override;
  [[nodiscard]] std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  /// Ends every get() that waits, now and later, with Aborted(`reason`).
  void abort(const std::string& reason) noexcept;

 private:
  Mutex mutex_;
  Condition changed_;
  std::map<std::string, std::string> values_ LOCKSTEP_GUARDED_BY(mutex_);
  Cancellation cancellation_;
};

}  // namespace lockstep::comm
