#pragma once

#include <cstdint>
#include <source_location>

#include <ATen/core/Tensor.h>

#include "framework/axes/environment.h"
#include "framework/collectives/psum.h"

namespace lockstep {

// Collectives that write into given tensors, not into fresh memory, for flat buffers of gradients
// and parameters. They have no derivative. Tensors are dense and contiguous, on the CPU. A tensor
// that requires a gradient is refused while gradients are recorded. Errors: as psum.

/// Returns a tensor of zeros on each replica of the axis; all of them allocate together. If the
/// replicas are processes or threads of a job on one host, this memory is shared. The functions
/// below then copy nothing, as long as every replica passes a tensor (or a view of one) from the
/// same call of symmetric_zeros; see Communicator::allocate. Elsewhere, and over Gloo, it is
/// ordinary memory. Throws CommError if the host has not enough.
[[nodiscard]] Tensor symmetric_zeros(at::IntArrayRef sizes, at::ScalarType dtype,
                                     const AxisNames& axis_name,
                                     std::source_location where = std::source_location::current());

/// A tensor of zeros that replicas of the axis hold together.
struct CommonZeros {
  Tensor tensor;
  /// The replicas that hold each copy, ascending; the sets in the order of their first members.
  AxisIndexGroups holders;
};

/// As symmetric_zeros, with a single copy for the replicas of a host or, over Gloo, of a process.
/// Callers must make sure that no replica reads elements that another is writing: see barrier().
[[nodiscard]] CommonZeros common_zeros(
    at::IntArrayRef sizes, at::ScalarType dtype, const AxisNames& axis_name,
    std::source_location where = std::source_location::current());

/// Returns once every replica of the axis, or of the own group, has called it (groups may differ in
/// size). All then see each replica's writes to common memory before its call.
void barrier(const AxisNames& axis_name, const AxisIndexGroups& axis_index_groups = {},
             std::source_location where = std::source_location::current());

/// x = replica `source`'s x. No derivative. With source 1:
///
///   replica  x      → x after
///   0        [1 2]    [3 4]
///   1        [3 4]    [3 4]
///   2        [5 6]    [3 4]
void pbroadcast_(const Tensor& x, const AxisNames& axis_name, std::int64_t source,
                 std::source_location where = std::source_location::current());

/// x = psum(x). Not for booleans, whose sum is no boolean. No derivative.
///
///   replica  x      → x after
///   0        [1 2]    [9 12]
///   1        [3 4]    [9 12]
///   2        [5 6]    [9 12]
void psum_(const Tensor& x, const AxisNames& axis_name, const ReduceOptions& options = {},
           std::source_location where = std::source_location::current());

/// x = pmean(x). Floating types only. No derivative.
///
///   replica  x      → x after
///   0        [1 2]    [3 4]
///   1        [3 4]    [3 4]
///   2        [5 6]    [3 4]
void pmean_(const Tensor& x, const AxisNames& axis_name, const ReduceOptions& options = {},
            std::source_location where = std::source_location::current());

/// output = the own slice of psum(input), both taken as flat: psum_scatter of `input` as (axis
/// size, output.numel()). `output` may be that slice of `input`; other overlap is a ValueError. No
/// derivative.
///
///   replica  input    → output
///   0        [1 2 3]    [12]
///   1        [4 5 6]    [15]
///   2        [7 8 9]    [18]
void psum_scatter_into(const Tensor& output, const Tensor& input, const AxisNames& axis_name,
                       const AxisIndexGroups& axis_index_groups = {},
                       std::source_location where = std::source_location::current());

/// The same with pmean(input). Floating types only. No derivative.
///
///   replica  input    → output
///   0        [1 2 3]    [4]
///   1        [4 5 6]    [5]
///   2        [7 8 9]    [6]
void pmean_scatter_into(const Tensor& output, const Tensor& input, const AxisNames& axis_name,
                        const AxisIndexGroups& axis_index_groups = {},
                        std::source_location where = std::source_location::current());

/// output = the replicas' inputs end to end, taken as flat. `input` may be the replica's own slice
/// of `output`; any other overlap is a ValueError. No derivative.
///
///   replica  input  → output
///   0        [1 2]    [1 2 3 4 5 6]
///   1        [3 4]    [1 2 3 4 5 6]
///   2        [5 6]    [1 2 3 4 5 6]
void all_gather_into(const Tensor& output, const Tensor& input, const AxisNames& axis_name,
                     const AxisIndexGroups& axis_index_groups = {},
                     std::source_location where = std::source_location::current());

namespace collectives {

/// Run pmean_ and pmean_scatter_into with `op`, which is a mean.
void pmean_by(ReduceOp op, const Tensor& x, const AxisNames& axis_name, std::source_location where);
void pmean_scatter_by(ReduceOp op, const Tensor& output, const Tensor& input,
                      const AxisNames& axis_name, std::source_location where);

}  // namespace collectives
}  // namespace lockstep
