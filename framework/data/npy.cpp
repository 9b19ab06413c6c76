#include "framework/data/npy.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include <ATen/ops/empty.h>

#include "framework/base/logging.h"
#include "framework/base/number_text.h"
#include "framework/base/text.h"
#include "framework/formats/decimal.h"
#include "framework/formats/npy.h"

namespace lockstep {
namespace {

using formats::NpyArray;
using formats::NpyFloat16;

using NpyTask = NpySetOptions::Task;

constexpr std::int64_t kMostClasses = 1'000'000'000;

NpyArray open_npy(const std::string& path) {
  data::require_there("npy", path, "numpy.save(path, array) makes such files");
  return NpyArray(path);
}

template <typename T>
constexpr bool kIsFloating = std::is_floating_point_v<T> || std::is_same_v<T, NpyFloat16>;

// An element for messages; floats in the format that is given, if one is.
template <typename T, typename... Format>
std::string text_of(T value, [[maybe_unused]] Format... format) {
  if constexpr (kIsFloating<T>) {
    return shortest_text(static_cast<double>(value), format...);
  } else {
    return std::to_string(value);
  }
}

// The class or token that an element is. None for a float that is no whole number, or so large that
// its neighbours are the same float.
template <typename T>
std::optional<std::int64_t> class_of(T value) {
  if constexpr (kIsFloating<T>) {
    constexpr int kBits = std::is_same_v<T, NpyFloat16> ? 11 : std::is_same_v<T, float> ? 24 : 53;
    const auto number = static_cast<double>(value);
    const bool is_whole = std::trunc(number) == number && std::abs(number) < std::ldexp(1, kBits);
    return is_whole ? std::optional(static_cast<std::int64_t>(number)) : std::nullopt;
  } else {
    constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
    if (std::is_same_v<T, std::uint64_t> && static_cast<std::uint64_t>(value) > kMost) {
      return std::nullopt;
    }
    return static_cast<std::int64_t>(value);
  }
}

// Whether float32 has moved an element by a half or more, other than one that is meant roughly.
template <typename T>
bool is_rounded(T value, float made) {
  constexpr bool is_exact =
      std::is_same_v<T, NpyFloat16> || std::is_same_v<T, float> || sizeof(T) < sizeof(float);
  if constexpr (is_exact) {
    return false;
  } else if constexpr (kIsFloating<T>) {
    return formats::is_moved(value, static_cast<double>(made)) &&
           (std::abs(value) < formats::kExactInDouble ||
            !formats::is_rough(shortest_text(value, std::chars_format::scientific)));
  } else {
    return formats::is_moved(static_cast<long double>(value), static_cast<long double>(made));
  }
}

// DataError if element `i` is none of the classes, and not ignored.
template <typename T>
void check_class(const NpyArray& array, std::size_t i, T element, std::int64_t classes,
                 const std::optional<std::int64_t>& ignored) {
  const auto value = class_of(element);
  if (value && ((*value >= 0 && *value < classes) || value == ignored)) return;
  array.fail(str(array.place_of(i), " is ", text_of(element), ", but must be 0 ... ", classes - 1,
                 value ? ": see data.classes" : "",
                 !ignored && value && *value < 0 ? " and loss.ignore_index" : ""));
}

// Inputs and targets that belong together, or inputs alone. A set once set_type() was called.
class NpySet final : public Dataset {
 public:
  NpySet(const std::string& inputs, const std::optional<std::string>& targets, NpyTask task,
         const DataContext& context)
      : inputs_(open_npy(inputs)),
        task_(task),
        ignored_(context.ignored),
        keeps_damaged_(context.keeps_damaged) {
    check_samples(inputs_);
    if (!targets) return;
    targets_ = open_npy(*targets);
    check_samples(*targets_);
    if (inputs_.shape()[0] != targets_->shape()[0]) {
      targets_->fail(str("it has ", counted(targets_->shape()[0], "sample"), ", but '",
                         inputs_.path(), "' has ", inputs_.shape()[0]));
    }
  }

  std::int64_t size() const override { return inputs_.shape()[0]; }
  SampleType type() const override { return type_; }
  bool has_targets() const override { return targets_.has_value(); }
  std::optional<std::int64_t> label(std::int64_t index) const override {
    if (!has_targets() || !type_.has_label()) return std::nullopt;
    const auto own = [&](const auto& values) {
      return class_of(values[static_cast<std::size_t>(index)]).value_or(-1);
    };
    return std::visit(own, targets_->elements());
  }

  /// DataError if targets may be classes or values, and the task does not say which.
  void check_task() const {
    const std::vector<std::int64_t>& shape = targets_->shape();
    const bool is_one = shape.size() == 1 || (shape.size() == 2 && shape[1] == 1);
    if (task_ != NpyTask::automatic || !is_floating(targets_->type())) return;
    if (!is_one) return check_not_one_hot();
    const auto are_whole = [](const auto& values) {
      return std::ranges::all_of(values, [](auto value) {
        const auto number = static_cast<double>(value);
        return std::trunc(number) == number || !std::isfinite(number);
      });
    };
    if (!std::visit(are_whole, targets_->elements())) return;
    targets_->fail(
        str("its elements are whole numbers of type ", name_of(targets_->type()),
            ", which may be classes or values: set data.task to classification or regression"));
  }

  /// What the samples are, if they have targets; `classes` as NpySetOptions has them.
  [[nodiscard]] SampleType type_with(const std::optional<std::int64_t>& classes) const {
    const bool has_classes = task_ == NpyTask::automatic ? !is_floating(targets_->type())
                                                         : task_ == NpyTask::classification;
    const auto count = [&](const NpyArray& array, const std::optional<std::int64_t>& no_class) {
      return classes ? *classes : classes_of(array, no_class);
    };
    if (has_classes && has_tokens()) {
      return token_sample(inputs_.shape()[1],
                          std::max(count(inputs_, std::nullopt), count(*targets_, ignored_)));
    }
    const std::vector<std::int64_t>& shape = targets_->shape();
    const bool is_column = task_ == NpyTask::classification && shape.size() == 2 && shape[1] == 1;
    if (shape.size() > (has_classes ? 1 : 2) && !is_column) {
      targets_->fail(str("its shape is (", join(shape), "), but ",
                         has_classes ? "classes must be (samples), or tokens of the inputs' shape"
                                     : "values to predict must be (samples) or (samples, values)"));
    }
    if (has_classes) {
      return class_sample(input_shape(), count(*targets_, ignored_));
    }
    return value_sample(input_shape(), shape.size() == 1 ? 1 : shape[1]);
  }

  /// For DataSets::notes, of a pair with targets.
  [[nodiscard]] std::vector<std::string> notes() const {
    const auto array = [](const NpyArray& of) {
      return str(name_of(of.type()), " (", join(of.shape()), ")");
    };
    return {str("arrays: inputs ", array(inputs_), ", targets ", array(*targets_), "; ",
                has_pictures() ? "inputs are pictures, whose pixels are scaled to 0 ... 1"
                               : "inputs are as the file has them")};
  }

  /// DataError unless the samples are of this type.
  void set_type(const SampleType& type) {
    const auto classes = type.classes > 0 ? std::optional(type.classes) : std::nullopt;
    SampleType own = type;
    if (targets_) {
      own = type_with(classes);
    } else if (type.input.dtype != at::kLong) {
      own.input.shape = input_shape();
    }
    if (own.input != type.input) {
      inputs_.fail(str("its samples give inputs of ", described(own.input),
                       ", but those to train on of ", described(type.input)));
    }
    if (own != type) {
      targets_->fail(str("its samples give targets of ", described(own.target),
                         ", but those to train on of ", described(type.target)));
    }
    if (targets_ && type.classes > 0) {
      check_classes(*targets_, type.classes, ignored_);
    }
    if (type.input.dtype == at::kLong) {
      check_classes(inputs_, type.classes, std::nullopt);
    }
    type_ = type;
  }

 private:
  // DataError if each sample's values to predict are 0 but for a single 1.
  void check_not_one_hot() const {
    const std::vector<std::int64_t>& shape = targets_->shape();
    if (shape.size() != 2) return;
    const auto width = static_cast<std::size_t>(shape[1]);
    const auto are_one_hot = [width](const auto& values) {
      for (std::size_t at = 0; at < values.size(); at += width) {
        std::size_t ones = 0;
        for (const auto value : values.subspan(at, width)) {
          const auto number = static_cast<double>(value);
          if (number != 0 && number != 1) return false;
          ones += number == 1 ? 1 : 0;
        }
        if (ones != 1) return false;
      }
      return true;
    };
    if (!std::visit(are_one_hot, targets_->elements())) return;
    targets_->fail(
        str("its rows are 0 but for a single 1, as classes of one-hot code are: save "
            "the classes' numbers (array.argmax(1)), or set data.task to regression"));
  }

  // Whether inputs are pictures, with or without a dimension of channels.
  [[nodiscard]] bool has_pictures() const {
    return inputs_.type() == ElementType::uint8 && inputs_.shape().size() >= 3;
  }
  // Whether pictures have their channels in front.
  [[nodiscard]] bool has_channels_first() const {
    const std::vector<std::int64_t>& shape = inputs_.shape();
    return shape.size() == 4 && shape[3] > kMostChannels && shape[1] <= kMostChannels;
  }

  static void check_samples(const NpyArray& array) {
    if (!array.shape().empty() && std::ranges::count(array.shape(), 0) == 0) return;
    array.fail(str("its shape (", join(array.shape()), ") has no samples"));
  }

  [[nodiscard]] bool has_tokens() const {
    return !is_floating(inputs_.type()) && inputs_.type() != ElementType::boolean &&
           targets_->type() != ElementType::boolean && inputs_.shape().size() == 2 &&
           inputs_.shape() == targets_->shape();
  }

  // Of a sample that is no tokens.
  [[nodiscard]] std::vector<std::int64_t> input_shape() const {
    const std::vector<std::int64_t>& shape = inputs_.shape();
    if (!has_pictures()) {
      return shape.size() == 1 ? std::vector<std::int64_t>{1}
                               : std::vector<std::int64_t>(shape.begin() + 1, shape.end());
    }
    if (has_channels_first()) return {shape.begin() + 1, shape.end()};
    const std::int64_t channels = shape.size() == 3 ? 1 : shape[3];
    if (shape.size() > 4 || channels > kMostChannels) {
      inputs_.fail(str("its shape is (", join(shape),
                       "), but uint8 must be (samples, height, width), or that with up to 4 "
                       "channels before or behind height and width; save others as float32"));
    }
    return {channels, shape[1], shape[2]};
  }

  static std::string described(const TensorType& type) {
    return str(c10::toString(type.dtype), " (", join(type.shape), ")");
  }

  // The first that is none of the classes, and not ignored, is an error.
  void check_classes(const NpyArray& array, std::int64_t classes,
                     const std::optional<std::int64_t>& ignored) const {
    if (keeps_damaged_) return;
    const auto check = [&](const auto& values) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        check_class(array, i, values[i], classes, ignored);
      }
    };
    std::visit(check, array.elements());
  }

  // One more than the greatest that is not ignored.
  [[nodiscard]] std::int64_t classes_of(const NpyArray& array,
                                        const std::optional<std::int64_t>& ignored) const {
    std::int64_t most = 0;
    const auto take = [&](const auto& values) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        const auto value = class_of(values[i]);
        if (value && (*value <= most || value == ignored)) continue;
        if (value && *value < kMostClasses) {
          most = *value;
          continue;
        }
        if (keeps_damaged_) continue;
        array.fail(str(array.place_of(i), " is ", text_of(values[i]),
                       ", but classes and tokens must be whole numbers less than ", kMostClasses));
      }
    };
    std::visit(take, array.elements());
    return most + 1;
  }

  Batch gather(std::span<const std::int64_t> indices, std::int64_t /*epoch*/) const override {
    return {has_pictures()
                ? pictures_of(indices)
                : elements_of(inputs_, type_.input, std::nullopt, indices, is_input_told_),
            targets_ ? elements_of(*targets_, type_.target, ignored_, indices, is_target_told_)
                     : unknown_targets(type_.target, std::ssize(indices))};
  }

  at::Tensor elements_of(const NpyArray& array, const TensorType& type,
                         const std::optional<std::int64_t>& ignored,
                         std::span<const std::int64_t> indices, std::atomic<bool>& is_told) const {
    at::Tensor made = at::empty(type.sizes(std::ssize(indices)), type.dtype);
    const auto count = static_cast<std::size_t>(type.values());
    const auto write = [&](const auto& values) {
      for (std::size_t i = 0; i < indices.size(); ++i) {
        const std::size_t first = static_cast<std::size_t>(indices[i]) * count;
        const auto sample = values.subspan(first, count);
        if (type.dtype == at::kLong) {
          for (std::size_t j = 0; j < count; ++j) {
            check_class(array, first + j, sample[j], type_.classes, ignored);
          }
          std::ranges::transform(sample, made.data_ptr<std::int64_t>() + i * count,
                                 [](auto value) { return static_cast<std::int64_t>(value); });
          continue;
        }
        float* const into = made.data_ptr<float>() + i * count;
        std::ranges::transform(sample, into, [](auto value) { return static_cast<float>(value); });
        check_floats(array, sample, first, into, is_told);
      }
    };
    std::visit(write, array.elements());
    return made;
  }

  // `made` is what float32 has made of a sample's elements, whose first one is number `first`.
  // `is_told` says whether a rounding has been told.
  template <typename T>
  static void check_floats(const NpyArray& array, std::span<const T> sample, std::size_t first,
                           const float* made, std::atomic<bool>& is_told) {
    for (std::size_t i = 0; kIsFloating<T> && i < sample.size(); ++i) {
      if (std::isfinite(made[i])) continue;
      const bool is_large = std::isfinite(static_cast<double>(sample[i]));
      array.fail(str(array.place_of(first + i), " is ", text_of(sample[i]),
                     is_large ? ", which float32 can't hold" : ", but must be a finite number"));
    }
    for (std::size_t i = 0; !is_told && i < sample.size(); ++i) {
      if (!is_rounded(sample[i], made[i]) || is_told.exchange(true)) continue;
      constexpr auto kFixed = std::chars_format::fixed;
      log_warning(str("npy: float32 rounds numbers of '", array.path(),
                      "': ", array.place_of(first + i), " is ", text_of(sample[i], kFixed),
                      ", which becomes ", text_of(made[i], kFixed), " (said once)"));
    }
  }

  // (height, width, channels) in bytes becomes (channels, height, width) from 0 to 1; channels may
  // be in front already.
  at::Tensor pictures_of(std::span<const std::int64_t> indices) const {
    at::Tensor made = at::empty(type_.input.sizes(std::ssize(indices)), type_.input.dtype);
    float* into = made.data_ptr<float>();
    const auto bytes = inputs_.values<std::uint8_t>();
    const std::size_t channels =
        has_channels_first() ? 1 : static_cast<std::size_t>(type_.input.shape[0]);
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

  static constexpr std::int64_t kMostChannels = 4;

  NpyArray inputs_;
  std::optional<NpyArray> targets_;
  NpyTask task_;
  std::optional<std::int64_t> ignored_;
  bool keeps_damaged_;  // classes and tokens that are none are left to batch()
  SampleType type_;
  mutable std::atomic<bool> is_input_told_ = false;  // that float32 rounds some
  mutable std::atomic<bool> is_target_told_ = false;
};

}  // namespace

DataSets load_npy(const NpySetOptions& options, const DataContext& context) {
  std::optional<SampleType> type = context.fitted ? context.fitted->sample : std::nullopt;
  DataSets sets;
  for (const std::optional<std::string>& path :
       {std::optional(options.inputs), std::optional(options.targets), options.validation_inputs,
        options.validation_targets, options.test_inputs, options.test_targets}) {
    if (context.on_damage && path) load_or_tell(context, [&] { (void)open_npy(*path); });
  }
  const auto load_train = [&] {
    const auto train =
        std::make_shared<NpySet>(options.inputs, options.targets, options.task, context);
    std::optional<std::int64_t> classes = options.classes;
    const bool are_classes_known = context.fitted && context.fitted->class_count > 0;
    if (are_classes_known) classes = context.fitted->class_count;
    if (!type && !are_classes_known) train->check_task();
    if (!type) type = train->type_with(classes);
    sets.notes = train->notes();
    train->set_type(*type);
    sets.train = train;
  };
  if (context.wanted.train || !type) load_or_tell(context, load_train);
  if (!type) return sets;  // not without DataContext::on_damage
  const auto other = [&](const char* name, const std::optional<std::string>& inputs,
                         const std::optional<std::string>& targets) -> std::shared_ptr<NpySet> {
    require((inputs && !context.needs_targets) || inputs.has_value() == targets.has_value(),
            "npy: data.", name, inputs ? "_inputs" : "_targets", " is there, but data.", name,
            inputs ? "_targets" : "_inputs", " is not");
    if (!inputs) return nullptr;
    auto set = std::make_shared<NpySet>(*inputs, targets, options.task, context);
    set->set_type(*type);
    return set;
  };
  load_wanted(context, context.wanted.validation, sets.validation, [&] {
    return other("validation", options.validation_inputs, options.validation_targets);
  });
  load_wanted(context, context.wanted.test, sets.test,
              [&] { return other("test", options.test_inputs, options.test_targets); });
  return sets;
}

DataKind npy_kind() {
  DataKind kind = data_kind<NpySetOptions>(
      "npy", "arrays that NumPy has saved: values, pictures or tokens, and what to predict",
      [](NpySetOptions& options) -> keys::ConfigKeys {
        return {
            file_key("inputs", options.inputs, "the training set's inputs: an array by sample"),
            file_key("targets", options.targets, "classes or values to predict, or next tokens"),
            file_key("validation_inputs", options.validation_inputs, "of the validation set"),
            file_key("validation_targets", options.validation_targets, "of the validation set"),
            file_key("test_inputs", options.test_inputs, "of the test set"),
            file_key("test_targets", options.test_targets, "of the test set"),
            {"task", keys::one_of(options.task, {"auto", "regression", "classification"}),
             "what targets are; auto: integers are classes, other numbers are values"},
            {"classes",
             number_or_auto(options.classes, keys::from_to<std::int64_t>(1, kMostClasses)),
             "of classes or tokens; auto: one more than the greatest to train on"},
        };
      },
      load_npy);
  kind.take_path = [](keys::Picked& picked, const std::string& path) {
    auto& options = picked.all.of<NpySetOptions>(picked.name);
    options.test_inputs = path;
    options.test_targets.reset();
  };
  return kind;
}

}  // namespace lockstep
