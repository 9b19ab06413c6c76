#include "framework/comm/store.h"

#include <utility>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep {

void MemoryStore::set(const std::string& key, const std::string& value) {
  {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
  }
  changed_.notify_all();
}

std::string MemoryStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  const bool there = changed_.wait_for(
      lock, timeout, [&] { return aborted_ || values_.find(key) != values_.end(); });
  if (aborted_) throw Aborted(reason_);
  if (!there) throw Timeout(str("nobody published '", key, "' within ", timeout.count(), " ms"));
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

PrefixStore::PrefixStore(std::shared_ptr<Store> store, std::string prefix)
    : store_(std::move(store)), prefix_(std::move(prefix)) {}

void PrefixStore::set(const std::string& key, const std::string& value) {
  store_->set(prefix_ + key, value);
}

std::string PrefixStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  return store_->get(prefix_ + key, timeout);
}

void PrefixStore::abort(const std::string& reason) noexcept {
  store_->abort(reason);
}

}  // namespace lockstep
