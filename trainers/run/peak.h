#pragma once

#include <filesystem>
#include <optional>

#include <c10/core/ScalarType.h>

namespace lockstep {

// The most FLOPs a second that this machine does: those of a large product of matrices of a type,
// by all cores that a process may use. `bench peak` measures them once, and keeps them for its user
// in lockstep/peaks.json in $XDG_CACHE_HOME, or in ~/.cache; for one CPU, number of cores, LibTorch
// and BLAS, since homes are shared by machines.

/// None where it was not measured here. Warns of a file that can't be read.
[[nodiscard]] std::optional<double> known_peak(c10::ScalarType type);

/// Keeps it beside the others. Returns the file. Error if that can't be written, or if no variable
/// says where the user's cache is.
std::filesystem::path keep_peak(c10::ScalarType type, double flops_per_s);

}  // namespace lockstep
