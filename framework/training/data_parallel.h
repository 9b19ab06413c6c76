#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/axes/axis_names.h"
#include "framework/training/flat_gradients.h"
#include "framework/training/module_parameters.h"
#include "framework/training/replicated_module.h"
#include "framework/training/state.h"
#include "framework/tree/tree.h"

namespace lockstep {

struct DataParallelOptions {
  std::optional<double> bucket_mb{};  ///< see kBucketMbRule
  Overlap overlap = Overlap::automatic;
  Compression compression = Compression::none;
  Buffers buffers = Buffers::mean;
  // These as ZeroOptions has them (zero_options.h).
  bool local_batch_norm = false;
  std::uint64_t seed = 0;
  Randomness randomness = Randomness::warn;
  bool may_repeat_samples = false;
};

/// Synchronized gradients for a training loop of one's own, with any optimizer:
///
///   DataParallel parallel(*model, "data");
///   ...
///   optimizer.zero_grad();
///   loss(model->forward(inputs), targets).backward();
///   optimizer.step();
///
/// All replicas start from replica 0's parameters and buffers. After each backward .grad() is the
/// mean over the axis: sent in a few buckets, in the midst of the backward where that is faster.
/// ZeroTrainer (zero.h) also cuts optimizer state, gradients and parameters into shards.
///
/// - **Gradients.** Those of autograd::grad are the replica's own. If no replica's loss depends on
///   a parameter, it has no gradient, and optimizers leave it as it is. If only some replicas'
///   losses depend on it, the others count as zeros. Both are logged once.
/// - **.grad()** lies in memory that the next backward writes. A tensor that the program still
///   holds when it is no longer a parameter's .grad() keeps its values, as in PyTorch.
/// - **Buffers** are as a ZeroTrainer's: each backward but accumulate() makes them equal again.
/// - **The state** (Stateful) is buffers, residuals of compression, steps, and the parameters, if
///   no ShardedOptimizer has these. An optimizer of one's own is no part of it.
/// - **Calls.** All replicas call everything alike, in the same order; for one thread.
class DataParallel : public training::ArchivedState, private training::ReplicatedModule::Receiver {
 public:
  /// Averages the module's parameters that require a gradient, and its buffers. The module must
  /// live as long as this is used. Throws ValueError for parameters that are not floating and dense
  /// or that another trainer has, for models that differ between replicas, for an Embedding with
  /// max_norm (its forward makes replicas differ), for torch::nn::BatchNorm (see local_batch_norm),
  /// and for options out of range.
  explicit DataParallel(torch::nn::Module& module, const AxisNames& axis_name = "data",
                        const DataParallelOptions& options = {},
                        std::source_location where = std::source_location::current());
  /// For the leaves of a tree, all of which require a gradient.
  template <Tree T>
  explicit DataParallel(const T& parameters, const AxisNames& axis_name = "data",
                        const DataParallelOptions& options = {},
                        std::source_location where = std::source_location::current())
      : DataParallel(parameters_of(tree_leaves(parameters)), axis_name, options, where) {}

  /// Runs loss.backward() for one loss: the mean over the replicas of this loss' gradients, and of
  /// those accumulated since the last call, is added to each parameter's .grad(), as a plain
  /// loss.backward() adds it, and PyTorch's DistributedDataParallel. So zero gradients after each
  /// step; a second call that finds the first one's says so once. With options.samples it is the
  /// mean over their samples. A replica without samples passes 0 and any loss, or an undefined one,
  /// which has no gradients. The first call warns of tensors that the loss needs
  /// gradients of and the module has not registered. ValueError for a loss that needs no gradient
  /// or has several elements, and for gradients that are not dense.
  void backward(const at::Tensor& loss, const training::BackwardOptions& options = {},
                std::source_location where = std::source_location::current()) {
    backward(loss, options, /*is_last=*/true, where);
  }
  /// A microbatch's loss.backward(), whose gradients the next backward adds. Sends nothing.
  void accumulate(const at::Tensor& loss, const training::BackwardOptions& options = {},
                  std::source_location where = std::source_location::current()) {
    backward(loss, options, /*is_last=*/false, where);
  }
  /// Throws Error unless all replicas have equal parameters and buffers. The message names the
  /// first that differs and the replicas that differ from replica 0. All replicas together.
  void check_agreement(std::source_location where = std::source_location::current());
  /// Whether training is known to have drawn from LibTorch's process-wide generator: threads,
  /// processes and fewer workers then need not give the same bits.
  [[nodiscard]] bool has_random_draws() const noexcept { return module_.draws().seen(); }

 private:
  [[nodiscard]] static training::ModuleParameters parameters_of(
      const std::vector<at::Tensor>& leaves);
  // Averages those of `parameters` that require a gradient; all start alike.
  DataParallel(training::ModuleParameters parameters, const AxisNames& axis_name,
               const DataParallelOptions& options, std::source_location where);

  void backward(const at::Tensor& loss, const training::BackwardOptions& options, bool is_last,
                std::source_location where);
  void begin(const AxisCall& call, const at::Tensor& loss) override;
  void add(std::size_t index, const at::Tensor& gradient) override;
  bool end(bool has_loss) override;
  [[nodiscard]] std::vector<std::size_t> take_rest();
  void show_means();
  void tell_sums() const;
  void lay_out(const at::Tensor& loss);
  void archive_state(const training::StateArchive& archive, std::source_location where) override;

  AxisNames axis_;
  DataParallelOptions options_;
  training::ModuleParameters all_;
  training::ParameterClaims claims_;
  training::ReplicatedModule module_;
  std::unique_ptr<training::FlatGradients> gradients_;
  // One gradient more, behind the others: whether the replica has unused parameters.
  at::Tensor vote_;
  // By parameter: the tensor in the buckets' memory that its .grad() is or was, if there is one.
  std::vector<at::Tensor> shown_ = std::vector<at::Tensor>(all_.tensors.size());
  collectives::AxisQueue queue_;
  std::int64_t backwards_ = 0;  // calls of backward()
  bool is_first_ = true;        // the current one is the first since the last reduction
  bool is_last_ = true;         // its gradients are reduced: not those of accumulate()
};

}  // namespace lockstep
