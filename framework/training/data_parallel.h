#pragma once

#include <cstdint>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/axes/axis_names.h"
#include "framework/training/averaging_options.h"
#include "framework/tree/tree.h"

namespace torch::nn {
class Module;
}

namespace lockstep {

struct DataParallelOptions {
  double bucket_mb = 25;
  Overlap overlap = Overlap::automatic;
  Compression compression = Compression::none;
};

/// Synchronized gradients for a training loop of one's own, with any optimizer:
///
///   DataParallel parallel(*model, "data");
///   parallel.backward(loss(model->forward(inputs), targets));
///   optimizer.step();
///
/// All replicas start from replica 0's parameters, and each step's gradients are the mean over the
/// axis: sent in a few buckets, in the midst of the backward where that is faster. ZeroTrainer
/// (zero.h) also cuts optimizer state, gradients and parameters into shards. All replicas call
/// everything alike, in the same order; for one thread.
class DataParallel {
 public:
  /// For the module's parameters that require a gradient. Throws ValueError for ones that are not
  /// floating and dense, and for options out of range.
  explicit DataParallel(torch::nn::Module& module, const AxisNames& axis_name = "data",
                        const DataParallelOptions& options = {},
                        std::source_location where = std::source_location::current());
  /// For the leaves of a tree, all of which require a gradient.
  template <Tree T>
  explicit DataParallel(const T& parameters, const AxisNames& axis_name = "data",
                        const DataParallelOptions& options = {},
                        std::source_location where = std::source_location::current())
      : DataParallel(tree_leaves(parameters), {}, axis_name, options, where) {}
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  /// loss.backward(), after which each parameter's .grad() is the mean over the replicas (it
  /// replaces what was there): of this loss' gradients and those accumulated since the last call.
  /// An undefined loss has none. Parameters that it does not reach count as zeros; they are named
  /// once in the log.
  void backward(const at::Tensor& loss);
  /// loss.backward() of a microbatch: its gradients are added to the next backward's. Nothing is
  /// sent.
  void accumulate(const at::Tensor& loss);

 private:
  class Implementation;
  DataParallel(const std::vector<at::Tensor>& leaves, std::vector<std::string> names,
               const AxisNames& axis_name, const DataParallelOptions& options,
               std::source_location where);
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace lockstep
