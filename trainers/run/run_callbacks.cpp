#include "trainers/run/run_callbacks.h"

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <c10/core/GradMode.h>

#include "framework/base/text.h"
#include "framework/timeline/recorder.h"
#include "framework/tree/error_place.h"

namespace lockstep {

void RunCallbacks::before_first_step(const RunState& state) {
  if (!callbacks_.before_first_step) return;
  call("before_first_step", state, [&] {
    callbacks_.before_first_step(trainer_);
    // A run that goes on calls it, too: what it sets of parts of the model holds for all steps.
    if (modes_.change() != modes_.kLeft) modes_ = training::ModuleModes(trainer_.model());
  });
}

void RunCallbacks::after_step(const RunState& state, std::int64_t replica) {
  if (!callbacks_.after_step) return;
  bool has_loss = state.is_logged;
  if (!has_loss && callbacks_.needs_loss) {
    call("needs_loss", state, [&] { has_loss = callbacks_.needs_loss(state.steps); });
  }
  std::optional<double> loss;
  if (has_loss) loss = state.loss.item<double>();
  call("after_step", state, [&] {
    callbacks_.after_step(trainer_, {.step = state.steps,
                                     .samples = state.samples,
                                     .lr = state.lr,
                                     .gradient_norm = state.report.gradient_norm,
                                     .skipped = state.report.skipped,
                                     .loss = loss,
                                     .replica = replica});
  });
}

void RunCallbacks::after_evaluation(const RunState& state, const Evaluation& evaluation) {
  if (!callbacks_.after_evaluation) return;
  call("after_evaluation", state, [&] { callbacks_.after_evaluation(trainer_, evaluation); });
}

void RunCallbacks::call(const char* name, const RunState& state,
                        const std::function<void()>& callback) {
  reporter_.make_room();
  timeline::Recorder::Details details{.kind = timeline::SpanKind::callback,
                                      .id = static_cast<std::uint64_t>(state.steps)};
  if (timeline::track_here != nullptr) {
    details.name =
        timeline::track_here->name(std::hash<std::string_view>()(name), [=] { return name; });
  }
  const timeline::RecordedSpan span(timeline::track_here, details);
  const bool records_gradients = c10::GradMode::is_enabled();
  placed([&] { return str("in the callback ", name, ", step ", state.steps); }, callback);
  std::string left = modes_.change();
  if (c10::GradMode::is_enabled() != records_gradients) left = "GradMode changed";
  if (left.empty()) return;
  modes_.restore();
  c10::GradMode::set_enabled(records_gradients);
  if (std::exchange(has_warned_, true)) return;
  reporter_.warn(str("the callback ", name, " has left ", left, ": this is set back (said once)"));
}

}  // namespace lockstep
