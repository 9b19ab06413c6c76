#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/random.h"
#include "framework/checkpoint/weights.h"
#include "framework/training/dropout.h"
#include "models/model.h"

namespace lockstep {

class Block;
class LayerNorm;

/// The defaults are GPT-2's smallest, without dropout.
struct GptOptions {
  std::int64_t layers = 12;
  std::int64_t heads = 12;   ///< of attention, in each layer
  std::int64_t width = 768;  ///< of the embedding: a multiple of `heads`
  double dropout = 0;        ///< of embeddings, attention and residual branches; GPT-2 has 0.1
  bool recompute = false;    ///< layers run again in the backward; activations are not kept

  bool operator==(const GptOptions&) const = default;
};

/// The language model GPT-2 (Radford et al. 2019): a decoder of pre-norm layers of causal attention
/// and a GELU network (tanh form), learned positions, and a head that is the token embedding. It
/// takes tokens, int64 (samples, positions) with 1 to `context` positions and numbers below
/// `vocabulary`, and gives each position's scores of the next token, before softmax (samples,
/// positions, vocabulary).
///
/// Parameters have the published names and shapes, in which weights are (in, out) but for the
/// embeddings (number, width): wte.weight, wpe.weight, ln_f, and h.N with ln_1, attn.c_attn,
/// attn.c_proj, ln_2, mlp.c_fc and mlp.c_proj, each with weight and bias. They start as GPT-2's do:
/// N(0, 0.02²), of what ends in a residual sum divided by sqrt(2·layers); biases at 0, LayerNorms
/// at 1 and 0. Each is drawn from `key` folded with its full name. Each layer is a Block, and so
/// are both embeddings.
///
/// Files of OpenAI's weights fit as they are, as Hugging Face writes them: their masks of attention
/// are passed over, a prefix "transformer." too, and lm_head.weight is another name of wte.weight.
class Gpt : public Model, public StoredNames {
 public:
  /// Throws ValueError for sizes below 1, a width that `heads` do not divide, and a dropout outside
  /// of [0, 1].
  Gpt(const GptOptions& options, std::int64_t context, std::int64_t vocabulary, const Key& key);

  /// Throws ValueError for inputs of another dtype or shape, and for a token out of range.
  at::Tensor forward(const at::Tensor& tokens) override;

  [[nodiscard]] std::optional<std::string> own_name(const std::string& stored) const override;

 private:
  std::int64_t context_;
  bool recompute_;
  std::shared_ptr<Block> tokens_;  // runs twice: makes embeddings of tokens, and scores
  std::shared_ptr<Block> positions_;
  Dropout dropout_;
  std::vector<std::shared_ptr<Block>> layers_;
  std::shared_ptr<LayerNorm> last_norm_;
};

/// For the registry: int64 tokens, each with the one that follows it.
[[nodiscard]] ModelKind gpt_kind();

}  // namespace lockstep
