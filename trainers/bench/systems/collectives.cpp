#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>

#include "framework/base/errors.h"
#include "framework/collectives/all_gather.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/in_place.h"
#include "framework/collectives/psum.h"
#include "trainers/bench/systems/tasks.h"

namespace lockstep::bench {
namespace {

// A replica's operation on buffers that begin as its index + 1.
class Collective : public ReplicaTask {
 public:
  std::string prepare(const std::string& name, std::int64_t bytes) override {
    scatters_ = name == "reduce_scatter";
    gathers_ = name == "all_gather";
    const std::int64_t replicas = axis_size(kAxis);
    make_buffers(bytes / static_cast<std::int64_t>(sizeof(float)), replicas, axis_index(kAxis));
    call();
    const Tensor each = at::arange(1, replicas + 1, at::kFloat);
    const Tensor expected = gathers_ ? each.unsqueeze(1) : each.sum();
    const Tensor found = gathers_ ? output_.view({replicas, -1}) : output_;
    require<Error>(found.eq(expected).all().item<bool>(), name, ": the result is wrong");
    barrier();       // nobody clears what another still reads
    input_.zero_();  // what is summed in place again and again must stay finite
    return "";
  }
  void barrier() override { lockstep::barrier(kAxis); }

 protected:
  virtual void make_buffers(std::int64_t floats, std::int64_t replicas, std::int64_t index) = 0;

  bool scatters_ = false;
  bool gathers_ = false;
  Tensor input_;
  Tensor output_;
};

// The public functions on tensors as anyone has them.
class OrdinaryTensors : public Collective {
 public:
  void call() override {
    output_ = Tensor();  // as in x = psum(f(x)), where nobody needs the result of the step before
    if (scatters_) {
      output_ = psum_scatter(input_, kAxis, {.tiled = true});
    } else {
      output_ = gathers_ ? all_gather(input_, kAxis, {.tiled = true}) : psum(input_, kAxis);
    }
  }

 private:
  void make_buffers(std::int64_t floats, std::int64_t replicas, std::int64_t index) override {
    input_ = output_ = Tensor();
    input_ = at::full({gathers_ ? floats / replicas : floats}, static_cast<float>(index + 1));
  }
};

// Tensors that the replicas of a host share, reduced and gathered where they are: how gradients and
// parameters live. Each replica's own part is a slice of the whole buffer.
class SymmetricTensors : public Collective {
 public:
  void call() override {
    if (scatters_) {
      psum_scatter_into(output_, input_, kAxis);
    } else if (gathers_) {
      all_gather_into(output_, input_, kAxis);
    } else {
      psum_(input_, kAxis);
    }
  }

 private:
  void make_buffers(std::int64_t floats, std::int64_t replicas, std::int64_t index) override {
    input_ = output_ = Tensor();
    const Tensor whole = symmetric_zeros({floats}, at::kFloat, kAxis);
    const Tensor own = whole.narrow(0, index * (floats / replicas), floats / replicas);
    input_ = gathers_ ? own : whole;
    output_ = scatters_ ? own : whole;
    input_.fill_(static_cast<float>(index + 1));
  }
};

}  // namespace

std::unique_ptr<ReplicaTask> make_collective(const std::string& way) {
  if (way == "symmetric") return std::make_unique<SymmetricTensors>();
  return std::make_unique<OrdinaryTensors>();
}

}  // namespace lockstep::bench
