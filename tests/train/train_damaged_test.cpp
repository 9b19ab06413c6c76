// Pictures that can't be decoded, in train and its commands.

#include <array>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <utility>
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

std::string picture(std::uint8_t gray) {
  std::string rows;
  for (int y = 0; y < 4; ++y)
    rows += std::string(1, '\0') + std::string(4, static_cast<char>(gray));
  return png_file({.width = 4, .height = 4, .color_type = 0}, rows);
}

const std::string kJob =
    "model: {name: linear}\n"
    "data: {name: image_folder, root: pictures, height: 4, width: 4, channels: 1, batch_size: 2}\n"
    "optimizer: {name: sgd, lr: 0.1}\n"
    "parallel: {replicas: 2}\n"
    "trainer: {epochs: 3}\n";

// Two classes, dark and light; of three sets, of which two have damaged pictures.
struct Pictures {
  Pictures() {
    folder.write("job.yaml", kJob);
    for (const auto& [set, count] : {std::pair{"train", 5}, {"val", 2}, {"test", 2}}) {
      for (const std::string name : {"dark", "light"}) {
        const std::string place = str("pictures/", set, "/", name, "/");
        for (int i = 0; i < count; ++i) {
          const int gray = (name == "dark" ? 20 : 200) + 5 * i;
          folder.write(str(place, i, ".png"), picture(static_cast<std::uint8_t>(gray)));
        }
      }
    }
  }
  void damage() const {
    folder.write("pictures/train/dark/1a.png", "");
    folder.write("pictures/train/light/4.png", picture(1).substr(0, 50));
    folder.write("pictures/test/dark/0.png", "no picture");
    fs::create_symlink("nowhere", folder.path("pictures/train/light/9.png"));
  }
  Ended must_run(const Flags& flags) const {
    return must_train(folder.path(), Flags{"--config", "job.yaml"} + flags);
  }
  [[nodiscard]] std::string refusal(const Flags& flags) const {
    return testing::refusal(folder.path(), Flags{"--config", "job.yaml"} + flags);
  }
  [[nodiscard]] nlohmann::json result(const std::string& run) const {
    return result_of(folder.path() / run);
  }

  TemporaryFolder folder;
};

const Flags kSkip = set("data.on_damaged=skip");

}  // namespace

TEST_CASE("damaged pictures that are skipped are named, and the run is as if they were not there") {
  const Pictures job;
  job.folder.write("pictures/train/light/4.png", "");
  fs::remove(job.folder.path("pictures/train/light/4.png"));
  fs::remove(job.folder.path("pictures/test/dark/0.png"));
  job.must_run({"--output", "whole"});
  const auto digest = job.result("whole")["parameters_sha256"];
  job.damage();

  CHECK_THAT(job.refusal({"--output", "stopped"}), ContainsSubstring(".png'"));

  for (const std::string launch : {"processes", "threads"}) {
    const Ended end = job.must_run(kSkip + Flags{"--output", launch, "--launch", launch});
    CHECK_THAT(
        end.err,
        ContainsSubstring(
            "lockstep: warning: image_folder: of 12 pictures in 'pictures/train' 3 are damaged "
            "and left out, as data.on_damaged: skip says: dark/1a.png, light/4.png, light/9.png; "
            "the command check says what is wrong with each\n") &&
            ContainsSubstring("of 4 pictures in 'pictures/test' 1 is damaged and left out, as "
                              "data.on_damaged: skip says: dark/0.png;") &&
            ContainsSubstring("lockstep: data: train 9 samples (3 damaged are left out), "
                              "validation 4 samples, test 3 samples (1 damaged is left out)\n"));
    CHECK(job.result(launch)["parameters_sha256"] == digest);
    CHECK(job.result(launch)["eval"] == job.result("whole")["eval"]);
  }
  // Workers that are the program started again take the launcher's list.
  const Ended again =
      run_program(Flags{"/usr/bin/env", "LD_PRELOAD=" SECOND_THREAD} +
                      train_command(Flags{"--config", "job.yaml", "--output", "again"} + kSkip +
                                    set("checkpoint=none")),
                  job.folder.path());
  require_status(again, 0);
  CHECK(job.result("again")["parameters_sha256"] == digest);
  const std::size_t first = again.err.find("3 are damaged");
  REQUIRE(first != std::string::npos);
  CHECK(again.err.find("3 are damaged", first + 1) == std::string::npos);
}

TEST_CASE("workers that are started again are told of any number of damaged pictures") {
  const Pictures job;
  job.must_run({"--output", "whole"});
  for (int i = 0; i < 700; ++i) {
    job.folder.write(str("pictures/train/dark/", std::string(200, 'x'), i, ".png"), "");
  }
  const Ended end =
      run_program(Flags{"/usr/bin/env", "LD_PRELOAD=" SECOND_THREAD} +
                      train_command(Flags{"--config", "job.yaml", "--output", "run"} + kSkip),
                  job.folder.path());
  require_status(end, 0);
  CHECK_THAT(end.err, ContainsSubstring("its workers are the program started again"));
  CHECK(job.result("run")["parameters_sha256"] == job.result("whole")["parameters_sha256"]);
}

TEST_CASE("a resumed run skips the same pictures, or says which have changed") {
  const Pictures job;
  job.damage();
  const Flags flags = kSkip + Flags{"--output", "run"};
  job.must_run(flags + set("trainer.epochs=1"));
  job.must_run(flags + Flags{"--resume", "auto"});
  job.must_run(kSkip + Flags{"--output", "whole"});
  CHECK(job.result("run")["parameters_sha256"] == job.result("whole")["parameters_sha256"]);

  job.folder.write("pictures/train/dark/1a.png", picture(30));
  job.folder.write("pictures/train/light/2.png", "");
  CHECK_THAT(job.refusal(flags + Flags{"--resume", "auto"} + set("trainer.epochs=4")),
             ContainsSubstring("the training set of 9 samples has other contents: light/2.png is "
                               "damaged now, dark/1a.png is no longer among the damaged"));
  // With stop the damaged ones count as samples.
  CHECK_THAT(job.refusal({"--output", "run", "--resume", "auto"}),
             ContainsSubstring("the training set had 9 samples and has 12"));
}

TEST_CASE("train eval skips as its run did") {
  const Pictures job;
  job.damage();
  job.must_run(kSkip + Flags{"--output", "run"});
  const Ended eval = train(job.folder.path(), {"eval", "--checkpoint", "run/checkpoints/latest"});
  check_status(eval, 0);
  CHECK_THAT(eval.err, ContainsSubstring("of 4 pictures in 'pictures/test' 1 is damaged"));
  CHECK_THAT(refusal(job.folder.path(), Flags{"eval", "--checkpoint", "run/checkpoints/latest"} +
                                            set("data.on_damaged=stop")),
             ContainsSubstring("pictures/test/dark/0.png"));
}

TEST_CASE("train predict writes what it could read, names the rest and ends with status 2") {
  const Pictures job;
  job.must_run({"--output", "run"});
  const Flags predict{"predict", "--checkpoint", "run/checkpoints/latest"};
  const Ended whole = must_train(job.folder.path(), predict);
  auto lines = lines_of(whole.out);
  REQUIRE(lines.size() == 5);
  job.damage();  // the test set's first picture
  fs::remove(job.folder.path("pictures/test/light/1.png"));
  fs::create_directory(job.folder.path("pictures/test/light/1.png"));
  lines.erase(lines.begin() + 1);
  lines.pop_back();
  for (const bool to_file : {false, true}) {
    const Ended end =
        train(job.folder.path(), to_file ? predict + Flags{"--output", "out.csv"} : predict);
    check_status(end, 2);
    CHECK(lines_of(to_file ? read_text(job.folder.path() / "out.csv") : end.out) == lines);
    CHECK_THAT(
        end.err,
        ContainsSubstring("lockstep: error: sample 0: data file 'pictures/test/dark/0.png': ") &&
            ContainsSubstring("error: sample 3: data file 'pictures/test/light/1.png': ") &&
            ContainsSubstring("lockstep: error: 2 of 4 samples are damaged and have no line; "
                              "the others have theirs\n"));
  }
  // A run that skips has its pictures predicted as any other.
  job.must_run(kSkip + Flags{"--output", "skipped"});
  const Ended end = train(job.folder.path(), {"predict", "--checkpoint",
                                              "skipped/checkpoints/latest", "--format", "jsonl"});
  check_status(end, 2);
  CHECK(lines_of(end.out).size() == 2);
  CHECK_THAT(end.out, ContainsSubstring("{\"index\":1,\"file\":\"dark/1.png\",") &&
                          ContainsSubstring("{\"index\":2,\"file\":\"light/0.png\","));
}

TEST_CASE("train check reads a table once, though its part for validation can't be taken") {
  const TemporaryFolder folder;
  folder.write("job.yaml",
               "model: {name: linear}\n"
               "data: {name: csv, file: a.csv, target: y, dates: [t], missing: mean,\n"
               "  validation: 0.5}\n");
  folder.write("a.csv", "t,x,y\n01.02.2022,1,1\n02.02.2022,,2\n03.02.2022,3,3\n");
  const Ended end = train(folder.path(), {"check", "--config", "job.yaml"});
  check_status(end, 2);
  CHECK(end.err ==
        "lockstep: csv: 'a.csv': 1 missing value is filled by the training set's means, or a "
        "category of their own; missing: x (1)\n"
        "lockstep: error: 1 file or value is damaged, as said above\n");
  REQUIRE(lines_of(end.out).size() == 1);
  CHECK_THAT(end.out, ContainsSubstring("'01.02.2022' is no date such as "));
}

TEST_CASE("train predict writes a table's rows that it could read, and names the rest") {
  const TemporaryFolder folder;
  folder.write("job.yaml",
               "model: {name: linear}\n"
               "data: {name: csv, file: a.csv, target: y, batch_size: 2}\n"
               "optimizer: {name: sgd, lr: 0.1}\n"
               "trainer: {epochs: 1}\n");
  folder.write("a.csv", "x,y\n1,2\n2,4\n3,6\n4,8\n5,10\n");
  must_train(folder.path(), {"--config", "job.yaml", "--output", "run"});
  const Flags predict =
      Flags{"predict", "--checkpoint", "run/checkpoints/latest"} + set("data.file=b.csv");
  folder.write("b.csv", "x,y\n1,2\n2,4\n3,6\n4,8\n5,10\n6,12\n");
  const Ended whole = must_train(folder.path(), predict);
  auto lines = lines_of(whole.out);
  REQUIRE(lines.size() == 7);
  folder.write("b.csv", "x,y\n1,2\nNA,4\n3,6\nfour,8\n5\n6,12\n");
  lines.erase(lines.begin() + 4, lines.begin() + 6);
  lines.erase(lines.begin() + 2);
  const Ended end = train(folder.path(), predict);
  check_status(end, 2);
  CHECK(lines_of(end.out) == lines);
  const std::string file = ": data file 'b.csv': line ";
  CHECK_THAT(end.err, ContainsSubstring("sample 1" + file + "3: column 'x': 'NA' is a missing") &&
                          ContainsSubstring("sample 3" + file + "5: column 'x': 'four' is no") &&
                          ContainsSubstring("sample 4" + file + "6: it has 1 field, but the") &&
                          ContainsSubstring("3 of 6 samples are damaged and have no line"));
  // To train on, it is an error.
  (void)refusal(folder.path(), Flags{"--config", "job.yaml"} + set("data.file=b.csv"));
}

TEST_CASE("train check names every damaged picture of all sets") {
  const Pictures job;
  const Flags check{"check", "--config", "job.yaml"};
  const Ended whole = train(job.folder.path(), check);
  check_status(whole, 0);
  CHECK(whole.err.empty());
  const auto lines = lines_of(whole.out);
  REQUIRE(lines.size() == 9);
  CHECK(lines[0] == "data: train 10 samples, validation 4 samples, test 4 samples");
  CHECK(lines[1] ==
        "data: classification, 2 classes: dark (5), light (5); inputs float32 (1, 4, 4)");
  CHECK(lines[4] == "data: 3 steps an epoch, of 4 samples, the last of 2");
  CHECK(std::vector(lines.begin() + 5, lines.end()) ==
        std::vector<std::string>{"train: 10 samples, none damaged",
                                 "validation: 4 samples, none damaged",
                                 "test: 4 samples, none damaged", "nothing is damaged"});
  // Nor does it say so of what a run refuses at once.
  const Flags refused = check + set("trainer.metrics=[r2] trainer.freeze=[x*]");
  const Ended both = train(job.folder.path(), refused);
  check_status(both, 2);
  CHECK_THAT(both.err, ContainsSubstring("trainer.metrics: metric r2 is for numbers") &&
                           ContainsSubstring("trainer.freeze: no parameter matches"));
  CHECK_THAT(both.out, !ContainsSubstring("nothing is damaged"));
  job.damage();
  const Ended all = train(job.folder.path(), refused);
  check_status(all, 2);
  CHECK_THAT(all.out, ContainsSubstring("trainer.metrics: metric r2 is for numbers") &&
                          ContainsSubstring("test: 4 samples, 1 damaged"));
  fs::create_directories(job.folder.path("pictures/val/dark/more"));
  for (const std::string keys :
       {"data.threads=1", "data.threads=3", "data.on_damaged=skip", "data.cache=true"}) {
    const Ended end = train(job.folder.path(), check + set(keys));
    check_status(end, 2);
    CHECK(end.err == "lockstep: error: 5 files or values are damaged, as said above\n");
    CHECK_THAT(
        end.out,
        ContainsSubstring("data folder 'pictures/val/dark/more': it lies inside a class, ") &&
            ContainsSubstring("\ntrain, sample 2: data file 'pictures/train/dark/1a.png': ") &&
            ContainsSubstring("\ntrain, sample 10: data file 'pictures/train/light/4.png': ") &&
            ContainsSubstring("\ntrain, sample 11: data file 'pictures/train/light/9.png': ") &&
            ContainsSubstring("\ntrain: 12 samples, 3 damaged\n") &&
            ContainsSubstring("\nvalidation: 4 samples, none damaged\n") &&
            ContainsSubstring("\ntest, sample 0: data file 'pictures/test/dark/0.png': ") &&
            ContainsSubstring("\ntest: 4 samples, 1 damaged\n"));
  }
}

namespace {

// Files and the lines that train check prints of them, without those of the data.
struct Checked {
  std::string data;
  std::vector<std::pair<std::string, std::string>> files;
  std::vector<std::string> said;
};

void check(const Checked& checked) {
  const TemporaryFolder folder;
  folder.write("job.yaml", "model: {name: linear}\ndata: " + checked.data + "\n");
  for (const auto& [name, text] : checked.files) folder.write(name, text);
  const Ended end = train(folder.path(), {"check", "--config", "job.yaml"});
  check_status(end, 2);
  auto lines = lines_of(end.out);
  std::erase_if(lines, [](const std::string& line) { return line.starts_with("data: "); });
  CHECK(lines == checked.said);
}

const std::string kThreeTables =
    "name: csv, file: a.csv, validation_file: b.csv, test_file: c.csv, target: y";

}  // namespace

TEST_CASE("train check names every wrong cell and ragged line of all tables, up to a hundred") {
  std::string many = "x,y\n";
  for (int i = 0; i < 150; ++i) many += "?,1\n";
  std::vector<std::string> said{
      "train, sample 1: data file 'a.csv': line 3: column 'x': 'bad' is no finite number",
      "train, sample 2: data file 'a.csv': line 4: column 'y': 'none' is no finite number",
      "train: 3 samples, 2 damaged",
      "validation, sample 1: data file 'b.csv': line 3: it has 3 fields, but the header has 2; a "
      "field with a separator in it needs quotes, and a line must not end with one",
      "validation, sample 3: data file 'b.csv': line 5: it has 1 field, but the header has 2",
      "validation: 4 samples, 2 damaged"};
  for (int i = 0; i < 100; ++i) {
    said.push_back(str("test, sample ", i, ": data file 'c.csv': line ", i + 2,
                       ": column 'x': '?' is a missing value"));
  }
  said.insert(said.end(), {"test: 50 more are damaged", "test: 150 samples, 150 damaged"});
  check({.data = "{" + kThreeTables + "}",
         .files = {{"a.csv", "x,y\n1,2\nbad,3\n4,none\n"},
                   {"b.csv", "x,y\n1,2\n1,2,3\n1,3\n4\n"},
                   {"c.csv", many}},
         .said = said});
}

TEST_CASE("train check names labels that are no class, and missing cells beside them") {
  check(
      {.data = "{" + kThreeTables + ", task: classification}",
       .files = {{"a.csv", "x,y\n1,cat\n2, \n3,dog\n"},
                 {"b.csv", "x,y\n1,cow\nNA,eel\n3,dog\n4,cow\n"},
                 {"c.csv", "x,y\n1,dog\n"}},
       .said = {"train, sample 1: data file 'a.csv': line 3: column 'y': ' ' is a missing value",
                "train: 3 samples, 1 damaged",
                "validation, sample 0: data file 'b.csv': line 2: column 'y': 'cow' is none of the "
                "training file's classes: 'cat', 'dog'",
                "validation, sample 1: data file 'b.csv': line 3: column 'x': 'NA' is a missing "
                "value; column 'y': 'eel' is none of the training file's classes: 'cat', 'dog'",
                "validation, sample 3: data file 'b.csv': line 5: column 'y': 'cow' is none of the "
                "training file's classes: 'cat', 'dog'",
                "validation: 4 samples, 3 damaged", "test: 1 sample, none damaged"}});
}

TEST_CASE("train check looks at the other tables where one can't be read at all") {
  check({.data = "{" + kThreeTables + "}",
         .files = {{"a.csv", "x,z\n1,2\n"}, {"c.csv", "x,y\n1,2\nNA,3\n"}},
         .said = {"csv: 'a.csv' has no column 'y' (did you mean 'x'?); it has 'x', 'z'",
                  "csv: there is no 'b.csv'; it must be a table of text whose first line names the "
                  "columns, as spreadsheets and pandas' DataFrame.to_csv(index=False) write it; "
                  "the head of a config in configs/ says where its data come from",
                  "test, sample 1: data file 'c.csv': line 3: column 'x': 'NA' is a missing value",
                  "test: 2 samples, 1 damaged"}});
  check({.data = "{" + kThreeTables + "}",
         .files = {{"a.csv", "x,y\n1,2\n"}, {"b.csv", "z,y\n1,2\n"}, {"c.csv", "x,y\n1,?\n"}},
         .said = {"csv: 'b.csv' has no column 'x' (did you mean 'z'?); it has 'z', 'y'",
                  "train: 1 sample, none damaged",
                  "test, sample 0: data file 'c.csv': line 2: column 'y': '?' is a missing value",
                  "test: 1 sample, 1 damaged"}});
}

TEST_CASE("train check names labels of arrays that are no class") {
  const std::string inputs = npy_file("<f4", false, "(4,)", std::string(4 * sizeof(float), '\0'));
  check({.data = "{name: npy, inputs: x.npy, targets: y.npy, classes: 3}",
         .files = {{"x.npy", inputs},
                   {"y.npy", npy_file("|i1", false, "(4,)", std::string("\0\3\2\xff", 4))}},
         .said = {"train, sample 1: data file 'y.npy': element [1] is 3, but must be 0 ... 2: see "
                  "data.classes",
                  "train, sample 3: data file 'y.npy': element [3] is -1, but must be 0 ... 2: see "
                  "data.classes and loss.ignore_index",
                  "train: 4 samples, 2 damaged"}});
}

TEST_CASE("train check names all damaged texts, arrays and batches of pictures") {
  const TemporaryFolder folder;
  const auto check = [&](const std::string& data, const std::vector<std::string>& named) {
    folder.write("job.yaml", "model: {name: linear}\n" + data);
    const Ended end = train(folder.path(), {"check", "--config", "job.yaml"});
    INFO(data << end.out << end.err);
    CHECK(end.status == (named.empty() ? 0 : 2));
    for (const std::string& name : named) CHECK_THAT(end.out, ContainsSubstring(name + "': "));
  };
  folder.write("texts/a", std::string(100, 'a'));
  const std::string text = "data: {name: text, path: texts, context: 8}\n";
  check(text, {});
  for (const std::string name : {"b.gz", "c.gz"}) folder.write("texts/" + name, "\x1f\x8b\x08 cut");
  check(text, {"texts/b.gz", "texts/c.gz"});

  const std::string ones(4 * sizeof(float), '\0');
  const std::string whole = npy_file("<f4", false, "(4,)", ones);
  const std::string arrays =
      "data: {name: npy, task: regression, inputs: x.npy, targets: y.npy, test_inputs: tx.npy, "
      "test_targets: "
      "ty.npy}\n";
  for (const std::string name : {"x.npy", "y.npy", "tx.npy", "ty.npy"}) folder.write(name, whole);
  check(arrays, {});
  for (const std::string name : {"y.npy", "tx.npy", "ty.npy"}) {
    folder.write(name, whole.substr(0, whole.size() - 1));
  }
  check(arrays, {"y.npy", "tx.npy", "ty.npy"});
  for (const std::string name : {"y.npy", "tx.npy", "ty.npy"}) folder.write(name, whole);
  const std::array<float, 4> values{1, std::numeric_limits<float>::quiet_NaN(), 2,
                                    std::numeric_limits<float>::infinity()};
  folder.write("x.npy", npy_file("<f4", false, "(4,)",
                                 {reinterpret_cast<const char*>(values.data()), sizeof values}));
  check(arrays, {"train, sample 1: data file 'x.npy", "train, sample 3: data file 'x.npy"});

  const std::string record(3073, '\1');
  const std::string cifar = "data: {name: cifar10, root: cifar}\n";
  for (int batch = 1; batch <= 5; ++batch) {
    folder.write(str("cifar/data_batch_", batch, ".bin"), record);
  }
  folder.write("cifar/test_batch.bin", record);
  check(cifar, {});
  for (const std::string name : {"data_batch_2", "data_batch_4", "test_batch"}) {
    folder.write("cifar/" + name + ".bin", record + "x");
  }
  check(cifar, {"data_batch_2.bin", "data_batch_4.bin", "test_batch.bin"});
}
