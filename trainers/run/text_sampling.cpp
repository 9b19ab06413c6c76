#include "trainers/run/text_sampling.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

#include <ATen/ops/tensor.h>

#include "framework/base/errors.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/training/evaluation_mode.h"
#include "framework/training/forward_place.h"

namespace lockstep {

void check_options(const TextSamplingOptions& options) {
  constexpr std::int64_t kMostBytes = 1'000'000'000;
  require(options.bytes >= 1 && options.bytes <= kMostBytes, "--bytes: must be from 1 to ",
          kMostBytes, ", is ", options.bytes);
  require(std::isfinite(options.temperature) && options.temperature >= 0,
          "--temperature: must be at least 0 and finite, is ", options.temperature);
  require(options.top_k >= 1 && options.top_k <= kByteTokens, "--top-k: must be from 1 to the ",
          kByteTokens, " bytes that there are, is ", options.top_k);
}

std::int64_t draw_token(const at::Tensor& scores, const TextSamplingOptions& options,
                        double uniform) {
  const at::Tensor wide = scores.to(at::kDouble).contiguous();
  const std::vector<double> values(wide.data_ptr<double>(), wide.data_ptr<double>() + wide.numel());
  for (const double value : values)
    require<Error>(std::isfinite(value), "the model's score of a token is ", value);
  std::vector<std::size_t> order = consecutive(std::size_t{0}, values.size());
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t token) { return values[token]; });
  if (options.temperature == 0) return static_cast<std::int64_t>(order.front());
  order.resize(std::min(order.size(), static_cast<std::size_t>(options.top_k)));
  const auto weights = mapped(order, [&](std::size_t token) {
    return std::exp((values[token] - values[order.front()]) / options.temperature);
  });
  double left = uniform * std::accumulate(weights.begin(), weights.end(), 0.0);
  for (std::size_t i = 0; i < order.size(); ++i) {
    left -= weights[i];
    if (left < 0) return static_cast<std::int64_t>(order[i]);
  }
  return static_cast<std::int64_t>(order.front());  // what rounding leaves
}

void continue_text(Model& model, const std::string& prompt, std::int64_t context,
                   const TextSamplingOptions& options, const std::function<void(char)>& tell) {
  require(!prompt.empty(), "--prompt: is empty; the model continues one byte at least");
  check_options(options);
  const training::EvaluationMode evaluation(model);
  const Key key = Key(options.seed).fold("sample");
  std::vector<std::int64_t> tokens;
  for (const char byte : prompt) tokens.push_back(static_cast<unsigned char>(byte));
  for (std::int64_t i = 0; i < options.bytes; ++i) {
    const std::int64_t seen = std::min(context, std::ssize(tokens));
    const at::Tensor last =
        at::tensor(std::vector<std::int64_t>(tokens.end() - seen, tokens.end()), at::kLong);
    const at::Tensor scores = run_forward(model, last.unsqueeze(0));
    const double uniform = key.uniform(static_cast<std::uint64_t>(i));
    tokens.push_back(draw_token(scores[0][seen - 1], options, uniform));
    tell(static_cast<char>(tokens.back()));
  }
}

}  // namespace lockstep
