#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "framework/collectives/message.h"

namespace lockstep {

// How leaves lie in a message: several leaves of one dtype travel as one.

/// Packs the leaves at `indices`, each of shape (rows, …), into one contiguous tensor (rows,
/// elements a row). Row r holds row r of each leaf, one after another. A single leaf is copied only
/// if it is not contiguous. All have one dtype.
[[nodiscard]] at::Tensor pack(const Leaves& leaves, const std::vector<std::size_t>& indices,
                              std::int64_t rows);

/// Cuts a flat message into results[i], i in `indices`, which get the shapes of like[i] and share
/// the message's memory.
void unpack(const at::Tensor& message, const std::vector<std::size_t>& indices, const Leaves& like,
            Leaves& results);

/// `dimension` of a leaf that is to be cut into `pieces` slices, counted from the front. Throws
/// ValueError, with what the caller's argument is called, where it is not as long as slices_along
/// needs it.
[[nodiscard]] std::int64_t slices_dimension(const at::Tensor& leaf, std::int64_t dimension,
                                            const char* argument, std::int64_t pieces, bool tiled,
                                            const AxisCall& call);

/// A leaf of shape (…, d, …) as (pieces, …). Untiled: `dimension` is `pieces` long, and the slices
/// no longer have it. Tiled: `dimension` is cut into `pieces` equal parts, and each slice keeps its
/// part. A view where the strides allow it.
[[nodiscard]] at::Tensor slices_along(const at::Tensor& leaf, std::int64_t dimension,
                                      std::int64_t pieces, bool tiled);

/// The inverse: slices (pieces, …) stacked along a new dimension (untiled) or behind each other
/// along the existing one (tiled), contiguous.
[[nodiscard]] at::Tensor joined_along(const at::Tensor& slices, std::int64_t dimension, bool tiled);

}  // namespace lockstep
