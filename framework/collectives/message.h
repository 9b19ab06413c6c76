#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/axes/environment.h"
#include "framework/base/element_type.h"
#include "framework/base/errors.h"
#include "framework/tree/tree.h"

namespace lockstep::collectives {

// Helpers of all collectives: leaves become messages, one a dtype, and messages become leaves.

/// Return our type for a type of LibTorch, and the reverse; nothing if the other has none.
[[nodiscard]] std::optional<ElementType> find_element_type(at::ScalarType type);
[[nodiscard]] std::optional<at::ScalarType> find_scalar_type(ElementType type);

/// Returns our type for a dtype. Without one (complex, quantized) a ValueError names `call`.
[[nodiscard]] ElementType element_type(at::ScalarType type, const AxisCall& call);

/// The name of a leaf in messages of this thread's call: "leaf ['a'][1]" of a tree, or else "leaf
/// 1". It is found only when it is printed.
struct LeafName {
  std::size_t index;
  friend std::ostream& operator<<(std::ostream& out, LeafName leaf);
};

/// Throws ValueError unless each leaf is a defined dense tensor on the CPU, of a supported dtype.
void check_leaves(const Leaves& leaves, const AxisCall& call);

/// Returns the tensor's values in contiguous memory, with lazy negation done; copies if needed.
[[nodiscard]] inline at::Tensor as_message(const at::Tensor& tensor) {
  return tensor.contiguous().resolve_neg();
}

/// Returns the memory of a contiguous tensor.
[[nodiscard]] inline std::span<std::byte> bytes_of(const at::Tensor& contiguous) {
  return {static_cast<std::byte*>(contiguous.data_ptr()), contiguous.nbytes()};
}

/// Returns the leaves' indices, one list a dtype, in the order in which dtypes first occur.
[[nodiscard]] std::vector<std::vector<std::size_t>> by_dtype(const Leaves& leaves);

/// Returns a tensor of `sizes` in `flat`'s memory from `offset` on; to autograd it is no view.
[[nodiscard]] at::Tensor part_of(const at::Tensor& flat, std::int64_t offset,
                                 at::IntArrayRef sizes);

/// Returns a contiguous tensor for a collective's result, not initialized, like at::empty's. A
/// large one is in a kept_block() (kept_blocks.h). Any thread.
[[nodiscard]] at::Tensor result_memory(at::IntArrayRef sizes, const at::TensorOptions& options);

/// Makes a new contiguous message from `message`, which it may overwrite only if `is_copy`.
using MessageFunction = std::function<at::Tensor(const at::Tensor& message, bool is_copy)>;

/// Packs the leaves of each dtype into one message, and unpacks the message that `function` makes
/// of it, whose memory the results share. A message is the leaves end to end, of shape (elements).
/// If `slices` is not 0, leaves have shape (slices, …), and row r of a message of shape (slices,
/// elements) has slice r of each leaf. `function` returns either form, with any number of slices.
[[nodiscard]] Leaves in_messages(const Leaves& leaves, std::int64_t slices,
                                 const MessageFunction& function);

/// Calls run(). Its CommErrors gain the call's description.
template <typename F>
void communicate(const AxisCall& call, const F& run) {
  try {
    run();
  } catch (const CommError& error) {
    error.rethrow_with(call.text() + ": ");
  }
}

/// Returns `dimension` of each leaf, counted from the front also if negative; `further` is added to
/// a leaf's number of dimensions. Throws ValueError, naming `argument` and leaf, if out of range.
[[nodiscard]] std::vector<std::int64_t> wrap_dimensions(const Leaves& leaves,
                                                        std::int64_t dimension,
                                                        std::int64_t further, const char* argument,
                                                        const AxisCall& call);

/// A cut of leaves along one dimension of each into a slice a replica. Untiled: the dimension is as
/// long as there are slices, and goes away. Tiled: each slice keeps one of its equal parts.
struct Cut {
  std::vector<std::int64_t> dimensions;  ///< of each leaf, counted from the front
  bool tiled;
};

/// Throws ValueError, naming `argument`, if a leaf can't be cut so. `dimension` may be negative.
[[nodiscard]] Cut cut_of(const Leaves& leaves, std::int64_t dimension, const char* argument,
                         std::int64_t slices, bool tiled, const AxisCall& call);

/// Returns leaves of shape (…, d, …) as (slices, …): views where the strides allow it.
[[nodiscard]] Leaves slices_along(const Cut& cut, const Leaves& leaves, std::int64_t slices);

/// The inverse of slices_along(): contiguous tensors that share no memory.
[[nodiscard]] Leaves joined_along(const Cut& cut, const Leaves& slices);

}  // namespace lockstep::collectives
