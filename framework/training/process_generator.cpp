#include "framework/training/process_generator.h"

namespace lockstep {
namespace {

// Held under a guard.
std::recursive_mutex& guards() {
  static std::recursive_mutex mutex;
  return mutex;
}

}  // namespace

// A thread that has the lock waits for no other (see `refused_`), so one that waits for it need not
// hand over its turn.
SeededInitialization::SeededInitialization(std::uint64_t seed)
    : lock_(guards()),
      refused_("not while SeededInitialization lives, for whose end other threads may wait") {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  outer_state_ = generator.get_state();
  generator.set_current_seed(seed);
}

SeededInitialization::~SeededInitialization() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_state(outer_state_);
}

}  // namespace lockstep
