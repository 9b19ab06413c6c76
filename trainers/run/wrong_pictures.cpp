#include "trainers/run/wrong_pictures.h"

#include <cstddef>
#include <cstdint>
#include <span>

#include <ATen/TensorOperators.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "framework/base/text.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMost = 5;

class PredictedClasses final : public Tally {
 public:
  at::Tensor add(const at::Tensor& outputs, const at::Tensor& targets) const override {
    // Other outputs, of a program's own loss, say no classes.
    if (outputs.dim() != 2 || targets.dim() != 1) return at::zeros({0, 2}, at::kDouble);
    return at::stack({targets, at::argmax(outputs, 1)}, 1).to(at::kDouble);
  }
  bool is_of_rows() const override { return true; }
};

}  // namespace

bool are_pictures(const SampleType& sample) {
  const auto& shape = sample.input.shape;
  const bool has_form = shape.size() == 3 && (shape[0] == 1 || shape[0] == 3) && shape[1] > 1 &&
                        shape[2] > 1 && at::isFloatingType(sample.input.dtype);
  return has_form && sample.has_label();
}

at::Tensor picture_of(const Dataset& data, std::int64_t sample) {
  const at::Tensor picture = data.batch(std::span(&sample, 1)).inputs[0];
  const at::Tensor least = picture.min();
  const at::Tensor range = picture.max() - least;
  return (picture - least) / range.clamp_min(1e-12);
}

std::shared_ptr<const Tally> make_predicted_classes() {
  return std::make_shared<PredictedClasses>();
}

NamedPictures wrong_pictures(const std::string& set, const Dataset& data, const at::Tensor& classes,
                             const Loss& loss) {
  const std::vector<std::string> names = data.class_names();
  const auto name = [&](std::int64_t number) {
    const auto i = static_cast<std::size_t>(number);
    return i < names.size() ? names[i] : str(number);
  };
  const at::Tensor numbers = classes.to(at::kLong);
  at::Tensor is_wrong = numbers.select(1, 0) != numbers.select(1, 1);
  if (const auto ignored = loss.ignore_index()) {
    is_wrong = is_wrong.logical_and(numbers.select(1, 0) != *ignored);
  }
  const at::Tensor wrong = is_wrong.nonzero().flatten();
  NamedPictures pictures;
  for (std::int64_t i = 0; i < wrong.numel() && i < kMost; ++i) {
    const auto sample = wrong[i].item<std::int64_t>();
    const auto number = [&](std::int64_t column) {
      return numbers[sample][column].item<std::int64_t>();
    };
    pictures.emplace_back(
        str("wrong_", set, "/", sample, " is ", name(number(0)), ", predicted ", name(number(1))),
        picture_of(data, sample));
  }
  return pictures;
}

}  // namespace lockstep
