#include "trainers/commands/set_details.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <ATen/Functions.h>

#include "tests/catch.h"

using namespace lockstep;

namespace {

// What is told of these outputs.
nlohmann::ordered_json details_of(const SampleType& sample, const at::Tensor& outputs,
                                  const at::Tensor& targets, const Fitted& fitted = {},
                                  const std::vector<std::string>& class_names = {}) {
  const SetDetails details(sample, fitted, -100);
  std::vector<at::Tensor> totals;
  for (const auto& [name, tally] : details.tallies()) {
    totals.push_back(tally->add(outputs, targets));
  }
  return details.json(totals, class_names);
}

std::size_t longest_line(const std::string& text) {
  std::size_t longest = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    longest = std::max(longest, end - begin);
    begin = end + 1;
  }
  return longest;
}

}  // namespace

TEST_CASE("of many classes the largest confusions are told in place of a table") {
  const std::int64_t classes = 30;
  // Class c is taken for the next one, 30 - c times.
  std::vector<std::int64_t> targets;
  std::vector<at::Tensor> outputs;
  for (std::int64_t c = 0; c < classes; ++c) {
    for (std::int64_t i = c; i < classes; ++i) {
      targets.push_back(c);
      outputs.push_back(at::zeros({classes}).index_fill(0, at::tensor((c + 1) % classes), 1.0));
    }
  }
  const auto details =
      details_of(class_sample({1}, classes), at::stack(outputs), at::tensor(targets, at::kLong));
  CHECK(details["confusion"][3][4] == 27);
  CHECK(details["confusion"].size() == 30);
  const std::string text = details_text("validation", details);
  CHECK_THAT(text, ContainsSubstring("\nvalidation set, the largest confusions:\n"
                                     "  target  prediction  count\n"
                                     "  0       1              30\n"
                                     "  1       2              29\n"));
  CHECK_THAT(text, ContainsSubstring("\n  19      20             11\n"));
  CHECK_THAT(text, !ContainsSubstring("\n  20      21             10\n"));
  CHECK_THAT(text, !ContainsSubstring("columns"));
}

TEST_CASE("a confusion table of ten classes fits in a hundred columns") {
  const std::vector<std::string> names{"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
                                       "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};
  auto details =
      details_of(class_sample({1}, 10), at::eye(10), at::arange(10, at::kLong), {}, names);
  for (auto& row : details["confusion"]) {
    for (auto& count : row) count = 10000;
  }
  const std::string text = details_text("test", details);
  CHECK_THAT(text,
             ContainsSubstring("\ntest set, targets (rows) and what was predicted (columns):\n"
                               "                     0      1      2 "));
  CHECK_THAT(text, ContainsSubstring("\n  9 Ankle boot   10000  10000 "));
  CHECK(longest_line(text) <= 100);
}

TEST_CASE("outputs beyond the classes are classes without a name, and names stay in their line") {
  const auto details = details_of(class_sample({1}, 2), at::eye(4),
                                  at::tensor({0, 1, 1, 0}, at::kLong), {}, {"a\nb", "c"});
  CHECK(details["confusion"] ==
        nlohmann::ordered_json({{1, 0, 0, 1}, {0, 1, 1, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}}));
  CHECK(details["classes"][0]["name"] == "a\nb");
  CHECK(!details["classes"][2].contains("name"));
  CHECK(!details.contains("auc"));
  CHECK_THAT(details_text("test", details), ContainsSubstring("              0  1  2  3\n"
                                                              "  0 'a\\x0ab'  1  0  0  1\n"
                                                              "  1 c         0  1  1  0\n"
                                                              "  2           0  0  0  0\n"));
}

TEST_CASE("targets without a prediction and those that do not count are told apart") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto details =
      details_of(class_sample({1}, 2), at::tensor({nan, 0.0, 1.0, 0.0, 0.0, 1.0}).view({3, 2}),
                 at::tensor({1, 0, -100}, at::kLong));
  CHECK(details["confusion"] == nlohmann::ordered_json({{1, 0}, {0, 0}}));
  CHECK(details["without_prediction"] == nlohmann::ordered_json({0, 1}));
  CHECK(details["classes"][1]["count"] == 1);
  CHECK_THAT(details_text("test", details), ContainsSubstring("     0  1  none\n"
                                                              "  0  1  0     0\n"
                                                              "  1  0  0     1\n"
                                                              "\ntest set, auc nan\n"));
}

TEST_CASE("values have their names, and what a model of one's own gives else has no table") {
  const Fitted fitted{.targets = {"height", "weight"}};
  const at::Tensor outputs = at::zeros({3, 2});
  const at::Tensor targets = at::tensor({-1.0F, 2.0F, 0.0F, 4.0F, 3.0F, 8.0F}).view({3, 2});
  const auto details = details_of(value_sample({1}, 2), outputs, targets, fitted);
  CHECK(details["residuals"][0]["name"] == "height");
  CHECK(details["residuals"][0]["quantiles"]["25"] == -0.5);
  CHECK(details["residuals"][1]["quantiles"]["50"] == 4.0);
  CHECK_THAT(details_text("test", details),
             ContainsSubstring("\ntest set, quantiles of target - prediction:\n"
                               "  output  0 %   5 %  25 %  50 %  75 %  95 %  100 %\n"
                               "  height   -1  -0.9  -0.5     0   1.5   2.7      3\n"
                               "  weight    2   2.2     3     4     6   7.6      8\n"));

  CHECK(details_of(value_sample({1}, 2), at::zeros({3, 4}), targets).empty());
  CHECK(details_of(value_sample({1}, 101), at::zeros({3, 101}), at::zeros({3, 101})).empty());
  CHECK(details_of(class_sample({1}, 2), at::zeros({3, 1}), at::ones({3}, at::kLong)).empty());
  CHECK(SetDetails(token_sample(4, 256), {}, std::nullopt).tallies().empty());
  CHECK(details_text("test", nlohmann::ordered_json::object()).empty());
}
