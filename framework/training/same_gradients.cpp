#include "framework/training/same_gradients.h"

#include <algorithm>
#include <string>

#include "framework/base/logging.h"
#include "framework/base/random.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/training/agreement.h"

namespace lockstep::training {
namespace {

// Chance does not make so many steps' gradients the same bits on all replicas.
constexpr int kEqualSteps = 3;
// Steps whose gradients are all zeros, as of replicas without samples, say nothing. After so many
// steps it no longer looks.
constexpr int kWatchedSteps = 16;

}  // namespace

SameGradients::SameGradients(bool may_repeat, Randomness randomness, const AxisNames& axis_name)
    : randomness_(randomness),
      axis_(axis_name),
      is_watching_(!may_repeat && axis_size(axis_name) > 1) {}

// A sum, since replicas may add them in another order.
void SameGradients::add(std::size_t index, const at::Tensor& gradient) {
  if (!is_watching_ || !gradient.any().item<bool>()) return;
  own_ += Key(hash_of(gradient)).fold(index).bits();
}

void SameGradients::compare(const std::vector<std::uint64_t>& taken) {
  if (!is_watching_) return;
  const bool is_same = std::ranges::adjacent_find(taken, std::not_equal_to()) == taken.end();
  if (is_same && taken[0] != 0) ++same_;
  is_watching_ = is_same && same_ < kEqualSteps && ++steps_ < kWatchedSteps;
  if (same_ < kEqualSteps || !is_same) return;
  const std::string text = lockstep::str(
      "all ", std::ssize(taken), " replicas have computed the same gradients in ", kEqualSteps,
      " steps, so they seem to train on the same samples and learn what one alone would: give each "
      "its own, by lockstep::Sampler or by axis_index(",
      axis_.text(), "); if they are to repeat each other, set the option may_repeat_samples");
  require(randomness_ == Randomness::warn, text, "; the option randomness is strict");
  if (axis_index(axis_) == 0) log_warning(text + " (said once)");
}

}  // namespace lockstep::training
