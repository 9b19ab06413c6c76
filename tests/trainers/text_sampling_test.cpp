#include "trainers/run/text_sampling.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <ATen/Functions.h>

#include "framework/base/errors.h"
#include "models/gpt.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"

namespace lockstep {
namespace {

using testing::message_of;

// After each byte the next one is the likeliest by far. It keeps what it has seen.
class NextByte : public Model {
 public:
  at::Tensor forward(const at::Tensor& tokens) override {
    if (is_training()) throw Error("it trains");
    seen.emplace_back();
    for (std::int64_t i = 0; i < tokens.size(1); ++i) {
      seen.back() += static_cast<char>(tokens[0][i].item<std::int64_t>());
    }
    return at::one_hot((tokens + 1) % 256, 256).to(at::kFloat) * 100;
  }

  std::vector<std::string> seen;
};

std::string continued(Model& model, const std::string& prompt, std::int64_t context,
                      const TextSamplingOptions& options) {
  std::string text;
  continue_text(model, prompt, context, options, [&](char byte) { text += byte; });
  CHECK(model.is_training());
  return text;
}

std::string sampled(const TextSamplingOptions& options) {
  const auto model =
      std::make_shared<Gpt>(GptOptions{.layers = 1, .heads = 2, .width = 8}, 6, 256, Key(1));
  return continued(*model, "prompt", 6, options);
}

}  // namespace

TEST_CASE("a text goes on from the last bytes that the model can see") {
  NextByte model;
  CHECK(continued(model, "xyab", 3, {.bytes = 4, .temperature = 0}) == "cdef");
  CHECK(model.seen == std::vector<std::string>{"yab", "abc", "bcd", "cde"});
  model.seen.clear();
  CHECK(continued(model, "\xfe", 3, {.bytes = 3}) == std::string("\xff\0\1", 3));
  CHECK(model.seen[1] == "\xfe\xff");
}

TEST_CASE("a text depends on the seed alone, and a longer one begins with the shorter one") {
  const std::string text = sampled({.bytes = 40});
  CHECK(text.size() == 40);
  CHECK(sampled({.bytes = 40}) == text);
  CHECK(sampled({.bytes = 7}) == text.substr(0, 7));
  CHECK(sampled({.bytes = 40, .seed = 1}) != text);
  CHECK(sampled({.bytes = 40, .top_k = 1}) == sampled({.bytes = 40, .temperature = 0}));
  CHECK(sampled({.bytes = 40, .temperature = 0}) ==
        sampled({.bytes = 40, .temperature = 0, .seed = 9}));
}

TEST_CASE("a token is drawn as often as softmax says") {
  const at::Tensor scores = at::tensor({0.5F, -1.0F, 2.0F, 2.0F, -30.0F});
  constexpr int kDraws = 100'000;
  const auto shares_of = [&](const TextSamplingOptions& options) {
    std::vector<double> shares(5);
    for (int i = 0; i < kDraws; ++i) {
      const auto token = draw_token(scores, options, (i + 0.5) / kDraws);
      shares[static_cast<std::size_t>(token)] += 1.0 / kDraws;
    }
    return shares;
  };
  for (const double temperature : {0.5, 1.0, 3.0}) {
    for (const std::int64_t top_k : {1, 2, 3, 256}) {
      INFO(temperature << " " << top_k);
      // Of the two equal scores the first is the larger.
      const std::vector<std::size_t> order{2, 3, 0, 1, 4};
      std::vector<double> expected(5);
      double sum = 0;
      for (std::size_t i = 0; i < 5 && i < static_cast<std::size_t>(top_k); ++i) {
        const double score = scores[static_cast<std::int64_t>(order[i])].item<float>();
        expected[order[i]] = std::exp(score / temperature);
        sum += expected[order[i]];
      }
      const auto shares = shares_of({.bytes = 1, .temperature = temperature, .top_k = top_k});
      for (std::size_t i = 0; i < 5; ++i) CHECK(std::abs(shares[i] - expected[i] / sum) < 1e-4);
    }
  }
  CHECK(shares_of({.bytes = 1, .temperature = 0})[2] == Approx(1));
  CHECK(draw_token(scores, {.bytes = 1, .temperature = 1e-300}, 0.9) == 3);
}

TEST_CASE("what is no text, no option or no score is refused") {
  NextByte model;
  const auto refused = [&](const std::string& prompt, const TextSamplingOptions& options) {
    return message_of<ValueError>([&] { (void)continued(model, prompt, 3, options); });
  };
  CHECK(refused("", {}) == "--prompt: is empty; the model continues one byte at least");
  CHECK(refused("a", {.bytes = 0}) == "--bytes: must be from 1 to 1000000000, is 0");
  CHECK(refused("a", {.temperature = -0.5}) ==
        "--temperature: must be at least 0 and finite, is -0.5");
  CHECK(refused("a", {.temperature = std::numeric_limits<double>::infinity()}) ==
        "--temperature: must be at least 0 and finite, is inf");
  CHECK(refused("a", {.top_k = 257}) ==
        "--top-k: must be from 1 to the 256 bytes that there are, is 257");
  CHECK(message_of<Error>([] {
          (void)draw_token(at::tensor({0.0F, std::numeric_limits<float>::quiet_NaN()}), {}, 0.5);
        }) == "the model's score of a token is nan");
}

}  // namespace lockstep
