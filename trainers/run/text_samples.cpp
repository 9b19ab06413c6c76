#include "trainers/run/text_samples.h"

#include <algorithm>
#include <set>
#include <span>
#include <string>

#include "framework/base/errors.h"
#include "framework/tree/error_place.h"
#include "trainers/run/text_sampling.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kTexts = 2;
constexpr std::int64_t kPrompt = 32;  // bytes
constexpr std::int64_t kLeastBytes = 8;
constexpr std::int64_t kMostBytes = 100;

std::string prompt_of(const Dataset& data, std::int64_t sample) {
  const at::Tensor tokens = data.batch(std::span(&sample, 1)).inputs[0];
  std::string prompt;
  for (std::int64_t i = 0; i < tokens.numel() && i < kPrompt; ++i) {
    prompt += static_cast<char>(tokens[i].item<std::int64_t>());
  }
  return prompt;
}

}  // namespace

std::int64_t sampled_bytes(const SampleType& sample, std::int64_t positions) {
  if (!are_bytes(sample)) return 0;
  const std::int64_t context = sample.input.shape[0];
  std::int64_t bytes = 0;
  std::int64_t taken = 0;
  while (bytes < kMostBytes) {
    taken += kTexts * std::min(kPrompt + bytes, context);
    if (bytes >= kLeastBytes && taken > positions) break;
    ++bytes;
  }
  return bytes;
}

Json text_samples(Model& model, const Dataset& data, std::int64_t bytes) {
  if (!are_bytes(data.type())) return nullptr;
  Json texts = Json::array();
  try {
    for (const std::int64_t sample : std::set<std::int64_t>{0, data.size() / kTexts}) {
      const std::string prompt = prompt_of(data, sample);
      std::string text;
      continue_text(model, prompt, data.type().input.shape[0], {.bytes = bytes},
                    [&](char byte) { text += byte; });
      texts.push_back({{"prompt", prompt}, {"text", text}});
    }
  } catch (const std::exception& error) {
    if (is_out_of_memory(error) || dynamic_cast<const CommError*>(&error) != nullptr) throw;
    return {{"no_texts", message_text(error)}};
  }
  return {{"texts", std::move(texts)}};
}

}  // namespace lockstep
