#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/base/bytes.h"
#include "framework/base/non_copyable.h"

namespace torch::nn {
class Module;
}

namespace lockstep {

/// A base class, beside torch::nn::Module, of a model whose weights have other names in some files,
/// or whose files hold more than weights. The functions below then go by own_name().
class StoredNames {
 public:
  virtual ~StoredNames() = default;
  /// The module's own name for the tensor that a file calls `stored`. Nothing if it is to be passed
  /// over, since the module computes it itself: a mask of attention.
  [[nodiscard]] virtual std::optional<std::string> own_name(const std::string& stored) const = 0;
};

/// Which values of a checkpoint's parameters are meant.
enum class ParameterValues {
  trained,
  averaged  ///< those of ZeroOptions::ema_decay, where a parameter has some
};

/// Values of a model's parameters and buffers, by the names that the model has for them: in a
/// safetensors file, in those that an index lists (model.safetensors.index.json, as Hugging Face
/// has it), or in a checkpoint's folder. For one thread.
class Weights : private NonCopyable {
 public:
  /// A tensor as it is stored.
  struct Entry {
    std::string dtype;  ///< as safetensors has it: "F32"
    std::vector<std::int64_t> shape;
    /// Fills `to` with its elements from `element` on.
    std::function<void(std::uint64_t element, Bytes to)> read;
  };
  using Entries = std::map<std::string, Entry>;

  /// Reads headers only: changed values are not noticed. `averaged` is for checkpoints; files have
  /// the values that they were made of. DataError, naming the file, if one is missing, cut or can't
  /// be read.
  explicit Weights(const std::filesystem::path& path,
                   ParameterValues which = ParameterValues::trained);

  [[nodiscard]] const Entries& entries() const noexcept { return entries_; }

  /// The functions below pass over what a module calls so, as if the files did not have it: a
  /// module that is to have other classes keeps its own head. `patterns` as matches_pattern().
  void leave_out(std::vector<std::string> patterns) { left_out_ = std::move(patterns); }
  [[nodiscard]] bool leaves_out(const std::string& own_name) const;

  /// Fills `to` with the tensor `name`, in pieces that need little memory. Floating values are
  /// rounded to its dtype. ValueError, naming both, if there is none of that shape and kind.
  void read(const std::string& name, const at::Tensor& to) const;

 private:
  Entries entries_;
  std::vector<std::string> left_out_;
};

/// What of the weights does not fit a module, in words. Of a tensor that the module has under
/// several names, one name is enough; more of them must have the same values.
struct WeightDifferences {
  std::vector<std::string> missing;     ///< names that only the module has
  std::vector<std::string> unexpected;  ///< names that only the weights have
  std::vector<std::string> misshapen;   ///< "'w' is F32 (3, 4), not F32 (4, 4)"

  [[nodiscard]] bool empty() const {
    return missing.empty() && unexpected.empty() && misshapen.empty();
  }
  /// "missing: a, b; unexpected: c", with at most 20 names of each.
  [[nodiscard]] std::string text() const;
};

/// Looks at names, shapes and dtypes only: the module may be on the meta device. What
/// Weights::leave_out() names is no difference.
[[nodiscard]] WeightDifferences compare_weights(const Weights& weights,
                                                const torch::nn::Module& module);

/// Fills the module's parameters and buffers with the weights that it has names for, but not what
/// is on the meta device. ValueError for one that does not fit, DataError for a tensor that the
/// weights have under several names with different values.
void copy_weights(const Weights& weights, torch::nn::Module& module);

/// The weights of the module's parameter `name`, under any of its names: in float32, or in the
/// parameter's dtype if that is wider. For ZeroOptions::initialize. Undefined if there are none.
/// Errors as copy_weights().
[[nodiscard]] at::Tensor weight_of(const Weights& weights, const torch::nn::Module& module,
                                   const std::string& name);

/// Fills all of the module's parameters and buffers from the file, which may be anything that
/// Weights reads. Before a trainer is made of it. DataError if the file can't be used, or has other
/// names or shapes; it lists these.
void load_safetensors(const std::filesystem::path& file, torch::nn::Module& module,
                      ParameterValues which = ParameterValues::trained);

/// Writes all of the module's parameters and buffers to a safetensors file, for load_safetensors()
/// and Python's safetensors: under the module's names, in their own dtypes. A tensor that the
/// module has under several names is there once, under the first. A file of the name is replaced
/// once the new one is whole and on the disk.
///
/// For one replica, while the module has its values: those of a trainer's module while
/// ZeroTrainer::whole_parameters() lives, on all replicas, or averaged_parameters().
///
///   const auto whole = trainer.whole_parameters();
///   if (axis_index("data") == 0) save_safetensors(*model, "model.safetensors");
///
/// ValueError, naming it, for a tensor on the meta device, one that is sparse and one of a dtype
/// that the format does not have. Error if the file can't be written.
void save_safetensors(const torch::nn::Module& module, const std::filesystem::path& file);

}  // namespace lockstep
