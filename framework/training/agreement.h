#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/axes/axis_names.h"

namespace lockstep::training {

/// Gives `tensors` replica 0's values on all replicas of the axis; not those that lack memory.
/// All replicas together.
void start_alike(const std::vector<at::Tensor>& tensors, const AxisNames& axis_name);

/// Throws ValueError unless the replicas' parameters have the same names, shapes and dtypes, in the
/// same order, and the same parameters require a gradient and are deferred. The message names the
/// first that differs and the replicas. All replicas together.
void check_same_model(const std::vector<std::string>& names, const std::vector<at::Tensor>& tensors,
                      const AxisNames& axis_name);
/// The same check for other parts of a model: things of a `kind`, each described in a line.
void check_same_model(const char* kind, const std::vector<std::string>& lines,
                      const AxisNames& axis_name);
/// "'weight' (3, 5) Float"
[[nodiscard]] std::string describe(const std::string& name, const at::Tensor& tensor);

/// Every replica's text, and every replica's number. All replicas together.
[[nodiscard]] std::vector<std::string> texts_of_all(const std::string& own,
                                                    const AxisNames& axis_name);
[[nodiscard]] std::vector<std::uint64_t> numbers_of_all(std::uint64_t own,
                                                        const AxisNames& axis_name);

/// On how many replicas it `holds`. All replicas together.
[[nodiscard]] std::int64_t replicas_where(bool holds, const AxisNames& axis_name);

/// A hash of a tensor's bytes, the same on machines of one kind.
[[nodiscard]] std::int64_t hash_of(const at::Tensor& tensor);

/// Compares two tensors of one dtype and shape. Their strides may differ.
[[nodiscard]] bool has_same_bytes(const at::Tensor& a, const at::Tensor& b);

/// The index of a tensor that differs, and the replicas on which it differs from the first's.
struct Difference {
  std::size_t index;
  std::int64_t first;
  std::vector<std::int64_t> replicas;
};
/// The first of `hashes` (as many on each replica) that differs, from replica 0's. If zero_is_none,
/// a hash of 0 differs from none, and of the others the first takes that place. All replicas
/// together.
[[nodiscard]] std::optional<Difference> first_difference(const std::vector<std::int64_t>& hashes,
                                                         const AxisNames& axis_name,
                                                         bool zero_is_none = false);

/// Throws Error unless the `tensors`, called `names`, have the same bytes on all replicas. The
/// message names the first that differs, as a `kind`, and the replicas that differ from replica 0.
/// Compares hashes of 64 bits. All replicas together.
void check_agreement(const std::vector<std::string>& names, const std::vector<at::Tensor>& tensors,
                     const AxisNames& axis_name, const char* kind = "parameter");

}  // namespace lockstep::training
