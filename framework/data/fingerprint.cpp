#include "framework/data/fingerprint.h"

#include <algorithm>
#include <vector>

#include "framework/data/sample_text.h"
#include "framework/tree/error_place.h"

namespace lockstep::data {

Fingerprint::Fingerprint(const Dataset& data) {
  const SampleType type = data.type();
  add(data.size());
  for (const TensorType& tensor : {type.input, type.target}) {
    add(static_cast<std::int64_t>(tensor.dtype));
    add(std::ssize(tensor.shape));
    for (const std::int64_t size : tensor.shape) add(size);
  }
  add(type.classes);
  for (const std::string& name : data.class_names()) add(name);
}

void Fingerprint::add_samples(const Dataset& data, std::optional<std::int64_t> most) {
  constexpr std::int64_t kMostBytes = std::int64_t{64} << 20;  // take less than 0.1 s
  constexpr std::int64_t kMostSlowSamples = 16;
  constexpr std::int64_t kBatchBytes = std::int64_t{4} << 20;
  const SampleType type = data.type();
  const std::int64_t size = data.size();
  const std::int64_t bytes = std::max<std::int64_t>(type.input.bytes() + type.target.bytes(), 1);
  const std::int64_t few = data.is_slow() ? kMostSlowSamples : kMostBytes / bytes;
  const std::int64_t taken =
      std::clamp<std::int64_t>(most.value_or(few), std::min<std::int64_t>(2, size), size);
  const std::int64_t together = std::max<std::int64_t>(kBatchBytes / bytes, 1);
  std::vector<std::int64_t> indices;
  // size - 1 in taken - 1 steps, in numbers that fit.
  const std::int64_t steps = std::max<std::int64_t>(taken - 1, 1);
  const std::int64_t stride = (size - 1) / steps;
  const std::int64_t rest = (size - 1) % steps;
  for (std::int64_t i = 0; i < taken; ++i) {
    indices.push_back(i * stride + i * rest / steps);
    if (std::ssize(indices) < together && i + 1 < taken) continue;
    const Batch batch = placed([&] { return data::first_not_made(data, indices); },
                               [&] { return data.batch(indices); });
    add(batch.inputs);
    add(batch.targets);
    indices.clear();
  }
}

}  // namespace lockstep::data
