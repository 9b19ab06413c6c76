#include "framework/training/worker_gradient_sums.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include <ATen/ops/zeros.h>

#include "framework/axes/environment.h"
#include "framework/collectives/message.h"
#include "framework/reduce/reduce.h"
#include "framework/training/bucket_sizes.h"
#include "framework/training/buffer_plan.h"

namespace lockstep::training {

std::shared_ptr<WorkerGradientSums> WorkerGradientSums::of_worker(groups::ReplicaGroup& replicas,
                                                                  const tree::FlatLayout& layout) {
  // All replicas count their calls alike, and those of one worker share their LocalReplicas.
  const auto number = current_environment()->next_call(replicas);
  const std::pair<const void*, std::uint64_t> key{current_environment()->local_replicas().get(),
                                                  number.key};
  static Mutex mutex;
  static std::map<std::pair<const void*, std::uint64_t>, std::weak_ptr<WorkerGradientSums>> all;
  const MutexLock lock(mutex);
  std::erase_if(all, [](const auto& entry) { return entry.second.expired(); });
  auto found = all[key].lock();
  if (!found) {
    found = std::make_shared<WorkerGradientSums>(
        layout, static_cast<int>(replicas.layout().own_places().size()));
    all[key] = found;
  }
  return found;
}

WorkerGradientSums::Set WorkerGradientSums::any_set() {
  Set set;
  if (!free_.empty()) {
    set = std::move(free_.back());
    free_.pop_back();
    return set;
  }
  for (const tree::FlatBucket& bucket : layout_.buckets()) {
    set.push_back(at::zeros({bucket.size}, gradient_dtype(bucket)));
  }
  bytes_ += total_bytes(set);
  return set;
}

void WorkerGradientSums::give(std::int64_t replica, Set set) {
  const MutexLock lock(mutex_);
  ++given_;
  Sum sum{{replica, 1}, std::move(set)};
  // As long as the other half of the next larger subtree is there, too.
  for (;;) {
    const auto other = std::ranges::find(sums_, sum.of.sibling(), &Sum::of);
    if (other == sums_.end()) break;
    Sum left = std::move(*other);
    sums_.erase(other);
    if (sum.of.is_left()) std::swap(left, sum);
    for (std::size_t bucket = 0; bucket < left.set.size(); ++bucket) {
      const auto into = collectives::bytes_of(left.set[bucket]);
      const std::array<const std::byte*, 2> inputs{into.data(),
                                                   collectives::bytes_of(sum.set[bucket]).data()};
      reduce::reduce(inputs, into,
                     collectives::find_element_type(left.set[bucket].scalar_type()).value(),
                     ReduceOp::sum);
    }
    free_.push_back(std::move(sum.set));
    left.of = left.of.parent();
    sum = std::move(left);
  }
  sums_.push_back(std::move(sum));
}

WorkerGradientSums::Set WorkerGradientSums::brought_by(std::int64_t replica) {
  const MutexLock lock(mutex_);
  for (const Sum& sum : sums_) {
    if (sum.of.first == replica) return sum.set;
  }
  if (negative_zeros_.empty()) {
    negative_zeros_ = any_set();
    for (const at::Tensor& values : negative_zeros_) values.fill_(-0.0);
  }
  return negative_zeros_;
}

void WorkerGradientSums::finish() {
  const MutexLock lock(mutex_);
  // Another has said so before, and may have given its next gradients.
  if (given_ < replicas_here_) return;
  for (Sum& sum : sums_) free_.push_back(std::move(sum.set));
  if (!negative_zeros_.empty()) free_.push_back(std::move(negative_zeros_));
  sums_.clear();
  negative_zeros_.clear();
  given_ = 0;
}

std::int64_t WorkerGradientSums::bytes(std::int64_t place) const {
  const MutexLock lock(mutex_);
  return shard(bytes_, replicas_here_, place).size;
}

std::int64_t WorkerGradientSums::sets_of(const Range& replicas, bool wait) {
  std::vector<reduce::Subtree> sums;  // each of a set: siblings are next to each other
  std::int64_t sets = wait ? replicas.size : 0;
  for (std::int64_t i = 0; i < replicas.size; ++i) {
    sets = std::max(sets, std::ssize(sums) + 1);
    reduce::Subtree sum{replicas.offset + i, 1};
    while (!sums.empty() && sums.back() == sum.sibling()) {
      sums.pop_back();
      sum = sum.parent();
    }
    sums.push_back(sum);
  }
  // Replicas whose gradients are in another's sum bring -0.
  return std::ssize(sums) < replicas.size ? std::max(sets, std::ssize(sums) + 1) : sets;
}

}  // namespace lockstep::training
