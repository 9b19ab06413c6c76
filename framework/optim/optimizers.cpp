#include "framework/optim/optimizers.h"

#include <cstddef>

#include "framework/keys/key_table.h"
#include "framework/optim/built_in_optimizers.h"

namespace lockstep {
namespace {

keys::ConfigKeys group_keys(ParameterGroup& group) {
  return {
      {"pattern",
       text(group.pattern, keys::of_length("a pattern for parameters' names", 1000)),
       "names of parameters, as in a shell (\"*.bias\"); the first group that matches holds",
       {.required = true}},
      {"weight_decay", number_or_null(group.weight_decay, keys::kNotNegative),
       "these parameters' weight decay; null: optimizer.weight_decay"},
      {"lr_scale", number(group.lr_scale, keys::kNotNegative),
       "these parameters' learning rate, in parts of the others'"},
  };
}

keys::Registry<OptimizerKind>& known_optimizers() {
  // A new optimizer is a file of its own and a line here.
  static keys::Registry<OptimizerKind> kinds(
      "optimizer", {optim::sgd_kind(), optim::adam_kind(), optim::adamw_kind(),
                    optim::rmsprop_kind(), optim::adagrad_kind()});
  return kinds;
}

}  // namespace

const keys::Registry<OptimizerKind>& optimizer_registry() {
  return known_optimizers();
}

void register_optimizer(OptimizerKind kind) {
  known_optimizers().add(std::move(kind));
}

keys::Section optimizer_section(OptimizerOptions& options) {
  keys::Section section{
      "optimizer",
      {
          {"name",
           keys::one_of(options.name, optimizer_registry().names()),
           "the rule by which parameters are updated",
           {.is_short_form = true}},
          {"lr", number(options.lr, keys::kPositive), "the learning rate, before the schedule"},
          {"weight_decay", number(options.weight_decay, keys::kNotNegative),
           "decay of the parameters; of adamw beside the gradient, else in it"},
          {"groups", maps(options.groups, group_keys), "parameters that have values of their own"},
      }};
  constexpr std::size_t kBehindLr = 2;
  add_choices(section, options, optimizer_registry().choices(), kBehindLr);
  return section;
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options) {
  const OptimizerKind& kind = optimizer_registry().at(options.name);
  OptimizerOptions checked = options;
  OptimizerOptions defaults;
  keys::check_section(optimizer_section(checked), optimizer_section(defaults));
  return kind.make(options);
}

}  // namespace lockstep
