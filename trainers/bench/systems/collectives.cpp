#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/collectives/all_gather.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/in_place.h"
#include "framework/collectives/psum.h"
#include "trainers/bench/reports/operation.h"
#include "trainers/bench/systems/own.h"

namespace lockstep::bench {
namespace {

// A replica's operation on buffers that begin as its index + 1.
class Collective : public ReplicaTask {
 public:
  std::string prepare(const std::string& name, std::int64_t bytes) override {
    operation_ = parse_operation(name);
    const std::int64_t replicas = axis_size(kAxis);
    make_buffers(bytes / static_cast<std::int64_t>(sizeof(float)), replicas, axis_index(kAxis));
    call();
    const bool gathers = operation_ == Operation::all_gather;
    const Tensor each = at::arange(1, replicas + 1, at::kFloat);
    const Tensor expected = gathers ? each.unsqueeze(1) : each.sum();
    const Tensor found = gathers ? output_.view({replicas, -1}) : output_;
    if (!found.eq(expected).all().item<bool>())
      throw Error(str(name_of(operation_), ": the result is wrong"));
    barrier();       // nobody clears what another still reads
    input_.zero_();  // what is summed in place again and again must stay finite
    return "";
  }
  void barrier() override { lockstep::barrier(kAxis); }

 protected:
  virtual void make_buffers(std::int64_t floats, std::int64_t replicas, std::int64_t index) = 0;

  Operation operation_ = Operation::all_reduce;
  Tensor input_;
  Tensor output_;
};

// The public functions on tensors as anyone has them.
class OrdinaryTensors : public Collective {
 public:
  void call() override {
    output_ = Tensor();  // as in x = psum(f(x)), where nobody needs the result of the step before
    if (operation_ == Operation::all_reduce) output_ = psum(input_, kAxis);
    if (operation_ == Operation::reduce_scatter)
      output_ = psum_scatter(input_, kAxis, {.tiled = true});
    if (operation_ == Operation::all_gather) output_ = all_gather(input_, kAxis, {.tiled = true});
  }

 private:
  void make_buffers(std::int64_t floats, std::int64_t replicas, std::int64_t index) override {
    input_ = output_ = Tensor();
    input_ = at::full({operation_ == Operation::all_gather ? floats / replicas : floats},
                      static_cast<float>(index + 1));
  }
};

// Tensors that the replicas of a host share, reduced and gathered where they are: how gradients and
// parameters live.
class SymmetricTensors : public Collective {
 public:
  void call() override {
    if (operation_ == Operation::all_reduce) psum_(input_, kAxis);
    if (operation_ == Operation::reduce_scatter) psum_scatter_into(output_, input_, kAxis);
    if (operation_ == Operation::all_gather) all_gather_into(output_, input_, kAxis);
  }

 private:
  void make_buffers(std::int64_t floats, std::int64_t replicas, std::int64_t index) override {
    input_ = output_ = Tensor();
    const Tensor whole = symmetric_zeros({floats}, at::kFloat, kAxis);
    const Tensor own = whole.narrow(0, index * (floats / replicas), floats / replicas);
    input_ = operation_ == Operation::all_gather ? own : whole;
    output_ = operation_ == Operation::reduce_scatter ? own : whole;
    input_.fill_(static_cast<float>(index + 1));
  }
};

}  // namespace

std::vector<System> collective_systems(const std::vector<LaunchMode>& modes) {
  std::vector<System> systems;
  const auto add = [&](const std::string& way, LaunchMode mode) {
    systems.push_back(own_system("collectives", way, way, mode));
  };
  for (const LaunchMode mode : modes) add("symmetric", mode);
  for (const LaunchMode mode : modes) add("psum", mode);
  add("pmap", LaunchMode::processes);  // its replicas are threads in any case, which no label says
  for (const LaunchMode mode : modes) add("gloo", mode);
  return systems;
}

std::vector<System> collective_systems_on_hosts(std::int64_t hosts) {
  System tcp = own_system("collectives", kPlainTcp, kPlainTcp, LaunchMode::processes,
                          "both directions at once");
  tcp.facts.own = false;
  tcp.replicas = hosts;
  return {own_system("collectives", "symmetric", "symmetric"),
          own_system("collectives", "psum", "psum"), tcp};
}

std::unique_ptr<ReplicaTask> make_collective(const std::string& way) {
  if (way == "symmetric") return std::make_unique<SymmetricTensors>();
  return std::make_unique<OrdinaryTensors>();
}

}  // namespace lockstep::bench
