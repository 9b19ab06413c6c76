#include "framework/maps/tensor_memory.h"

#include <cstdint>
#include <set>
#include <thread>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "framework/base/memory.h"
#include "framework/maps/pmap.h"
#include "tests/catch.h"
#include "trainers/bench/hosts/child_program.h"

using namespace lockstep;

namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

at::Tensor bytes(std::int64_t count) {
  return at::full({count}, 1, at::kByte);
}

}  // namespace

TEST_CASE("tensors that come again in each step have the same blocks, whatever else stays") {
  pmap([] {}, {.axis_size = 1})();
  std::set<void*> addresses;
  std::vector<std::vector<char>> kept;  // stands for a run's losses, names and lines
  for (int step = 0; step < 200; ++step) {
    const at::Tensor activation = bytes(300'000);
    at::Tensor gradient = bytes(6 * kMiB);
    addresses.insert({activation.data_ptr(), gradient.data_ptr()});
    std::thread([&] { gradient.reset(); }).join();
    for (int i = 0; i < 20; ++i) kept.emplace_back(100 * (i + 1));
  }
  CHECK(addresses.size() == 2);
}

TEST_CASE("a tensor gets no block that is more than a quarter too large, or in use") {
  maps::TensorMemory::prepare();
  maps::TensorMemory::release();
  at::Tensor freed = bytes(5 * kMiB);
  const void* const block = freed.data_ptr();
  const at::Tensor other = bytes(5 * kMiB);
  CHECK(other.data_ptr() != block);
  freed.reset();
  const at::Tensor small = at::empty({5 * kMiB * 3 / 4}, at::kByte);
  CHECK(small.data_ptr() != block);
  const at::Tensor fits = at::empty({5 * kMiB * 9 / 10}, at::kByte);
  CHECK(fits.data_ptr() == block);
}

// The sanitizers bring a malloc of their own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("freed blocks take no more than tensors had at a time, and go back when released") {
  maps::TensorMemory::prepare();
  maps::TensorMemory::release();
  const std::size_t before = resident_memory();
  for (std::int64_t size = kMiB; size <= 24 * kMiB; size += size / 3) (void)bytes(size);
  CHECK(resident_memory() < before + 3 * 24 * kMiB);
  // Threads of earlier cases may take memory for a moment.
  CHECK(testing::eventually([&] {
    maps::TensorMemory::release();
    return resident_memory() < before + 2 * kMiB;
  }));
}
#endif
