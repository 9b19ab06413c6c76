#include "trainers/commands/predictions.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/Functions.h>
#include <nlohmann/json.hpp>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/data/tensor_set.h"
#include "framework/formats/csv.h"
#include "tests/catch.h"
#include "tests/data/made_set.h"
#include "tests/support/captured_stderr.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using nlohmann::json;
using testing::made_set;
using testing::MadeSample;
using testing::message_of;
using testing::TemporaryFolder;

// Its outputs are its inputs.
class Same : public Model {
 public:
  at::Tensor forward(const at::Tensor& inputs) override {
    if (is_training()) throw Error("it trains");
    return inputs;
  }
};

std::string predicted(const Dataset& data, const PredictionOptions& options) {
  Same model;
  std::string text;
  write_predictions(model, data, options, [&](std::string_view part) { text += part; });
  CHECK(model.is_training());
  return text;
}

std::string predicted(const Dataset& data, std::int64_t batch_size, PredictionFormat format,
                      const std::vector<ColumnScale>& target_scales = {}) {
  return predicted(data,
                   {.batch_size = batch_size, .format = format, .target_scales = target_scales});
}

std::vector<json> lines_of(const std::string& text) {
  std::vector<json> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
  return lines;
}

// Four samples of three classes: the largest output is 1, then 0 (of equal ones), 2, NaN.
TensorSet classes(const std::vector<std::string>& names = {}) {
  const at::Tensor scores = at::tensor({0.1F, 2.5F, -1.0F, 7.0F, 7.0F, 0.0F, -3.0F, -2.0F, -0.3F,
                                        1.0F, std::numeric_limits<float>::quiet_NaN(), 2.0F})
                                .view({4, 3});
  return {scores, at::tensor({1, 2, 0, 1}, at::kLong), class_sample({3}, 3), names};
}

}  // namespace

TEST_CASE("predictions of classes are those of the largest output, with it and the target") {
  const std::string csv =
      "index,prediction,score,target\n0,1,2.5,1\n1,0,7.0,2\n2,2,-0.3,0\n3,1,NaN,1\n";
  for (const std::int64_t batch_size : {1, 3, 4, 100}) {
    CHECK(predicted(classes(), batch_size, PredictionFormat::csv) == csv);
    const std::string lines = predicted(classes(), batch_size, PredictionFormat::jsonl);
    CHECK(lines ==
          "{\"index\":0,\"prediction\":1,\"score\":2.5,\"target\":1}\n"
          "{\"index\":1,\"prediction\":0,\"score\":7.0,\"target\":2}\n"
          "{\"index\":2,\"prediction\":2,\"score\":-0.3,\"target\":0}\n"
          "{\"index\":3,\"prediction\":1,\"score\":null,\"target\":1}\n");
  }
}

TEST_CASE("names of classes stand beside their numbers, whatever they hold") {
  const std::vector<std::string> names{"plain", "a, \"b\"", "two\nlines"};
  const TemporaryFolder folder;
  const formats::CsvFile csv(
      folder.write("p.csv", predicted(classes(names), 3, PredictionFormat::csv)));
  CHECK(csv.header() == std::vector<std::string>{"index", "prediction", "prediction_name", "score",
                                                 "target", "target_name"});
  const auto lines = lines_of(predicted(classes(names), 3, PredictionFormat::jsonl));
  const std::vector<std::int64_t> predictions{1, 0, 2, 1}, targets{1, 2, 0, 1};
  REQUIRE(csv.rows() == 4);
  REQUIRE(lines.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    const auto& prediction = names[static_cast<std::size_t>(predictions[i])];
    const auto& target = names[static_cast<std::size_t>(targets[i])];
    CHECK(csv.text(i, csv.column("prediction_name")) == prediction);
    CHECK(csv.text(i, csv.column("target_name")) == target);
    CHECK(lines[i]["prediction_name"] == prediction);
    CHECK(lines[i]["target_name"] == target);
  }
  const Subset part(std::make_shared<const TensorSet>(classes(names)), {2});
  CHECK(lines_of(predicted(part, 3, PredictionFormat::jsonl))[0]["prediction_name"] == names[2]);
  CHECK(message_of<ValueError>([&] {
          (void)predicted(classes({"one"}), 3, PredictionFormat::csv);
        }) == "the data set names 1 classes and has 3");
}

TEST_CASE("probabilities are the softmax in double, and the likeliest stand first") {
  const std::vector<std::string> names{"a, b", "c", "\xc3\xbc"};
  const PredictionOptions lines_options{
      .batch_size = 3, .format = PredictionFormat::jsonl, .probabilities = true, .top = 2};
  const auto lines = lines_of(predicted(classes(names), lines_options));
  REQUIRE(lines.size() == 4);
  const std::vector<std::vector<float>> scores{
      {0.1F, 2.5F, -1.0F}, {7.0F, 7.0F, 0.0F}, {-3.0F, -2.0F, -0.3F}};
  const std::vector<std::vector<std::size_t>> likeliest{{1, 0}, {0, 1}, {2, 1}};
  for (std::size_t i = 0; i < scores.size(); ++i) {
    double sum = 0;
    for (const float score : scores[i]) sum += std::exp(static_cast<double>(score));
    double all = 0;
    for (std::size_t j = 0; j < 3; ++j) {
      const double probability = lines[i]["probability"][names[j]];
      CHECK(probability ==
            Approx(std::exp(static_cast<double>(scores[i][j])) / sum).epsilon(1e-14));
      all += probability;
    }
    CHECK(all == Approx(1).epsilon(1e-15));
    for (std::size_t j = 0; j < 2; ++j) {
      const std::size_t label = likeliest[i][j];
      CHECK(lines[i]["top"][j] == json{{"class", label},
                                       {"name", names[label]},
                                       {"probability", lines[i]["probability"][names[label]]}});
    }
  }
  CHECK(lines[3]["probability"]["c"].is_null());
  CHECK(lines[3]["top"][0] == json{{"class", 1}, {"name", "c"}, {"probability", nullptr}});

  PredictionOptions csv_options = lines_options;
  csv_options.format = PredictionFormat::csv;
  const TemporaryFolder folder;
  const formats::CsvFile csv(folder.write("p.csv", predicted(classes(names), csv_options)));
  CHECK(csv.header() ==
        std::vector<std::string>{"index", "prediction", "prediction_name", "score",
                                 "probability_a, b", "probability_c", "probability_\xc3\xbc",
                                 "top_1_class", "top_1_name", "top_1_probability", "top_2_class",
                                 "top_2_name", "top_2_probability", "target", "target_name"});
  const std::vector<std::size_t> column{csv.column("probability_c")};
  CHECK(csv.numbers(column)[2] == lines[2]["probability"]["c"]);
  CHECK(csv.text(1, csv.column("top_2_name")) == "c");
  CHECK(csv.text(3, csv.column("top_1_probability")) == "NaN");

  // Without names they are a list, and numbered.
  csv_options.top = 1;
  CHECK(predicted(classes(), csv_options)
            .starts_with("index,prediction,score,probability_0,probability_1,probability_2,"
                         "top_1_class,top_1_probability,target\n0,1,2.5,"));
  CHECK(lines_of(predicted(classes(), lines_options))[0]["probability"].size() == 3);
}

TEST_CASE("columns of the data stand before the prediction, under names of their own") {
  // Two rows of values, with columns.
  class Table : public TensorSet {
   public:
    Table() : TensorSet(at::zeros({2, 1}), std::nullopt, value_sample({1}, 1)) {}
    std::vector<std::string> columns() const override { return {"", " id", "index", "a,b"}; }
    std::string text(std::int64_t index, std::size_t column) const override {
      return str(columns()[column], "/", index);
    }
  };
  const auto table = std::make_shared<const Table>();
  const auto with = [&](const std::vector<std::string>& names, const Dataset& data) {
    return predicted(data, {.with = names});
  };
  CHECK(with({"id", "a,b", "id"}, *table) ==
        "index, id,\"a,b\",prediction\n0, id/0,\"a,b/0\",0.0\n1, id/1,\"a,b/1\",0.0\n");
  CHECK(with({"*"}, *table).starts_with("index, id,own_index,\"a,b\",prediction\n"));
  // Of a part they are those of its own samples.
  const Subset part(table, {1});
  CHECK(with({"index,id"}, part) == "index,own_index, id,prediction\n0,index/1, id/1,0.0\n");
  CHECK(message_of<ValueError>([&] { (void)with({"indx"}, *table); }) ==
        "--with: there is no column 'indx' (did you mean 'index'?); there are '', ' id', 'index', "
        "'a,b'");
  CHECK(message_of<ValueError>([&] { (void)with({"*"}, classes()); }) ==
        "--with: the data have no columns");
}

TEST_CASE("probabilities are those of one class a sample") {
  const auto refusal = [](const Dataset& data, const PredictionOptions& options) {
    return message_of<ValueError>([&] { (void)predicted(data, options); });
  };
  const TensorSet values(at::zeros({2, 2}), std::nullopt, value_sample({2}, 2));
  CHECK(refusal(values, {.probabilities = true}) ==
        "--probabilities: the model predicts values, which have no probabilities");
  CHECK(refusal(values, {.top = 1}) ==
        "--top: the model predicts values, which have no probabilities");
  for (const std::int64_t top : {-1, 0, 4}) {
    CHECK(refusal(classes(), {.top = top}) ==
          str("--top: must be from 1 to the 3 classes that there are, is ", top));
  }
  SampleType positions = class_sample({2, 3}, 3);
  positions.target.shape = {2};
  const TensorSet several(at::zeros({1, 2, 3}), at::zeros({1, 2}, at::kLong), positions);
  CHECK(refusal(several, {.top = 1}) ==
        "the model's outputs (1, 2, 3) are of more than one class a sample, which has no one "
        "probability");
}

TEST_CASE("predictions of values read back as the outputs, one or several a sample") {
  const TensorSet one(at::tensor({0.1F, -1e-30F}).view({2, 1}),
                      at::tensor({3.0F, 0.2F}).view({2, 1}), value_sample({1}, 1));
  CHECK(predicted(one, 1, PredictionFormat::csv) ==
        "index,prediction,target\n0,0.1,3.0\n1,-1e-30,0.2\n");
  CHECK(predicted(one, 2, PredictionFormat::jsonl) ==
        "{\"index\":0,\"prediction\":0.1,\"target\":3.0}\n"
        "{\"index\":1,\"prediction\":-1e-30,\"target\":0.2}\n");

  const at::Tensor values = at::arange(12, at::kFloat).div(7).view({2, 3, 2});
  const TensorSet several(values, values * 2, {{at::kFloat, {3, 2}}, {at::kFloat, {3, 2}}, 0});
  const auto lines = lines_of(predicted(several, 2, PredictionFormat::jsonl));
  REQUIRE(lines.size() == 2);
  const TemporaryFolder folder;
  const formats::CsvFile csv(folder.write("p.csv", predicted(several, 2, PredictionFormat::csv)));
  CHECK(csv.columns() == 1 + 6 + 6);
  const auto number = [&](const std::string& name, std::size_t row) {
    return static_cast<float>(csv.numbers(std::vector{csv.column(name)})[row]);
  };
  for (std::int64_t i = 0; i < 2; ++i) {
    const auto row = static_cast<std::size_t>(i);
    for (std::int64_t j = 0; j < 6; ++j) {
      const auto exact = values[i].flatten()[j].item<float>();
      CHECK(lines[row]["prediction"][static_cast<std::size_t>(j)].get<float>() == exact);
      CHECK(number(str("prediction_", j), row) == exact);
      CHECK(number(str("target_", j), row) == 2 * exact);
    }
  }
}

TEST_CASE("a class for each position is a list, and has the name of none where it is ignored") {
  const at::Tensor scores = at::tensor({0.F, 1.F, 2.F, 1.F, 5.F, 3.F, 4.F, 8.F}).view({2, 2, 2});
  const TensorSet data(scores, at::tensor({1, 0, -100, 1}, at::kLong).view({2, 2}),
                       {{at::kFloat, {2, 2}}, {at::kLong, {2}}, 2}, {"no", "yes"});
  const auto lines = lines_of(predicted(data, 2, PredictionFormat::jsonl));
  REQUIRE(lines.size() == 2);
  CHECK(lines[1] == json{{"index", 1},
                         {"prediction", {0, 1}},
                         {"prediction_name", {"no", "yes"}},
                         {"score", {5.0, 8.0}},
                         {"target", {-100, 1}},
                         {"target_name", {"", "yes"}}});
}

TEST_CASE("predictions of tokens, and of outputs that do not fit, are refused") {
  const at::Tensor tokens = at::zeros({2, 5}, at::kLong);
  CHECK(message_of<ValueError>([&] {
          (void)predicted(TensorSet(tokens, tokens, token_sample(5, 256)), 2,
                          PredictionFormat::csv);
        }) == "the data are tokens, each with the one that follows: train sample continues a text");
  const at::Tensor two = at::zeros({3, 2});
  CHECK(message_of<ValueError>([&] {
          (void)predicted(TensorSet(two, at::zeros({3}, at::kLong), class_sample({2}, 4)), 2,
                          PredictionFormat::csv);
        }) == "the model's outputs (2, 2) have no score for each of 4 classes");
}

TEST_CASE("values that were normalized are written as they were before") {
  const TensorSet data(at::tensor({0.F, 1.F, -0.5F, 7.F}).view({2, 2}),
                       at::tensor({1.F, 0.F, 0.F, 0.F}).view({2, 2}), value_sample({2}, 2));
  CHECK(predicted(data, 2, PredictionFormat::csv, {{100, 20}, {-3, 0}}) ==
        "index,prediction_0,prediction_1,target_0,target_1\n0,100.0,-3.0,120.0,-3.0\n1,90.0,-3.0,"
        "100.0,-3.0\n");
  CHECK(message_of<ValueError>([&] {
          (void)predicted(data, 2, PredictionFormat::csv, {{100, 20}});
        }) == "the model's outputs have 2 values a sample, and the data 1");
}

TEST_CASE("outputs that are not finite are one warning with their number and the first") {
  const auto warnings = [](const Dataset& data, PredictionFormat format) {
    const testing::CapturedStderr log;
    (void)predicted(data, 2, format);
    return log.text();
  };
  CHECK(warnings(classes(), PredictionFormat::jsonl) ==
        "lockstep: warning: the model's output is not finite for 1 of 4 samples, first for sample "
        "3: null stands there\n");
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const at::Tensor outputs =
      at::tensor({0.F, 1.F, kInfinity, -kInfinity, 2.F, 3.F, 4.F, kInfinity}).view({4, 2});
  CHECK(warnings(TensorSet(outputs, std::nullopt, value_sample({2}, 2)), PredictionFormat::csv) ==
        "lockstep: warning: the model's output is not finite for 2 of 4 samples, first for sample "
        "1: NaN or inf stands there\n");
  CHECK(warnings(TensorSet(at::zeros({2, 2}), std::nullopt, value_sample({2}, 2)),
                 PredictionFormat::jsonl)
            .empty());
}

TEST_CASE("predictions of samples without targets have no such column") {
  const at::Tensor inputs = at::tensor({1.F, 3.F}).view({1, 2});
  CHECK(predicted(TensorSet(inputs, std::nullopt, value_sample({2}, 2)), 1,
                  PredictionFormat::csv) == "index,prediction_0,prediction_1\n0,1.0,3.0\n");
  CHECK(predicted(TensorSet(inputs, std::nullopt, class_sample({2}, 2), {"no", "yes"}), 1,
                  PredictionFormat::csv) ==
        "index,prediction,prediction_name,score\n0,1,yes,3.0\n");
}

TEST_CASE("samples that have names are told by them") {
  const auto named = made_set(
      {.size = 3,
       .has_targets = false,
       .make = [](const MadeSample& sample) { sample.input.fill_(sample.index); },
       .name = [](std::int64_t i) { return i == 1 ? "a, \xff.png" : str("b/", i, ".png"); }});
  CHECK(predicted(*named, 2, PredictionFormat::csv) ==
        "index,file,prediction\n0,b/0.png,0.0\n1,\"a, \xff.png\",1.0\n2,b/2.png,2.0\n");
  CHECK(lines_of(predicted(*named, 2, PredictionFormat::jsonl))[1] ==
        json{{"index", 1}, {"file", "a, \xef\xbf\xbd.png"}, {"prediction", 1.0}});
}

TEST_CASE("whether rows have a name is decided once, though a set breaks the rule") {
  const auto some_named = [](std::int64_t named) {
    return made_set({.size = 2, .has_targets = false, .name = [named](std::int64_t index) {
                       return index == named ? "a.png" : "";
                     }});
  };
  for (const std::int64_t batch_size : {1, 2}) {
    CHECK(predicted(*some_named(0), batch_size, PredictionFormat::csv) ==
          "index,file,prediction\n0,a.png,0.0\n1,\"\",0.0\n");
    CHECK(predicted(*some_named(1), batch_size, PredictionFormat::csv) ==
          "index,prediction\n0,0.0\n1,0.0\n");
  }
}

}  // namespace lockstep
