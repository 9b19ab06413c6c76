// Compares what public tables become with what pandas and scikit-learn make of them:
// tests/data/tables/record.py, which recorded both.

#include <cmath>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <nlohmann/json.hpp>

#include "framework/base/text.h"
#include "framework/data/data.h"
#include "tests/catch.h"
#include "tests/data/same_batches.h"
#include "tests/trainers/parsed_config.h"
#include "trainers/run/data_record.h"

namespace lockstep {
namespace {

using nlohmann::json;

const std::string kFolder = LOCKSTEP_SOURCE_DIR "/tests/data/tables/";

// What is wrong with the first cell that is not as expected; empty: nothing. Both sides divide in
// float64 and round to float32 once, so what remains is the last digit: 1.2e-7 of a value, and 1e-7
// where a mean has taken almost all of it away.
std::string difference(const at::Tensor& ours, const json& theirs) {
  const std::int64_t width = ours.dim() > 1 ? ours.size(1) : 1;
  const at::Tensor flat = ours.to(at::kDouble).reshape({-1, width}).contiguous();
  if (flat.size(0) != std::ssize(theirs)) {
    return str(flat.size(0), " rows, not ", theirs.size());
  }
  for (std::int64_t row = 0; row < flat.size(0); ++row) {
    const json& cells = theirs[static_cast<std::size_t>(row)];
    const auto expected = cells.is_array() ? cells.get<std::vector<double>>()
                                           : std::vector<double>{cells.get<double>()};
    if (width != std::ssize(expected)) return str(width, " columns, not ", expected.size());
    for (std::int64_t i = 0; i < width; ++i) {
      const double is = flat.data_ptr<double>()[row * width + i];
      const double should = expected[static_cast<std::size_t>(i)];
      if (!(std::abs(is - should) <= 1e-7 + 1.2e-7 * std::abs(should))) {
        return str("row ", row, ", column ", i, ": ", is, ", not ", should);
      }
    }
  }
  return "";
}

}  // namespace

TEST_CASE("public tables become what pandas and scikit-learn make of them") {
  std::ifstream in(kFolder + "expected.json");
  const json recorded = json::parse(in);
  REQUIRE(recorded.at("tables").size() >= 12);
  for (const json& table : recorded.at("tables")) {
    const auto name = table.at("name").get<std::string>();
    CAPTURE(name);
    json keys = table.at("keys");
    keys["name"] = "csv";
    keys["file"] = kFolder + name + ".csv";
    keys["test_file"] = kFolder + name + "_test.csv";
    const Config config = testing::parse("model: {name: mlp}\ndata: " + keys.dump() + "\n");
    const DataSets sets = load_data(config.data, {});
    CHECK(sets.fitted.classes == table.at("classes").get<std::vector<std::string>>());
    const Batch train = testing::whole(*sets.train);
    const Batch test = testing::whole(*sets.test);
    CHECK(difference(train.inputs, table.at("train").at("inputs")) == "");
    CHECK(difference(train.targets, table.at("train").at("targets")) == "");
    CHECK(difference(test.inputs, table.at("test").at("inputs")) == "");
    CHECK(difference(test.targets, table.at("test").at("targets")) == "");

    // A checkpoint has all that the test set is read by.
    CheckpointInfo checkpoint;
    add_record({.fitted = sets.fitted}, checkpoint);
    DataContext later;
    later.fitted = data_record("a checkpoint", checkpoint).fitted;
    later.wanted = {.train = false, .validation = false};
    const Batch again = testing::whole(*load_data(config.data, later).test);
    CHECK(at::equal(again.inputs, test.inputs));
    CHECK(at::equal(again.targets, test.targets));
  }
}

}  // namespace lockstep
