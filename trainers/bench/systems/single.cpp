// Tasks of one part of Lockstep, in one thread.

#include <vector>

#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>

#include "framework/base/cores.h"
#include "framework/maps/machine.h"
#include "framework/timeline/recorder.h"
#include "trainers/bench/systems/tasks.h"

namespace lockstep::bench {
namespace {

class Span : public ReplicaTask {
 public:
  std::string prepare(const std::string&, std::int64_t) override { return ""; }
  void call() override {
    const timeline::RecordedSpan span(track_.get(),
                                      {.kind = timeline::SpanKind::collective, .bytes = 8});
  }

 private:
  timeline::Recorder recorder_{1};
  std::unique_ptr<timeline::Recorder::Track> track_ = recorder_.take(0, "replica");
};

class Clock : public ReplicaTask {
 public:
  std::string prepare(const std::string&, std::int64_t) override { return ""; }
  void call() override {
    ticks_ = timeline::recorder_now();
    ticks_ = timeline::recorder_now();
  }

 private:
  volatile std::uint64_t ticks_ = 0;
};

class Product : public ReplicaTask {
 public:
  explicit Product(at::ScalarType type)
      : factor_(at::full({2048, 2048}, 0.5, type)), out_(at::empty_like(factor_)) {}
  std::string prepare(const std::string&, std::int64_t) override {
    call();  // makes threads and their memory
    return "";
  }
  void call() override { at::mm_out(out_, factor_, factor_); }

 private:
  at::Tensor factor_, out_;
};

}  // namespace

std::unique_ptr<ReplicaTask> make_recorder(const std::string& way) {
  if (way == "span") return std::make_unique<Span>();
  return std::make_unique<Clock>();
}

std::unique_ptr<ReplicaTask> make_peak(const std::string& way) {
  maps::set_math_threads(usable_cores());
  return std::make_unique<Product>(way == "bfloat16" ? at::kBFloat16 : at::kFloat);
}

}  // namespace lockstep::bench
