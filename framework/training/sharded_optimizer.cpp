#include "framework/training/sharded_optimizer.h"

#include <algorithm>
#include <optional>
#include <type_traits>
#include <utility>

#include <ATen/ops/zeros_like.h>
#include <c10/util/StringUtil.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "framework/base/range.h"
#include "framework/collectives/axis_index.h"
#include "framework/timeline/recorder.h"
#include "framework/training/agreement.h"
#include "framework/training/buffer_plan.h"
#include "framework/training/random_draws.h"
#include "framework/training/safe_convolutions.h"
#include "framework/training/trainer_call.h"

namespace lockstep {
namespace {

// The group of each parameter: the replica that owns it, counted from 1.
std::vector<std::int64_t> groups_of(const std::vector<at::Tensor>& parameters,
                                    std::int64_t replicas) {
  std::vector<std::size_t> by_size = consecutive(std::size_t{0}, parameters.size());
  std::stable_sort(by_size.begin(), by_size.end(), [&](std::size_t a, std::size_t b) {
    return parameters[a].numel() > parameters[b].numel();
  });
  std::vector<std::int64_t> load(static_cast<std::size_t>(replicas), 0);
  std::vector<std::int64_t> groups(parameters.size());
  for (const std::size_t index : by_size) {
    const auto least = std::min_element(load.begin(), load.end());
    groups[index] = least - load.begin() + 1;
    *least += parameters[index].numel();
  }
  return groups;
}

// What an optimizer of LibTorch's keeps for a parameter.
struct Fields {
  std::int64_t* step;
  std::vector<std::pair<std::string, at::Tensor*>> tensors;
};

Fields fields_of(torch::optim::SGDParamState& state) {
  return {nullptr, {{"momentum_buffer", &state.momentum_buffer()}}};
}

Fields fields_of(torch::optim::AdagradParamState& state) {
  return {&state.step(), {{"sum", &state.sum()}}};
}

Fields fields_of(torch::optim::RMSpropParamState& state) {
  return {&state.step(),
          {{"square_avg", &state.square_avg()},
           {"momentum_buffer", &state.momentum_buffer()},
           {"grad_avg", &state.grad_avg()}}};
}

template <typename State>
Fields fields_of(State& state) {  // Adam's and AdamW's
  return {&state.step(),
          {{"exp_avg", &state.exp_avg()},
           {"exp_avg_sq", &state.exp_avg_sq()},
           {"max_exp_avg_sq", &state.max_exp_avg_sq()}}};
}

// How an optimizer's map of states calls a parameter. LibTorch 1.13 has texts, by the global
// locale.
template <typename Map>
auto key_in(const Map& /*states*/, const at::Tensor& parameter) {
  void* const address = parameter.unsafeGetTensorImpl();
  if constexpr (std::is_same_v<typename Map::key_type, std::string>) {
    return c10::str(address);
  } else {
    return address;
  }
}

// What `optimizer` keeps for a parameter called `name`: nothing before its first update. Restored,
// the parameter has no state that the source lacks; what it has is written in place. False if the
// optimizer is no `Algorithm`.
template <typename Algorithm, typename State>
bool archive_as(torch::optim::Optimizer& optimizer, const at::Tensor& parameter,
                const std::string& name, const training::StateArchive& archive) {
  if (dynamic_cast<Algorithm*>(&optimizer) == nullptr) return false;
  const std::string step_name = training::kOptimizerStep + name;
  auto& states = optimizer.state();
  const auto key = key_in(states, parameter);
  if (archive.restores()) {
    const bool was_updated =
        archive.has(step_name) || archive.has(training::kOptimizer + "momentum_buffer/" + name);
    if (!was_updated) states.erase(key);
    if (was_updated && states.find(key) == states.end()) states[key] = std::make_unique<State>();
  }
  const auto found = states.find(key);
  if (found == states.end()) return true;
  const Fields fields = fields_of(static_cast<State&>(*found->second));
  if (fields.step != nullptr && (!archive.restores() || archive.has(step_name))) {
    archive.number(step_name, *fields.step);
  }
  for (const auto& [field, tensor] : fields.tensors) {
    const std::string whole_name = training::kOptimizer + field + "/" + name;
    const bool is_kept = !archive.restores() || archive.has(whole_name);
    if (!is_kept) tensor->reset();
    if (archive.restores() && is_kept && !tensor->defined()) {
      *tensor = at::zeros_like(parameter.detach());
    }
    if (tensor->defined()) archive.whole(whole_name, *tensor);
  }
  return true;
}

void archive_torch_state(torch::optim::Optimizer& optimizer, const at::Tensor& parameter,
                         const std::string& name, const training::StateArchive& archive) {
  using namespace torch::optim;  // NOLINT(google-build-using-namespace)
  require(archive_as<SGD, SGDParamState>(optimizer, parameter, name, archive) ||
              archive_as<Adam, AdamParamState>(optimizer, parameter, name, archive) ||
              archive_as<AdamW, AdamWParamState>(optimizer, parameter, name, archive) ||
              archive_as<RMSprop, RMSpropParamState>(optimizer, parameter, name, archive) ||
              archive_as<Adagrad, AdagradParamState>(optimizer, parameter, name, archive),
          "ShardedOptimizer: the state of this optimizer can't be saved; that of LibTorch's SGD, "
          "Adam, AdamW, RMSprop and Adagrad can");
}

}  // namespace

ShardedOptimizer::ShardedOptimizer(training::ModuleParameters parameters, const Make& make,
                                   const AxisNames& axis_name, std::source_location where)
    : axis_(axis_name),
      parameters_(std::move(parameters)),
      owners_(groups_of(parameters_.tensors, axis_size(axis_))),
      claims_("ShardedOptimizer", {training::ParameterClaim::values}, parameters_.names,
              parameters_.tensors) {
  training::keep_convolutions_safe();
  const AxisCall call{"ShardedOptimizer", axis_, where};
  const CalledFrom scope(call);
  const std::vector<std::string>& names = parameters_.names;
  const std::vector<at::Tensor>& tensors = parameters_.tensors;
  training::check_values("ShardedOptimizer", parameters_);
  training::check_same_model(names, tensors, axis_);
  training::check_initialization("ShardedOptimizer", names, tensors, Randomness::warn, axis_);
  training::start_alike(tensors, axis_);
  // A bucket for each owner, and dtype.
  const std::vector<std::size_t> order = consecutive(std::size_t{0}, tensors.size());
  flat_parameters_ = std::make_unique<training::FlatParameters>(
      names, tensors,
      training::BufferPlan({training::flat_items(tensors, owners_), order, 1, 1},
                           {.updates = training::ParameterUpdates::own_group}, axis_index(axis_),
                           /*overlaps=*/false),
      axis_);
  std::vector<at::Tensor> own;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (is_own(i)) own.push_back(tensors[i]);
  }
  if (!own.empty()) optimizer_ = make(std::move(own));
}

ShardedOptimizer::ShardedOptimizer(const std::vector<at::Tensor>& parameters, const Make& make,
                                   const AxisNames& axis_name, std::source_location where)
    : ShardedOptimizer(training::leaf_parameters(parameters), make, axis_name, where) {}

ShardedOptimizer::ShardedOptimizer(torch::nn::Module& module, const Make& make,
                                   const AxisNames& axis_name, std::source_location where)
    : ShardedOptimizer(training::module_parameters(module), make, axis_name, where) {}

ShardedOptimizer::~ShardedOptimizer() = default;

void ShardedOptimizer::step(std::source_location where) {
  // The step is the one whose gradients a DataParallel has averaged; without one it is the next.
  timeline::Recorder::Track* const track = timeline::track_here;
  const std::uint64_t last = track != nullptr ? track->next_step() - 1 : 0;
  const bool has_begun = step_ > 0 || last == 0;
  step_ = last > step_ ? last : last + 1;
  std::optional<timeline::RecordedSpan> span(
      std::in_place, track,
      timeline::Recorder::Details{.kind = timeline::SpanKind::update, .id = step_});
  const training::TrainerCall call({"ShardedOptimizer::step", axis_, where});
  // After this exchange no replica reads the old parameters any more.
  (void)flat_parameters_->adopt_replaced(call);
  if (optimizer_) optimizer_->step();
  flat_parameters_->publish();
  span.reset();
  if (track != nullptr && has_begun) track->end_step(step_);
}

void ShardedOptimizer::archive_state(const training::StateArchive& archive,
                                     std::source_location where) {
  const training::TrainerCall call(
      {archive.restores() ? "ShardedOptimizer::restore_state" : "ShardedOptimizer::visit_state",
       axis_, where});
  (void)flat_parameters_->adopt_replaced(call);
  for (std::size_t i = 0; i < parameters_.tensors.size(); ++i) {
    if (!is_own(i)) continue;
    archive.whole(training::kParameters + parameters_.names[i], parameters_.tensors[i]);
    archive_torch_state(*optimizer_, parameters_.tensors[i], parameters_.names[i], archive);
  }
  if (archive.restores()) flat_parameters_->publish();
}

bool ShardedOptimizer::is_own(std::size_t index) const {
  return owners_[index] == axis_index(axis_) + 1;
}

void ShardedOptimizer::edit_parameters(const std::function<void()>& write,
                                       std::source_location where) {
  const AxisCall call{"ShardedOptimizer::edit_parameters", axis_, where};
  (void)flat_parameters_->check(call);
  (void)flat_parameters_->edit(write, call);
}

}  // namespace lockstep
