#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

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
using Lines = std::vector<std::string>;

const Flags kPredict{"predict", "--checkpoint", "run/checkpoints/latest"};

// A run whose model takes a for the score of `big`, and nothing for that of `small`.
struct Birds {
  Birds() {
    folder.write("job.yaml",
                 "model: {name: linear}\n"
                 "data: {name: csv, file: train.csv, target: kind, task: classification,\n"
                 "  features: [a], batch_size: 2}\n"
                 "optimizer: {name: sgd, lr: 1}\n"
                 "parallel: {replicas: 1}\n"
                 "trainer: {epochs: 40}\n");
    folder.write("train.csv", "a,kind\n-2,small\n2,big\n-1,small\n1,big\n");
    must_train(folder.path(), {"--config", "job.yaml", "--output", "run"});
  }

  [[nodiscard]] Ended predict(const Flags& flags) const {
    return train(folder.path(), kPredict + flags);
  }
  // The output, after the line on stderr was this one.
  [[nodiscard]] Lines predictions(const Flags& flags, const std::string& told) const {
    const Ended end = predict(flags);
    check_status(end, 0);
    CHECK(end.err == "lockstep: predicts " + told + "\n");
    return lines_of(end.out);
  }
  [[nodiscard]] std::string refusal(const Flags& flags) const {
    return testing::refusal(folder.path(), kPredict + flags);
  }
  // What it says of what `command` writes to its standard input.
  [[nodiscard]] Ended piped(const std::string& command, const Flags& flags) const {
    return run_program(
        Flags{"/bin/sh", "-c", command + R"( | "$0" "$@")"} + train_command(kPredict + flags),
        folder.path());
  }

  TemporaryFolder folder;
};

std::string gray_picture(std::uint8_t gray) {
  return png_file({.width = 1, .height = 1, .color_type = 0}, {'\0', static_cast<char>(gray)});
}

// Without the last field: the score.
Lines without_scores(const Lines& lines) {
  Lines cut;
  for (const std::string& line : lines) cut.push_back(line.substr(0, line.rfind(',')));
  return cut;
}

}  // namespace

TEST_CASE("a row's own columns stand beside its prediction, as the file has them") {
  const Birds birds;
  birds.folder.write("new.csv",
                     "id,a,\"name, in full\",index,prediction\n"
                     "007,3,\"Auk, great\",x,17\n08,-3, wren ,y,\n");
  const auto rows = [&](const std::string& columns) {
    return without_scores(birds.predictions({"new.csv", "--with", columns}, "2 rows of new.csv"));
  };
  CHECK(rows("id") == Lines{"index,id,prediction,prediction_name", "0,007,0,big", "1,08,1,small"});
  CHECK(rows("name, in full") == Lines{"index,\"name, in full\",prediction,prediction_name",
                                       "0,\"Auk, great\",0,big", "1, wren ,1,small"});
  CHECK(rows("a, id") ==
        Lines{"index,a,id,prediction,prediction_name", "0,3,007,0,big", "1,-3,08,1,small"});
  CHECK(rows("*")[0] ==
        "index,id,a,\"name, in full\",own_index,own_prediction,prediction,prediction_name");
  CHECK(rows("*")[1] == "0,007,3,\"Auk, great\",x,17,0,big");
  const Ended json = birds.predict({"new.csv", "--with=id", "--with=prediction", "--format=jsonl"});
  const Json line = Json::parse(lines_of(json.out).at(0));
  CHECK(line["id"] == "007");
  CHECK(line["own_prediction"] == "17");
  CHECK(line["prediction"] == 0);
  CHECK_THAT(birds.refusal({"new.csv", "--with", "id,nam"}),
             ContainsSubstring("--with: there is no column 'nam'; there are 'id', 'a', 'name, in "
                               "full', 'index', 'prediction'\n"));
  // Also those of the run's own rows, and of a part of them.
  CHECK_THAT(birds.predict({"--split=train", "--with=a"}).out,
             ContainsSubstring("\n0,-2,1,small,") && ContainsSubstring("\n3,1,0,big,"));
  const Ended part =
      birds.predict(set("data.validation=0.5") + Flags{"--split=validation", "--with=a,kind"});
  CHECK(lines_of(part.out).size() == 3);
  for (const std::string& row : lines_of(part.out)) {
    CHECK((row.starts_with("index,a,kind,") || row.find("big,0,big") < row.size() ||
           row.find("small,1,small") < row.size()));
  }
}

TEST_CASE("rows come from files and from standard input") {
  const Birds birds;
  birds.folder.write("one.csv", "a\n3\n-3\n4\n");
  birds.folder.write("two.csv", "id;kind;a\n7;small;-5\n");
  CHECK(without_scores(birds.predictions({"one.csv"}, "3 rows of one.csv")) ==
        Lines{"index,prediction,prediction_name", "0,0,big", "1,1,small", "2,0,big"});
  CHECK(birds.predictions({"two.csv", "--set", "data.separator=;"}, "1 row of two.csv")[0] ==
        "index,prediction,prediction_name,score,target,target_name");
  // One after another, in batches of two.
  birds.folder.write("two.csv", "id,kind,a\n7,small,-5\n");
  CHECK(without_scores(birds.predictions({"one.csv", "two.csv", "one.csv"},
                                         "7 rows of one.csv, two.csv, one.csv")) ==
        Lines{"index,file,prediction,prediction_name", "0,one.csv,0,big", "1,one.csv,1,small",
              "2,one.csv,0,big", "3,two.csv,1,small", "4,one.csv,0,big", "5,one.csv,1,small",
              "6,one.csv,0,big"});
  CHECK(birds.predictions({"one.csv", "two.csv", "--with", "a"}, "4 rows of one.csv, two.csv")[4]
            .starts_with("3,two.csv,-5,1,small,"));
  CHECK_THAT(birds.refusal({"one.csv", "two.csv", "--with", "id"}),
             ContainsSubstring("--with: there is no column 'id'; there are 'a'\n"));

  const Ended piped = birds.piped("printf 'name,a\\nauk,9\\n'", {"-", "--with", "name"});
  check_status(piped, 0);
  CHECK(piped.err == "lockstep: predicts 1 row of standard input\n");
  CHECK(without_scores(lines_of(piped.out)) ==
        Lines{"index,name,prediction,prediction_name", "0,auk,0,big"});
  const Ended bare = birds.piped("echo 9", {"-"});
  CHECK(bare.status == 2);
  CHECK(bare.out.empty());
  CHECK_THAT(bare.err, ContainsSubstring("data file '-': it has only its header, and no rows: its "
                                         "first line must name the columns, 'a' among them, and "
                                         "rows follow"));
  const Ended two = birds.piped("printf '9.5\\n8\\n'", {"-"});
  CHECK(two.status == 2);
  CHECK(two.err ==
        "lockstep: error: csv: '-' has no column 'a'; it has '9.5': its first line must "
        "name the columns\n");
  const Ended empty = birds.piped("true", {"-"});
  CHECK(empty.status == 2);
  CHECK_THAT(empty.err, ContainsSubstring("data file '-': it is empty"));
  const Ended wrong = birds.piped("printf 'a\\n1\\nx\\n'", {"-"});
  CHECK(wrong.status == 2);
  CHECK(lines_of(wrong.out).size() == 2);
  CHECK_THAT(wrong.err, ContainsSubstring("sample 1: data file '-': line 3: column 'a': 'x' is"));

  birds.folder.write("copy.csv", read_text(birds.folder.path("train.csv")));
  (void)birds.predictions(set("data.file=copy.csv"), "4 rows of copy.csv, the training set");
  (void)birds.predictions(set("data.test_file=one.csv"), "3 rows of one.csv");
  CHECK(birds.refusal({"none.csv"}) == "lockstep: error: there is no 'none.csv'\n");
  CHECK(birds.refusal({"one.csv", "--split", "test"}) ==
        "lockstep: error: --split names a set of the run, but 'one.csv' is given: leave one of "
        "them out\n");
  CHECK_THAT(birds.refusal({"run"}), ContainsSubstring("data file 'run': it is a folder"));
  CHECK(refusal(birds.folder.path(), {"predict", "run/checkpoints/latest", "one.csv"}) ==
        "lockstep: error: --checkpoint DIR is needed (did you mean '--checkpoint "
        "run/checkpoints/latest'?); see train predict --help\n");
}

TEST_CASE("of a table with many wrong rows the first are named, with what to write") {
  const Birds birds;
  std::string text = "a\n7\n";
  for (int i = 0; i < 15; ++i) text += "-\n";
  birds.folder.write("new.csv", text);
  const Ended end = birds.predict({"new.csv"});
  check_status(end, 2);
  CHECK(lines_of(end.out).size() == 2);
  const Lines told = lines_of(end.err);
  REQUIRE(told.size() == 13);
  CHECK_THAT(told[0],
             ContainsSubstring("'new.csv': 'a' (line 3: '-'; 15 of 16 values) is to be numbers; "
                               "data.missing_values: [\"\", ") &&
                 ContainsSubstring(", \"-\"] counts such as missing"));
  CHECK_THAT(told[11],
             ContainsSubstring("sample 10: data file 'new.csv': line 12: column 'a': '-'"));
  CHECK(told[12] ==
        "lockstep: error: 15 of 16 samples are damaged and have no line; the others have theirs; "
        "the first 10 are named above");
  check_status(birds.predict({"new.csv", "--set", "data.missing_values=[\"\", \"-\"]", "--set",
                              "data.missing=mean"}),
               0);
}

TEST_CASE("predictions have the format that their file's name says, unless it is given") {
  const Birds birds;
  const auto written = [&](const Flags& flags) {
    check_status(birds.predict(Flags{"--split=train"} + flags), 0);
    return lines_of(read_text(birds.folder.path(flags[1]))).at(0);
  };
  CHECK(written({"--output", "a.csv"}).starts_with("index,"));
  CHECK(written({"--output", "a.txt"}).starts_with("index,"));
  CHECK(written({"--output", "a.jsonl"}).starts_with("{\"index\":"));
  CHECK(written({"--output", "b.jsonl", "--format", "csv"}).starts_with("index,"));
  CHECK(written({"--output", "a.json", "--format", "jsonl"}).starts_with("{\"index\":"));
  CHECK(
      birds.refusal({"--split=train", "--output", "b.json"}) ==
      "lockstep: error: --output b.json: is this to be --format jsonl, one JSON object a line, or "
      "csv?\n");
}

TEST_CASE("pictures are predicted from files, folders and standard input") {
  const TemporaryFolder folder;
  folder.write(
      "job.yaml",
      "model: {name: linear}\n"
      "data: {name: image_folder, root: data, height: 1, width: 1, channels: 1, mean: [0],\n"
      "  deviation: [1], batch_size: 2}\n"
      "optimizer: {name: sgd, lr: 1}\n"
      "parallel: {replicas: 1}\n"
      "trainer: {epochs: 200}\n");
  folder.write("data/train/dark/1.png", gray_picture(5));
  folder.write("data/train/light/2.png", gray_picture(250));
  must_train(folder.path(), {"--config", "job.yaml", "--output", "run"});
  fs::rename(folder.path("data"), folder.path("old"));
  const auto check = [&](const Flags& flags, const std::string& told, const Lines& lines) {
    const Ended end = train(folder.path(), kPredict + flags);
    check_status(end, 0);
    CHECK(end.err == "lockstep: predicts " + told + "\n");
    const auto found = without_scores(lines_of(end.out));
    CHECK(Lines(found.begin() + 1, found.end()) == lines);
  };
  folder.write("holidays/b.png", gray_picture(251));
  folder.write("holidays/2024/a.png", gray_picture(4));
  folder.write("c.picture", gray_picture(252));
  check({"holidays"}, "2 pictures of holidays",
        {"0,holidays/2024/a.png,0,dark", "1,holidays/b.png,1,light"});
  check({"holidays/b.png"}, "1 picture of holidays/b.png", {"0,holidays/b.png,1,light"});
  check({"c.picture", "holidays/", "holidays/b.png"},
        "4 pictures of c.picture, holidays/, holidays/b.png",
        {"0,c.picture,1,light", "1,holidays/2024/a.png,0,dark", "2,holidays/b.png,1,light",
         "3,holidays/b.png,1,light"});
  // Folders of classes have targets.
  const Ended classes = train(folder.path(), kPredict + Flags{"old/train"});
  CHECK_THAT(classes.out, ContainsSubstring("\n0,old/train/dark/1.png,0,dark,") &&
                              ContainsSubstring(",1,light\n") &&
                              ContainsSubstring(",target,target_name\n"));
  const Ended piped = run_program(
      Flags{"/bin/sh", "-c", R"("$0" "$@" < c.picture)"} + train_command(kPredict + Flags{"-"}),
      folder.path());
  check_status(piped, 0);
  CHECK(piped.err == "lockstep: predicts 1 picture of standard input\n");
  CHECK(without_scores(lines_of(piped.out)).at(1) == "0,-,1,light");

  folder.write("page.png", "<html>");
  const Ended damaged = train(folder.path(), kPredict + Flags{"page.png", "c.picture"});
  CHECK(damaged.status == 2);
  CHECK(without_scores(lines_of(damaged.out)).at(1) == "1,c.picture,1,light");
  CHECK_THAT(damaged.err, ContainsSubstring("sample 0: data file 'page.png': it is neither a PNG"));
  const Ended alone = train(folder.path(), kPredict + Flags{"page.png"});
  CHECK(alone.status == 2);
  CHECK(alone.err.ends_with("error: 1 of 1 sample is damaged and has no line\n"));
  CHECK_THAT(refusal(folder.path(), kPredict + Flags{"c.picture", "--with", "file"}),
             ContainsSubstring("--with: the data have no columns; the column file names each "
                               "sample\n"));
}

TEST_CASE("an array's file is predicted by itself, and sources without files say so") {
  const TemporaryFolder folder;
  folder.write("job.yaml",
               "model: {name: linear}\n"
               "data: {name: npy, inputs: x.npy, targets: y.npy, task: regression, batch_size: 4}\n"
               "parallel: {replicas: 1}\n");
  folder.write("x.npy", npy_file("<f4", false, "(4, 2)", std::string(32, '\0')));
  folder.write("y.npy", npy_file("<f4", false, "(4, 1)", std::string(16, '\0')));
  must_train(folder.path(), {"--config", "job.yaml", "--output", "run"});
  fs::remove(folder.path("x.npy"));
  folder.write("new.npy", npy_file("<f4", false, "(3, 2)", std::string(24, '\0')));
  const Ended end = train(folder.path(), kPredict + Flags{"new.npy"});
  check_status(end, 0);
  CHECK(end.err == "lockstep: predicts 3 samples of new.npy\n");
  CHECK(lines_of(end.out).size() == 4);
  CHECK(lines_of(end.out)[0] == "index,prediction");
  must_train(folder.path(), {"--config", config_file("pmean_linear.yaml"), "--output", "line"});
  CHECK(refusal(folder.path(), {"predict", "--checkpoint", "line/checkpoints/latest", "new.npy"}) ==
        "lockstep: error: the data set pmean_example reads no file that is named alone, such as "
        "'new.npy': --split names one of its sets, and --set data.KEY=VALUE other data\n");
}
