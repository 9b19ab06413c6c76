#pragma once

#include <memory>

#include <ATen/record_function.h>

#include "framework/base/non_copyable.h"
#include "framework/timeline/recorder.h"

namespace lockstep::telemetry {

/// While this lives, LibTorch's operators that this thread calls, and the nodes of its backward,
/// are spans by their names on a track of the thread's replica, "operators"; one within another as
/// they call each other. Each costs about a microsecond. Without a track (timeline::track_here)
/// there are none. One at a time a thread.
class OperatorSpans : private NonCopyable {
 public:
  OperatorSpans();
  ~OperatorSpans();

 private:
  std::unique_ptr<timeline::Recorder::Track> track_;
  at::CallbackHandle handle_{};
};

}  // namespace lockstep::telemetry
