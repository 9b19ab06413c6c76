#include "trainers/plan/step_timeline.h"

#include <algorithm>

#include "framework/base/range.h"

namespace lockstep::plan {
namespace {

// Parameters of a late update travel in the next step: the third one is as all further ones.
constexpr int kSteps = 3;

class Timeline {
 public:
  Timeline(const StepWork& work, const StepCalls& calls)
      : work_(work), calls_(calls), there_(work.buckets.size(), 0.0) {
    const std::vector<std::size_t> all = consecutive(std::size_t{0}, work.buckets.size());
    by_need_ = filtered(all, [&](std::size_t index) { return !bucket(index).is_cut; });
    std::ranges::sort(by_need_, {}, [&](std::size_t index) { return bucket(index).needed; });
    blocks_ = filtered(all, [&](std::size_t index) { return bucket(index).is_cut; });
    std::ranges::sort(blocks_, {}, [&](std::size_t index) { return bucket(index).needed; });
  }

  StepTime step() {
    const double begin = now_;
    communication_ = 0;
    for (std::int64_t microbatch = 1; microbatch <= work_.microbatches; ++microbatch) {
      now_ += work_.data;
      forward();
      backward(microbatch == work_.microbatches || work_.reduces_every_microbatch);
    }
    wait(now_, calls_.votes);
    now_ += work_.update;
    publish();
    const double seconds = now_ - begin;
    return {seconds, std::max(0.0, seconds - work_.computing()), communication_};
  }

 private:
  [[nodiscard]] const BucketWork& bucket(std::size_t index) const { return work_.buckets[index]; }

  // When a call ends that is asked for then.
  double call(double asked, double seconds) {
    link_free_ = std::max(asked + calls_.per_call, link_free_) + seconds;
    communication_ += seconds;
    return link_free_;
  }
  // A call that nothing goes on beside.
  void wait(double asked, double seconds) {
    now_ = link_free_ = std::max(asked, link_free_) + seconds;
    communication_ += seconds;
  }
  double gather(std::size_t index, double asked) {
    return call(asked, calls_.gather(bucket(index).parameter_bytes));
  }

  void forward() {
    double done = 0;  // of the forward
    const auto go_on = [&](double until) {
      now_ += until - done;
      done = until;
    };
    auto uncut = by_need_.begin();
    const auto use_uncut = [&](double until) {
      for (; uncut != by_need_.end() && bucket(*uncut).needed <= until; ++uncut) {
        go_on(bucket(*uncut).needed);
        now_ = std::max(now_, there_[*uncut]);
      }
    };
    double next = -1;  // when the next block is there, if it has been asked for
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      use_uncut(bucket(blocks_[i]).needed);
      go_on(bucket(blocks_[i]).needed);
      now_ = std::max(now_, next >= 0 ? next : gather(blocks_[i], now_));
      // The next one comes while this one runs.
      next = i + 1 < blocks_.size() && calls_.overlaps ? gather(blocks_[i + 1], now_) : -1;
    }
    use_uncut(work_.forward);
    go_on(work_.forward);
  }

  void backward(bool reduces) {
    const double begin = now_;
    double waited = 0;
    double reduced = 0;
    double before = 0;  // when the block that ran before was done
    for (std::size_t index = 0; index < work_.buckets.size(); ++index) {
      const BucketWork& each = bucket(index);
      if (each.is_cut) {
        const double asked = begin + waited + before;
        waited += gather(index, asked) - asked;
        before = each.ready;
      }
      if (!reduces || !calls_.overlaps) continue;
      reduced = call(begin + waited + each.ready, calls_.reduce(each.gradient_bytes));
    }
    now_ = std::max(begin + waited + work_.backward, reduced);
    for (const BucketWork& each : work_.buckets) {
      if (reduces && !calls_.overlaps) wait(now_, calls_.reduce(each.gradient_bytes));
    }
    now_ += work_.rest;
  }

  // What may be late comes during the next forward, what is needed first before the rest.
  void publish() {
    if (!calls_.gather) return;
    for (const std::size_t index : by_need_) {
      if (is_late(index)) continue;
      wait(now_, calls_.gather(bucket(index).parameter_bytes));
      there_[index] = now_;
    }
    for (std::size_t index = work_.buckets.size(); index-- > 0;) {
      if (is_late(index)) there_[index] = gather(index, now_);
    }
  }
  [[nodiscard]] bool is_late(std::size_t index) const {
    return bucket(index).may_be_late && !bucket(index).is_cut && calls_.overlaps;
  }

  const StepWork& work_;
  const StepCalls& calls_;
  std::vector<std::size_t> by_need_;  // those that are not cut
  std::vector<std::size_t> blocks_;   // those that are, in the order of the forward
  std::vector<double> there_;         // by bucket: since when its parameters are
  double now_ = 0;
  double link_free_ = 0;
  double communication_ = 0;
};

}  // namespace

StepTime step_time(const StepWork& work, const StepCalls& calls) {
  if (!calls.reduce) return {.seconds = work.computing()};
  Timeline timeline(work, calls);
  StepTime last;
  for (int step = 0; step < kSteps; ++step) last = timeline.step();
  return last;
}

}  // namespace lockstep::plan
