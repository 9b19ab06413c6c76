#pragma once

#include "framework/base/bytes.h"

namespace lockstep {

/// Copies `from` to the start of `to`, which is at least as long and apart from it, past the
/// caches where the CPU can: for many bytes that nobody reads soon. They are not read before they
/// are written, which memcpy does up to sizes of many MiB.
void stream_copy(ConstBytes from, Bytes to);

}  // namespace lockstep
