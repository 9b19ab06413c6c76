#pragma once

#include "framework/base/bytes.h"

namespace lockstep {

/// Copies `from` to the start of `to`, past the caches where the CPU can: for many bytes that are
/// not read again soon. `to` is at least as long and does not overlap. memcpy would first read the
/// memory that it overwrites, up to sizes of many MiB.
void stream_copy(ConstBytes from, Bytes to);

}  // namespace lockstep
