#include <filesystem>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/formats/sample_files.h"
#include "tests/support/ended.h"
#include "tests/support/files.h"
#include "tests/train/train_in_fork.h"
#include "tests/train/train_program.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const Flags kPredict{"predict", "--checkpoint", "run/checkpoints/latest"};

// Rows of y = 1000 + 3a - 50b, whose columns have other means and deviations for another `shift`.
std::string table(int rows, double shift = 0, bool has_targets = true) {
  std::ostringstream text;
  text << "a,b" << (has_targets ? ",y" : "") << "\n";
  for (int i = 0; i < rows; ++i) {
    const double a = 100 + shift + (i * 37) % 41;
    const double b = -3 + (i * 11) % 7 * 0.5;
    text << a << "," << b;
    if (has_targets) text << "," << 1000 + 3 * a - 50 * b;
    text << "\n";
  }
  return text.str();
}

// Names of animals, which a decides: below 0, around 0, above.
std::string animals(const std::vector<std::string>& names) {
  std::string text = "a,kind\n";
  for (int i = 0; i < 60; ++i) {
    const auto kind = static_cast<std::size_t>(i) % names.size();
    text += str(10 * (static_cast<int>(kind) - 1) + i % 3, ",", names[kind], "\n");
  }
  return text;
}

struct DataJob {
  explicit DataJob(const std::string& config) { folder.write("job.yaml", config); }

  [[nodiscard]] Ended run(const Flags& flags) const {
    return train(folder.path(), Flags{"--config", "job.yaml", "--output", "run"} + flags);
  }
  Ended must_run(const Flags& flags = {}) const {
    return must_train(folder.path(), Flags{"--config", "job.yaml", "--output", "run"} + flags);
  }
  // The lines that predict writes, without their columns' names.
  [[nodiscard]] std::vector<std::vector<std::string>> predictions(const Flags& flags) const {
    const Ended end = train(folder.path(), kPredict + flags);
    check_status(end, 0);
    std::vector<std::vector<std::string>> rows;
    for (const std::string& line : lines_of(end.out)) {
      std::vector<std::string>& row = rows.emplace_back();
      std::istringstream fields(line);
      for (std::string field; std::getline(fields, field, ',');) row.push_back(field);
    }
    return rows;
  }
  [[nodiscard]] std::string refusal(const Flags& flags) const {
    const Ended end = train(folder.path(), flags);
    CHECK(end.status == 2);
    CHECK(end.out.empty());
    return end.err;
  }

  TemporaryFolder folder;
};

const std::string kRegression =
    "model: {name: linear}\n"
    "data: {name: csv, file: train.csv, target: y, normalize_targets: true, batch_size: 10}\n"
    "optimizer: {name: sgd, lr: 0.1}\n"
    "parallel: {replicas: 2}\n"
    "trainer: {epochs: 20}\n";

const std::string kAnimals =
    "model: {name: linear}\n"
    "data: {name: csv, file: train.csv, test_file: test.csv, target: kind, task: classification}\n"
    "optimizer: {name: sgd, lr: 1}\n"
    "parallel: {replicas: 1}\n"
    "trainer: {epochs: 40}\n";

void check_values(const std::vector<std::vector<std::string>>& rows, const std::string& expected) {
  const auto lines = lines_of(expected);
  REQUIRE(rows.size() == lines.size());
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const double right = std::stod(lines[i].substr(lines[i].rfind(',') + 1));
    REQUIRE(rows[i].size() >= 2);
    CHECK(rows[i][0] == std::to_string(i - 1));
    CHECK(std::stod(rows[i][1]) == Approx(right).epsilon(1e-4));
    if (rows[i].size() > 2) CHECK(std::stod(rows[i][2]) == Approx(right).epsilon(1e-6));
  }
}

}  // namespace

TEST_CASE("predictions of another table are scaled by the training file, and in the table's unit") {
  const DataJob job(kRegression);
  job.folder.write("train.csv", table(200));
  job.folder.write("test.csv", table(9, 5));
  job.must_run(set("data.test_file=test.csv data.validation=0.1"));
  check_values(job.predictions({}), table(9, 5));
  // Its own mean is far from the training file's, and there is but one row. All rows are taken, in
  // their order, though a tenth of the training file was validation set.
  for (const int rows : {1, 30}) {
    job.folder.write("other.csv", table(rows, 70));
    check_values(job.predictions(set("data.file=other.csv")), table(rows, 70));
    check_values(job.predictions(set("data.test_file=other.csv")), table(rows, 70));
  }
  job.folder.write("bare.csv", table(30, 70, false));
  const auto bare = job.predictions(set("data.file=bare.csv"));
  CHECK(bare[0] == std::vector<std::string>{"index", "prediction"});
  check_values(bare, table(30, 70));
  // Elsewhere the same file is no other training set.
  job.folder.write("moved.csv", table(200));
  CHECK(job.predictions(set("data.file=moved.csv")).size() == 10);
  CHECK(job.predictions(set("data.file=moved.csv") + Flags{"--split", "train"}).size() == 201);
  CHECK(job.predictions({"--split", "validation"}).size() == 21);

  job.folder.write("less.csv", "a,y\n1,2\n");
  CHECK_THAT(job.refusal(kPredict + set("data.file=less.csv")),
             ContainsSubstring("has no column 'b'"));
  CHECK_THAT(job.refusal(kPredict + set("data.normalize=false")),
             ContainsSubstring("data.normalize is false, but the model was trained with true"));
  const Flags eval{"eval", "--quiet", "--checkpoint", "run/checkpoints/latest"};
  const Ended figures = train(job.folder.path(), eval + set("data.file=other.csv"));
  INFO(figures.err);
  CHECK(lines_of(figures.out).back() == lines_of(train(job.folder.path(), eval).out).back());
  CHECK_THAT(job.refusal(eval + set("data.file=bare.csv")), ContainsSubstring("has no column 'y'"));
}

TEST_CASE("classes of another table are those that the model knows by their names") {
  const DataJob job(kAnimals);
  job.folder.write("train.csv", animals({"ant", "bee", "owl"}));
  job.folder.write("test.csv", animals({"ant", "bee", "owl"}));
  job.must_run();
  // Without ants, whose number is 0, bees have 0 in a table of their own.
  std::string others = "a,kind\n";
  for (const int a : {0, 1, 2}) others += str(a, ",bee\n", a + 10, ",owl\n");
  job.folder.write("other.csv", others);
  const auto rows = job.predictions(set("data.file=other.csv"));
  REQUIRE(rows.size() == 7);
  CHECK(rows[0] == std::vector<std::string>{"index", "prediction", "prediction_name", "score",
                                            "target", "target_name"});
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const bool is_bee = i % 2 == 1;
    CHECK(rows[i][1] == (is_bee ? "1" : "2"));
    CHECK(rows[i][2] == (is_bee ? "bee" : "owl"));
    CHECK(rows[i][4] == rows[i][1]);
    CHECK(rows[i][5] == rows[i][2]);
  }
  // Another class has no line, and no figure.
  job.folder.write("other.csv", others + "1,cow\n");
  const std::string cow =
      "other.csv': line 8: column 'kind': 'cow' is none of the training file's classes: 'ant', "
      "'bee', 'owl'";
  const Ended end = train(job.folder.path(), kPredict + set("data.file=other.csv"));
  CHECK(end.status == 2);
  CHECK(lines_of(end.out).size() == 7);
  CHECK_THAT(end.err, ContainsSubstring(cow));
  CHECK_THAT(job.refusal(Flags{"eval", "--checkpoint", "run/checkpoints/latest"} +
                         set("data.test_file=other.csv")),
             ContainsSubstring(cow));
}

TEST_CASE("a run does not go on with data that have changed, unless it is told to") {
  const DataJob job(kRegression);
  job.folder.write("train.csv", table(100));
  job.folder.write("test.csv", table(10));
  const Flags test = set("data.test_file=test.csv");
  job.must_run(test);
  const std::string done = read_text(job.folder.path() / "run/result.json");
  const Flags longer = test + set("trainer.epochs=25") + Flags{"--resume", "auto"};
  const auto refused = [&] {
    const std::string error =
        job.refusal(Flags{"--config", "job.yaml", "--output", "run"} + longer);
    CHECK(read_text(job.folder.path() / "run/result.json") == done);
    return error;
  };
  job.folder.write("train.csv", table(101));
  job.folder.write("test.csv", table(10, 1));
  const std::string changes =
      "the training set had 100 samples and has 101, the test set of 10 samples has other contents";
  CHECK_THAT(refused(), ContainsSubstring("step-00000100 is of a run on other data: " + changes +
                                          ". That changes what is computed: begin a new run, or "
                                          "add --resume-with-changes"));
  // The same rows in another place are no change.
  job.folder.write("train.csv", table(100));
  job.folder.write("moved.csv", table(10));
  check_status(train(job.folder.path(), Flags{"--config", "job.yaml", "--output", "other"} +
                                            set("data.test_file=moved.csv") +
                                            Flags{"--resume", "run/checkpoints/latest"}),
               0);

  job.folder.write("train.csv", table(101));
  job.folder.write("test.csv", table(10, 1));
  const Ended end = job.must_run(longer + Flags{"--resume-with-changes"});
  CHECK_THAT(end.out, ContainsSubstring("  the training set had 100 samples and has 101\n"));
  const Json result = result_of(job.folder.path() / "run");
  CHECK(result["changes"].size() == 3);
  CHECK(result["waived"].back() == "data were changed: " + changes);
  // From now on these are its data, normalized as they were.
  job.must_run(longer);
  check_values(job.predictions({}), table(10, 1));
  // With other columns they are fitted anew.
  const Flags columns = set("trainer.epochs=26 data.features=[b,a]") + Flags{"--resume", "auto"};
  CHECK_THAT(job.refusal(Flags{"--config", "job.yaml", "--output", "run"} + test + columns),
             ContainsSubstring("data.features was [], is [b, a]. That changes what is computed"));
  job.must_run(test + columns + Flags{"--resume-with-changes"});
}

TEST_CASE("an epoch's last samples are left out where a model needs more of them") {
  const DataJob job(
      "model: {name: resnet, depth: 8, width: 4}\n"
      "data: {name: npy, inputs: x.npy, targets: y.npy, batch_size: 3}\n"
      "optimizer: {name: sgd, lr: 0.1}\n"
      "parallel: {replicas: 2}\n"
      "trainer: {epochs: 3}\n");
  // Seven pictures: of the last, its features are one value for each channel.
  std::string pixels;
  for (int i = 0; i < 7 * 4 * 4; ++i) pixels += static_cast<char>(i * 37);
  job.folder.write("x.npy", npy_file("|u1", false, "(7, 4, 4)", pixels));
  job.folder.write("y.npy", npy_file("|u1", false, "(7,)", std::string("\0\1\0\1\1\0\1", 7)));
  const Ended failed = job.run({});
  CHECK(failed.status == 2);
  CHECK_THAT(failed.err, ContainsSubstring("one value for each channel") &&
                             ContainsSubstring("data.drop_last: true"));
  const auto result = [&](const std::string& output, const Flags& flags) {
    must_train(job.folder.path(), Flags{"--config", "job.yaml", "--output", output} +
                                      set("data.drop_last=true") + flags);
    return result_of(job.folder.path() / output);
  };
  const Json whole = result("whole", {});
  CHECK(whole["steps"] == 3);
  CHECK(result("parts", set("trainer.epochs=2"))["steps"] == 2);
  const Json parts = result("parts", {"--resume", "auto"});
  CHECK(parts["steps"] == 3);
  CHECK(parts["parameters_sha256"] == whole["parameters_sha256"]);
  CHECK(parts["buffers_sha256"] == whole["buffers_sha256"]);
  // Two samples were left out before the last step's six.
  CHECK(read_json_lines(job.folder.path() / "whole/metrics.jsonl").back()["samples"] == 2 * 7 + 6);
}

TEST_CASE("a run does not go on with a text that has grown by less than a sample") {
  const DataJob job(
      "model: {name: gpt, layers: 1, heads: 1, width: 8}\n"
      "data: {name: text, path: text, context: 8, batch_size: 2}\n"
      "optimizer: {name: adam}\n"
      "parallel: {replicas: 2}\n"
      "trainer: {steps: 2}\n");
  const std::string text = "All happy families are alike; each unhappy family is unhappy.";
  job.folder.write("text", text);
  job.must_run();
  job.folder.write("text", text + ".");
  CHECK_THAT(job.refusal({"--config", "job.yaml", "--output", "run", "--resume", "auto", "--set",
                          "trainer.steps=3"}),
             ContainsSubstring("is of a run on other data: the training set of 6 samples has other "
                               "contents. That changes"));
}

TEST_CASE("predictions and figures need no files but those of the set that is asked for") {
  const DataJob job(kRegression);
  job.folder.write("train.csv", table(200));
  job.folder.write("test.csv", table(9, 5));
  job.must_run(set("data.test_file=test.csv data.validation=0.1"));
  fs::remove(job.folder.path("train.csv"));
  check_values(job.predictions({}), table(9, 5));
  job.folder.write("other.csv", table(30, 70, false));
  check_values(job.predictions(set("data.test_file=other.csv")), table(30, 70));
  check_values(job.predictions(set("data.test_file=other.csv") + Flags{"--split", "test"}),
               table(30, 70));
  // Which of the sets is another is asked of their files: without them it must be named.
  CHECK_THAT(job.refusal(kPredict + set("data.file=none.csv")),
             ContainsSubstring("the training set, looked for because --split names none: csv: "
                               "there is no 'none.csv'; "));
  fs::remove(job.folder.path("test.csv"));
  CHECK_THAT(job.refusal(kPredict + set("data.file=other.csv")),
             ContainsSubstring("the test set, looked for because --split names none: csv: there is "
                               "no 'test.csv'; "));
  check_values(job.predictions(set("data.file=other.csv") + Flags{"--split", "train"}),
               table(30, 70));
  // The validation set is a part of the training set.
  const std::string error = job.refusal(kPredict + Flags{"--split", "validation"});
  CHECK_THAT(error, ContainsSubstring("csv: there is no 'train.csv'"));
  job.folder.write("right.csv", table(30));
  const Ended right =
      train(job.folder.path(), {"eval", "--quiet", "--checkpoint", "run/checkpoints/latest",
                                "--set", "data.test_file=right.csv", "--set", "data.validation=0"});
  CHECK_THAT(right.out, ContainsSubstring("test loss"));
  CHECK_THAT(right.out, !ContainsSubstring("validation"));
  CHECK_THAT(job.refusal(kPredict + Flags{"--split", "tset"}),
             ContainsSubstring("--split tset: must be train, validation or test"));
  CHECK_THAT(job.refusal(kPredict + set("data.test_file=null") + Flags{"--split", "test"}),
             ContainsSubstring("--split test: the data set csv has no test set; the run had train, "
                               "validation, test"));

  const DataJob animal_job(kAnimals);
  animal_job.folder.write("train.csv", animals({"ant", "bee", "owl"}));
  animal_job.folder.write("test.csv", animals({"ant", "bee", "owl"}));
  animal_job.must_run();
  const Flags eval{"eval", "--quiet", "--checkpoint", "run/checkpoints/latest"};
  const std::string figures = train(animal_job.folder.path(), eval).out;
  CHECK_THAT(figures, ContainsSubstring("test accuracy"));
  fs::remove(animal_job.folder.path("train.csv"));
  CHECK(train(animal_job.folder.path(), eval).out == figures);
}

TEST_CASE("arrays to predict need neither targets nor the arrays trained on") {
  const DataJob job(
      "model: {name: linear}\n"
      "data: {name: npy, inputs: x.npy, targets: y.npy, batch_size: 4}\n"
      "parallel: {replicas: 1}\n");
  const std::string floats(8 * 4, '\0');
  job.folder.write("x.npy", npy_file("<f4", false, "(8, 1)", floats));
  job.folder.write("y.npy", npy_file("<f4", false, "(4, 2)", floats));
  CHECK_THAT(job.run({}).err, ContainsSubstring("it has 4 samples, but 'x.npy' has 8"));
  job.folder.write("x.npy", npy_file("<f4", false, "(4, 2)", floats));
  job.must_run();
  fs::remove(job.folder.path("x.npy"));
  fs::remove(job.folder.path("y.npy"));
  job.folder.write("new.npy", npy_file("<f4", false, "(3, 2)", floats.substr(0, 24)));
  const auto rows = job.predictions(set("data.test_inputs=new.npy"));
  REQUIRE(rows.size() == 4);
  CHECK(rows[0] == std::vector<std::string>{"index", "prediction_0", "prediction_1"});
}

TEST_CASE("tokens whose targets do not count are trained and evaluated") {
  const DataJob job(
      "model: {name: gpt, layers: 1, heads: 2, width: 16}\n"
      "data: {name: npy, inputs: x.npy, targets: y.npy, test_inputs: x.npy, test_targets: y.npy,\n"
      "       batch_size: 2}\n"
      "loss: {name: cross_entropy, ignore_index: -100}\n"
      "parallel: {replicas: 2}\n"
      "trainer: {epochs: 2}\n");
  const auto array = [](const std::vector<std::int16_t>& values) {
    return npy_file("<i2", false, "(4, 3)",
                    {reinterpret_cast<const char*>(values.data()), values.size() * 2});
  };
  job.folder.write("x.npy", array({1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6}));
  job.folder.write("y.npy", array({-100, 3, 4, 5, 6, -100, -100, -100, -100, 5, 6, 0}));
  job.must_run();
  CHECK(result_of(job.folder.path() / "run")["eval"]["loss"].is_number());
  CHECK_THAT(
      train(job.folder.path(), {"--config", "job.yaml", "--set", "loss.ignore_index=-1"}).err,
      ContainsSubstring("y.npy': element [0, 0] is -100, but must be 0 ... 6"));
}

TEST_CASE("an array's number that is none is told with its place, and no learning rate is blamed") {
  const DataJob job(
      "model: {name: linear}\n"
      "data: {name: npy, inputs: x.npy, targets: y.npy, batch_size: 2}\n"
      "parallel: {replicas: 2}\n"
      "trainer: {epochs: 2}\n");
  std::vector<float> values(12, 0.5F);
  values[7] = std::numeric_limits<float>::quiet_NaN();
  const auto write = [&](const std::string& name, const std::string& shape) {
    job.folder.write(name, npy_file("<f4", false, shape,
                                    {reinterpret_cast<const char*>(values.data()), 12 * 4}));
  };
  write("x.npy", "(4, 3)");
  values[7] = 0.5F;
  write("y.npy", "(4, 3)");
  for (const char* const save : {"state", "none"}) {
    const Ended end = job.run(set(str("checkpoint.save=", save)));
    CHECK(end.status == 2);
    CHECK_THAT(end.err, ContainsSubstring("x.npy': element [2, 1] is nan, but must be a finite "
                                          "number"));
    CHECK_THAT(end.err, !ContainsSubstring("diverged"));
    fs::remove_all(job.folder.path("run"));
  }
}

TEST_CASE("pictures in one folder are predicted by their files' names, without the run's data") {
  const DataJob job(
      "model: {name: linear}\n"
      "data: {name: image_folder, root: data, height: 1, width: 1, channels: 1, mean: [0],\n"
      "  deviation: [1], batch_size: 2}\n"
      "optimizer: {name: sgd, lr: 1}\n"
      "parallel: {replicas: 1}\n"
      "trainer: {epochs: 200}\n");
  const auto write = [&](const std::string& name, std::uint8_t gray) {
    job.folder.write(name, png_file({.width = 1, .height = 1, .color_type = 0},
                                    {'\0', static_cast<char>(gray)}));
  };
  for (const char* const split : {"train", "test"}) {
    write(str("data/", split, "/dark/1.png"), 5);
    write(str("data/", split, "/light/2.png"), 250);
  }
  job.must_run();
  using Row = std::vector<std::string>;
  const auto rows = [&](const Flags& flags) {
    std::vector<Row> found = job.predictions(flags);
    for (Row& row : found) row.erase(row.begin() + 4);  // the score
    return found;
  };
  CHECK(rows({}) == std::vector<Row>{
                        {"index", "file", "prediction", "prediction_name", "target", "target_name"},
                        {"0", "dark/1.png", "0", "dark", "0", "dark"},
                        {"1", "light/2.png", "1", "light", "1", "light"}});
  fs::rename(job.folder.path("data"), job.folder.path("moved"));
  fs::remove_all(job.folder.path("moved/train"));
  CHECK(rows(set("data.root=moved")).size() == 3);
  CHECK_THAT(job.refusal(kPredict + set("data.root=moved") + Flags{"--split", "train"}),
             ContainsSubstring("has no train set; the run had train, test"));
  write("new/b.png", 251);
  write("new/a.png", 4);
  write("new/2024/May/z.png", 252);
  const std::vector<Row> expected{{"index", "file", "prediction", "prediction_name"},
                                  {"0", "2024/May/z.png", "1", "light"},
                                  {"1", "a.png", "0", "dark"},
                                  {"2", "b.png", "1", "light"}};
  CHECK(rows(set("data.root=new")) == expected);
  CHECK(rows(set("data.root=new") + Flags{"--split", "train"}) == expected);
  job.folder.write("new/notes.txt", "");
  const Ended end = train(job.folder.path(), kPredict + set("data.root=new"));
  CHECK(end.err ==
        "lockstep: warning: image_folder: of 'new' 1 file is passed over, such as 'new/notes.txt': "
        "pictures end in .png, .jpg or .jpeg, and links to folders are not followed\n"
        "lockstep: predicts 3 pictures of new\n");
  // Where folders are classes, a picture beside them has none.
  write("moved/test/c.png", 4);
  CHECK_THAT(train(job.folder.path(), {"eval", "--quiet", "--checkpoint", "run/checkpoints/latest",
                                       "--set", "data.root=moved"})
                 .err,
             ContainsSubstring("of 'moved/test' 1 file is passed over, such as 'moved/test/c.png': "
                               "pictures end in .png, .jpg or .jpeg, and lie in a folder for each "
                               "class"));
  const Ended stray = train(job.folder.path(), kPredict + set("data.root=moved"));
  CHECK(stray.err ==
        "lockstep: warning: image_folder: in 'moved/test' pictures lie beside the classes' "
        "folders, so all are taken without targets\nlockstep: predicts 3 pictures of moved\n");
  CHECK_THAT(stray.out, ContainsSubstring("\n0,c.png,0,dark,") && !ContainsSubstring("target"));
  // A folder of a set's name is one of a set beside others of these alone.
  write("all/train/x.png", 4);
  CHECK(rows(set("data.root=all"))[1] == Row{"0", "x.png", "0", "dark"});
  write("all/other/y.png", 251);
  CHECK(rows(set("data.root=all")) ==
        std::vector<Row>{{"index", "file", "prediction", "prediction_name"},
                         {"0", "other/y.png", "1", "light"},
                         {"1", "train/x.png", "0", "dark"}});
  write("held/val/x.png", 251);
  const Ended held = train(job.folder.path(), kPredict + set("data.root=held"));
  CHECK(held.err == "lockstep: predicts 1 picture of held\n");
  CHECK_THAT(held.out, ContainsSubstring("\n0,x.png,1,light,"));
  fs::create_directory(job.folder.path("empty"));
  CHECK_THAT(job.refusal(kPredict + set("data.root=empty")),
             ContainsSubstring("data folder 'empty': it has no pictures"));
  CHECK_THAT(
      job.refusal(
          {"eval", "--quiet", "--checkpoint", "run/checkpoints/latest", "--set", "data.root=new"}),
      ContainsSubstring("the data set image_folder has neither a test nor a validation set"));
}

TEST_CASE("a text goes on without the text trained on") {
  const DataJob job(
      "model: {name: gpt, layers: 1, heads: 1, width: 8}\n"
      "data: {name: text, path: text, context: 8, batch_size: 2, validation: 0.2}\n"
      "optimizer: {name: adam}\n"
      "parallel: {replicas: 1}\n"
      "trainer: {steps: 2}\n");
  job.folder.write("text", "All happy families are alike; each unhappy family is unhappy.");
  const Ended trained = job.must_run();
  CHECK_THAT(trained.err, !ContainsSubstring("data.validation takes nothing"));
  const Flags sample{"sample", "--checkpoint", "run/checkpoints/latest", "--prompt", "All "};
  const std::string text = train(job.folder.path(), sample).out;
  CHECK(text.size() == 4 + 256 + 1);
  CHECK(text.ends_with('\n'));
  fs::remove(job.folder.path("text"));
  const Ended again = train(job.folder.path(), sample);
  INFO(again.err);
  CHECK(again.out == text);
}

TEST_CASE("a run that ends early says why") {
  const DataJob job(kRegression);
  job.folder.write("train.csv", table(200));
  const Flags patience = set("data.validation=0.1 optimizer.lr=1e-30 trainer.eval_every=1") +
                         set("trainer.patience=3 checkpoint.best=loss");
  const Ended end = job.must_run(patience);
  INFO(end.out);
  // Steps that are too small to change a parameter.
  CHECK_THAT(end.out, ContainsSubstring("\nstep 4: validation loss was not better than ") &&
                          ContainsSubstring(" in 3 evaluations: trainer.patience ends the run\n"));
}

// After public reports: folders of old machines are named in Latin-1, and JSON takes UTF-8 alone.
TEST_CASE("a run whose files have names that are no UTF-8 leaves its checkpoint, and goes on") {
  const DataJob job(kRegression);
  fs::create_directory(job.folder.path("caf\xe9"));
  job.folder.write("caf\xe9/train.csv", table(40));
  const Flags names = set("data.file=caf\xe9/train.csv") + Flags{"--output", "caf\xe9/run"};
  const auto run = [&](const Flags& flags) {
    return train(job.folder.path(), Flags{"--config", "job.yaml"} + names + flags);
  };
  require_status(run(set("trainer.epochs=1")), 0);
  const Ended second = run(set("trainer.epochs=2") + Flags{"--resume", "auto"});
  CHECK(second.status == 0);
  CHECK_THAT(second.out, ContainsSubstring("going on after step 2 ") &&
                             ContainsSubstring("\n  trainer.epochs was 1, is 2\n"));
  const Ended predictions =
      train(job.folder.path(),
            {"predict", "--checkpoint", "caf\xe9/run/checkpoints/latest", "--split", "train"});
  CHECK(predictions.status == 0);
  CHECK(lines_of(predictions.out).size() == 41);
}

TEST_CASE("a run tells of what its data and its validation lack, and goes on") {
  const DataJob pictures(
      "model: {name: linear}\n"
      "data: {name: image_folder, root: data, height: 1, width: 1, channels: 1, batch_size: 2}\n"
      "optimizer: {name: sgd, lr: 0.1}\n"
      "trainer: {epochs: 1}\n");
  for (const char* const name : {"train/bee", "train/cat", "train/dog", "val/cat", "val/dog"}) {
    pictures.folder.write(str("data/", name, "/1.png"),
                          png_file({.width = 1, .height = 1, .color_type = 0}, {'\0', '\1'}));
  }
  CHECK_THAT(pictures.must_run().err,
             ContainsSubstring("warning: image_folder: 'data/val' has no pictures of 1 "
                               "of the 3 classes to train on: bee\n"));

  const DataJob text(
      "model: {name: gpt, layers: 1, heads: 1, width: 4}\n"
      "data: {name: text, path: data, context: 4, batch_size: 2}\n"
      "optimizer: {name: sgd, lr: 0.1}\n"
      "trainer: {steps: 1}\n");
  text.folder.write("data/a.txt", std::string(100, 'a'));
  text.folder.write("data/Thumbs.db", std::string(100, '\0'));
  text.folder.write("data/b.txt", "K\xf6ln " + std::string(100, 'a'));
  CHECK_THAT(text.must_run().err,
             ContainsSubstring("warning: text: of 'data' 1 file has zero bytes, as text "
                               "has none, but counts, such as 'data/Thumbs.db': "
                               "data.exclude passes files over\n") &&
                 ContainsSubstring(
                     "warning: text: of 'data' 1 file is not in UTF-8, but counts byte by byte, "
                     "such as 'data/b.txt'; if that is LATIN1, this makes UTF-8 of it: iconv -f "
                     "LATIN1 -t UTF-8 'data/b.txt' > NEW\n"));

  // R² of values that are all the same is no number.
  const DataJob constant(kRegression);
  constant.folder.write("train.csv", table(40));
  constant.folder.write("same.csv", "a,b,y\n1,2,5\n3,4,5\n");
  const Ended unnumbered =
      constant.must_run(set("data.validation_file=same.csv trainer.epochs=2 trainer.eval_every=1") +
                        set("trainer.metrics=[r2] checkpoint.best=r2"));
  CHECK_THAT(unnumbered.err,
             ContainsSubstring("warning: checkpoint.best: the validation set's r2 was never a "
                               "number, so there is no best checkpoint\n"));
  CHECK_THAT(
      constant.refusal(Flags{"--config", "job.yaml"} + set("trainer.metrics=[f1]")),
      ContainsSubstring("metric f1 is for classes, and the data's targets ('y') are numbers; "
                        "data.task: classification makes classes of them; metrics of numbers "
                        "are loss, r2, mean_absolute_error, mean_squared_error, "
                        "root_mean_squared_error\n"));
}
