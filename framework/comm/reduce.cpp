#include "framework/comm/reduce.h"

#include <cstring>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/comm/reduce_kernels.h"

namespace lockstep {

void check_reduction(const char* what, ElementType type, ReduceOp op) {
  if (type == ElementType::boolean && op == ReduceOp::sum) {
    throw ValueError(str(what, ": booleans have no sum; count them in int64"));
  }
  if (op == ReduceOp::mean && !is_floating(type)) {
    throw ValueError(str(what, ": ", name_of(type), " has no mean; sum it and divide"));
  }
}

void reduce(std::span<const std::byte* const> inputs, std::span<std::byte> output, ElementType type,
            ReduceOp op) {
  std::byte* const only = output.data();
  reduce(inputs, {&only, 1}, output.size(), type, op);
}

void reduce(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
            std::size_t bytes, ElementType type, ReduceOp op) {
  if (inputs.empty()) throw ValueError("reduce: no inputs");
  if (bytes % size_of(type) != 0) {
    throw ValueError(str("reduce: ", bytes, " bytes are no whole number of ", name_of(type)));
  }
  check_reduction("reduce", type, op);
  if (bytes == 0 || outputs.empty()) return;
  if (inputs.size() == 1) {
    for (std::byte* output : outputs) {
      if (output != inputs[0]) std::memcpy(output, inputs[0], bytes);
    }
    return;
  }
  reduce_kernels().back().reduce(inputs.data(), inputs.size(), outputs.data(), outputs.size(),
                                 bytes, type, op);
}

}  // namespace lockstep
