#pragma once

#include <cstddef>

#include "framework/comm/communicator.h"
#include "framework/comm/shared/extents.h"
#include "framework/comm/symmetric_buffer.h"

namespace lockstep {

/// Communicator::allocate for a group whose members share `extents`.
[[nodiscard]] SymmetricBuffer allocate_shared(Communicator& group, SharedExtents& extents,
                                              std::size_t bytes, Copies copies);

}  // namespace lockstep
