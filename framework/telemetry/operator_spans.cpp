#include "framework/telemetry/operator_spans.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "framework/base/random.h"

namespace lockstep::telemetry {
namespace {

// That of this thread's OperatorSpans. Threads that get its callbacks with LibTorch's state have
// none.
thread_local timeline::Recorder::Track* operators_here = nullptr;

struct OperatorSpan final : at::ObserverContext {
  timeline::Recorder::Details details{};
  std::uint64_t began = 0;
  std::uint64_t number = 0;
};

std::unique_ptr<at::ObserverContext> begin_span(const at::RecordFunction& function) {
  if (operators_here == nullptr) return nullptr;
  const std::string_view name = function.name();
  auto span = std::make_unique<OperatorSpan>();
  span->details = {
      .kind = timeline::SpanKind::operation,
      .name = operators_here->name(Key(0).fold(name).bits(), [&] { return std::string(name); })};
  span->began = timeline::recorder_now();
  span->number = operators_here->begin(span->details, span->began);
  return span;
}

void end_span(const at::RecordFunction& /*function*/, at::ObserverContext* context) {
  const auto* const span = static_cast<const OperatorSpan*>(context);
  if (span == nullptr || operators_here == nullptr) return;
  operators_here->end(span->number, span->details, span->began);
}

}  // namespace

OperatorSpans::OperatorSpans() {
  if (timeline::track_here == nullptr) return;
  track_ = timeline::track_here->beside("operators");
  if (!track_) return;
  operators_here = track_.get();
  handle_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(begin_span, end_span)
          .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
}

OperatorSpans::~OperatorSpans() {
  if (!track_) return;
  operators_here = nullptr;
  at::removeCallback(handle_);
}

}  // namespace lockstep::telemetry
