#pragma once

#include <array>
#include <source_location>

#include "framework/axes/environment.h"
#include "framework/collectives/operand.h"
#include "framework/tree/tree.h"

namespace lockstep {

struct RaggedAllToAllOptions {
  AxisIndexGroups axis_index_groups = {};  ///< of one size: each works alone
};

namespace collectives {
/// input_offsets, send_sizes, output_offsets and recv_sizes.
using RaggedTables = std::array<Tensor, 4>;

Leaves ragged_all_to_all_leaves(const AxisCall& call, const Leaves& operands, const Leaves& outputs,
                                const RaggedTables& tables, const RaggedAllToAllOptions& options);
}  // namespace collectives

/// all_to_all of pieces that differ in length: this replica sends replica j the send_sizes[j] rows
/// (slices along dimension 0) of `operand` from input_offsets[j] on. The result is `output` with
/// the received rows written into it: recv_sizes[k] rows from replica k. The sender says where its
/// rows go: output_offsets[j] is the row of *replica j's* output at which this replica's rows for j
/// begin. The arguments are not changed. As jax.lax.ragged_all_to_all.
///
/// With two replicas, x being `operand` and zeros (4) `output`:
///
///   replica  input_offsets  send_sizes  output_offsets  recv_sizes
///   0        [0 1]          [1 2]       [0 0]           [1 1]
///   1        [0 1]          [1 1]       [1 2]           [2 1]
///
///   replica  x        → y            dy         → dx
///   0        [1 2 2]    [1 3 0 0]    [1 2 3 4]    [1 5 6]
///   1        [3 4 0]    [2 2 4 0]    [5 6 7 8]    [2 7 0]
///
/// The tables are one-dimensional tensors of integers, of one length: N with N replicas, or m N for
/// m pieces a pair. Entries j m … j m + m-1 are for (or from) replica j. Their values may differ
/// between replicas. Their length may not, nor may the shapes and dtypes of `operand` and `output`
/// (CollectiveMismatch): give these room for the largest exchange. `operand` and `output` are trees
/// built alike; their leaves differ in dimension 0 at most. The tables apply to every leaf. Leaves
/// of one dtype travel in one message, after a message with the tables.
///
/// Derivative: linear in both. The gradients of received rows go back to where the rows came from
/// (and add up where a row was sent more than once); the output's gradient is zero where rows were
/// written. Throws as psum; ValueErrors for shapes and dtypes that do not fit, and, on every
/// replica of the group alike, if a piece is not inside its operand or output, a sender's size is
/// not what its receiver expects, or pieces overlap in an output.
template <Tree T>
[[nodiscard]] T ragged_all_to_all(const T& operand, const T& output, const Tensor& input_offsets,
                                  const Tensor& send_sizes, const Tensor& output_offsets,
                                  const Tensor& recv_sizes, const AxisNames& axis_name,
                                  const RaggedAllToAllOptions& options = {},
                                  std::source_location where = std::source_location::current()) {
  tree_detail::check_same_structure(operand, output,
                                    "ragged_all_to_all's operand and output, the root");
  return collectives::on_leaves(output, [&](const Leaves& outputs) {
    return collectives::ragged_all_to_all_leaves(
        {"ragged_all_to_all", axis_name, where}, tree_leaves(operand), outputs,
        {input_offsets, send_sizes, output_offsets, recv_sizes}, options);
  });
}

}  // namespace lockstep
