#include "framework/training/module_buffers.h"

#include <cstdint>
#include <unordered_set>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include "framework/base/require.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/in_place.h"
#include "framework/collectives/message.h"
#include "framework/training/agreement.h"

namespace lockstep {
namespace {

constexpr std::int64_t kAlignment = 16;

// Bytes of the tensor in a message.
std::int64_t room_for(const at::Tensor& tensor) {
  const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// The replicas' mean of each of `own`, given replica 0's: that plus the mean of the differences,
// so that where all are equal the mean is it exactly.
std::vector<at::Tensor> means(const std::vector<at::Tensor>& own,
                              const std::vector<at::Tensor>& first, const AxisNames& axis_name) {
  std::int64_t count = 0;
  at::ScalarType type = at::kFloat;
  for (const at::Tensor& tensor : own) {
    count += tensor.numel();
    if (tensor.scalar_type() == at::kDouble) type = at::kDouble;
  }
  if (count == 0) return own;
  const at::Tensor differences = at::empty({count}, type);
  std::vector<at::Tensor> difference_of;
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < own.size(); ++i) {
    difference_of.push_back(part_of(differences, offset, own[i].sizes()));
    // Not of what is equal: infinities have no difference.
    const at::Tensor difference = own[i].to(type) - first[i].to(type);
    difference_of[i].copy_(difference.masked_fill_(own[i].eq(first[i]), 0));
    offset += own[i].numel();
  }
  pmean_(differences, axis_name);
  std::vector<at::Tensor> results;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const at::Tensor moved = (first[i].to(type) + difference_of[i]).to(first[i].scalar_type());
    results.push_back(at::where(difference_of[i].eq(0), first[i], moved));
  }
  return results;
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
  synchronize(Buffers::first);
}

void ModuleBuffers::synchronize() {
  synchronize(rule_);
}

void ModuleBuffers::check_agreement() const {
  const Named buffers = all();
  if (!buffers.names.empty()) {
    lockstep::check_agreement(buffers.names, buffers.tensors, axis_, "buffer");
  }
}

ModuleBuffers::Named ModuleBuffers::all() const {
  Named found;
  if (module_ == nullptr) return found;
  std::unordered_set<const void*> seen;
  for (const auto& item : module_->named_buffers()) {
    const at::Tensor& tensor = item.value();
    if (!tensor.defined() || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    found.names.push_back(item.key());
    found.tensors.push_back(tensor.detach());
  }
  return found;
}

void ModuleBuffers::synchronize(Buffers rule) {
  const std::vector<at::Tensor> buffers = all().tensors;
  std::int64_t bytes = 0;  // of the message
  for (const at::Tensor& buffer : buffers) bytes += room_for(buffer);
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

  if (rule == Buffers::mean) {
    std::vector<std::size_t> floating;
    std::vector<at::Tensor> own;
    std::vector<at::Tensor> first;
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      if (!buffers[i].is_floating_point()) continue;
      floating.push_back(i);
      own.push_back(buffers[i]);
      first.push_back(results[i]);
    }
    const std::vector<at::Tensor> all_means = means(own, first, axis_);
    for (std::size_t i = 0; i < floating.size(); ++i) results[floating[i]] = all_means[i];
  }
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const at::Tensor result = results[i].contiguous();
    if (!has_same_bytes(buffers[i], result)) buffers[i].copy_(result);
  }
}

}  // namespace lockstep
