#include "trainers/memory_report.h"

#include <string>

#include "framework/base/errors.h"
#include "framework/data/data.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"
#include "tests/trainers/parsed_config.h"
#include "trainers/config_options.h"

namespace lockstep {
namespace {

std::string prediction(const std::string& text) {
  const Config config = testing::parse(text);
  return prediction_text(config, load_data(config.data, data_context(config)));
}

}  // namespace

TEST_CASE("the activations of a batch that no host could take are predicted") {
  const std::string text = prediction(
      "model: {name: mlp, hidden: [100]}\n"
      "data: {name: synthetic, samples: 10000000, batch_size: 1000000000}\n");
  const std::string row = "  activations ";
  REQUIRE_THAT(text, ContainsSubstring(row));
  const double gib = std::stod(text.substr(text.find(row) + row.size()));
  constexpr double kLayer = 1e7 * 100 * 4 / (1 << 30);  // the hidden layer's values
  CHECK(gib > 2 * kLayer);
  CHECK(gib < 4 * kLayer);
}

TEST_CASE("a model whose bytes overflow a number is refused with the bytes that are there") {
  std::string widths = "1000000";
  for (int i = 0; i < 100; ++i) widths += ", 1000000";
  const auto message = testing::message_of<ValueError>([&] {
    (void)prediction("model: {name: mlp, hidden: [" + widths + "]}\ndata: {name: synthetic}\n");
  });
  CHECK_THAT(message, StartsWith("the model's 100000"));
  CHECK_THAT(message,
             ContainsSubstring(" parameters alone take 363.8 TiB a copy, and this host has "));
}

}  // namespace lockstep
