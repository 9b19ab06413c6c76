#include "framework/training/phase.h"

#include <array>
#include <cstddef>

namespace lockstep {
namespace {

using timeline::SpanKind;

// By Phase.
constexpr std::array kSpanKinds{SpanKind::step,      SpanKind::data,   SpanKind::forward,
                                SpanKind::backward,  SpanKind::update, SpanKind::evaluation,
                                SpanKind::checkpoint};

std::uint64_t number_of(Phase phase, std::int64_t step) noexcept {
  if (step > 0) return static_cast<std::uint64_t>(step);
  const timeline::Recorder::Track* const track = timeline::track_here;
  if (track == nullptr) return 0;
  return phase == Phase::step ? track->next_step() : track->step();
}

}  // namespace

RecordedPhase::RecordedPhase(Phase phase, std::int64_t step) noexcept
    : span_(timeline::track_here,
            {.kind = kSpanKinds[static_cast<std::size_t>(phase)], .id = number_of(phase, step)}) {}

}  // namespace lockstep
