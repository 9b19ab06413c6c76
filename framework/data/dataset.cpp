#include "framework/data/dataset.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/util/accumulate.h>

#include "framework/base/errors.h"
#include "framework/base/random.h"
#include "framework/base/scoped_value.h"
#include "framework/base/text.h"
#include "framework/data/fingerprint.h"
#include "framework/tree/error_place.h"

namespace lockstep {
namespace {

void check_made(const char* what, const at::Tensor& made, const TensorType& type,
                std::int64_t count) {
  const std::vector<std::int64_t> sizes = type.sizes(count);
  require(made.defined() && made.scalar_type() == type.dtype && made.sizes() == sizes,
          "dataset: ", what, " must be ", c10::toString(type.dtype), " (", join(sizes),
          "), as its type says, not ", form_of(made));
}

}  // namespace

std::int64_t TensorType::values() const {
  return c10::multiply_integers(shape);
}

std::vector<std::int64_t> TensorType::sizes(std::int64_t count) const {
  std::vector<std::int64_t> all{count};
  all.insert(all.end(), shape.begin(), shape.end());
  return all;
}

Batch empty_batch(const SampleType& type, std::int64_t count) {
  return {at::empty(type.input.sizes(count), type.input.dtype),
          at::empty(type.target.sizes(count), type.target.dtype)};
}

at::Tensor unknown_targets(const TensorType& type, std::int64_t count) {
  const double unknown = type.dtype == at::kLong ? -1 : std::numeric_limits<double>::quiet_NaN();
  return at::full(type.sizes(count), unknown, type.dtype);
}

std::string Dataset::fingerprint() const {
  data::Fingerprint made(*this);
  made.add_samples(*this);
  return made.text();
}

Batch Dataset::batch(std::span<const std::int64_t> indices, std::int64_t epoch) const {
  const std::int64_t count = size();
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] >= 0 && indices[i] < count) continue;
    throw ValueError(str("dataset: index ", indices[i], " (number ", i, " of ", indices.size(),
                         " in the batch) is outside 0 ... ", count - 1, ": the set has ",
                         counted(count, "sample")));
  }
  const ScopedValue in_data_set(is_in_data_set, true);
  Batch made = gather(indices, epoch);
  const SampleType type = this->type();
  check_made("inputs", made.inputs, type.input, std::ssize(indices));
  check_made("targets", made.targets, type.target, std::ssize(indices));
  return made;
}

Subset::Subset(std::shared_ptr<const Dataset> whole, data::IndexList indices)
    : whole_(std::move(whole)), indices_(std::move(indices)) {
  require(indices_.size() > 0, "a part of a data set needs at least one sample");
  std::int64_t least = indices_[0];
  std::int64_t most = least;
  for (std::int64_t i = 1; i < indices_.size(); ++i) {
    least = std::min(least, indices_[i]);
    most = std::max(most, indices_[i]);
  }
  require(least >= 0 && most < whole_->size(), "a part of a data set of ",
          counted(whole_->size(), "sample"), " has the samples ", least, " ... ", most);
}

std::string Subset::origin(std::int64_t index) const {
  const std::string in_whole = whole_->origin(indices_[index]);
  return in_whole.empty() ? str("sample ", indices_[index], " of the whole set") : in_whole;
}

Batch Subset::gather(std::span<const std::int64_t> indices, std::int64_t epoch) const {
  const auto of_whole = mapped(indices, [&](std::int64_t index) { return indices_[index]; });
  return whole_->batch(of_whole, epoch);
}

}  // namespace lockstep
