#include "trainers/evaluate.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "framework/base/shard.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "models/loss.h"

namespace lockstep {
namespace {

constexpr std::int64_t kSamplesAtOnce = 1000;

}  // namespace

std::map<std::string, double> evaluate(Model& model, const Dataset& data,
                                       const AxisNames& axis_name) {
  const c10::AutoGradMode no_grad(false);
  const bool was_training = model.is_training();
  model.eval();
  const Shard own = shard(data.size(), axis_size(axis_name), axis_index(axis_name));
  std::vector<std::int64_t> indices(static_cast<std::size_t>(own.size));
  std::iota(indices.begin(), indices.end(), own.offset);

  // Sums over this replica's samples, then over all: loss in float64, hits counted.
  double loss_sum = 0.0;
  std::int64_t correct = 0;
  // All replicas run the model equally often: collectives or blocks inside need that. A replica
  // that has no samples left runs it on a sample that does not count.
  const std::int64_t most = shard(data.size(), axis_size(axis_name), 0).size;
  for (std::int64_t start = 0; start < most; start += kSamplesAtOnce) {
    const std::int64_t count = std::clamp<std::int64_t>(own.size - start, 0, kSamplesAtOnce);
    if (count == 0) {
      (void)outputs_of(model, data.batch(std::vector<std::int64_t>{0}).inputs);
      continue;
    }
    const Batch batch = data.batch(std::span(indices).subspan(static_cast<std::size_t>(start),
                                                              static_cast<std::size_t>(count)));
    const at::Tensor outputs = outputs_of(model, batch.inputs);
    loss_sum +=
        loss(data.task(), outputs, batch.targets).item<double>() * static_cast<double>(count);
    if (data.task() == Task::classification) {
      correct += outputs.argmax(1).eq(batch.targets).sum().item<std::int64_t>();
    }
  }
  model.train(was_training);

  std::pair<Tensor, Tensor> sums{at::zeros({}, at::kDouble), at::zeros({}, at::kLong)};
  sums.first.fill_(loss_sum);
  sums.second.fill_(correct);
  sums = psum(sums, axis_name);
  const auto samples = static_cast<double>(data.size());
  std::map<std::string, double> result{{"loss", sums.first.item<double>() / samples}};
  if (data.task() == Task::classification) {
    result["accuracy"] = static_cast<double>(sums.second.item<std::int64_t>()) / samples;
  }
  return result;
}

std::string evaluation_text(std::int64_t steps, const std::map<std::string, double>& figures) {
  std::vector<std::string> texts;
  for (const auto& [name, value] : figures) texts.push_back(str("test ", name, " ", value));
  return str("step ", steps, ": ", join(texts));
}

}  // namespace lockstep
