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

// What collectives share: leaves become messages, one a dtype, and messages become leaves.

/// The type that LibTorch calls so, and LibTorch's name for one; nothing if the other has none.
[[nodiscard]] std::optional<ElementType> find_element_type(at::ScalarType type);
[[nodiscard]] std::optional<at::ScalarType> find_scalar_type(ElementType type);

/// The wire's name for a dtype. ValueError, naming `call`, for one without (complex, quantized).
[[nodiscard]] ElementType element_type(at::ScalarType type, const AxisCall& call);

/// What messages call a leaf of the call that this thread makes: "leaf ['a'][1]" of a tree, or else
/// "leaf 1". Found only where it is printed.
struct LeafName {
  std::size_t index;
  friend std::ostream& operator<<(std::ostream& out, LeafName leaf);
};

/// ValueError unless every leaf is a defined dense tensor on the CPU, of a supported dtype.
void check_leaves(const Leaves& leaves, const AxisCall& call);

/// The tensor's values in contiguous memory: a copy, unless they are so. Lazy negation is done.
[[nodiscard]] inline at::Tensor as_message(const at::Tensor& tensor) {
  return tensor.contiguous().resolve_neg();
}

/// The memory of a contiguous tensor.
[[nodiscard]] inline std::span<std::byte> bytes_of(const at::Tensor& contiguous) {
  return {static_cast<std::byte*>(contiguous.data_ptr()), contiguous.nbytes()};
}

/// The leaves' indices, one list a dtype, in the order in which dtypes first occur.
[[nodiscard]] std::vector<std::vector<std::size_t>> by_dtype(const Leaves& leaves);

/// A tensor of `sizes` in contiguous `flat`'s memory from `offset` on; to autograd no view of it.
[[nodiscard]] at::Tensor part_of(const at::Tensor& flat, std::int64_t offset,
                                 at::IntArrayRef sizes);

/// A contiguous tensor for a collective's result, not initialized, like at::empty's. A large one is
/// in a kept_block() (kept_blocks.h). Any thread.
[[nodiscard]] at::Tensor result_memory(at::IntArrayRef sizes, const at::TensorOptions& options);

/// Makes a new contiguous message from `message`, which it may overwrite only if that `is_copy`.
using MessageFunction = std::function<at::Tensor(const at::Tensor& message, bool is_copy)>;

/// Packs leaves of one dtype into one message each, and unpacks what `function` makes of it, which
/// the results share. A message is the leaves end to end, of shape (elements). If `slices` is not
/// 0, leaves have shape (slices, …), and row r of a message of shape (slices, elements) has slice r
/// of each leaf. What `function` returns has either of these forms, with any number of slices.
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

/// `dimension` of each leaf, counted from the front also if negative; a leaf has `further` more of
/// them than its own. Throws ValueError, naming the `argument` and the leaf, where it has not this.
[[nodiscard]] std::vector<std::int64_t> wrap_dimensions(const Leaves& leaves,
                                                        std::int64_t dimension,
                                                        std::int64_t further, const char* argument,
                                                        const AxisCall& call);

/// How leaves are cut along one dimension of each into a slice a replica. Untiled: it is as long as
/// there are slices, which do not have it. Tiled: each slice keeps one of its equal parts.
struct Cut {
  std::vector<std::int64_t> dimensions;  ///< of each leaf, counted from the front
  bool tiled;
};

/// ValueError, naming `argument`, for a leaf that cannot be cut so. `dimension` may be negative.
[[nodiscard]] Cut cut_of(const Leaves& leaves, std::int64_t dimension, const char* argument,
                         std::int64_t slices, bool tiled, const AxisCall& call);

/// Leaves of shape (…, d, …) as (slices, …): views where the strides allow it.
[[nodiscard]] Leaves slices_along(const Cut& cut, const Leaves& leaves, std::int64_t slices);

/// The inverse of slices_along(): contiguous tensors that share no memory.
[[nodiscard]] Leaves joined_along(const Cut& cut, const Leaves& slices);

}  // namespace lockstep::collectives
