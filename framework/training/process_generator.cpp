#include "framework/training/process_generator.h"

namespace lockstep {
namespace {

// Held under a guard, and where the generator must not be in one.
std::recursive_mutex& guards() {
  static std::recursive_mutex mutex;
  return mutex;
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

// Under guards().
DrawWatch::State DrawWatch::now() {
  at::CPUGeneratorImpl& generator =
      *at::detail::getDefaultCPUGenerator().get<at::CPUGeneratorImpl>();
  const std::lock_guard lock(generator.mutex_);
  return {generator.engine().data(), generator.next_float_normal_sample().has_value(),
          generator.next_double_normal_sample().has_value()};
}

DrawWatch::Initialization& DrawWatch::last_initialization() {
  static Initialization last;
  return last;
}

void DrawWatch::note_initialization() {
  const std::lock_guard lock(guards());
  ++last_initialization().number;
  last_initialization().state = now();
}

bool DrawWatch::look() {
  const std::lock_guard lock(guards());
  if (initializations_ != last_initialization().number) seen_ = last_initialization().state;
  initializations_ = last_initialization().number;
  const State before = std::exchange(seen_, now());
  const at::mt19937_data_pod& engine = seen_.engine;
  // As it was just seeded: its first draw makes the first words.
  if (engine.left_ == 1 && engine.next_ == 0) return false;
  return engine.seed_ != before.engine.seed_ || engine.left_ != before.engine.left_ ||
         engine.next_ != before.engine.next_ || engine.state_ != before.engine.state_ ||
         seen_.has_float_sample != before.has_float_sample ||
         seen_.has_double_sample != before.has_double_sample;
}

}  // namespace lockstep
