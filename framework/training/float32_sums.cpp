#include "framework/training/float32_sums.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

namespace lockstep::training {
namespace {

using c10::DispatchKey;

// Of the factors, which are the last two tensors.
constexpr const char* kProducts[] = {"mm", "addmm", "bmm", "baddbmm", "addbmm",
                                     "mv", "addmv", "dot", "vdot"};

constexpr const char* kSums[] = {
    "_trilinear", "linalg_vector_norm", "norm.Scalar", "norm.ScalarOpt_dim", "_cdist_forward",
    "_cdist_backward", "_softmax_backward_data", "_log_softmax_backward_data",
    // What gathers numbers from places of a tensor, its backward adds to these.
    "embedding_dense_backward", "_embedding_bag_dense_backward", "_index_put_impl_", "put_",
    "index_add", "index_add_", "scatter_add", "scatter_add_", "scatter_reduce.two",
    "scatter_reduce_.two", "index_reduce", "index_reduce_", "segment_reduce",
    "_segment_reduce_backward", "unfold_backward", "col2im", "max_pool2d_with_indices_backward",
    "max_pool3d_with_indices_backward", "adaptive_max_pool2d_backward",
    "adaptive_max_pool3d_backward", "avg_pool2d_backward", "avg_pool3d_backward",
    "_adaptive_avg_pool3d", "_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward",
    "reflection_pad1d_backward", "reflection_pad2d_backward", "reflection_pad3d_backward",
    "replication_pad1d_backward", "replication_pad2d_backward", "replication_pad3d_backward",
    "upsample_linear1d", "upsample_linear1d_backward", "upsample_bilinear2d",
    "upsample_bilinear2d_backward", "upsample_bicubic2d", "upsample_bicubic2d_backward",
    "upsample_trilinear3d", "upsample_trilinear3d_backward", "upsample_nearest1d",
    "upsample_nearest1d_backward", "upsample_nearest2d_backward", "upsample_nearest3d_backward",
    "_upsample_nearest_exact1d_backward", "_upsample_nearest_exact2d_backward",
    "_upsample_nearest_exact3d_backward", "_upsample_bilinear2d_aa_backward",
    "_upsample_bicubic2d_aa_backward", "grid_sampler_2d_backward", "grid_sampler_3d_backward"};

// Some of their arguments are float32 beside halves: weights, statistics.
constexpr const char* kMixed[] = {"native_layer_norm",  "native_layer_norm_backward",
                                  "native_group_norm",  "native_group_norm_backward",
                                  "native_batch_norm",  "native_batch_norm_backward",
                                  "nll_loss_forward",   "nll_loss_backward",
                                  "nll_loss2d_forward", "nll_loss2d_backward"};

// They are made of other operators, between which they round, and their backward does again.
constexpr const char* kComposites[] = {"scaled_dot_product_attention",
                                       "cross_entropy_loss",
                                       "l1_loss",
                                       "poisson_nll_loss",
                                       "kl_div",
                                       "cosine_similarity",
                                       "cosine_embedding_loss",
                                       "rms_norm"};

enum class Kind { product, sum, mixed, composite };

std::atomic<bool> summed{false};

bool is_tensor(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined();
}

bool is_half(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.layout() == at::kStrided &&
         (tensor.scalar_type() == at::kBFloat16 || tensor.scalar_type() == at::kHalf);
}

// LibTorch's limit, up to which it multiplies bfloat16 without oneDNN.
bool is_large(const at::Tensor& a, const at::Tensor& b) {
  constexpr std::int64_t kSmall = std::int64_t{16} * 16 * 16;
  return a.numel() * (b.dim() > 1 ? b.size(-1) : 1) > kSmall;
}

bool is_unsafe(Kind kind, const c10::FunctionSchema& schema,
               std::span<const c10::IValue> arguments) {
  const auto first = std::ranges::find_if(arguments, is_tensor);
  if (first == arguments.end() || !is_half(first->toTensor())) return false;
  const at::ScalarType type = first->toTensor().scalar_type();
  std::vector<at::Tensor> tensors;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (schema.arguments()[i].name() == "accumulate" && !arguments[i].toBool()) return false;
    if (is_tensor(arguments[i])) tensors.push_back(arguments[i].toTensor());
  }
  if (kind == Kind::mixed || kind == Kind::composite) return true;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.is_floating_point() && tensor.scalar_type() != type) return false;  // an error
  }
  if (kind == Kind::sum || type == at::kHalf || !has_bfloat16_kernels()) return true;
  // addbmm adds up its products' results as well.
  return schema.name() == "aten::addbmm" || !is_large(tensors.rbegin()[1], tensors.back());
}

template <Kind kind>
void in_float32(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const c10::DispatchKeySet below =
      keys & (kind == Kind::composite ? c10::after_autograd_keyset
                                      : c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER,
                                                            DispatchKey::BackendSelect));
  const std::span<c10::IValue> arguments(
      stack->end() - static_cast<std::ptrdiff_t>(schema.arguments().size()), stack->end());
  if (!is_unsafe(kind, schema, arguments)) return op.redispatchBoxed(below, stack);
  summed = true;
  std::vector<std::pair<at::Tensor, at::Tensor>> written;  // a tensor and its float32
  at::ScalarType first = at::kFloat;
  at::ScalarType weight = at::kFloat;
  bool has_first = false;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    if (argument.name() == "input_dtype") arguments[i] = at::kFloat;
    if (!is_tensor(arguments[i])) continue;
    const at::Tensor tensor = arguments[i].toTensor();
    if (!std::exchange(has_first, true)) first = weight = tensor.scalar_type();
    if (argument.name() == "weight") weight = tensor.scalar_type();
    if (!is_half(tensor)) continue;
    const at::Tensor wide = tensor.to(at::kFloat);
    arguments[i] = wide;
    // LibTorch 1.13 does not say of batch_norm that it writes running statistics.
    const bool is_written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    if (is_written || argument.name().starts_with("running_")) written.emplace_back(tensor, wide);
  }
  op.redispatchBoxed(below, stack);
  for (const auto& [tensor, wide] : written) tensor.copy_(wide);
  const std::size_t results = schema.returns().size();
  const bool is_backward = schema.name().find("_backward") != std::string::npos;
  for (std::size_t i = 0; i < results; ++i) {
    c10::IValue& result = stack->rbegin()[static_cast<std::ptrdiff_t>(results - 1 - i)];
    if (!is_tensor(result) || result.toTensor().scalar_type() != at::kFloat) continue;
    const auto in_place = std::ranges::find_if(
        written, [&](const auto& pair) { return pair.second.is_same(result.toTensor()); });
    if (in_place != written.end()) {
      result = in_place->first;
    } else if (i == 0 || is_backward) {
      result = result.toTensor().to(i == 0 ? first : weight);
    }
  }
}

template <Kind kind>
void add(DispatchKey key, std::span<const char* const> names) {
  auto* const library = new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
  for (const std::string full : names) {
    const std::size_t dot = std::min(full.find('.'), full.size());
    const std::string overload = dot == full.size() ? "" : full.substr(dot + 1);
    const c10::OperatorName name("aten::" + full.substr(0, dot), overload);
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    const bool is_composite =
        op && op->hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd);
    // Other versions have other operators, and compose others.
    if (!op || is_composite != (kind == Kind::composite)) continue;
    library->impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&in_float32<kind>>());
  }
}

// Just above the CPU's kernels and below autograd, and for ever, as in keyed_draws.cpp.
const bool registered = [] {
  add<Kind::product>(DispatchKey::BackendSelect, kProducts);
  add<Kind::sum>(DispatchKey::BackendSelect, kSums);
  add<Kind::mixed>(DispatchKey::BackendSelect, kMixed);
  add<Kind::composite>(DispatchKey::AutogradCPU, kComposites);
  return true;
}();

}  // namespace

void keep_sums_in_float32() {
  (void)registered;
}

bool have_summed_in_float32() {
  return summed;
}

bool has_bfloat16_kernels() {
#ifdef __x86_64__
  static const bool has_avx512 = __builtin_cpu_supports("avx512bw") &&
                                 __builtin_cpu_supports("avx512vl") &&
                                 __builtin_cpu_supports("avx512dq");
  return has_avx512 && at::globalContext().userEnabledMkldnn();
#else
  return false;
#endif
}

}  // namespace lockstep::training
