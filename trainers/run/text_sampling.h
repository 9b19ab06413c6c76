#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <ATen/core/Tensor.h>

#include "framework/base/random.h"
#include "framework/data/dataset.h"
#include "models/model.h"

namespace lockstep {

/// The tokens of a model of bytes.
inline constexpr std::int64_t kByteTokens = 256;

/// Whether samples are bytes, each with the one that follows it.
[[nodiscard]] inline bool are_bytes(const SampleType& sample) {
  return sample.has_tokens() && sample.input.shape.size() == 1 && sample.classes == kByteTokens;
}

struct TextSamplingOptions {
  std::int64_t bytes = 256;  ///< how many follow the prompt: 1 to 1e9
  double temperature = 1.0;  ///< scores are divided by it before softmax; 0: the largest alone
  std::int64_t top_k = kByteTokens;  ///< only so many of the largest scores count
  std::uint64_t seed = 0;
};

/// Throws ValueError, naming the flag of `train sample`, for options out of range.
void check_options(const TextSamplingOptions& options);

/// A token drawn by its scores (vocabulary), before softmax: a pure function of the arguments.
/// `uniform` is the draw, in [0, 1). Of equal scores those of lower tokens are the larger. Error if
/// a score is not finite.
[[nodiscard]] std::int64_t draw_token(const at::Tensor& scores, const TextSamplingOptions& options,
                                      double uniform);

/// Continues `prompt` with a model whose tokens are bytes, and calls `tell` with each new byte. The
/// model sees the last `context` bytes before it, in evaluation mode. Byte i is drawn with number i
/// of the seed's key: the same arguments give the same text, and a longer text begins with the
/// shorter one. ValueError for an empty prompt and for options out of range.
void continue_text(Model& model, const std::string& prompt, std::int64_t context,
                   const TextSamplingOptions& options, const std::function<void(char)>& tell);

}  // namespace lockstep
