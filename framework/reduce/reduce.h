#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "framework/reduce/element_type.h"

namespace lockstep::reduce {

/// Combines the buffers of all replicas element by element:
///
///   output[i] = inputs[0][i] op inputs[1][i] op … op inputs[N-1][i]
///
/// in the canonical order (canonical_order.h), whichever machine, backend or placement does it.
/// float16 and bfloat16 are accumulated in float32 and rounded once, to nearest even. One input is
/// copied.
///
/// The bits are the same whatever vectors the CPU has, also of NaNs: a sum or mean that is NaN is
/// the positive quiet one, a max or min the first of them (as a half float it becomes quiet).
///
/// `inputs` has N >= 1 buffers of as many bytes as `output`, a multiple of the element's size,
/// aligned to it. `output` may be one of the inputs, and must not overlap any of them otherwise.
/// The caller has checked all this, and that why_not() has no reason against it.
void reduce(std::span<const std::byte* const> inputs, std::span<std::byte> output, ElementType type,
            ReduceOp op);

/// The same result to each of `outputs`, which are `bytes` long, as the inputs are. Each may be one
/// of the inputs, and must not overlap any of them, or another output, otherwise; all may be the
/// inputs themselves.
void reduce(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
            std::size_t bytes, ElementType type, ReduceOp op);

/// Why there is no such reduction: booleans have no sum, and only floating types have a mean. "" if
/// there is one.
[[nodiscard]] std::string why_not(ElementType type, ReduceOp op);

}  // namespace lockstep::reduce
