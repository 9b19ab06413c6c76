#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "framework/data/index_list.h"

namespace lockstep {

/// The type of a tensor that a sample has, and its shape without the dimension of samples.
struct TensorType {
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> shape = {};

  /// How many values a sample has.
  [[nodiscard]] std::int64_t values() const;
  /// … and how many bytes.
  [[nodiscard]] std::int64_t bytes() const {
    return values() * static_cast<std::int64_t>(c10::elementSize(dtype));
  }
  /// The shape of the tensor of `count` samples.
  [[nodiscard]] std::vector<std::int64_t> sizes(std::int64_t count) const;
  bool operator==(const TensorType&) const = default;
};

/// What the samples of a data set are, and so what a model is made for.
struct SampleType {
  TensorType input;   ///< float32 (channels, height, width) or (features); int64 (positions)
  TensorType target;  ///< floating: values to predict; int64: classes, one a sample or a position
  std::int64_t classes = 0;  ///< classes are 0 … classes-1; 0: targets are values
  /// A target that is no class and does not count, if some are; the loss must know it.
  std::optional<std::int64_t> ignored = {};

  /// What a model gives for each target: a score for each class, or the values.
  [[nodiscard]] std::int64_t outputs() const { return classes > 0 ? classes : target.values(); }
  /// Whether inputs are tokens, each with the one that follows it.
  [[nodiscard]] bool has_tokens() const {
    return classes > 0 && input.dtype == at::kLong && !input.shape.empty() &&
           target.shape == input.shape;
  }
  /// Whether a sample has one class.
  [[nodiscard]] bool has_label() const { return classes > 0 && target.shape.empty(); }
  bool operator==(const SampleType&) const = default;
};

/// Samples with `values` float32 values to predict, or of one of `classes`.
[[nodiscard]] inline SampleType value_sample(std::vector<std::int64_t> input_shape,
                                             std::int64_t values) {
  return {.input = {at::kFloat, std::move(input_shape)}, .target = {at::kFloat, {values}}};
}
[[nodiscard]] inline SampleType class_sample(std::vector<std::int64_t> input_shape,
                                             std::int64_t classes) {
  return {
      .input = {at::kFloat, std::move(input_shape)}, .target = {at::kLong, {}}, .classes = classes};
}
/// `positions` tokens of a vocabulary, each with the one that follows it.
[[nodiscard]] inline SampleType token_sample(std::int64_t positions, std::int64_t vocabulary) {
  return {
      .input = {at::kLong, {positions}}, .target = {at::kLong, {positions}}, .classes = vocabulary};
}

/// Some samples of a data set, in the order asked for: tensors (count, …) of the data set's type.
/// Both are contiguous, on the CPU, and the caller's own: writing to them changes no data set.
struct Batch {
  at::Tensor inputs;
  at::Tensor targets;
};

/// Room for `count` samples, whose values are any.
[[nodiscard]] Batch empty_batch(const SampleType& type, std::int64_t count);
/// The targets of `count` samples whose targets are not known: see Dataset::has_targets().
[[nodiscard]] at::Tensor unknown_targets(const TensorType& type, std::int64_t count);

/// The epoch of samples as they are: without augmentation.
inline constexpr std::int64_t kUnaugmented = -1;

/// A fixed list of samples. Sample i of an epoch is a pure function of (the data set's own seed,
/// epoch, i), augmentation included, whoever asks. Every function is const and may be called by
/// several threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;

  /// How many samples there are; at least 1.
  [[nodiscard]] virtual std::int64_t size() const = 0;
  [[nodiscard]] virtual SampleType type() const = 0;
  /// The classes' names, in the order of their numbers; none where they have no names.
  [[nodiscard]] virtual std::vector<std::string> class_names() const { return {}; }
  /// Whether a batch takes long to make (it is decoded, or read from a disk), so that making it
  /// ahead, in other threads, is worthwhile.
  [[nodiscard]] virtual bool is_slow() const { return false; }
  /// Whether the samples' targets are known. Otherwise a batch's are NaN, or -1 for classes: such a
  /// set is for predictions alone.
  [[nodiscard]] virtual bool has_targets() const { return true; }
  /// The class of sample `index`, where it has one and that is known without making the sample.
  [[nodiscard]] virtual std::optional<std::int64_t> label(std::int64_t /*index*/) const {
    return std::nullopt;
  }
  /// What sample `index` is called, such as by its file. All samples have names, or none: then "".
  [[nodiscard]] virtual std::string sample_name(std::int64_t /*index*/) const { return {}; }
  /// Where sample `index` is in what users have, for messages: "line 7 of 'a.csv'". "" where its
  /// number says so.
  [[nodiscard]] virtual std::string origin(std::int64_t /*index*/) const { return {}; }
  /// What the source says of each sample beside its input and target, such as a table's columns,
  /// for people: what these texts are called. Those of a sample are text().
  [[nodiscard]] virtual std::vector<std::string> columns() const { return {}; }
  /// What stands in column `column` of columns(), as the source has it. Both must be there.
  [[nodiscard]] virtual std::string text(std::int64_t /*index*/, std::size_t /*column*/) const {
    return {};
  }
  /// The names of the source's samples that were left out, as their files are damaged.
  [[nodiscard]] virtual std::vector<std::string> left_out() const { return {}; }
  /// A short text by which a run that goes on notices that its data have changed: how many samples
  /// there are, of what type and classes, and what they hold. It is that of the source: a Subset
  /// has the whole's. Of many samples only some are looked at, and of files that are slow to read
  /// perhaps only names and sizes. Even these take minutes for a million files on another machine:
  /// `train` asks once, in the process that starts the replicas.
  [[nodiscard]] virtual std::string fingerprint() const;

  /// The samples with these numbers, which may repeat, as `epoch` has them; no numbers give tensors
  /// of 0 rows. A number outside 0 … size()-1 is a ValueError, as is a batch of gather() that is
  /// not of the type.
  [[nodiscard]] Batch batch(std::span<const std::int64_t> indices,
                            std::int64_t epoch = kUnaugmented) const;

 protected:
  Dataset() = default;
  Dataset(const Dataset&) = default;
  Dataset& operator=(const Dataset&) = default;

 private:
  /// What batch() returns. Every index was checked.
  [[nodiscard]] virtual Batch gather(std::span<const std::int64_t> indices,
                                     std::int64_t epoch) const = 0;
};

/// Some samples of another data set, in an order of its own.
class Subset final : public Dataset {
 public:
  /// Sample i is number `indices[i]` of `whole`. ValueError if there are none, or one is not there.
  Subset(std::shared_ptr<const Dataset> whole, const std::vector<std::int64_t>& indices)
      : Subset(std::move(whole), data::IndexList(indices)) {}
  Subset(std::shared_ptr<const Dataset> whole, data::IndexList indices);

  [[nodiscard]] std::int64_t size() const override { return indices_.size(); }
  [[nodiscard]] SampleType type() const override { return whole_->type(); }
  [[nodiscard]] std::vector<std::string> class_names() const override {
    return whole_->class_names();
  }
  [[nodiscard]] bool is_slow() const override { return whole_->is_slow(); }
  [[nodiscard]] bool has_targets() const override { return whole_->has_targets(); }
  [[nodiscard]] std::optional<std::int64_t> label(std::int64_t index) const override {
    return whole_->label(indices_[index]);
  }
  [[nodiscard]] std::string sample_name(std::int64_t index) const override {
    return whole_->sample_name(indices_[index]);
  }
  /// That in the whole.
  [[nodiscard]] std::string origin(std::int64_t index) const override;
  [[nodiscard]] std::vector<std::string> columns() const override { return whole_->columns(); }
  [[nodiscard]] std::string text(std::int64_t index, std::size_t column) const override {
    return whole_->text(indices_[index], column);
  }
  [[nodiscard]] std::vector<std::string> left_out() const override { return whole_->left_out(); }
  [[nodiscard]] std::string fingerprint() const override { return whole_->fingerprint(); }
  [[nodiscard]] const Dataset& whole() const { return *whole_; }

 private:
  [[nodiscard]] Batch gather(std::span<const std::int64_t> indices,
                             std::int64_t epoch) const override;

  std::shared_ptr<const Dataset> whole_;
  data::IndexList indices_;
};

}  // namespace lockstep
