#pragma once

#include <map>
#include <string>

#include <ATen/core/Tensor.h>

namespace lockstep {

/// The SHA-256, as 64 lowercase hexadecimal digits, of the raw bytes of all tensors, each in
/// row-major order, one after another in the order of their names. Names, shapes and dtypes are not
/// part of it: it compares runs of one model. Throws ValueError for an undefined tensor.
[[nodiscard]] std::string parameters_sha256(const std::map<std::string, at::Tensor>& named);

}  // namespace lockstep
