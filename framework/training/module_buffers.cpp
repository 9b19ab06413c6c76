#include "framework/training/module_buffers.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/in_place.h"
#include "framework/collectives/message.h"
#include "framework/training/agreement.h"
#include "framework/training/batch_norm.h"
#include "framework/training/each_module.h"

namespace lockstep::training {
namespace {

constexpr std::int64_t kAlignment = 16;

// Bytes of the tensor in a message.
std::int64_t room_for(const at::Tensor& tensor) {
  return round_up(static_cast<std::int64_t>(tensor.nbytes()), kAlignment);
}

// Turns replica 0's `values` of floating `buffers` into the replicas' mean: the values plus the
// mean of the differences. So if all are equal, the mean is exactly their value.
void move_to_means(const std::vector<at::Tensor>& buffers, std::vector<at::Tensor>& values,
                   const AxisNames& axis_name) {
  at::ScalarType type = at::kFloat;
  for (const at::Tensor& buffer : buffers) {
    if (buffer.scalar_type() == at::kDouble) type = at::kDouble;
  }
  std::vector<at::Tensor> differences;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (!buffers[i].is_floating_point()) continue;
    // Equal values differ by 0, infinities too, whose subtraction gives NaN.
    const at::Tensor difference = buffers[i].to(type) - values[i].to(type);
    differences.push_back(difference.masked_fill_(buffers[i].eq(values[i]), 0).flatten());
  }
  if (differences.empty()) return;
  const at::Tensor means = at::cat(differences);
  pmean_(means, axis_name);
  std::int64_t offset = 0;
  for (at::Tensor& value : values) {
    if (!value.is_floating_point()) continue;
    const at::Tensor difference = collectives::part_of(means, offset, value.sizes());
    offset += value.numel();
    const at::Tensor moved = (value.to(type) + difference).to(value.scalar_type());
    value = at::where(difference.eq(0), value, moved);
  }
}

}  // namespace

ModuleBuffers::ModuleBuffers(torch::nn::Module* module, const AxisNames& axis_name, Buffers rule)
    : module_(module), axis_(axis_name), rule_(rule) {
  const Named buffers = all();
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < buffers.names.size(); ++i) {
    const at::Tensor& tensor = buffers.tensors[i];
    require(tensor.layout() == at::kStrided && tensor.device().is_cpu(), "buffer '",
            buffers.names[i], "' must be a dense tensor on the CPU");
    lines.push_back(describe(buffers.names[i], tensor));
  }
  check_same_model("buffer", lines, axis_);
  synchronize(buffers.tensors, Buffers::first);
}

void ModuleBuffers::synchronize() {
  if (module_ == nullptr) return;
  std::unordered_set<const void*> equal;
  for_each_module(*module_, [&](const std::string&, const torch::nn::Module& each) {
    const auto* const norm = dynamic_cast<const BatchNormImpl*>(&each);
    if (norm == nullptr || !norm->keeps_equal_over(axis_)) return;
    for (const at::Tensor& buffer : norm->buffers()) equal.insert(buffer.unsafeGetTensorImpl());
  });
  synchronize(all(equal).tensors, rule_);
}

void ModuleBuffers::keep() {
  const c10::AutoGradMode no_grad(false);
  Named now = all();
  const auto is_alike = [](const at::Tensor& a, const at::Tensor& b) {
    return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type();
  };
  if (kept_.names == now.names && std::ranges::equal(kept_.tensors, now.tensors, is_alike)) {
    // Most steps change few of them, or none: a mask of attention never changes.
    for (std::size_t i = 0; i < now.tensors.size(); ++i) {
      if (!has_same_bytes(kept_.tensors[i], now.tensors[i])) kept_.tensors[i].copy_(now.tensors[i]);
    }
    return;
  }
  kept_ = std::move(now);
  for (at::Tensor& tensor : kept_.tensors) tensor = tensor.clone();
}

void ModuleBuffers::restore_kept() {
  const c10::AutoGradMode no_grad(false);
  const Named now = all();
  for (std::size_t i = 0; i < now.names.size(); ++i) {
    const auto place = std::ranges::find(kept_.names, now.names[i]) - kept_.names.begin();
    if (place == std::ssize(kept_.names)) continue;
    const at::Tensor& kept = kept_.tensors[static_cast<std::size_t>(place)];
    if (!has_same_bytes(now.tensors[i], kept)) now.tensors[i].copy_(kept);
  }
  synchronize();
}

void ModuleBuffers::check_agreement() const {
  const Named buffers = all();
  if (buffers.names.empty()) return;
  training::check_agreement(buffers.names, buffers.tensors, axis_, "buffer");
}

void ModuleBuffers::archive_state(const StateArchive& archive, const Named& buffers) const {
  for (std::size_t i = 0; i < buffers.names.size(); ++i) {
    archive.alike(kBuffers + buffers.names[i], buffers.tensors[i], axis_);
  }
}

ModuleBuffers::Named ModuleBuffers::all(std::unordered_set<const void*> seen) const {
  Named found;
  if (module_ == nullptr) return found;
  for (const auto& item : module_->named_buffers()) {
    const at::Tensor& tensor = item.value();
    if (!tensor.defined() || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    found.names.push_back(item.key());
    found.tensors.push_back(tensor.detach());
  }
  return found;
}

void ModuleBuffers::synchronize(const std::vector<at::Tensor>& buffers, Buffers rule) {
  const std::int64_t bytes = sum_of(buffers, room_for);  // of the message
  if (bytes == 0) return;
  const c10::AutoGradMode no_grad(false);
  if (!message_.defined() || message_.numel() != bytes) message_ = at::zeros({bytes}, at::kByte);

  std::vector<at::Tensor> results;  // replica 0's at first
  std::int64_t offset = 0;
  for (const at::Tensor& buffer : buffers) {
    results.push_back(at::from_blob(message_.data_ptr<std::uint8_t>() + offset, buffer.sizes(),
                                    buffer.options()));
    if (axis_index(axis_) == 0) results.back().copy_(buffer);
    offset += room_for(buffer);
  }
  pbroadcast_(message_, axis_, 0);

  if (rule == Buffers::mean) move_to_means(buffers, results, axis_);
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const at::Tensor result = results[i].contiguous();
    if (!has_same_bytes(buffers[i], result)) buffers[i].copy_(result);
  }
}

}  // namespace lockstep::training
