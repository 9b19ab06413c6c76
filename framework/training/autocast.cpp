#include "framework/training/autocast.h"

#include <ATen/autocast_mode.h>
#include <torch/version.h>

#include "framework/base/text.h"

namespace lockstep {
namespace {

// The names of LibTorch's switches changed with 2.4.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
bool is_enabled() {
  return at::autocast::is_autocast_enabled(at::kCPU);
}
void enable(bool on) {
  at::autocast::set_autocast_enabled(at::kCPU, on);
}
at::ScalarType type_now() {
  return at::autocast::get_autocast_dtype(at::kCPU);
}
void set_type(at::ScalarType type) {
  at::autocast::set_autocast_dtype(at::kCPU, type);
}
#else
bool is_enabled() {
  return at::autocast::is_cpu_enabled();
}
void enable(bool on) {
  at::autocast::set_cpu_enabled(on);
}
at::ScalarType type_now() {
  return at::autocast::get_autocast_cpu_dtype();
}
void set_type(at::ScalarType type) {
  at::autocast::set_autocast_cpu_dtype(type);
}
#endif

}  // namespace

AutocastScope::AutocastScope(at::ScalarType type)
    : was_enabled_(is_enabled()),
      was_cached_(at::autocast::is_autocast_cache_enabled()),
      outer_type_(type_now()) {
  require(type == at::kBFloat16 || type == at::kFloat,
          "AutocastScope: the type must be bfloat16 or float32, not ", c10::toString(type));
  enable(type == at::kBFloat16);
  if (type == at::kBFloat16) set_type(type);
  at::autocast::set_autocast_cache_enabled(false);
}

at::ScalarType AutocastScope::type() {
  return is_enabled() ? type_now() : at::kFloat;
}

AutocastScope::~AutocastScope() {
  enable(was_enabled_);
  set_type(outer_type_);
  at::autocast::set_autocast_cache_enabled(was_cached_);
}

}  // namespace lockstep
