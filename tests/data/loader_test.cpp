#include "framework/data/loader.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <stdexcept>

#include <ATen/ops/full.h>

#include "framework/base/errors.h"
#include "tests/catch.h"

namespace lockstep {
namespace {

// A batch of one value: 100·epoch + the first index. It can be held up, and fails at index 13.
class Slow final : public Dataset {
 public:
  std::int64_t size() const override { return 1000; }
  SampleType type() const override { return value_sample({1}, 1); }

  // Makes nothing more until it is called again.
  void hold_up(bool on) {
    const std::lock_guard lock(mutex_);
    is_held_up_ = on;
    changed_.notify_all();
  }
  std::int64_t begun() const { return begun_; }
  // Waits until so many batches were begun.
  void wait_for(std::int64_t count) const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return begun_ >= count; });
  }

 private:
  Batch gather(std::span<const std::int64_t> indices, std::int64_t epoch) const override {
    std::unique_lock lock(mutex_);
    ++begun_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !is_held_up_; });
    if (indices[0] == 13) throw std::runtime_error("sample 13 can't be read");
    const at::Tensor value = at::full({1, 1}, static_cast<float>(100 * epoch + indices[0]));
    return {value, value.clone()};
  }

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable std::atomic<std::int64_t> begun_ = 0;
  bool is_held_up_ = false;
};

}  // namespace

TEST_CASE("batches come in the order of their requests, with any number of threads") {
  const Slow data;
  for (const std::int64_t threads : {0, 1, 2, 5}) {
    Loader loader(data, {.threads = threads, .ahead = 3});
    for (std::int64_t i = 0; i < 40; ++i) loader.request({i % 13}, i);
    for (std::int64_t i = 0; i < 40; ++i) {
      CHECK(loader.next().inputs.item<float>() == static_cast<float>(100 * i + i % 13));
    }
    CHECK_THROWS_WITH(loader.next(), "loader: no batch was asked for");
  }
}

TEST_CASE("no more batches are made than may be ahead") {
  Slow data;
  Loader loader(data, {.threads = 4, .ahead = 2});
  for (std::int64_t i = 0; i < 10; ++i) loader.request({i}, 0);
  data.wait_for(2);
  data.hold_up(true);
  (void)loader.next();
  data.wait_for(3);
  CHECK(data.begun() == 3);
  data.hold_up(false);
  for (std::int64_t i = 1; i < 10; ++i) CHECK(loader.next().inputs.item<float>() == float(i));
  CHECK(data.begun() == 10);
}

TEST_CASE("a batch that fails is told where it is taken, and those after it come") {
  const Slow data;
  for (const std::int64_t threads : {0, 2}) {
    Loader loader(data, {.threads = threads});
    for (const std::int64_t index : {12, 13, 14, 1000}) loader.request({index}, 0);
    CHECK(loader.next().inputs.item<float>() == 12);
    CHECK_THROWS_WITH(loader.next(), "sample 13 can't be read");
    CHECK(loader.next().inputs.item<float>() == 14);
    CHECK_THROWS_AS(loader.next(), ValueError);
  }
}

TEST_CASE("a loader ends while batches are asked for, and refuses odd options") {
  Slow data;
  {
    Loader loader(data, {.threads = 2, .ahead = 1});
    for (std::int64_t i = 0; i < 100; ++i) loader.request({i}, 0);
    data.wait_for(1);
  }
  CHECK(data.begun() <= 3);
  CHECK_THROWS_WITH(Loader(data, {.threads = -1}), "loader: threads is -1, but must be at least 0");
  CHECK_THROWS_WITH(Loader(data, {.ahead = 0}), "loader: ahead is 0, but must be at least 1");
}

}  // namespace lockstep
