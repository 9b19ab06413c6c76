#pragma once

#include <cstddef>
#include <memory>

#include "framework/comm/communicator.h"
#include "framework/comm/host_extents.h"
#include "framework/comm/symmetric_buffer.h"

namespace lockstep {

/// Communicator::allocate for a group whose members share `extents`.
[[nodiscard]] std::shared_ptr<SymmetricBuffer> allocate_shared(Communicator& group,
                                                               HostExtents& extents,
                                                               std::size_t bytes, Copies copies);

}  // namespace lockstep
