#include "trainers/run/evaluation_record.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/Functions.h>

#include "framework/base/errors.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/formats/image.h"
#include "framework/maps/pmap.h"
#include "framework/objectives/cross_entropy.h"
#include "tests/catch.h"
#include "tests/data/made_set.h"
#include "tests/support/message_of.h"
#include "trainers/run/picture_uri.h"
#include "trainers/run/text_samples.h"
#include "trainers/run/text_sampling.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

using Json = nlohmann::json;

// What the replicas' records say, of which each has got a part of the samples.
Json told_by(std::int64_t replicas, const Dataset& data, const at::Tensor& outputs,
             const at::Tensor& targets) {
  const auto loss = make_cross_entropy();
  std::vector<std::string> told(static_cast<std::size_t>(replicas));
  pmap(
      [&] {
        EvaluationRecord record(data, *loss);
        const std::int64_t index = axis_index("data");
        const Range own = shard(data.size(), replicas, index);
        for (std::int64_t i = own.offset; i < own.offset + own.size; i += 2) {  // batches of two
          const std::int64_t count = std::min<std::int64_t>(own.offset + own.size - i, 2);
          record.add(consecutive(i, count), outputs.narrow(0, i, count),
                     targets.narrow(0, i, count));
        }
        told[static_cast<std::size_t>(index)] = record.json("data").dump();
      },
      {.axis_name = "data", .axis_size = replicas})();
  for (std::size_t i = 1; i < told.size(); ++i) CHECK(told[i] == "null");
  return Json::parse(told[0]);
}

// A model of bytes that takes no text but whole samples.
class WholeSamples : public Model {
 public:
  at::Tensor forward(const at::Tensor& tokens) override {
    if (tokens.size(1) != 40) throw std::invalid_argument("it takes 40 tokens");
    return at::zeros({tokens.size(0), 40, 256});
  }
};

class Lost : public Model {
 public:
  at::Tensor forward(const at::Tensor& /*tokens*/) override { throw ReplicaLost("it is lost"); }
};

std::shared_ptr<const Dataset> texts_of(std::int64_t context) {
  return made_set({.size = 3, .type = token_sample(context, 256), .make = [](const auto& sample) {
                     sample.input.fill_(97 + sample.index);
                   }});
}

}  // namespace

TEST_CASE("an evaluation's record has the confusion table and the worst samples of all replicas") {
  const auto data = made_set({.size = 7,
                              .type = class_sample({2}, 3),
                              .class_names = {"a", "<script>", "c"},
                              .name = [](std::int64_t index) { return str("f", index, ".png"); }});
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const at::Tensor outputs = at::tensor({2.0,  0.0, 0.0,  //
                                         0.0,  0.0, 3.0,  //
                                         0.0,  0.0, 1.0,  //
                                         1.0,  1.0, 0.0,  // of equal ones the first
                                         kNan, 0.0, 0.0,  // none
                                         0.0,  5.0, 0.0,  //
                                         9.0,  0.0, 0.0})
                                 .view({7, 3})
                                 .to(at::kFloat);
  const at::Tensor targets = at::tensor(std::vector<std::int64_t>{0, 1, 2, 0, 1, 2, -100});
  const Json told = told_by(1, *data, outputs, targets);
  CHECK(told["class_names"] == Json{"a", "<script>", "c"});
  CHECK(told["confusion"] == Json{{2, 0, 0, 0}, {0, 0, 1, 1}, {0, 1, 1, 0}});
  REQUIRE(told["worst"].size() == 6);
  const std::vector<int> order{4, 5, 1, 3, 2, 0};
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Json& sample = told["worst"][i];
    CHECK(sample["index"] == order[i]);
    CHECK(sample["sample"] == str("sample ", order[i], " ('f", order[i], ".png')"));
    CHECK_FALSE(sample.contains("picture"));
  }
  CHECK(told["worst"][0]["loss"].is_null());
  CHECK_FALSE(told["worst"][0].contains("prediction"));
  CHECK(told["worst"][1]["loss"].get<double>() == Approx(std::log(2 + std::exp(5))));
  CHECK(told["worst"][1]["target_name"] == "c");
  CHECK(told["worst"][1]["prediction"] == 1);
  CHECK(told["worst"][1]["prediction_name"] == "<script>");
  for (const std::int64_t replicas : {2, 3}) {
    INFO(replicas << " replicas");
    CHECK(told_by(replicas, *data, outputs, targets) == told);
  }
}

TEST_CASE("of many samples 20 are kept, and of many classes the largest confusions") {
  const auto data = made_set({.size = 303, .type = class_sample({2}, 101)});
  // Each class is right once, and then taken for the next; the last for the first.
  std::vector<std::int64_t> targets, predicted;
  for (std::int64_t i = 0; i < 303; ++i) {
    targets.push_back(i % 101);
    predicted.push_back(i < 101 ? i : (i + 1) % 101);
  }
  at::Tensor outputs = at::one_hot(at::tensor(predicted), 101).to(at::kFloat);
  outputs.select(0, 250).mul_(3);
  for (const std::int64_t replicas : {1, 2}) {
    const Json told = told_by(replicas, *data, outputs, at::tensor(targets));
    CHECK_FALSE(told.contains("confusion"));
    REQUIRE(told["confused"].size() == 100);
    CHECK(told["confused"][99] == Json{{"target", 99}, {"prediction", 100}, {"count", 2}});
    REQUIRE(told["worst"].size() == 20);
    CHECK(told["worst"][0]["index"] == 250);
  }
}

TEST_CASE("samples without a class of their own, and outputs that are no scores, have no record") {
  const auto values = made_set({.size = 2});
  CHECK(told_by(2, *values, at::zeros({2, 1}), at::zeros({2, 1})).is_null());
  const auto classes = made_set({.size = 2, .type = class_sample({2}, 3)});
  CHECK(told_by(2, *classes, at::zeros({2, 2}), at::zeros({2}, at::kLong)).is_null());
}

TEST_CASE("a picture in a data URI is the picture, or its means where it is large") {
  const auto pixels_of = [](const at::Tensor& picture) {
    constexpr std::string_view kBegin = "data:image/png;base64,";
    const std::string uri = picture_uri(picture);
    REQUIRE(uri.starts_with(kBegin));
    REQUIRE((uri.size() - kBegin.size()) % 4 == 0);
    constexpr std::string_view kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::vector<std::uint8_t> bytes;
    std::uint32_t bits = 0;
    int held = 0;
    for (const char letter : uri.substr(kBegin.size())) {
      if (letter == '=') break;
      bits = bits << 6 | static_cast<std::uint32_t>(kDigits.find(letter));
      held += 6;
      if (held < 8) continue;
      held -= 8;
      bytes.push_back(static_cast<std::uint8_t>(bits >> held));
    }
    return formats::decode_png(bytes, "picture");
  };
  // Files of each length modulo 3.
  for (const std::int64_t width : {1, 2, 3, 4, 5, 6}) {
    const at::Tensor picture = at::arange(2 * width, at::kFloat).view({1, 2, width}) / 255;
    std::vector<std::uint8_t> expected;
    for (int i = 0; i < 2 * width; ++i) expected.push_back(static_cast<std::uint8_t>(i));
    CHECK(pixels_of(picture).pixels == expected);
  }
  const formats::Image small = pixels_of(at::ones({3, 100, 300}) * 0.5);
  CHECK((small.height == 21 && small.width == 64 && small.channels == 3));
  CHECK(int{small.pixels[0]} == 127);
}

TEST_CASE("what texts cost is bounded") {
  const SampleType sample = token_sample(64, 256);
  CHECK(sampled_bytes(value_sample({1}, 1), 1'000'000) == 0);
  CHECK(sampled_bytes(token_sample(64, 300), 1'000'000) == 0);
  CHECK(sampled_bytes(sample, 0) == 8);
  CHECK(sampled_bytes(sample, 1'000'000) == 100);
  // Two texts of 20 bytes run the model on 32 + … + 51 positions each.
  CHECK(sampled_bytes(sample, 2 * (32 + 51) * 20 / 2) == 20);
}

TEST_CASE("a model that takes no shorter texts has none, and a lost replica stays an error") {
  WholeSamples whole;
  CHECK(text_samples(whole, *made_set({.type = class_sample({2}, 256)}), 4).is_null());
  const auto told = text_samples(whole, *texts_of(39), 4);
  REQUIRE(told.contains("no_texts"));
  CHECK_THAT(told["no_texts"].get<std::string>(), ContainsSubstring("it takes 40 tokens"));
  Lost lost;
  CHECK(message_of<ReplicaLost>([&] { (void)text_samples(lost, *texts_of(8), 4); }) ==
        "it is lost");
}
