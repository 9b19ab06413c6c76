#pragma once

#include <linux/magic.h>
#include <sys/vfs.h>

namespace lockstep::testing {

/// Whether terminals can be made here. A root without /dev/pts has none, and so nothing that a
/// program could take for one.
[[nodiscard]] inline bool has_terminals() {
  struct statfs mounted {};
  return ::statfs("/dev/pts", &mounted) == 0 && mounted.f_type == DEVPTS_SUPER_MAGIC;
}

}  // namespace lockstep::testing
