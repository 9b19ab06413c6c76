#pragma once

#include <memory>

#include "framework/comm/communicator.h"
#include "framework/comm/store.h"

namespace lockstep::comm {

/// Connects replica `rank` of `size` to the others over Gloo's TCP transport; all of them call this
/// with the same store. Throws Timeout if one does not come, CommError if the system refuses a
/// connection. ScheduleChoice chooses the messages and rounds of verbs, by the speed of kLoopback
/// unless another is set.
[[nodiscard]] std::shared_ptr<Communicator> connect_gloo(std::shared_ptr<Store> store, int rank,
                                                         int size,
                                                         const ConnectOptions& options = {});

}  // namespace lockstep::comm
