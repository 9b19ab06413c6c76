#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "framework/training/zero.h"
#include "tests/training/models.h"

namespace lockstep::testing {

/// Parameters and buffers by name.
using State = std::map<std::string, at::Tensor>;

/// (samples, 5) to (samples, 3)
class SampleModel : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& inputs) = 0;
};
using MakeModel = std::function<std::shared_ptr<SampleModel>()>;

/// With lockstep::Dropouts: one in each of two Blocks, and one that runs twice, under two names.
[[nodiscard]] std::shared_ptr<SampleModel> dropping_model();

/// With LibTorch's BatchNorm, whose running statistics replicas change apart, and constant buffers.
[[nodiscard]] std::shared_ptr<SampleModel> normed_model();

/// With lockstep::BatchNorm, outside of Blocks and, with a lockstep::Dropout, in one.
[[nodiscard]] std::shared_ptr<SampleModel> jointly_normed_model();
/// The same, which recomputes its Block.
[[nodiscard]] std::shared_ptr<SampleModel> recomputed_model();

/// Of LibTorch's own modules and functions that draw: a TransformerEncoder and a Dropout2d in a
/// Block, which is recomputed if wanted, an LSTM with dropout, torch::nn::functional::dropout() and
/// torch::randn().
[[nodiscard]] std::shared_ptr<SampleModel> libtorch_model();
[[nodiscard]] std::shared_ptr<SampleModel> recomputed_libtorch_model();

/// What `forward` gives in a thread that belongs to no replica.
[[nodiscard]] at::Tensor in_another_thread(const std::function<at::Tensor()>& forward);

inline constexpr std::int64_t kMicrobatches = 2;

/// The loss of one of the replica's microbatches.
[[nodiscard]] at::Tensor sample_loss(SampleModel& model, std::int64_t step, std::int64_t microbatch,
                                     std::int64_t replica);

/// A copy of the module's.
[[nodiscard]] State state_of(const torch::nn::Module& module);

/// The state of this replica after four steps of two microbatches with Adam, if all replicas agree.
[[nodiscard]] State trained_state(const MakeModel& make, ZeroOptions options);
/// That of the replicas of a map.
[[nodiscard]] State trained_state_in_pmap(const MakeModel& make, std::int64_t replicas,
                                          ZeroOptions options);
/// Checks that stages, backends and numbers of workers give the bits of a map of four replicas.
void check_training_everywhere(const MakeModel& make);

}  // namespace lockstep::testing
