#include "framework/objectives/objectives.h"

#include <limits>

#include "framework/base/text.h"
#include "framework/keys/key.h"
#include "framework/objectives/cross_entropy.h"
#include "framework/objectives/mean_squared_error.h"

namespace lockstep {
namespace {

// All targets count unless a config says otherwise: then replicas need not ask each other how many.
struct CrossEntropyChoice : CrossEntropyOptions {
  CrossEntropyChoice() { ignore_index = std::nullopt; }
};

std::shared_ptr<const Loss> cross_entropy_for(const CrossEntropyChoice& options,
                                              const SampleType& sample) {
  require(sample.classes > 0, "loss cross_entropy needs targets that are classes, not values");
  require(options.class_weights.empty() || std::ssize(options.class_weights) == sample.classes,
          "loss.class_weights has ", options.class_weights.size(), " entries, but there are ",
          sample.classes, " classes");
  require(!sample.ignored || options.ignore_index == sample.ignored,
          "some of the data's targets are ", sample.ignored.value_or(0),
          " and do not count: this needs loss cross_entropy with loss.ignore_index ",
          sample.ignored.value_or(0));
  return make_cross_entropy(options);
}

std::shared_ptr<const Loss> mean_squared_error_for(const SampleType& sample) {
  require(sample.classes == 0,
          "loss mean_squared_error needs targets that are values, not classes");
  return make_mean_squared_error();
}

std::shared_ptr<const Loss> usual_loss(const CrossEntropyChoice& options,
                                       const SampleType& sample) {
  if (sample.classes > 0) return cross_entropy_for(options, sample);
  require(options == CrossEntropyChoice(),
          "loss auto is mean_squared_error for targets that are values, which has none of "
          "cross_entropy's options; one of these is set");
  return mean_squared_error_for(sample);
}

keys::ConfigKeys cross_entropy_keys(CrossEntropyChoice& options) {
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  keys::Value class_weights = keys::list(options.class_weights, kClassWeightRule);
  // As scikit-learn has it.
  class_weights.read = [read = class_weights.read](const keys::YamlNode& node,
                                                   const keys::Report& report) {
    if (node.text != "balanced") return read(node, report);
    report(node.place,
           "'balanced' is not known: write a number for each class, [0.7, 1.9], such as samples / "
           "(classes * samples of the class)");
  };
  return {
      {"label_smoothing", number(options.label_smoothing, kLabelSmoothingRule),
       "the part of each target that is spread over all classes"},
      {"class_weights", class_weights, "a weight for each class; []: all 1"},
      {"ignore_index",
       number_or_null(options.ignore_index, keys::from_to<std::int64_t>(-kMost, kMost)),
       "the target that does not count; null: all count"},
  };
}

// A loss with the options of the cross entropy, which are one key each for all of these.
LossKind with_cross_entropy(std::string name, std::string help,
                            std::shared_ptr<const Loss> (*make)(const CrossEntropyChoice& options,
                                                                const SampleType& sample)) {
  static const std::string owner = "cross_entropy";
  const auto options = [](const keys::Picked& picked) {
    return picked.all.of<CrossEntropyChoice>(owner);
  };
  return {{std::move(name), std::move(help),
           [](keys::ChoiceOptions& all) {
             return cross_entropy_keys(all.of<CrossEntropyChoice>(owner));
           }},
          [=](const keys::Picked& picked, const SampleType& sample) {
            return make(options(picked), sample);
          },
          [=](const keys::Picked& picked) { return options(picked).ignore_index; }};
}

keys::Registry<LossKind>& known_losses() {
  // A new loss is a file of its own and a line here.
  static keys::Registry<LossKind> kinds(
      "loss", {with_cross_entropy(
                   "auto", "cross_entropy for classes, mean_squared_error for values", usual_loss),
               with_cross_entropy("cross_entropy", "of scores and classes", cross_entropy_for),
               loss_kind("mean_squared_error", "of values, mean over all of them",
                         mean_squared_error_for)});
  return kinds;
}

}  // namespace

const keys::Registry<LossKind>& loss_registry() {
  return known_losses();
}

void register_loss(LossKind kind) {
  known_losses().add(std::move(kind));
}

std::optional<std::int64_t> ignored_target(const keys::Picked& picked) {
  const LossKind& kind = loss_registry().at(picked.name);
  return kind.ignored ? kind.ignored(picked) : std::nullopt;
}

std::shared_ptr<const Loss> make_loss(const keys::Picked& picked, const SampleType& sample) {
  return loss_registry().at(picked.name).make(picked, sample);
}

}  // namespace lockstep
