#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/data/dataset.h"
#include "framework/objectives/loss.h"
#include "framework/objectives/metric.h"

namespace lockstep {

/// Whether each sample is a picture, of one or three channels, with a class.
[[nodiscard]] bool are_pictures(const SampleType& sample);

/// A sample's picture, from 0 (its least value) to 1 (its largest): what it was before it was
/// normalized is not known of all data.
[[nodiscard]] at::Tensor picture_of(const Dataset& data, std::int64_t sample);

/// Rows: each sample's class, and the one that is predicted, which has the largest output.
[[nodiscard]] std::shared_ptr<const Tally> make_predicted_classes();

/// Pictures by their tags: "wrong_test/17 is Coat, predicted Shirt", of sample 17.
using NamedPictures = std::vector<std::pair<std::string, at::Tensor>>;

/// The first samples of `data`, a handful, that were taken for another class, from 0 (the least
/// value of each) to 1 (its largest). `classes` are the rows of all of `data`, and `loss` says
/// which targets don't count.
[[nodiscard]] NamedPictures wrong_pictures(const std::string& set, const Dataset& data,
                                           const at::Tensor& classes, const Loss& loss);

}  // namespace lockstep
