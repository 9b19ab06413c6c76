#include "framework/training/process_generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/equal.h>

namespace lockstep {
namespace {

// Held under a guard, and where the generator must not be in one.
std::recursive_mutex& guards() {
  static std::recursive_mutex mutex;
  return mutex;
}

at::Tensor state_now() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

// Before its first draw, which makes the first words.
bool is_just_seeded() {
  at::CPUGeneratorImpl& generator =
      *at::detail::getDefaultCPUGenerator().get<at::CPUGeneratorImpl>();
  const std::lock_guard lock(generator.mutex_);
  const at::mt19937_data_pod engine = generator.engine().data();
  return engine.left_ == 1 && engine.next_ == 0;
}

// All of the process, under guards().
struct Initialization {
  std::uint64_t number = 0;
  at::Tensor state;
};

Initialization& last_initialization() {
  static Initialization last;
  return last;
}

}  // namespace

// A thread that has the lock waits for no other (see `refused_`), so one that waits for it need not
// release its run lock.
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

void DrawWatch::note_initialization() {
  const std::lock_guard lock(guards());
  ++last_initialization().number;
  last_initialization().state = state_now();
}

bool DrawWatch::look() {
  const std::lock_guard lock(guards());
  if (initializations_ != last_initialization().number) seen_ = last_initialization().state;
  initializations_ = last_initialization().number;
  const at::Tensor before = std::exchange(seen_, state_now());
  return !is_just_seeded() && !at::equal(seen_, before);
}

}  // namespace lockstep
