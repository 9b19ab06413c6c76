#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "framework/data/dataset.h"
#include "framework/keys/choice.h"
#include "framework/objectives/loss.h"

namespace lockstep {

/// A loss that a config can name, with its options' keys.
struct LossKind : keys::Choice {
  std::function<std::shared_ptr<const Loss>(const keys::Picked& picked, const SampleType& sample)>
      make;
  /// What Loss::ignore_index() of such a loss is, before samples are known. Without it none.
  std::function<std::optional<std::int64_t>(const keys::Picked& picked)> ignored = {};
};

/// A LossKind from two functions of its options. `make` throws ValueError for samples and options
/// that the loss is not for.
template <typename Options>
[[nodiscard]] LossKind loss_kind(std::string name, std::string help,
                                 keys::ConfigKeys (*keys)(Options& options),
                                 std::shared_ptr<const Loss> (*make)(const Options& options,
                                                                     const SampleType& sample)) {
  return {keys::choice<Options>(std::move(name), std::move(help), keys),
          [make](const keys::Picked& picked, const SampleType& sample) {
            return make(picked.options<Options>(), sample);
          },
          {}};
}

/// A LossKind without options.
[[nodiscard]] inline LossKind loss_kind(
    std::string name, std::string help,
    std::function<std::shared_ptr<const Loss>(const SampleType& sample)> make) {
  return {keys::choice(std::move(name), std::move(help)),
          [make = std::move(make)](const keys::Picked& /*picked*/, const SampleType& sample) {
            return make(sample);
          },
          {}};
}

/// Lets configs name a loss. Before they are read, for one thread: first thing in main().
/// ValueError for a name that is there already.
void register_loss(LossKind kind);

/// All losses that are known. "auto" is cross_entropy for classes and mean_squared_error for
/// values.
[[nodiscard]] const keys::Registry<LossKind>& loss_registry();

/// The target that the loss that is `picked` ignores, if it does: see DataContext::ignored.
/// ValueError for an unknown name.
[[nodiscard]] std::optional<std::int64_t> ignored_target(const keys::Picked& picked);

/// The loss that is `picked`. ValueError for an unknown name, and as the loss does.
[[nodiscard]] std::shared_ptr<const Loss> make_loss(const keys::Picked& picked,
                                                    const SampleType& sample);

}  // namespace lockstep
