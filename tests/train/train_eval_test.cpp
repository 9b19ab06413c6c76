// What train eval tells beside the figures, which predictions bear out.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/support/ended.h"
#include "tests/support/files.h"
#include "tests/train/train_in_fork.h"
#include "tests/train/train_program.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

const std::string kClasses = "task: classification, ";
const Flags kOfRun{"--checkpoint", "run/checkpoints/latest"};

// A run on train.csv in two replicas, which is evaluated on test.csv: its 53 rows are unequal
// parts.
class EvaluatedRun {
 public:
  EvaluatedRun(const std::string& target, const std::string& trainer, const std::string& data,
               const std::function<std::string(int)>& row) {
    for (const auto& [file, rows] :
         std::map<std::string, int>{{"train.csv", 60}, {"test.csv", 53}}) {
      std::string text = str("a,b,", target, "\n");
      for (int i = 0; i < rows; ++i) text += row(i) + "\n";
      folder_.write(file, text);
    }
    folder_.write("job.yaml",
                  str("model: {name: linear}\n"
                      "data: {name: csv, file: train.csv, test_file: test.csv, batch_size: 6, ",
                      data, "target: ", target,
                      "}\n"
                      "optimizer: {name: adam, lr: 0.05}\n"
                      "parallel: {replicas: 2, launch: threads}\n"
                      "trainer: ",
                      trainer, "\n"));
    printed_ = must_train(folder_.path(), {"--config", "job.yaml", "--output", "run"}).out;
  }

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_.path(); }
  // What the run itself says of its test set.
  [[nodiscard]] nlohmann::json figures() const { return result_of(folder() / "run")["eval"]; }
  [[nodiscard]] std::string text(const Flags& flags = {}) const {
    return must_train(folder(), Flags{"eval"} + kOfRun + flags).out;
  }
  // Nothing but one line of JSON is on stdout.
  [[nodiscard]] nlohmann::json json(const Flags& flags = {}) const {
    const std::string out = text(Flags{"--format", "json"} + flags);
    CHECK(std::ranges::count(out, '\n') == 1);
    return nlohmann::json::parse(out);
  }
  // A line a sample, by predict.
  [[nodiscard]] std::vector<nlohmann::json> predictions(const Flags& flags = {}) const {
    std::vector<nlohmann::json> rows;
    const std::string out =
        must_train(folder(), Flags{"predict", "--format", "jsonl"} + kOfRun + flags).out;
    for (const std::string& line : lines_of(out)) rows.push_back(nlohmann::json::parse(line));
    return rows;
  }
  [[nodiscard]] const std::string& printed() const { return printed_; }

 private:
  TemporaryFolder folder_;
  std::string printed_;
};

// Animals that a and b tell, though not all of them.
std::string animal_row(int i, const std::vector<std::string>& names) {
  const int kind = i % static_cast<int>(names.size());
  return str(kind * 10 + (i * 7) % 13, ",", (i * 5) % 11, ",",
             names[static_cast<std::size_t>(kind)]);
}

}  // namespace

TEST_CASE("train eval tells of classes what was predicted for each, as predict does") {
  const EvaluatedRun run("kind", "{epochs: 4, metrics: [f1, accuracy, recall_weighted]}", kClasses,
                         [](int i) {
                           return animal_row(i, {"ant", "bee", "owl"});
                         });
  const nlohmann::json told = run.json();
  CHECK(told["step"] == 20);
  CHECK(told["weights"] == "trained");
  CHECK_THAT(told["checkpoint"].get<std::string>(), ContainsSubstring("/step-00000020"));
  REQUIRE(fields(told["sets"]) == std::vector<std::string>{"test"});
  const nlohmann::json& test = told["sets"]["test"];
  CHECK(fields(test) ==
        std::vector<std::string>{"averages", "classes", "confusion", "figures", "samples"});
  CHECK(test["samples"] == 53);
  CHECK(test["figures"] == run.figures());
  CHECK(test["averages"]["macro"]["f1"] == run.figures()["f1"]);
  CHECK(test["averages"]["weighted"]["recall"] == run.figures()["recall_weighted"]);
  CHECK(run.figures()["recall_weighted"].get<double>() ==
        Approx(run.figures()["accuracy"].get<double>()).epsilon(1e-14));

  std::vector<std::vector<int>> confusion(3, std::vector<int>(3, 0));
  for (const nlohmann::json& row : run.predictions()) {
    ++confusion[row["target"].get<std::size_t>()][row["prediction"].get<std::size_t>()];
  }
  CHECK(test["confusion"] == nlohmann::json(confusion));
  // The run's report has the same, of the run's own evaluation.
  const nlohmann::json seen = read_json(run.folder() / "run" / "evaluation_test.json");
  CHECK(seen["step"] == 20);
  CHECK(seen["samples"] == 53);
  CHECK(seen["confusion"] == test["confusion"]);
  CHECK(seen["class_names"] == nlohmann::json{"ant", "bee", "owl"});
  CHECK(seen["worst"].size() == 20);
  const auto predictions = run.predictions({"--probabilities"});
  for (const nlohmann::json& sample : seen["worst"]) {
    const nlohmann::json& row = predictions.at(sample["index"].get<std::size_t>());
    CHECK(sample["target_name"] == row["target_name"]);
    CHECK(sample["prediction_name"] == row["prediction_name"]);
    const std::string target = row["target_name"];
    CHECK(std::exp(-sample["loss"].get<double>()) ==
          Approx(row["probability"][target].get<double>()).epsilon(1e-4));
  }
  CHECK_THAT(read_text(run.folder() / "run" / "report.html"),
             ContainsSubstring("Targets and predictions, test set, step 20") &&
                 ContainsSubstring("Worst samples, test set, step 20"));
  int wrong = 0;
  for (std::size_t c = 0; c < 3; ++c) {
    const nlohmann::json& row = test["classes"][c];
    int predicted = 0;
    for (const auto& of_target : confusion) predicted += of_target[c];
    const int count = confusion[c][0] + confusion[c][1] + confusion[c][2];
    CHECK(row["class"] == c);
    CHECK(row["name"] == std::vector{"ant", "bee", "owl"}[c]);
    CHECK(row["count"] == count);
    CHECK(row["predicted"] == predicted);
    CHECK(row["recall"] == static_cast<double>(confusion[c][c]) / count);
    CHECK(row["precision"] == static_cast<double>(confusion[c][c]) / predicted);
    wrong += count - confusion[c][c];
  }
  CHECK(wrong > 0);  // there is something to confuse

  const std::string text = run.text();
  const auto lines = lines_of(text);
  CHECK(lines.front() == lines_with(": test accuracy ", run.printed()).back());
  const nlohmann::json& bee = test["classes"][1];
  const std::string tables =
      str("\ntest set, class by class:\n"
          "  class             count  precision  recall      f1\n");
  CHECK_THAT(text, ContainsSubstring(tables));
  CHECK_THAT(text,
             ContainsSubstring(formatted("\n  bee                  %d     %.4f  %.4f  %.4f\n",
                                         bee["count"].get<int>(), bee["precision"].get<double>(),
                                         bee["recall"].get<double>(), bee["f1"].get<double>())));
  CHECK_THAT(text, ContainsSubstring("\n  weighted average     53     "));
  CHECK_THAT(text,
             ContainsSubstring("\ntest set, targets (rows) and what was predicted (columns):\n") &&
                 ContainsSubstring("\n  2 owl  "));
  CHECK(run.text({"--quiet"}) == lines.front() + "\n");
  // A reader that is gone before anything is written makes no replica a lost one.
  for (const std::string launch : {"processes", "threads"}) {
    const Ended unread = run_program(
        Flags{"/bin/sh", "-c", R"(mkfifo "$0"; : < "$0" & exec 3> "$0"; wait; "$@" >&3)", launch} +
            train_command(Flags{"eval", "--launch", launch} + kOfRun),
        run.folder());
    check_status(unread, 0);
    CHECK_THAT(unread.err, !ContainsSubstring("error"));
  }
  check_refused(run.folder(), Flags{"eval", "--format", "tsv"} + kOfRun,
                "--format tsv: must be text or json");
}

TEST_CASE("counts, AUC and quantiles are the same on any number of replicas, as in training") {
  const EvaluatedRun two("kind", "{epochs: 2, metrics: [f1, auc, precision_macro]}", kClasses,
                         [](int i) {
                           return animal_row(i, {"bee", "wasp"});
                         });
  const nlohmann::json test = two.json()["sets"]["test"];
  CHECK(test["figures"] == two.figures());
  CHECK(test["auc"] == two.figures()["auc"]);
  CHECK(test["auc"] > 0.5);
  CHECK(test["classes"][1]["f1"] == two.figures()["f1"]);
  CHECK_THAT(two.text(),
             ContainsSubstring(str("\ntest set, auc ", test["auc"].get<double>(), "\n")));

  const EvaluatedRun values("y", "{epochs: 4, metrics: [root_mean_squared_error]}", "", [](int i) {
    return str(i % 10, ",", (i * 7) % 5, ",", 3 * (i % 10) - (i * 3) % 7);
  });
  const nlohmann::json residuals = values.json()["sets"]["test"]["residuals"];
  for (const std::string replicas : {"1", "3", "5"}) {
    INFO(replicas);
    const nlohmann::json other = two.json({"--replicas", replicas})["sets"]["test"];
    for (const char* const part : {"classes", "averages", "confusion", "auc"}) {
      CHECK(other[part] == test[part]);
    }
    const auto of_values = values.json({"--replicas", replicas})["sets"]["test"]["residuals"];
    for (const auto& [percent, value] : residuals[0]["quantiles"].items()) {
      CHECK(of_values[0]["quantiles"][percent].get<double>() ==
            Approx(value.get<double>()).epsilon(1e-6));
    }
  }
}

TEST_CASE("train eval measures the sets that --split names, the training set among them") {
  const EvaluatedRun run("kind", "{epochs: 4}", kClasses + "validation: 0.2, ", [](int i) {
    return animal_row(i, {"ant", "bee", "owl"});
  });
  const nlohmann::json usual = run.json()["sets"];
  CHECK(fields(usual) == std::vector<std::string>{"test", "validation"});
  const nlohmann::json named = run.json({"--split", "train", "--split=test"})["sets"];
  REQUIRE(fields(named) == std::vector<std::string>{"test", "train"});
  CHECK(named["test"] == usual["test"]);
  CHECK(named["train"]["samples"] == 48);  // without those of the validation set
  double right = 0;
  for (const nlohmann::json& row : run.predictions({"--split", "train"})) {
    right += row["target"] == row["prediction"] ? 1 : 0;
  }
  CHECK(named["train"]["figures"]["accuracy"].get<double>() == Approx(right / 48));
  CHECK_THAT(run.text({"--split=train", "--quiet"}),
             Catch::Matchers::StartsWith("step 16: train accuracy ") && !ContainsSubstring("test"));
  const Flags eval = Flags{"eval"} + kOfRun;
  check_refused(run.folder(), eval + Flags{"--split=train", "--split=tset"},
                "--split tset: must be train, validation or test");
  check_refused(run.folder(), eval + set("data.validation=0") + Flags{"--split", "validation"},
                "--split validation: the data set csv has no validation set; the run had train, "
                "validation, test");
}

TEST_CASE("train eval tells of values the quantiles of what is left, in the file's unit") {
  const auto is_normalized = GENERATE(false, true);
  const EvaluatedRun run(
      "y", "{epochs: 4, ema_decay: 0.5}",
      str("normalize_targets: ", is_normalized ? "true, " : "false, "),
      [](int i) { return str(i % 10, ",", (i * 7) % 5, ",", 1000 + 30 * (i % 10) - (i * 3) % 7); });
  const nlohmann::json told = run.json();
  CHECK(told["weights"] == "averaged");
  const nlohmann::json& test = told["sets"]["test"];
  CHECK(fields(test) ==
        std::vector<std::string>{"figures", "residuals", "samples", "trained_figures"});
  CHECK(test["trained_figures"]["loss"].is_number());
  CHECK(test["trained_figures"] != test["figures"]);
  REQUIRE(test["residuals"].size() == 1);
  const nlohmann::json& residuals = test["residuals"][0];
  CHECK(residuals["output"] == 0);
  CHECK(residuals["name"] == "y");

  std::vector<double> left;
  for (const nlohmann::json& row : run.predictions()) {
    left.push_back(row["target"].get<double>() - row["prediction"].get<double>());
  }
  std::ranges::sort(left);
  REQUIRE(left.size() == 53);  // quartiles are values
  for (const auto& [percent, place] : std::map<std::string, std::size_t>{
           {"0", 0}, {"25", 13}, {"50", 26}, {"75", 39}, {"100", 52}}) {
    CHECK(residuals["quantiles"][percent].get<double>() == Approx(left[place]).margin(2e-3));
  }
  CHECK_THAT(run.text(), ContainsSubstring("\ntest set, quantiles of target - prediction:\n") &&
                             ContainsSubstring("\n  y       "));
}

TEST_CASE("train eval has no tables of tokens; the run's report has texts, as sample gives them") {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 1500; ++i) text += str("line ", i % 7, "\n");
  folder.write("a.txt", text);
  folder.write("job.yaml",
               "model: {name: gpt, layers: 1, heads: 1, width: 8}\n"
               "data: {name: text, path: a.txt, context: 8, batch_size: 4, validation: 0.2}\n"
               "parallel: {replicas: 1}\n"
               "trainer: {steps: 2}\n");
  (void)must_train(folder.path(), {"--config", "job.yaml", "--output", "run"});
  const auto eval = [&](const Flags& flags) {
    return must_train(folder.path(), Flags{"eval"} + kOfRun + flags).out;
  };
  CHECK(lines_of(eval({})).size() == 1);
  const auto told = nlohmann::json::parse(eval({"--format=json"}));
  CHECK(fields(told["sets"]["validation"]) == std::vector<std::string>{"figures", "samples"});
  const auto seen = read_json(folder.path() / "run" / "evaluation_validation.json");
  REQUIRE(seen["texts"].size() == 2);
  const std::string prompt = seen["texts"][1]["prompt"];
  CHECK(prompt.size() == 8);
  CHECK(text.find(prompt) != text.npos);
  const std::string sampled =
      must_train(folder.path(), Flags{"sample", "--prompt", prompt, "--bytes", "13"} + kOfRun).out;
  // Bytes that are no UTF-8 are replaced.
  const auto replace = nlohmann::json::error_handler_t::replace;
  CHECK(nlohmann::json(prompt + seen["texts"][1]["text"].get<std::string>() + "\n") ==
        nlohmann::json::parse(nlohmann::json(sampled).dump(-1, ' ', false, replace)));
}
