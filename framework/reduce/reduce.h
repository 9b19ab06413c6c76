#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "framework/base/element_type.h"

namespace lockstep::reduce {

/// Combines the buffers of all replicas element by element:
///
///   output[i] = inputs[0][i] op inputs[1][i] op … op inputs[N-1][i]
///
/// in the canonical order (canonical_order.h), whichever machine, backend or placement does it.
/// float16 and bfloat16 are accumulated in float32 and rounded once, to nearest even. One input is
/// copied.
///
/// The bits do not depend on the CPU, even those of NaNs. A NaN sum or mean is the positive quiet
/// NaN. A NaN max or min is the first NaN of the inputs (made quiet in half floats). +0 is greater
/// than -0.
///
/// `inputs` has N >= 1 buffers as long as `output`: a multiple of the element's size, and aligned
/// to it. `output` may be one of the inputs; otherwise it must not overlap them. The caller has
/// checked all this, and that why_not() finds no fault.
void reduce(std::span<const std::byte* const> inputs, std::span<std::byte> output, ElementType type,
            ReduceOp op);

/// Writes the same result to each of `outputs`. All buffers have `bytes` bytes. An output may be
/// one of the inputs; otherwise it must not overlap any input or other output. All outputs may be
/// the inputs themselves.
void reduce(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
            std::size_t bytes, ElementType type, ReduceOp op);

/// Says why `op` is not defined for `type`: booleans have no sum, and only floating types have a
/// mean. "" if it is defined.
[[nodiscard]] std::string why_not(ElementType type, ReduceOp op);

}  // namespace lockstep::reduce
