#include "models/gpt.h"

#include <cmath>
#include <limits>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/softmax.h>
#include <torch/version.h>
#if TORCH_VERSION_MAJOR >= 2
#include <ATen/ops/scaled_dot_product_attention.h>
#endif

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/training/block.h"
#include "framework/training/recompute.h"
#include "models/layers.h"

namespace lockstep {

class LayerNorm : public torch::nn::Module {
 public:
  explicit LayerNorm(std::int64_t width)
      : weight_(register_parameter("weight", constant({width}, 1))),
        bias_(register_parameter("bias", constant({width}, 0))) {}

  at::Tensor forward(const at::Tensor& values) const {
    return at::layer_norm(values, weight_.sizes(), weight_, bias_, /*eps=*/1e-5);
  }

 private:
  at::Tensor weight_;
  at::Tensor bias_;
};

namespace {

constexpr double kDeviation = 0.02;  // of weights at the start

// Numbers below `count` become embeddings, of `width` each.
class Embedding : public Block {
 public:
  Embedding(std::int64_t count, std::int64_t width, const KeyPath& path)
      : weight_(register_parameter("weight",
                                   normal({count, width}, 0, kDeviation, path.key_of("weight")))) {}

  at::Tensor forward(const at::Tensor& numbers) override { return at::embedding(weight_, numbers); }

 protected:
  at::Tensor weight_;
};

class Positions : public Embedding {
  using Embedding::Embedding;
};

// Tokens (samples, positions) become embeddings (samples, positions, width). Such values become
// scores (samples, positions, vocabulary): their products with all tokens' embeddings.
class Tokens : public Embedding {
 public:
  using Embedding::Embedding;

  at::Tensor forward(const at::Tensor& input) override {
    if (input.is_floating_point()) return at::linear(input, weight_);
    check_range(input);
    return Embedding::forward(input);
  }

 private:
  void check_range(const at::Tensor& tokens) const {
    if (tokens.numel() == 0) return;
    const auto [least, most] = at::aminmax(tokens);
    for (const at::Tensor& token : {least, most}) {
      const auto number = token.item<std::int64_t>();
      require(number >= 0 && number < weight_.size(0), "model gpt: tokens must be in [0, ",
              weight_.size(0), "), not ", number);
    }
  }
};

// values·w + b
class Affine : public torch::nn::Module {
 public:
  Affine(std::int64_t in, std::int64_t out, double deviation, const KeyPath& path)
      : weight_(
            register_parameter("weight", normal({in, out}, 0, deviation, path.key_of("weight")))),
        bias_(register_parameter("bias", constant({out}, 0))) {}

  // (samples, positions, in) to (samples, positions, out)
  at::Tensor forward(const at::Tensor& values) const {
    return at::addmm(bias_, values.flatten(0, 1), weight_)
        .view({values.size(0), values.size(1), weight_.size(1)});
  }

 private:
  at::Tensor weight_;
  at::Tensor bias_;
};

// Each position attends to those up to itself.
class Attention : public torch::nn::Module {
 public:
  Attention(const GptOptions& options, double last_deviation, const KeyPath& path)
      : heads_(options.heads),
        has_dropout_(options.dropout > 0),
        c_attn_(path.add<Affine>(*this, "c_attn", options.width, 3 * options.width, kDeviation)),
        c_proj_(path.add<Affine>(*this, "c_proj", options.width, options.width, last_deviation)),
        attention_dropout_(register_module("attn_dropout", Dropout(options.dropout))),
        dropout_(register_module("resid_dropout", Dropout(options.dropout))) {}

  at::Tensor forward(const at::Tensor& values) {
    const std::int64_t samples = values.size(0);
    const std::int64_t positions = values.size(1);
    const std::int64_t width = values.size(2);
    // (3, samples, heads, positions, width / heads)
    const at::Tensor all = c_attn_->forward(values)
                               .view({samples, positions, 3, heads_, width / heads_})
                               .permute({2, 0, 3, 1, 4});
    const std::vector<at::Tensor> parts = all.unbind();
    const at::Tensor mixed = attend(parts[0], parts[1], parts[2]);
    return dropout_->forward(
        c_proj_->forward(mixed.transpose(1, 2).reshape({samples, positions, width})));
  }

 private:
  // Queries, keys and values (samples, heads, positions, width / heads) to a mean of values.
  at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
#if TORCH_VERSION_MAJOR >= 2
    // LibTorch's own dropout in there would draw other bits than this Dropout.
    if (!is_training() || !has_dropout_) {
      return at::scaled_dot_product_attention(q, k, v, /*attn_mask=*/{}, /*dropout_p=*/0.0,
                                              /*is_causal=*/true);
    }
#endif
    const at::Tensor mask =
        at::full({q.size(2), q.size(2)}, -std::numeric_limits<double>::infinity(), q.options())
            .triu(1);
    // A matrix for each sample and head: (samples · heads, positions, positions)
    const at::Tensor scores =
        at::baddbmm(mask, q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2),
                    /*beta=*/1, 1 / std::sqrt(static_cast<double>(q.size(3))));
    const at::Tensor shares = attention_dropout_->forward(at::softmax(scores, -1));
    return at::bmm(shares, v.flatten(0, 1)).view(q.sizes());
  }

  std::int64_t heads_;
  bool has_dropout_;
  std::shared_ptr<Affine> c_attn_;
  std::shared_ptr<Affine> c_proj_;
  Dropout attention_dropout_;
  Dropout dropout_;
};

class Network : public torch::nn::Module {
 public:
  Network(const GptOptions& options, double last_deviation, const KeyPath& path)
      : c_fc_(path.add<Affine>(*this, "c_fc", options.width, 4 * options.width, kDeviation)),
        c_proj_(
            path.add<Affine>(*this, "c_proj", 4 * options.width, options.width, last_deviation)),
        dropout_(register_module("dropout", Dropout(options.dropout))) {}

  at::Tensor forward(const at::Tensor& values) {
    return dropout_->forward(c_proj_->forward(at::gelu(c_fc_->forward(values), "tanh")));
  }

 private:
  std::shared_ptr<Affine> c_fc_;
  std::shared_ptr<Affine> c_proj_;
  Dropout dropout_;
};

class Layer : public Block {
 public:
  Layer(const GptOptions& options, const KeyPath& path)
      : ln_1_(register_module("ln_1", std::make_shared<LayerNorm>(options.width))),
        attn_(path.add<Attention>(*this, "attn", options, last_deviation(options))),
        ln_2_(register_module("ln_2", std::make_shared<LayerNorm>(options.width))),
        mlp_(path.add<Network>(*this, "mlp", options, last_deviation(options))) {}

  at::Tensor forward(const at::Tensor& values) override {
    const at::Tensor attended = values + attn_->forward(ln_1_->forward(values));
    return attended + mlp_->forward(ln_2_->forward(attended));
  }

 private:
  // Each layer adds twice to what it passes on: the sum's variance is not to grow with them.
  static double last_deviation(const GptOptions& options) {
    return kDeviation / std::sqrt(2 * static_cast<double>(options.layers));
  }

  std::shared_ptr<LayerNorm> ln_1_;
  std::shared_ptr<Attention> attn_;
  std::shared_ptr<LayerNorm> ln_2_;
  std::shared_ptr<Network> mlp_;
};

keys::ConfigKeys gpt_keys(GptOptions& options) {
  return {{"layers", keys::number(options.layers, keys::from_to<std::int64_t>(1, 1000)),
           "transformer layers"},
          {"heads", keys::number(options.heads, kWidth), "heads of attention in each layer"},
          {"width", keys::number(options.width, kWidth), "width of the embedding"},
          {"dropout", keys::number(options.dropout, keys::kPart),
           "of embeddings, attention and residual branches"},
          {"recompute",
           keys::flag(options.recompute),
           "run layers again in the backward instead of keeping activations",
           {.may_change = true}}};
}

void check(const GptOptions& options, std::int64_t context, std::int64_t vocabulary) {
  GptOptions checked = options;
  keys::check("model gpt", gpt_keys(checked));
  for (const auto& [name, value] : {std::pair{"context", context}, {"vocabulary", vocabulary}}) {
    require(value >= 1, "model gpt: ", name, " must be at least 1, not ", value);
  }
  require(options.width % options.heads == 0, "model gpt: width must be a multiple of heads, not ",
          options.width, " with ", options.heads, " heads");
}

}  // namespace

Gpt::Gpt(const GptOptions& options, std::int64_t context, std::int64_t vocabulary, const Key& key)
    : context_(context), recompute_(options.recompute), dropout_(nullptr) {
  check(options, context, vocabulary);
  const KeyPath path(key);
  tokens_ = path.add<Tokens>(*this, "wte", vocabulary, options.width);
  positions_ = path.add<Positions>(*this, "wpe", context, options.width);
  dropout_ = register_module("drop", Dropout(options.dropout));
  const auto h = register_module("h", std::make_shared<Container>());
  for (std::int64_t i = 0; i < options.layers; ++i) {
    layers_.push_back((path / "h").add<Layer>(*h, std::to_string(i), options));
  }
  last_norm_ = register_module("ln_f", std::make_shared<LayerNorm>(options.width));
}

at::Tensor Gpt::forward(const at::Tensor& tokens) {
  require(tokens.scalar_type() == at::kLong && tokens.dim() == 2 && tokens.size(1) >= 1 &&
              tokens.size(1) <= context_,
          "model gpt: inputs must be int64 tokens (samples, 1 to ", context_, " positions), not ",
          c10::toString(tokens.scalar_type()), " (", join(tokens.sizes()), ")");
  // (samples, positions, width)
  at::Tensor values =
      (*tokens_)(tokens) + (*positions_)(at::arange(tokens.size(1), tokens.options()));
  values = dropout_->forward(values);
  for (const auto& layer : layers_) {
    values = recompute_ ? recompute(*layer, values) : (*layer)(values);
  }
  return (*tokens_)(last_norm_->forward(values));
}

std::optional<std::string> Gpt::own_name(const std::string& stored) const {
  constexpr std::string_view kPrefix = "transformer.";
  const std::string name = stored.starts_with(kPrefix) ? stored.substr(kPrefix.size()) : stored;
  if (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias")) return std::nullopt;
  return name == "lm_head.weight" ? "wte.weight" : name;
}

ModelKind gpt_kind() {
  return model_kind<GptOptions>(
      "gpt", "GPT-2: a decoder-only transformer for text", gpt_keys,
      [](const GptOptions& options, const SampleType& sample,
         const Key& key) -> std::shared_ptr<Model> {
        require(sample.has_tokens() && sample.input.shape.size() == 1,
                "model gpt takes tokens, int64 (positions), each with the one that follows it");
        return std::make_shared<Gpt>(options, sample.input.shape[0], sample.classes, key);
      });
}

}  // namespace lockstep
