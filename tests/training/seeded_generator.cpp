#include <ATen/CPUGeneratorImpl.h>

#include "framework/training/process_generator.h"

namespace lockstep::testing {
namespace {

// What these tests draw from LibTorch's generator has a seed: a trainer of one test would otherwise
// tell of the draws of those before it. Not in programs whose tests are about draws without one.
[[maybe_unused]] const bool is_seeded = [] {
  (void)DrawWatch::earlier_draws();  // which knows the seed of before this one
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(1);
  return true;
}();

}  // namespace
}  // namespace lockstep::testing
