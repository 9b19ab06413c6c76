#include "framework/data/npy.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>

#include "framework/base/text.h"
#include "framework/data/presence.h"
#include "framework/data/unknown_targets.h"
#include "framework/formats/npy.h"

namespace lockstep {
namespace {

using formats::NpyArray;
using formats::NpyType;

constexpr std::int64_t kMostClasses = 1'000'000'000;

NpyArray open_npy(const std::string& path) {
  data::require_there("npy", path, "numpy.save(path, array) makes such files");
  return NpyArray(path);
}

// Calls `use` with all elements, of whatever type.
template <typename Use>
auto with_elements(const NpyArray& array, const Use& use) {
  switch (array.type()) {
    case NpyType::boolean:
      return use(array.values<bool>());
    case NpyType::int8:
      return use(array.values<std::int8_t>());
    case NpyType::int16:
      return use(array.values<std::int16_t>());
    case NpyType::int32:
      return use(array.values<std::int32_t>());
    case NpyType::int64:
      return use(array.values<std::int64_t>());
    case NpyType::uint8:
      return use(array.values<std::uint8_t>());
    case NpyType::uint16:
      return use(array.values<std::uint16_t>());
    case NpyType::uint32:
      return use(array.values<std::uint32_t>());
    case NpyType::float32:
      return use(array.values<float>());
    case NpyType::float64:
      break;
  }
  return use(array.values<double>());
}

bool is_floating(const NpyArray& array) {
  return array.type() == NpyType::float32 || array.type() == NpyType::float64;
}

// Inputs and targets that belong together, or inputs alone.
class NpyPair {
 public:
  NpyPair(const std::string& inputs, const std::optional<std::string>& targets)
      : inputs_path_(inputs), targets_path_(targets.value_or("")), inputs_(open_npy(inputs)) {
    check_samples(inputs_path_, inputs_);
    if (!targets) return;
    targets_ = open_npy(*targets);
    check_samples(targets_path_, *targets_);
    if (inputs_.shape()[0] != targets_->shape()[0]) {
      formats::fail_file(targets_path_, str("it has ", targets_->shape()[0], " samples, but '",
                                            inputs_path_, "' has ", inputs_.shape()[0]));
    }
  }

  [[nodiscard]] std::int64_t size() const { return inputs_.shape()[0]; }
  [[nodiscard]] const NpyArray& inputs() const { return inputs_; }
  [[nodiscard]] const std::optional<NpyArray>& targets() const { return targets_; }

  /// Whether inputs are pictures, which have their channels last.
  [[nodiscard]] bool has_pictures() const {
    return inputs_.type() == NpyType::uint8 && inputs_.shape().size() >= 3;
  }

  /// What the samples are, if they have targets; `classes` as NpySetOptions has it.
  [[nodiscard]] SampleType type(const std::optional<std::int64_t>& classes) const {
    const bool has_classes = !is_floating(*targets_);
    if (has_classes && has_tokens()) {
      return token_sample(inputs_.shape()[1], classes
                                                  ? *classes
                                                  : std::max(classes_of(inputs_path_, inputs_),
                                                             classes_of(targets_path_, *targets_)));
    }
    const std::vector<std::int64_t>& shape = targets_->shape();
    if (shape.size() > (has_classes ? 1 : 2)) {
      formats::fail_file(
          targets_path_,
          str("its shape is (", join(shape), "), but ",
              has_classes ? "classes must be (samples), or tokens of the inputs' shape"
                          : "values to predict must be (samples) or (samples, values)"));
    }
    if (has_classes) {
      return class_sample(input_shape(), classes ? *classes : classes_of(targets_path_, *targets_));
    }
    return value_sample(input_shape(), shape.size() == 1 ? 1 : shape[1]);
  }

  /// For DataSets::notes, of a pair with targets.
  [[nodiscard]] std::vector<std::string> notes() const {
    const auto array = [](const NpyArray& of) {
      return str(formats::name_of(of.type()), " (", join(of.shape()), ")");
    };
    return {str("arrays: inputs ", array(inputs_), ", targets ", array(*targets_), "; ",
                has_pictures() ? "inputs are pictures, whose pixels are scaled to 0 ... 1"
                               : "inputs are as the file has them")};
  }

  /// DataError unless the samples are of this type.
  void check(const SampleType& type) const {
    const auto classes = type.classes > 0 ? std::optional(type.classes) : std::nullopt;
    SampleType own = type;
    if (targets_) {
      own = this->type(classes);
    } else if (type.input.dtype != at::kLong) {
      own.input.shape = input_shape();
    }
    if (own.input != type.input) {
      formats::fail_file(inputs_path_, str("its samples give inputs of ", described(own.input),
                                           ", but those to train on of ", described(type.input)));
    }
    if (own != type) {
      formats::fail_file(targets_path_, str("its samples give targets of ", described(own.target),
                                            ", but those to train on of ", described(type.target)));
    }
    if (targets_ && type.classes > 0) check_classes(targets_path_, *targets_, type.classes);
    if (type.input.dtype == at::kLong) check_classes(inputs_path_, inputs_, type.classes);
  }

 private:
  static void check_samples(const std::string& path, const NpyArray& array) {
    if (!array.shape().empty() && array.count() > 0) return;
    formats::fail_file(path, str("its shape (", join(array.shape()), ") has no samples"));
  }

  [[nodiscard]] bool has_tokens() const {
    return !is_floating(inputs_) && inputs_.type() != NpyType::boolean &&
           targets_->type() != NpyType::boolean && inputs_.shape().size() == 2 &&
           inputs_.shape() == targets_->shape();
  }

  // Of a sample that is no tokens.
  [[nodiscard]] std::vector<std::int64_t> input_shape() const {
    const std::vector<std::int64_t>& shape = inputs_.shape();
    if (!has_pictures()) {
      return shape.size() == 1 ? std::vector<std::int64_t>{1}
                               : std::vector<std::int64_t>(shape.begin() + 1, shape.end());
    }
    const std::int64_t channels = shape.size() == 3 ? 1 : shape[3];
    if (shape.size() > 4 || channels > 4) {
      formats::fail_file(inputs_path_,
                         str("its shape is (", join(shape),
                             "), but uint8 must be (samples, height, width) or (samples, height, "
                             "width, channels) with up to 4 channels; save others as float32"));
    }
    return {channels, shape[1], shape[2]};
  }

  static std::string described(const TensorType& type) {
    return str(c10::toString(type.dtype), " (", join(type.shape), ")");
  }

  // The first that is none of the classes is an error.
  static void check_classes(const std::string& path, const NpyArray& array, std::int64_t classes) {
    with_elements(array, [&](const auto& values) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        const auto value = static_cast<std::int64_t>(values[i]);
        if (value >= 0 && value < classes) continue;
        formats::fail_file(path, str("element number ", i, " is ", value, ", but must be 0 ... ",
                                     classes - 1, ": see data.classes"));
      }
    });
  }

  static std::int64_t classes_of(const std::string& path, const NpyArray& array) {
    const std::int64_t most = with_elements(array, [](const auto& values) {
      return static_cast<std::int64_t>(*std::ranges::max_element(values));
    });
    if (most >= kMostClasses) {
      formats::fail_file(path, str("its greatest element is ", most,
                                   ", but classes and tokens must be less than ", kMostClasses));
    }
    return std::max<std::int64_t>(most, 0) + 1;
  }

  std::string inputs_path_;
  std::string targets_path_;
  NpyArray inputs_;
  std::optional<NpyArray> targets_;
};

class NpySet final : public Dataset {
 public:
  NpySet(NpyPair pair, SampleType type) : pair_(std::move(pair)), type_(std::move(type)) {
    pair_.check(type_);
  }

  std::int64_t size() const override { return pair_.size(); }
  SampleType type() const override { return type_; }
  bool has_targets() const override { return pair_.targets().has_value(); }
  std::optional<std::int64_t> label(std::int64_t index) const override {
    if (!has_targets() || type_.classes == 0 || !type_.target.shape.empty()) return std::nullopt;
    return with_elements(*pair_.targets(), [&](const auto& values) {
      return static_cast<std::int64_t>(values[static_cast<std::size_t>(index)]);
    });
  }

 private:
  Batch gather(std::span<const std::int64_t> indices, std::int64_t /*epoch*/) const override {
    return {pair_.has_pictures() ? pictures_of(indices)
                                 : elements_of(pair_.inputs(), type_.input, indices),
            pair_.targets() ? elements_of(*pair_.targets(), type_.target, indices)
                            : data::unknown_targets(type_.target, std::ssize(indices))};
  }

  static at::Tensor room_for(const TensorType& type, std::span<const std::int64_t> indices) {
    std::vector<std::int64_t> sizes{std::ssize(indices)};
    sizes.insert(sizes.end(), type.shape.begin(), type.shape.end());
    return at::empty(sizes, type.dtype);
  }

  static at::Tensor elements_of(const NpyArray& array, const TensorType& type,
                                std::span<const std::int64_t> indices) {
    at::Tensor made = room_for(type, indices);
    const auto count = static_cast<std::size_t>(type.values());
    with_elements(array, [&](const auto& values) {
      const auto convert = [&](auto* into) {
        for (const std::int64_t index : indices) {
          for (const auto value : values.subspan(static_cast<std::size_t>(index) * count, count)) {
            *into++ = static_cast<std::remove_reference_t<decltype(*into)>>(value);
          }
        }
      };
      if (type.dtype == at::kLong) return convert(made.data_ptr<std::int64_t>());
      convert(made.data_ptr<float>());
    });
    return made;
  }

  // (height, width, channels) in bytes becomes (channels, height, width) from 0 to 1.
  at::Tensor pictures_of(std::span<const std::int64_t> indices) const {
    at::Tensor made = room_for(type_.input, indices);
    float* into = made.data_ptr<float>();
    const auto bytes = pair_.inputs().values<std::uint8_t>();
    const auto channels = static_cast<std::size_t>(type_.input.shape[0]);
    const auto count = static_cast<std::size_t>(type_.input.values());
    for (const std::int64_t index : indices) {
      const auto picture = bytes.subspan(static_cast<std::size_t>(index) * count, count);
      for (std::size_t channel = 0; channel < channels; ++channel) {
        for (std::size_t i = channel; i < count; i += channels) {
          *into++ = static_cast<float>(picture[i]) / 255;
        }
      }
    }
    return made;
  }

  NpyPair pair_;
  SampleType type_;
};

std::shared_ptr<const Dataset> other_npy(const char* name, const std::optional<std::string>& inputs,
                                         const std::optional<std::string>& targets,
                                         const SampleType& type, bool needs_targets) {
  require((inputs && !needs_targets) || inputs.has_value() == targets.has_value(), "npy: data.",
          name, inputs ? "_inputs" : "_targets", " is there, but data.", name,
          inputs ? "_targets" : "_inputs", " is not");
  return inputs ? std::make_shared<const NpySet>(NpyPair(*inputs, targets), type) : nullptr;
}

}  // namespace

DataSets load_npy(const NpySetOptions& options, const DataContext& context) {
  std::optional<SampleType> type = context.fitted ? context.fitted->sample : std::nullopt;
  DataSets sets;
  if (context.wanted.train || !type) {
    NpyPair train(options.inputs, options.targets);
    std::optional<std::int64_t> classes = options.classes;
    if (context.fitted && context.fitted->class_count > 0) classes = context.fitted->class_count;
    if (!type) type = train.type(classes);
    sets.notes = train.notes();
    sets.train = std::make_shared<const NpySet>(std::move(train), *type);
  }
  const auto other = [&](bool is_wanted, const char* name, const auto& inputs,
                         const auto& targets) {
    return is_wanted ? other_npy(name, inputs, targets, *type, context.needs_targets) : nullptr;
  };
  sets.validation = other(context.wanted.validation, "validation", options.validation_inputs,
                          options.validation_targets);
  sets.test = other(context.wanted.test, "test", options.test_inputs, options.test_targets);
  return sets;
}

DataKind npy_kind() {
  return data_kind<NpySetOptions>(
      "npy", "arrays that NumPy has saved: values, pictures or tokens, and what to predict",
      [](NpySetOptions& options) -> keys::Keys {
        return {
            file_key("inputs", options.inputs, "the training set's inputs: an array by sample"),
            file_key("targets", options.targets, "classes or values to predict, or next tokens"),
            file_key("validation_inputs", options.validation_inputs, "of the validation set"),
            file_key("validation_targets", options.validation_targets, "of the validation set"),
            file_key("test_inputs", options.test_inputs, "of the test set"),
            file_key("test_targets", options.test_targets, "of the test set"),
            {"classes",
             number_or_auto(options.classes, keys::from_to<std::int64_t>(1, kMostClasses)),
             "of classes or tokens; auto: one more than the greatest to train on"},
        };
      },
      load_npy);
}

}  // namespace lockstep
