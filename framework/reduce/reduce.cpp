#include "framework/reduce/reduce.h"

#include <cstring>

#include "framework/base/text.h"
#include "framework/reduce/kernels.h"

namespace lockstep::reduce {
namespace {

// From so many bytes read on, outputs that are no inputs are written past the caches, which could
// not hold them. Measured on a 2-core AMD EPYC with 32 MiB of cache, two threads and float32, best
// of 80: two inputs of 64 MiB take 2.0 ms so, 2.7 ms otherwise; of 32 MiB 0.94 and 1.36 ms. Outputs
// in place of inputs, whose lines were just read, gain nothing (1.93 and 1.87 ms).
constexpr std::size_t kPastCaches = std::size_t{32} << 20;

}  // namespace

std::string why_not(ElementType type, ReduceOp op) {
  if (type == ElementType::boolean && op == ReduceOp::sum) {
    return "booleans have no sum; count them in int64";
  }
  if (is_mean(op) && !is_floating(type)) {
    return str(name_of(type), " has no mean; sum it and divide");
  }
  return "";
}

void reduce(std::span<const std::byte* const> inputs, std::span<std::byte> output, ElementType type,
            ReduceOp op) {
  std::byte* const only = output.data();
  reduce(inputs, {&only, 1}, output.size(), type, op);
}

void reduce(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
            std::size_t bytes, ElementType type, ReduceOp op) {
  if (bytes == 0 || outputs.empty()) return;
  if (inputs.size() == 1) {
    for (std::byte* output : outputs) {
      if (output != inputs[0]) std::memcpy(output, inputs[0], bytes);
    }
    return;
  }
  const ReduceKernels& best = reduce_kernels().back();
  const bool is_large = inputs.size() * bytes >= kPastCaches &&
                        std::ranges::find_first_of(outputs, inputs) == outputs.end();
  const double scale = mean_scale(std::ssize(inputs));
  const double count = static_cast<double>(inputs.size());
  best.reduce({inputs.data(), inputs.size(), outputs.data(), outputs.size(), bytes, type, op,
               op == ReduceOp::safe_mean ? scale : 1, op == ReduceOp::mean ? count : count * scale,
               is_large});
}

}  // namespace lockstep::reduce
