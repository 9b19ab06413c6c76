#include "framework/data/tensor_set.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>

#include <ATen/ops/empty.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/data/fingerprint.h"

namespace lockstep {
namespace {

bool has_samples(const at::Tensor& tensor, const TensorType& type) {
  return tensor.defined() && tensor.device().is_cpu() && tensor.is_contiguous() &&
         tensor.scalar_type() == type.dtype && tensor.dim() >= 1 && tensor.size(0) >= 1 &&
         tensor.sizes().slice(1) == type.shape;
}

at::Tensor rows_of(const at::Tensor& from, std::span<const std::int64_t> indices) {
  std::vector<std::int64_t> sizes = from.sizes().vec();
  sizes[0] = std::ssize(indices);
  at::Tensor rows = at::empty(sizes, from.options());
  const std::size_t bytes = from.nbytes() / static_cast<std::size_t>(from.size(0));
  auto* into = static_cast<std::byte*>(rows.data_ptr());
  const auto* all = static_cast<const std::byte*>(from.data_ptr());
  for (const std::int64_t index : indices) {
    std::memcpy(into, all + static_cast<std::size_t>(index) * bytes, bytes);
    into += bytes;
  }
  return rows;
}

}  // namespace

void DamagedRows::check(std::int64_t row) const {
  if (const auto found = reasons.find(row); found != reasons.end()) throw DataError(found->second);
  if (std::ranges::binary_search(others, row)) throw DataError(reason_of_others);
}

TensorSet::TensorSet(at::Tensor inputs, std::optional<at::Tensor> targets, SampleType type,
                     std::vector<std::string> names, DamagedRows damaged)
    : inputs_(std::move(inputs)),
      type_(std::move(type)),
      names_(std::move(names)),
      has_targets_(targets.has_value()),
      damaged_(std::move(damaged)) {
  targets_ = has_targets_ ? std::move(*targets)
                          : unknown_targets(type_.target, inputs_.defined() ? inputs_.size(0) : 0);
  require(has_samples(inputs_, type_.input) && has_samples(targets_, type_.target) &&
              inputs_.size(0) == targets_.size(0),
          "a set of tensors needs contiguous inputs and targets on the CPU, with as many rows, one "
          "at least, of its type");
}

std::optional<std::int64_t> TensorSet::label(std::int64_t index) const {
  if (!has_targets_ || !type_.has_label()) return std::nullopt;
  return targets_.data_ptr<std::int64_t>()[index];
}

std::string TensorSet::fingerprint() const {
  data::Fingerprint made(*this);
  made.add(inputs_);
  made.add(targets_);
  return made.text();
}

Batch TensorSet::gather(std::span<const std::int64_t> indices, std::int64_t /*epoch*/) const {
  for (const std::int64_t index : indices) damaged_.check(index);
  return {rows_of(inputs_, indices), rows_of(targets_, indices)};
}

}  // namespace lockstep
