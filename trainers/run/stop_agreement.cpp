#include "trainers/run/stop_agreement.h"

#include <algorithm>

#include <ATen/ops/zeros.h>

#include "framework/collectives/psum.h"
#include "framework/launch/launch.h"

namespace lockstep {

bool StopAgreement::is_asked() {
  if (is_asked_ || ++calls_ < next_) return is_asked_;
  constexpr double kPeriodS = 0.2;
  const std::chrono::duration<double> spent = Clock::now() - begin_;
  at::Tensor told = at::zeros({2}, at::kDouble);
  told[0].fill_(stop_requested() ? 1 : 0);
  told[1].fill_(spent.count());
  told = pmax(told, axis_);
  is_asked_ = told[0].item<double>() > 0;
  // As many calls on as the slowest replica makes in that time: the same on all.
  const double calls_a_second =
      static_cast<double>(calls_) / std::max(told[1].item<double>(), 1e-6);
  next_ = calls_ +
          std::clamp<std::int64_t>(static_cast<std::int64_t>(kPeriodS * calls_a_second), 1, 1000);
  return is_asked_;
}

}  // namespace lockstep
