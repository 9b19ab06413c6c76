#include "framework/training/process_generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/equal.h>

#include "framework/training/keyed_draws.h"

namespace lockstep {
namespace {

// The seed that LibTorch has drawn for this process; read before main().
std::uint64_t given_seed() {
  static const std::uint64_t seed = at::detail::getDefaultCPUGenerator().current_seed();
  return seed;
}
[[maybe_unused]] const std::uint64_t read_before_main = given_seed();

struct Shared {
  std::recursive_mutex guards;  // held under a guard, and where the generator must not be in one
  // The last DrawWatch::note_initialization(): which one it was, and the generator's state then.
  std::uint64_t initializations = 0;
  at::Tensor initialized;
};

Shared& shared() {
  static Shared all;
  return all;
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

}  // namespace

// A thread that has the lock waits for no other (see `refused_`), so one that waits for it need not
// release its run lock.
SeededInitialization::SeededInitialization(std::uint64_t seed)
    : lock_(shared().guards),
      refused_("not while SeededInitialization lives, for whose end other threads may wait") {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  outer_state_ = generator.get_state();
  if (!training::Seeding::outer_seed) training::Seeding::outer_seed = generator.current_seed();
  ++training::Seeding::here;
  generator.set_current_seed(seed);
}

SeededInitialization::~SeededInitialization() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_state(outer_state_);
  if (--training::Seeding::here == 0) training::Seeding::outer_seed.reset();
}

EarlierDraws DrawWatch::earlier_draws() {
  const std::lock_guard lock(shared().guards);
  const bool has_given = at::detail::getDefaultCPUGenerator().current_seed() == given_seed();
  const at::Tensor& known = shared().initialized;
  if (is_just_seeded() || (known.defined() && at::equal(known, state_now()))) {
    return EarlierDraws::none;
  }
  return has_given ? EarlierDraws::unseeded : EarlierDraws::seeded;
}

void DrawWatch::note_initialization() {
  const std::lock_guard lock(shared().guards);
  ++shared().initializations;
  shared().initialized = state_now();
}

bool DrawWatch::look() {
  const std::lock_guard lock(shared().guards);
  if (initializations_ != shared().initializations) seen_ = shared().initialized;
  initializations_ = shared().initializations;
  const at::Tensor before = std::exchange(seen_, state_now());
  return !is_just_seeded() && !at::equal(seen_, before);
}

}  // namespace lockstep
