#include "framework/data/synthetic.h"

#include <cmath>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/base/random.h"
#include "framework/base/text.h"
#include "framework/data/fingerprint.h"

namespace lockstep {
namespace {

using SyntheticTask = SyntheticOptions::Task;

constexpr std::int64_t kMostFeatures = 1'000'000;
constexpr std::int64_t kMostSamples = 10'000'000;  // an epoch's order is a number for each
constexpr std::int64_t kMostRows = 10'000'000;     // numbers of Truth

std::vector<double> normals(const Key& key, std::size_t count) {
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = key.normal(i);
  return values;
}

// The truth behind all sets of a seed.
struct Truth {
  std::vector<double> rows;  // (outputs, features) of W, or (classes, features) of centres
  std::vector<double> bias;  // (outputs)
};

Truth truth_of(const SyntheticOptions& options, const Key& key) {
  const auto features = static_cast<std::size_t>(options.features);
  if (options.task == SyntheticTask::classification) {
    const auto classes = static_cast<std::size_t>(options.classes);
    return {.rows = normals(key.fold("centre"), classes * features), .bias = {}};
  }
  const auto outputs = static_cast<std::size_t>(options.outputs);
  Truth truth{.rows = normals(key.fold("weight"), outputs * features),
              .bias = normals(key.fold("bias"), outputs)};
  for (double& weight : truth.rows) weight /= std::sqrt(static_cast<double>(features));
  return truth;
}

class SyntheticSet final : public Dataset {
 public:
  SyntheticSet(const SyntheticOptions& options, std::shared_ptr<const Truth> truth,
               std::int64_t size, const Key& key)
      : options_(options), truth_(std::move(truth)), size_(size), key_(key) {}

  std::int64_t size() const override { return size_; }
  SampleType type() const override {
    return options_.task == SyntheticTask::regression
               ? value_sample({options_.features}, options_.outputs)
               : class_sample({options_.features}, options_.classes);
  }
  std::optional<std::int64_t> label(std::int64_t index) const override {
    if (options_.task == SyntheticTask::regression) return std::nullopt;
    return class_of(key_.fold(index));
  }
  // What they hold follows from the config. Other C libraries round it in other ways.
  std::string fingerprint() const override { return data::Fingerprint(*this).text(); }

 private:
  Batch gather(std::span<const std::int64_t> indices, std::int64_t /*epoch*/) const override {
    const std::int64_t count = std::ssize(indices);
    const bool has_values = options_.task == SyntheticTask::regression;
    Batch batch = empty_batch(type(), count);
    float* input = batch.inputs.data_ptr<float>();
    for (std::int64_t i = 0; i < count; ++i, input += options_.features) {
      const Key key = key_.fold(indices[static_cast<std::size_t>(i)]);
      if (has_values) {
        write_values(key, input, batch.targets.data_ptr<float>() + i * options_.outputs);
      } else {
        write_class(key, input, batch.targets.data_ptr<std::int64_t>() + i);
      }
    }
    return batch;
  }

  // The targets are of the inputs as float32 has them.
  void write_values(const Key& key, float* input, float* target) const {
    const auto features = static_cast<std::size_t>(options_.features);
    const Key of_input = key.fold("input");
    for (std::size_t j = 0; j < features; ++j) input[j] = static_cast<float>(of_input.normal(j));
    const Key of_noise = key.fold("noise");
    const double* weight = truth_->rows.data();
    for (std::size_t k = 0; k < truth_->bias.size(); ++k) {
      double sum = truth_->bias[k] + options_.noise * of_noise.normal(k);
      for (std::size_t j = 0; j < features; ++j) sum += *weight++ * static_cast<double>(input[j]);
      target[k] = static_cast<float>(sum);
    }
  }

  void write_class(const Key& key, float* input, std::int64_t* target) const {
    const auto features = static_cast<std::size_t>(options_.features);
    const std::int64_t label = class_of(key);
    const double* centre = truth_->rows.data() + static_cast<std::size_t>(label) * features;
    const Key of_noise = key.fold("noise");
    for (std::size_t j = 0; j < features; ++j) {
      input[j] = static_cast<float>(centre[j] + options_.noise * of_noise.normal(j));
    }
    *target = label;
  }

  [[nodiscard]] std::int64_t class_of(const Key& key) const {
    return static_cast<std::int64_t>(key.fold("class").bits() %
                                     static_cast<std::uint64_t>(options_.classes));
  }

  SyntheticOptions options_;
  std::shared_ptr<const Truth> truth_;
  std::int64_t size_;
  Key key_;
};

// `size` is the rule of a set's samples, by the fewest.
keys::ConfigKeys keys_of(SyntheticOptions& options,
                         keys::Rule<std::int64_t> (*size)(std::int64_t fewest)) {
  const auto features_problem = [&options] {
    const bool is_regression = options.task == SyntheticTask::regression;
    const std::int64_t rows = is_regression ? options.outputs : options.classes;
    if (options.features * rows <= kMostRows) return std::string();
    return str("times data.", is_regression ? "outputs" : "classes", " must be at most ", kMostRows,
               "; is ", options.features, " times ", rows);
  };
  const keys::KeyTraits features{.problem = features_problem,
                                 .others = {"outputs", "classes", "task"}};
  return {
      {"task", keys::one_of(options.task, {"regression", "classification"}),
       "values of a linear function with noise, or classes that are clouds of points"},
      {"samples", number(options.samples, size(1)), "samples to train on"},
      {"validation_samples", number(options.validation_samples, size(0)),
       "samples of the validation set; 0: it is not there"},
      {"test_samples", number(options.test_samples, size(0)),
       "samples of the test set; 0: it is not there"},
      {"features", number(options.features, keys::from_to<std::int64_t>(1, kMostFeatures)),
       "numbers of an input", features},
      {"outputs", number(options.outputs, keys::from_to<std::int64_t>(1, 1000)),
       "values to predict, of regression"},
      {"classes", number(options.classes, keys::from_to<std::int64_t>(2, 1000)),
       "classes, of classification"},
      {"noise", number(options.noise, keys::kNotNegative),
       "deviation of the values, or of a class's points, from what they should be"},
  };
}

keys::ConfigKeys synthetic_keys(SyntheticOptions& options) {
  return keys_of(options, [](std::int64_t fewest) { return keys::from_to(fewest, kMostSamples); });
}

}  // namespace

DataSets make_synthetic(const SyntheticOptions& options, std::uint64_t seed) {
  SyntheticOptions checked = options;
  keys::check("synthetic", keys_of(checked, keys::at_least<std::int64_t>));
  const Key key = Key(seed).fold("synthetic");
  const auto truth = std::make_shared<const Truth>(truth_of(options, key));
  const auto set = [&](std::string_view name, std::int64_t size) {
    return size > 0 ? std::make_shared<const SyntheticSet>(options, truth, size, key.fold(name))
                    : nullptr;
  };
  return {.train = set("train", options.samples),
          .validation = set("validation", options.validation_samples),
          .test = set("test", options.test_samples),
          .notes = {str("made samples, with a noise of ", options.noise)}};
}

DataKind synthetic_kind() {
  return data_kind<SyntheticOptions>(
      "synthetic", "made samples whose best loss is known, as many as are wanted", synthetic_keys,
      [](const SyntheticOptions& options, const DataContext& context) {
        return make_synthetic(options, context.seed);
      });
}

}  // namespace lockstep
