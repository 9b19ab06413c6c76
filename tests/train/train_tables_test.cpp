#include <cmath>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/support/ended.h"
#include "tests/support/files.h"
#include "tests/support/pages.h"
#include "tests/train/train_in_fork.h"
#include "tests/train/train_program.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// Rows of houses with gaps, whose prices follow from area, city and year of sale.
std::string houses(int rows, int first = 0) {
  const std::vector<std::pair<std::string, int>> cities{
      {"Bonn", 0}, {"Kiel", 50'000}, {"Ulm", 20'000}};
  std::ostringstream text;
  text << "owner,area,city,sold,price\n";
  for (int i = first; i < first + rows; ++i) {
    const int area = 50 + (i * 37) % 100;
    const auto& [city, worth] = cities[static_cast<std::size_t>(i) % cities.size()];
    const int year = 2001 + i % 20;
    text << "owner " << i << "," << (i % 29 == 5 ? "" : str(area)) << ","
         << (i % 31 == 7 ? "NA" : city) << "," << year << "-0" << 1 + i % 9 << "-15,"
         << 1000 * area + worth + 500 * (year - 2000) << "\n";
  }
  return text.str();
}

const Flags kRun{"--config", "houses.yaml", "--output", "run"};
const Flags kOfRun{"--checkpoint", "run/checkpoints/latest"};

}  // namespace

TEST_CASE("a table with names, categories, dates and gaps is trained on and predicted as it is") {
  const TemporaryFolder folder;
  folder.write("houses.yaml", read_page("trainers/README.md").showing("houses.yaml").text);
  folder.write("houses.csv", houses(300));
  folder.write("houses_test.csv", houses(60, 300));
  const Ended run = must_train(folder.path(), kRun);
  CHECK_THAT(run.err + run.out, ContainsSubstring("missing: area (11), city (10)"));
  // Figures are in the unit of the prices, whose deviation is some 35,000, in all places.
  const auto result = result_of(folder.path() / "run");
  const double error = result["eval"]["mean_absolute_error"].get<double>();
  CHECK(error > 10);
  CHECK(error < 10'000);
  CHECK(result["eval"]["loss"].get<double>() >= error * error);
  const auto metrics = read_json_lines(folder.path() / "run/metrics.jsonl");
  CHECK(metrics.front()["loss"].get<double>() > 1e7);
  const Ended eval = train(folder.path(), Flags{"eval", "--quiet"} + kOfRun);
  CHECK_THAT(eval.out, ContainsSubstring(str("test mean_absolute_error ", error)));

  // Another table has neither prices nor owners, but gaps and a city of its own.
  folder.write("new.csv", "sold,city,area\n2010-05-15,Kiel,100\n2010-05-15,Rome,\n");
  const Flags predict = Flags{"predict"} + kOfRun + Flags{"--set", "data.file=new.csv"};
  const Ended predicted = train(folder.path(), predict);
  check_status(predicted, 0);
  const auto lines = lines_of(predicted.out);
  REQUIRE(lines.size() == 3);
  const auto told_once = [&](const std::string& text) {
    const std::size_t at = predicted.err.find(text);
    return at < predicted.err.size() && predicted.err.rfind(text) == at;
  };
  CHECK(told_once("1 missing value is filled by the training set's means"));
  CHECK(
      told_once("'new.csv': values of categories that the training set does not have take the "
                "input of data.unseen: city (1)\n"));
  const double kiel = std::stod(lines[1].substr(lines[1].find(',') + 1));
  CHECK(kiel == Approx(155'000).epsilon(0.1));
  // A run goes on from what its checkpoint says of the table.
  check_status(train(folder.path(), kRun + Flags{"--resume", "auto", "--set", "trainer.epochs=41"}),
               0);
}

TEST_CASE("a category that a model does not know is told with its line where it is predicted") {
  const TemporaryFolder folder;
  folder.write("houses.yaml", read_page("trainers/README.md").showing("houses.yaml").text);
  folder.write("houses.csv", houses(90));
  folder.write("houses_test.csv", houses(30, 90));
  must_train(folder.path(),
             kRun + Flags{"--set", "data.unseen=error", "--set", "trainer.epochs=1"});
  folder.write("new.csv", "sold,city,area\n2010-05-15,Kiel,100\n2010-05-15,Rome,80\n");
  const Ended predicted =
      train(folder.path(), Flags{"predict"} + kOfRun + Flags{"--set", "data.file=new.csv"});
  CHECK(predicted.status == 2);
  CHECK(lines_of(predicted.out).size() == 2);
  CHECK_THAT(predicted.err,
             ContainsSubstring("new.csv': line 3: column 'city': 'Rome' is none of the training "
                               "set's categories: 'Bonn', 'Kiel', 'Ulm'; "));
}

TEST_CASE("figures of a validation set are in the unit of the file, in the run and in eval") {
  const TemporaryFolder folder;
  folder.write("job.yaml",
               "model: {name: linear}\n"
               "data: {name: csv, file: houses.csv, target: price, features: [area], missing: drop,"
               " normalize_targets: true, validation: 0.2}\n"
               "optimizer: {name: sgd, lr: 0.1}\n"
               "parallel: {replicas: 2}\n"
               "trainer: {epochs: 3}\n");
  folder.write("houses.csv", houses(100));
  must_train(folder.path(), {"--config", "job.yaml", "--output", "run"});
  const auto loss = result_of(folder.path() / "run")["validation"]["loss"].get<double>();
  CHECK(loss > 1e7);
  const Ended eval = train(folder.path(), Flags{"eval", "--quiet"} + kOfRun);
  CHECK_THAT(eval.out, ContainsSubstring(str("validation loss ", loss, "\n")));
}
