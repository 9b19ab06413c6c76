#include "framework/data/loader.h"

#include <algorithm>
#include <utility>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/timeline/recorder.h"

namespace lockstep {

Loader::Loader(const Dataset& data, const LoaderOptions& options)
    : data_(data), ahead_(static_cast<std::size_t>(options.ahead)) {
  require_at_least(0, "loader: threads", options.threads);
  require_at_least(1, "loader: ahead", options.ahead);
  for (std::int64_t i = 0; i < options.threads; ++i) threads_.emplace_back([this] { work(); });
}

Loader::~Loader() {
  {
    const MutexLock lock(mutex_);
    is_over_ = true;
  }
  wanted_.notify_all();
}

void Loader::request(std::vector<std::int64_t> indices, std::int64_t epoch) {
  {
    const MutexLock lock(mutex_);
    requests_.push_back(
        std::make_shared<Request>(Request{.indices = std::move(indices), .epoch = epoch}));
  }
  wanted_.notify_one();
}

Batch Loader::next() {
  const timeline::RecordedSpan span(timeline::track_here, {.kind = timeline::SpanKind::data});
  MutexLock lock(mutex_);
  if (requests_.empty()) throw Error("loader: no batch was asked for");
  const std::shared_ptr<Request> first = requests_.front();
  if (threads_.empty()) {
    make(*first);
  } else {
    while (!first->is_done) made_.wait(lock);
    --begun_;
  }
  requests_.pop_front();
  lock.unlock();
  wanted_.notify_one();
  if (first->failure) std::rethrow_exception(first->failure);
  return std::move(first->batch);
}

void Loader::work() {
  MutexLock lock(mutex_);
  while (true) {
    while (!is_over_ && begun_ >= std::min(requests_.size(), ahead_)) wanted_.wait(lock);
    if (is_over_) return;
    const std::shared_ptr<Request> request = requests_[begun_++];
    lock.unlock();
    make(*request);
    lock.lock();
    request->is_done = true;
    made_.notify_one();
  }
}

void Loader::make(Request& request) const {
  request.failure = thrown_by([&] { request.batch = data_.batch(request.indices, request.epoch); });
}

}  // namespace lockstep
