#include "framework/training/random_draws.h"

#include <utility>

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/modules/rnn.h>

#include "framework/axes/environment.h"
#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/in_place.h"
#include "framework/training/agreement.h"
#include "framework/training/each_module.h"
#include "framework/training/keyed_draws.h"
#include "framework/training/module_parameters.h"

namespace lockstep::training {
namespace {

constexpr const char* kStrict = "; the option randomness is strict, as always in train";

// How many modules a message names.
constexpr std::size_t kNamed = 6;

// Whether the module is one of `Kinds` for which `draws` holds.
template <typename... Kinds, typename Draws>
bool is_one_of(const torch::nn::Module& module, const Draws& draws) {
  const auto is_it = [&](const auto* kind) { return kind != nullptr && draws(*kind); };
  return (is_it(dynamic_cast<const Kinds*>(&module)) || ...);
}

// Whether the forward of this module of LibTorch's draws. Transformers consist of such ones.
bool draws_at_random(const torch::nn::Module& module) {
  using namespace torch::nn;  // NOLINT(google-build-using-namespace)
  const auto always = [](const auto&) { return true; };
  const auto by_p = [](const auto& dropout) { return dropout.options.p() > 0; };
  const auto by_dropout = [](const auto& attention) { return attention.options.dropout() > 0; };
  const auto between_layers = [](const auto& rnn) {
    return rnn.options_base.dropout() > 0 && rnn.options_base.num_layers() > 1;
  };
  if (is_one_of<FractionalMaxPool2dImpl, FractionalMaxPool3dImpl>(module, always)) return true;
  return module.is_training() &&
         (is_one_of<torch::nn::DropoutImpl, Dropout2dImpl, Dropout3dImpl, AlphaDropoutImpl,
                    FeatureAlphaDropoutImpl>(module, by_p) ||
          is_one_of<MultiheadAttentionImpl>(module, by_dropout) ||
          is_one_of<RNNImpl, LSTMImpl, GRUImpl>(module, between_layers) ||
          is_one_of<RReLUImpl>(module, always));
}

// "torch::nn::Dropout"
std::string kind_of(const torch::nn::Module& module) {
  std::string name = module.name();
  if (name.ends_with("Impl")) name.resize(name.size() - 4);
  return name;
}

// What is wrong with the parameters' initial values, the same on all replicas; "": nothing.
std::string why_not_everywhere(const std::vector<std::string>& names,
                               const std::vector<at::Tensor>& parameters,
                               const AxisNames& axis_name) {
  const EarlierDraws own = DrawWatch::earlier_draws();
  const at::Tensor counts = at::zeros({2}, at::kLong);
  auto* const drew = counts.data_ptr<std::int64_t>();
  drew[0] = own == EarlierDraws::unseeded ? 1 : 0;
  drew[1] = own == EarlierDraws::seeded ? 1 : 0;
  psum_(counts, axis_name);
  // Before any replica of this process goes on to draw.
  DrawWatch::note_initialization();
  barrier(axis_name);
  const std::string generator = "LibTorch's process-wide generator";
  const std::string remedy = "make it in lockstep::seeded(seed, …)";
  if (drew[0] != 0) {
    return lockstep::str(
        "before it was made, ", drew[0], " of ", counted(axis_size(axis_name), "replica"),
        " had drawn from ", generator,
        ", which has no seed: a module that such draws have initialized is another in every run "
        "and placement; ",
        remedy, ", or call torch::manual_seed()");
  }
  if (drew[1] == 0) return "";
  std::vector<std::int64_t> hashes;
  for (const at::Tensor& parameter : parameters) {
    const bool has_values = !parameter.is_meta() && !lacks_memory(parameter);
    hashes.push_back(has_values ? hash_of(parameter) : 0);
  }
  const auto found = first_difference(hashes, axis_name);
  if (!found) return "";
  return lockstep::str("the initial values of parameter '", names[found->index],
                       "' differ between replicas, which have drawn from ", generator,
                       ": all start with replica 0's, which are others in every placement; ",
                       remedy);
}

// Who may have drawn, for messages.
std::string description_of(torch::nn::Module* module, bool is_of_data) {
  std::vector<std::string> sources;
  if (is_of_data) {
    sources.emplace_back("in gather() of a data set");
  } else if (module != nullptr) {
    for_each_module(*module, [&](const std::string& name, const torch::nn::Module& each) {
      if (!draws_at_random(each)) return;
      sources.push_back((sources.empty() ? "it has " : "") +
                        (name.empty() ? "the module" : "'" + name + "'") + ", a " + kind_of(each));
    });
  }
  return lockstep::str(
      "training draws at random from LibTorch's process-wide generator",
      sources.empty() ? "" : " (" + listed(sources, kNamed) + ")",
      ": threads, processes and fewer workers no longer give the same bits. Draws have the "
      "trainer's keys in the replica's own thread, unless torch::manual_seed() is called after the "
      "trainer is made; in other threads, as a data set's, and in maps inside the replica draw "
      "from "
      "a lockstep::Key, as lockstep::dropout(input, p, key) does, or give the operator a "
      "Generator");
}

}  // namespace

void check_initialization(const char* owner, const std::vector<std::string>& names,
                          const std::vector<at::Tensor>& parameters, Randomness randomness,
                          const AxisNames& axis_name) {
  const c10::AutoGradMode no_grad(false);
  const std::string problem = why_not_everywhere(names, parameters, axis_name);
  if (problem.empty()) return;
  const std::string text = lockstep::str(owner, ": ", problem);
  require(randomness == Randomness::warn, text, kStrict);
  if (axis_index(axis_name) == 0) log_warning(text);
}

RandomDraws::RandomDraws(torch::nn::Module* module, std::uint64_t seed, Randomness randomness,
                         const AxisNames& axis_name)
    : module_(module),
      randomness_(randomness),
      axis_(axis_name),
      place_(key_draws({.axis_name = axis_,
                        .seed = seed,
                        .replica = axis_index(axis_),
                        .identity = current_identity()},
                       module)) {
  if (module == nullptr) return;
  for_each_module(*module, [&](const std::string& name, torch::nn::Module& each) {
    if (auto* const trained = dynamic_cast<TrainedModule*>(&each)) trained->follow(place_, name);
  });
}

void RandomDraws::begin_backward() {
  if (!watch_.look()) return;
  const std::uint64_t of_data = draws_of_data;
  is_of_data_ = std::exchange(of_data_, of_data) != of_data || is_of_data_;
  seen_ = true;
  if (randomness_ == Randomness::warn) return;
  throw ValueError(lockstep::str("step ", place_->step + 1, ": ",
                                 description_of(module_, is_of_data_), kStrict));
}

void RandomDraws::end_backward(bool is_last) {
  if (!is_last) {
    ++place_->microbatch;
    return;
  }
  place_->microbatch = 0;
  if (++place_->step > 1) {
    if (!seen_ || told_) return;
    told_ = true;
    log_warning(lockstep::str("replica ", axis_index(axis_), ", step ", place_->step, ": ",
                              description_of(module_, is_of_data_), " (said once)"));
    return;
  }
  const std::int64_t count = replicas_where(seen_, axis_);
  if (count == 0) return;
  seen_ = true;
  told_ = true;
  if (axis_index(axis_) != 0) return;
  log_warning(lockstep::str(description_of(module_, is_of_data_), " (on ", count, " of ",
                            axis_size(axis_), " replicas; said once)"));
}

}  // namespace lockstep::training
