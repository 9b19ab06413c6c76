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
#include <ATen/core/stack.h>
#include <fnmatch.h>
#include <torch/library.h>

#include "framework/base/text.h"

namespace lockstep::training {
namespace {

using c10::DispatchKey;

// Operators that sum in half types in some version: patterns, with a slash before an overload.
constexpr const char* kProducts[] = {"mm",     "addmm", "bmm",   "baddbmm",  // factors are the last
                                     "addbmm", "mv",    "addmv", "dot",     "vdot"};
constexpr const char* kSums[] = {
    "linalg_vector_norm", "norm/Scalar", "norm/ScalarOpt_dim", "_cdist_*ward", "_trilinear",
    // Backwards of what takes from places of a tensor:
    "embedding_dense_backward", "_embedding_bag_dense_backward", "_index_put_impl_", "put_",
    "index_add*", "scatter_add*", "scatter_reduce*/two", "index_reduce*", "*segment_reduce*",
    "unfold_backward", "col2im", "*pool[23]d*_backward", "*_pad[123]d_backward", "*upsample_*",
    "grid_sampler_[23]d_backward", "_adaptive_avg_pool3d", "_*softmax_backward_data"};
constexpr const char* kMixed[] = {"native_*_norm*", "nll_loss*"};  // with float32 beside halves
constexpr const char* kComposites[] = {
    "scaled_dot_product_attention", "cross_entropy_loss", "l1_loss", "poisson_nll_loss", "kl_div",
    // Made of other operators, as those above are: they round in between.
    "cosine_similarity", "cosine_embedding_loss", "rms_norm"};

enum class Kind { product, sum, mixed, composite };

std::atomic<bool> summed{false};

bool is_tensor(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined();
}

bool is_half_on_cpu(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.layout() == at::kStrided &&
         (tensor.scalar_type() == at::kBFloat16 || tensor.scalar_type() == at::kHalf);
}

// Returns true if a call sums in the type of its first tensor.
bool is_unsafe(Kind kind, const c10::FunctionSchema& schema,
               std::span<const c10::IValue> arguments) {
  constexpr std::int64_t kSmallProduct = 16 * 16 * 16;  // LibTorch 1.13's limit for oneDNN
  const auto first = std::ranges::find_if(arguments, is_tensor);
  if (first == arguments.end() || !is_half_on_cpu(first->toTensor())) return false;
  const at::ScalarType type = first->toTensor().scalar_type();
  at::Tensor a, b;  // the last two
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (schema.arguments()[i].name() == "accumulate" && !arguments[i].toBool()) return false;
    if (!is_tensor(arguments[i])) continue;
    a = std::exchange(b, arguments[i].toTensor());
    const bool is_other = b.is_floating_point() && b.scalar_type() != type;
    if (is_other && (kind == Kind::product || kind == Kind::sum)) return false;  // an error
  }
  if (kind != Kind::product || type == at::kHalf || !has_bfloat16_kernels()) return true;
  if (schema.name() == "aten::addbmm") return true;  // it adds products that it has rounded
  return a.numel() * (b.dim() > 1 ? b.size(-1) : 1) <= kSmallProduct;
}

template <Kind kind>
void in_float32(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const std::span arguments = std::span(*stack).last(schema.arguments().size());
  const c10::DispatchKeySet below =
      keys & (kind == Kind::composite ? c10::after_autograd_keyset
                                      : c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER,
                                                            DispatchKey::BackendSelect));
  if (!is_unsafe(kind, schema, arguments)) return op.redispatchBoxed(below, stack);
  summed = true;
  std::vector<std::pair<at::Tensor, at::Tensor>> written;  // a tensor and its float32
  bool is_in_place = false;
  at::ScalarType first = at::ScalarType::Undefined, weight = first;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    if (argument.name() == "input_dtype") arguments[i] = at::kFloat;
    if (!is_tensor(arguments[i])) continue;
    const at::Tensor tensor = arguments[i].toTensor();
    if (first == at::ScalarType::Undefined) first = weight = tensor.scalar_type();
    if (argument.name() == "weight") weight = tensor.scalar_type();
    if (!is_half_on_cpu(tensor)) continue;
    const at::Tensor wide = tensor.to(at::kFloat);
    arguments[i] = wide;
    // Schemas say what is written, but not of batch_norm's running statistics.
    const bool is_result = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    if (is_result || argument.name().starts_with("running_")) written.emplace_back(tensor, wide);
    is_in_place |= is_result;
  }
  op.redispatchBoxed(below, stack);
  const bool is_backward = schema.name().find("_backward") != std::string::npos;
  const std::span results = std::span(*stack).last(schema.returns().size());
  for (c10::IValue& result : results) {
    if (!is_tensor(result) || result.toTensor().scalar_type() != at::kFloat) continue;
    const bool is_first = &result == results.data();
    if (is_first || is_backward) result = result.toTensor().to(is_first ? first : weight);
  }
  for (const auto& [tensor, wide] : written) tensor.copy_(wide);
  if (is_in_place) results[0] = written[0].first;
}

template <Kind kind>
void add(DispatchKey key, std::span<const char* const> patterns) {
  const ClassicLocale classic;
  auto* const library = new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
  for (const c10::OperatorName& each : c10::Dispatcher::singleton().getAllOpNames()) {
    if (!each.name.starts_with("aten::")) continue;
    std::string name = each.name.substr(6);
    if (!each.overload_name.empty()) name += "/" + each.overload_name;
    const auto is_match = [&](const char* pattern) {
      return ::fnmatch(pattern, name.c_str(), FNM_PATHNAME) == 0;
    };
    const auto op = c10::Dispatcher::singleton().findSchema(each);
    if (!op || std::ranges::none_of(patterns, is_match)) continue;
    const bool is_composite = op->hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd);
    if (is_composite != (kind == Kind::composite)) continue;
    std::ranges::replace(name, '/', '.');
    library->impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&in_float32<kind>>());
  }
}

// Just above the CPU's kernels and below autograd, and for ever, as in keyed_draws.cpp.
const bool takes_place = [] {
  add<Kind::product>(DispatchKey::BackendSelect, kProducts);
  add<Kind::sum>(DispatchKey::BackendSelect, kSums);
  add<Kind::mixed>(DispatchKey::BackendSelect, kMixed);
  add<Kind::composite>(DispatchKey::AutogradCPU, kComposites);
  return true;
}();

}  // namespace

void keep_sums_in_float32() {
  (void)takes_place;
}

bool have_summed_in_float32() {
  return summed;
}

bool has_bfloat16_kernels() {
#ifdef __x86_64__
  return __builtin_cpu_supports("avx512bw") && at::globalContext().userEnabledMkldnn();
#else
  return false;
#endif
}

}  // namespace lockstep::training
