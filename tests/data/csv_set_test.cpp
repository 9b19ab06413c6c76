#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/data/csv.h"
#include "framework/data/sample_text.h"
#include "tests/catch.h"
#include "tests/data/csv_error.h"
#include "tests/data/same_batches.h"
#include "tests/support/captured_stderr.h"
#include "tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using testing::csv_error;
using testing::damage_of;
using testing::floats_of;
using testing::integers_of;
using testing::TemporaryFolder;
using testing::whole;
using CsvTask = CsvSetOptions::Task;
using CsvFloats = std::vector<float>;

}  // namespace

TEST_CASE("columns of a table become inputs and values, in the order of their names' list") {
  const TemporaryFolder folder;
  const std::string file = folder.write("a.csv", "a,y,b,z\n1,10,2,-1\n3,30,4,-3\n");
  const DataSets all = load_csv({.file = file, .target = {"y"}, .normalize = false});
  CHECK(all.fitted.inputs == std::vector<std::string>{"a", "b", "z"});
  CHECK(all.fitted.classes.empty());
  CHECK(testing::sizes_of(all) == std::vector<std::int64_t>{2, 0, 0});
  CHECK(all.train->type() == value_sample({3}, 1));
  CHECK(floats_of(whole(*all.train).inputs) == CsvFloats{1, 2, -1, 3, 4, -3});
  CHECK(floats_of(whole(*all.train).targets) == CsvFloats{10, 30});

  const DataSets some =
      load_csv({.file = file, .target = {"z", "y"}, .features = {"b", "a"}, .normalize = false});
  CHECK(some.train->type() == value_sample({2}, 2));
  CHECK(floats_of(whole(*some.train).inputs) == CsvFloats{2, 1, 4, 3});
  CHECK(floats_of(whole(*some.train).targets) == CsvFloats{-1, 10, -3, 30});
  testing::check_same_batches(*some.train);
}

TEST_CASE("a table's sample is told by its line of the file, whatever is left out or split off") {
  const TemporaryFolder folder;
  const std::string file = folder.write("a.csv", "a,y\n1,1\n2,2\n3,3\n");
  const std::string path = " of '" + file + "')";
  const DataSets whole_file = load_csv({.file = file, .target = {"y"}});
  CHECK(data::sample_text(*whole_file.train, 2) == "sample 2 (line 4" + path);
  folder.write("a.csv", "a,y\n1,\"1\n\"\n,2\n3,3\n");
  const DataSets some = load_csv({.file = file,
                                  .target = {"a"},
                                  .features = {"y"},
                                  .missing = CsvMissing::drop,
                                  .categories = {"y"}});
  CHECK(data::sample_text(*some.train, 0) == "sample 0 (line 2" + path);
  CHECK(data::sample_text(*some.train, 1) == "sample 1 (line 5" + path);
  const Subset part(some.train, {1});
  CHECK(data::sample_text(part, 0) == "sample 0 (line 5" + path);
}

TEST_CASE("tables are normalized by the training file, and constant columns are 0") {
  const TemporaryFolder folder;
  CsvSetOptions options{.file = folder.write("train.csv",
                                             "a;one;y\n2;7;1\n4;7;2\n4;7;3\n4;7;4\n5;7;5\n5;7;6\n"
                                             "7;7;7\n9;7;8\n"),
                        .test_file = folder.write("test.csv", "y;other;one;a\n0;x;7;5\n1;x;8;11\n"),
                        .target = {"y"},
                        .separator = ";"};
  // The classic example: mean 5, deviation 2.
  const DataSets all = load_csv(options);
  CHECK((all.fitted.input_scales == std::vector<ColumnScale>{{5, 2}, {7, 0}}));
  CHECK(all.fitted.target_scales.empty());
  CHECK(floats_of(whole(*all.test).inputs) == CsvFloats{0, 0, 3, 0});
  CHECK(floats_of(whole(*all.test).targets) == CsvFloats{0, 1});

  options.normalize = false;
  options.normalize_targets = true;
  const DataSets targets = load_csv(options);
  CHECK(targets.fitted.input_scales.empty());
  CHECK(targets.fitted.target_scales[0].mean == 4.5);
  CHECK(targets.fitted.target_scales[0].deviation == Approx(std::sqrt(5.25)).epsilon(1e-15));
  CHECK(floats_of(whole(*targets.test).inputs) == CsvFloats{5, 7, 11, 8});
  CHECK(floats_of(whole(*targets.test).targets)[0] ==
        static_cast<float>(-4.5 / targets.fitted.target_scales[0].deviation));
}

TEST_CASE("means and deviations of a table are right where naive sums fail") {
  const TemporaryFolder folder;
  CsvSetOptions options{.target = {"y"}};
  // Sums of squares would lose all digits of the first, and overflow with the second.
  options.file = folder.write("a.csv", "a,b,y\n1000000000.25,-1e300,0\n1000000000.75,1e300,0\n");
  const DataSets all = load_csv(options);
  CHECK(all.fitted.input_scales[0] == ColumnScale{1000000000.5, 0.25});
  CHECK(all.fitted.input_scales[1] == ColumnScale{0, 1e300});
  CHECK(floats_of(whole(*all.train).inputs) == CsvFloats{-1, -1, 1, 1});
}

TEST_CASE("texts are classes in the order of their bytes, and numbers in that of numbers") {
  const TemporaryFolder folder;
  CsvSetOptions options{
      .file = folder.write("a.csv", "kind,x\nowl,1\nbee,2\nant,3\nbee,4\n"),
      .validation_file = folder.write("v.csv", "x,kind\n1,bee\n"),
      .target = {"kind"},
      .task = CsvTask::classification,
  };
  const DataSets texts = load_csv(options);
  CHECK(texts.fitted.classes == std::vector<std::string>{"ant", "bee", "owl"});
  CHECK(texts.train->class_names() == texts.fitted.classes);
  CHECK(texts.train->type() == class_sample({1}, 3));
  CHECK(integers_of(whole(*texts.train).targets) == std::vector<std::int64_t>{2, 1, 0, 1});
  CHECK(integers_of(whole(*texts.validation).targets) == std::vector<std::int64_t>{1});
  testing::check_same_batches(*texts.train);

  options.file = folder.write("b.csv", "kind,x\n10,1\n-2,2\n9,3\n9.0,4\n");
  options.validation_file = folder.write("w.csv", "kind,x\n1e1,1\n");
  const DataSets numbers = load_csv(options);
  CHECK(numbers.fitted.classes == std::vector<std::string>{"-2", "9", "9.0", "10"});
  CHECK(integers_of(whole(*numbers.train).targets) == std::vector<std::int64_t>{3, 0, 1, 2});
  CHECK(integers_of(whole(*numbers.validation).targets) == std::vector<std::int64_t>{3});
}

TEST_CASE(
    "labels are told apart by their text, and other files' numbers by their values, once said") {
  const TemporaryFolder folder;
  std::string text = "x,code\n";
  const std::vector<std::string> codes{"007", "7", "7.0", "-0", "0", "1e5", "100000"};
  for (const std::string& code : codes) text += "1," + code + "\n";
  CsvSetOptions options{
      .file = folder.write("a.csv", text), .target = {"code"}, .task = CsvTask::classification};
  const auto log_of = [&](const std::vector<std::string>& classes) {
    const testing::CapturedStderr log;
    CHECK(load_csv(options).fitted.classes == classes);
    return log.text();
  };
  CHECK(log_of({"-0", "0", "007", "7", "7.0", "100000", "1e5"}) ==
        "lockstep: warning: csv: column 'code' of '" + options.file +
            "' has labels that are one number: '-0' and '0'\n");
  options.test_file = folder.write("b.csv", "x,code\n1,07\n");
  CHECK_THAT(csv_error<DataError>(options), ContainsSubstring("'07' is none of"));
  // As pandas writes whole numbers of a column with gaps.
  options.file = folder.write("a.csv", "x,code\n1,1\n1,2\n");
  options.test_file = folder.write("b.csv", "x,code\n1,2.0\n1,1.0\n");
  CHECK(log_of({"1", "2"}) == "lockstep: csv: column 'code' of '" + *options.test_file +
                                  "' has numbers that the training set writes in another way: "
                                  "'1.0' as '1', '2.0' as '2'\n");
  CHECK(integers_of(whole(*load_csv(options).test).targets) == std::vector<std::int64_t>{1, 0});
  options.file = folder.write("c.csv", "x,code\n1,True\n1,true\n1,7\n");
  options.test_file.reset();
  CHECK_THAT(log_of({"7", "True", "true"}), ContainsSubstring("case of letters alone"));
}

TEST_CASE("a table without a header is warned of, and refused where the target shows it") {
  const TemporaryFolder folder;
  CsvSetOptions options{.file = folder.write("a.csv", "5.2,3.4,north\n4.8,3.1,north\n7,3,south\n"),
                        .target = {"north"},
                        .task = CsvTask::classification};
  CHECK(csv_error<DataError>(options) ==
        "data file '" + options.file +
            "': the target 'north' is also a value of its column; the first line must name the "
            "columns; if it does, rename what is called as a value is");
  options.task = CsvTask::regression;
  options.target = {"3.4"};
  options.ignore = {"north"};
  const auto log_of = [&] {
    const testing::CapturedStderr log;
    (void)load_csv(options);
    return log.text();
  };
  CHECK(log_of() == "lockstep: warning: csv: '" + options.file +
                        "' has columns whose names are numbers or values of theirs: '5.2', '3.4'; "
                        "the first line must name the columns; if it does, rename what is called "
                        "as a value is\n");
  options = {.file = folder.write("b.csv", "a,y\n1,2\n"), .target = {"y"}};
  CHECK(log_of().empty());
}

TEST_CASE("a table of 20,000 columns is read in a time that grows with them") {
  constexpr int kColumns = 20'000;
  constexpr int kRows = 4;
  std::string text = "y";
  for (int i = 1; i <= kColumns; ++i) text += ",gene" + std::to_string(i);
  for (int row = 0; row < kRows; ++row) {
    text += "\n" + std::to_string(row);
    for (int i = 1; i <= kColumns; ++i) text += "," + std::to_string(row * i);
  }
  const TemporaryFolder folder;
  const CsvSetOptions options{.file = folder.write("wide.csv", text + "\n"), .target = {"y"}};
  const DataSets sets = load_csv(options);
  REQUIRE(std::ssize(sets.fitted.inputs) == kColumns);
  CHECK(sets.fitted.input_scales.front().mean == 1.5);
  CHECK(sets.fitted.input_scales.back().mean == 1.5 * kColumns);
  DataContext again;
  again.fitted = sets.fitted;
  again.fitted->sample = sets.train->type();
  const Batch first = whole(*sets.train);
  const Batch second = whole(*load_csv(options, again).train);
  CHECK(floats_of(first.inputs) == floats_of(second.inputs));
  CHECK(floats_of(first.inputs)[0] == floats_of(first.inputs)[kColumns - 1]);
  // All of them as targets, each named.
  CsvSetOptions many = options;
  many.target = sets.fitted.inputs;
  many.features = {"y"};
  CHECK(whole(*load_csv(many).train).targets.size(1) == kColumns);
}

TEST_CASE("what is wrong with a table is told with file, line and column") {
  const TemporaryFolder folder;
  CsvSetOptions options{.file = folder.write("a.csv", "a,y\n1,ant\n2,bee\n"),
                        .target = {"y"},
                        .task = CsvTask::classification};
  const auto with_test = [&](const std::string& text) {
    CsvSetOptions both = options;
    both.test_file = folder.write("test.csv", text);
    return csv_error<DataError>(both);
  };
  const std::string of_test = "data file '" + folder.path("test.csv") + "': ";
  CHECK(with_test("a,y\n1,bee\n2,cow\n") ==
        of_test + "line 3: column 'y': 'cow' is none of the training file's classes: 'ant', 'bee'");
  CHECK_THAT(
      with_test("a,y\n1,bee\nx,bee\n"),
      StartsWith(of_test +
                 "line 3: column 'a': 'x' is no finite number; data.missing_values: [\"\", ") &&
          EndsWith(", x] counts such as missing, which data.missing: mean fills and drop leaves "
                   "out"));
  CHECK(with_test("a,y\n") == of_test + "it has only its header, and no rows");
  CHECK(with_test("a,y\n1e300,ant\n") ==
        of_test + "line 2: column 'a': '1e300' is too large for float32");
  CsvSetOptions far = options;
  far.file = folder.write("far.csv", "a,y\n-1.7e308,ant\n1.7e308,bee\n");
  CHECK_THAT(csv_error<DataError>(far), EndsWith("'-1.7e308' is too large for float32"));
  options.test_file = folder.write("test.csv", "b,y\n1,bee\n");
  CHECK_THAT(csv_error<ValueError>(options), ContainsSubstring("has no column 'a'"));
  options.test_file = folder.path("none.csv");
  CHECK_THAT(csv_error<DataError>(options),
             StartsWith("csv: there is no '" + folder.path("none.csv") + "'; it must be") &&
                 EndsWith("the head of a config in configs/ says where its data come from"));
  options.test_file.reset();
  options.file = folder.write("a.csv", "a,y\n1,ant\n2,\n");
  options.missing_values = {};
  CHECK_THAT(csv_error<DataError>(options),
             ContainsSubstring("line 3: column 'y': '' is no class"));
}

TEST_CASE("columns that can't be are told before anything is read from them") {
  const TemporaryFolder folder;
  const std::string file = folder.write("a.csv", "a,y,z\n1,2,3\n");
  CHECK_THAT(csv_error<ValueError>({.file = file, .target = {}}),
             ContainsSubstring("data.target is empty, but must name a column"));
  CHECK_THAT(csv_error<ValueError>({.file = file, .target = {"x"}}),
             ContainsSubstring("has no column 'x'"));
  CHECK_THAT(csv_error<ValueError>({.file = file, .target = {"y"}, .features = {"a", "y"}}),
             ContainsSubstring("have the column 'y' twice"));
  CHECK_THAT(csv_error<ValueError>({.file = file, .target = {"a", "y", "z"}}),
             ContainsSubstring("has no column but the target"));
  CHECK_THAT(
      csv_error<ValueError>({.file = file, .target = {"a", "y"}, .task = CsvTask::classification}),
      ContainsSubstring("data.target has 2 columns, but classification has classes of one"));
  CHECK_THAT(csv_error<ValueError>({.file = file, .target = {"y"}, .separator = "::"}),
             ContainsSubstring("data.separator is '::', but must be one byte"));
}

TEST_CASE("a table whose columns have mean 0 and deviation 1 already is normalized, too") {
  const TemporaryFolder folder;
  CsvSetOptions options{.file = folder.write("signs.csv", "a,b,y\n-1,1,-1\n1,-1,1\n"),
                        .target = {"y"},
                        .normalize_targets = true};
  const Fitted fitted = load_csv(options).fitted;
  CHECK((fitted.input_scales == std::vector<ColumnScale>{{0, 1}, {0, 1}}));
  CHECK(load_csv(options, {.fitted = fitted}).fitted == fitted);
  options.normalize = false;
  CHECK_THAT(csv_error<ValueError>(options, {.fitted = fitted}),
             ContainsSubstring("data.normalize is false, but the model was trained with true"));
}

TEST_CASE("other tables are read by what was fitted to the training file") {
  const TemporaryFolder folder;
  CsvSetOptions options{.file = folder.write("train.csv", "a,b,y\n1,10,5\n3,30,7\n"),
                        .target = {"y"},
                        .normalize_targets = true};
  const Fitted fitted = load_csv(options).fitted;
  CHECK((fitted == Fitted{.inputs = {"a", "b"},
                          .input_scales = {{2, 1}, {20, 10}},
                          .targets = {"y"},
                          .target_scales = {{6, 1}}}));
  // Other columns stand there, and in another order. Its own means are others.
  options.file = folder.write("other.csv", "b,y,z,a\n40,8,x,5\n");
  const DataSets other = load_csv(options, {.fitted = fitted});
  CHECK(other.fitted == fitted);
  CHECK(floats_of(whole(*other.train).inputs) == CsvFloats{3, 2});
  CHECK(floats_of(whole(*other.train).targets) == CsvFloats{2});

  const auto error = [&](const CsvSetOptions& changed) {
    return csv_error<ValueError>(changed, {.fitted = fitted});
  };
  CsvSetOptions changed = options;
  changed.file = folder.write("less.csv", "b,y\n40,8\n");
  CHECK_THAT(error(changed), ContainsSubstring("has no column 'a'"));
  changed = options;
  changed.features = {"b", "a"};
  CHECK(error(changed) ==
        "csv: data.features is ['b', 'a'], but the model was trained with ['a', 'b']");
  changed.features = {"a", "b"};
  CHECK_NOTHROW(load_csv(changed, {.fitted = fitted}));
  changed.target = {"z"};
  CHECK(error(changed) == "csv: data.target is ['z'], but the model was trained with ['y']");
  changed = options;
  changed.normalize = false;
  CHECK(error(changed) == "csv: data.normalize is false, but the model was trained with true");
  changed = options;
  changed.normalize_targets = false;
  CHECK(error(changed) ==
        "csv: data.normalize_targets is false, but the model was trained with true");
  changed = options;
  changed.task = CsvTask::classification;
  CHECK(error(changed) ==
        "csv: data.task is classification, but the model was trained with regression");
}

TEST_CASE("classes of other tables have the numbers of the training file's") {
  const TemporaryFolder folder;
  CsvSetOptions options{.file = folder.write("train.csv", "kind,x\nowl,1\nbee,2\nant,3\n"),
                        .target = {"kind"},
                        .task = CsvTask::classification};
  const Fitted texts = load_csv(options).fitted;
  CHECK(texts.class_count == 3);
  options.file = folder.write("other.csv", "kind,x\nowl,1\nbee,2\n");
  const DataSets other = load_csv(options, {.fitted = texts});
  CHECK(other.train->type() == class_sample({1}, 3));
  CHECK(other.train->class_names() == texts.classes);
  CHECK(integers_of(whole(*other.train).targets) == std::vector<std::int64_t>{2, 1});
  options.file = folder.write("more.csv", "kind,x\nowl,1\ncow,2\n");
  CHECK(csv_error<DataError>(options, {.fitted = texts}) ==
        "data file '" + options.file +
            "': line 3: column 'kind': 'cow' is none of the training "
            "file's classes: 'ant', 'bee', 'owl'");

  options.file = folder.write("numbers.csv", "kind,x\n10,1\n-2,2\n9,3\n");
  const Fitted numbers = load_csv(options).fitted;
  options.file = folder.write("others.csv", "kind,x\n9.0,3\n1e1,4\n");
  CHECK(integers_of(whole(*load_csv(options, {.fitted = numbers}).train).targets) ==
        std::vector<std::int64_t>{1, 2});
}

TEST_CASE("tables may lack their targets where none are needed") {
  const TemporaryFolder folder;
  CsvSetOptions options{.file = folder.write("train.csv", "a,y,z\n1,5,1\n3,7,1\n"),
                        .target = {"y", "z"}};
  const Fitted fitted = load_csv(options).fitted;
  options.file = folder.write("bare.csv", "a\n4\n");
  CHECK_THAT(csv_error<ValueError>(options, {.fitted = fitted}),
             ContainsSubstring("has no column 'y'"));
  const auto bare = load_csv(options, {.fitted = fitted, .needs_targets = false}).train;
  CHECK_FALSE(bare->has_targets());
  CHECK(bare->type() == value_sample({1}, 2));
  CHECK(floats_of(whole(*bare).inputs) == CsvFloats{2});
  CHECK(whole(*bare).targets.isnan().all().item<bool>());
  // Some of them are a mistake.
  options.file = folder.write("half.csv", "a,z\n4,1\n");
  CHECK_THAT(csv_error<ValueError>(options, {.fitted = fitted, .needs_targets = false}),
             ContainsSubstring("has no column 'y'"));
  options.file = folder.path("train.csv");
  CHECK(load_csv(options, {.fitted = fitted, .needs_targets = false}).train->has_targets());
}

TEST_CASE("a table that is wanted alone needs no other") {
  const TemporaryFolder folder;
  CsvSetOptions options{.file = folder.write("a.csv", "x,y\n1,2\n3,4\n"), .target = {"y"}};
  const Fitted fitted = load_csv(options).fitted;
  options.file = folder.path("gone.csv");
  options.validation_file = folder.path("gone.csv");
  options.test_file = folder.write("b.csv", "y,x\n0,4\n");
  const DataSets sets =
      load_csv(options, {.fitted = fitted, .wanted = {.train = false, .validation = false}});
  CHECK(testing::sizes_of(sets) == std::vector<std::int64_t>{0, 0, 1});
  CHECK(floats_of(whole(*sets.test).inputs) == std::vector<float>{2});
  CHECK(sets.fitted == fitted);
}

TEST_CASE("whole numbers of any length are classes of their own") {
  const TemporaryFolder folder;
  CsvSetOptions options{
      .file = folder.write("a.csv", "id,x\n9007199254740993,1\n9007199254740992,2\n1.0,3\n"),
      .test_file = folder.write("b.csv", "id,x\n9007199254740992.0,1\n01,2\n"),
      .target = {"id"},
      .task = CsvTask::classification,
  };
  const DataSets sets = load_csv(options);
  CHECK(sets.fitted.classes ==
        std::vector<std::string>{"1.0", "9007199254740992", "9007199254740993"});
  CHECK(integers_of(whole(*sets.train).targets) == std::vector<std::int64_t>{2, 1, 0});
  CHECK(integers_of(whole(*sets.test).targets) == std::vector<std::int64_t>{1, 0});
  options.test_file = folder.write("b.csv", "id,x\n9007199254740994,1\n");
  CHECK_THAT(csv_error<DataError>(options),
             ContainsSubstring("'9007199254740994' is none of the training file's classes"));
}

TEST_CASE("missing values of a table are an error that lists where") {
  const TemporaryFolder folder;
  CsvSetOptions options{.file = folder.write("a.csv",
                                             "a,y,z\n1,1,NA\nNaN,2,x\n3,n/a,x\n4, ,x\n5,?,x\n"
                                             "6,\"NULL\",x\n,7,x\n"),
                        .target = {"y"},
                        .features = {"a"},
                        .task = CsvTask::classification};
  CHECK(csv_error<DataError>(options) ==
        "data file '" + options.file +
            "': it has 6 missing values: line 3, column 'a': 'NaN'; line 4, column 'y': 'n/a'; "
            "line 5, column 'y': ' '; line 6, column 'y': '?'; line 7, column 'y': 'NULL'; line 8, "
            "column 'a': ''; data.missing: drop leaves these rows out, and mean fills them; "
            "data.missing_values says what counts as missing ([]: nothing)");
  options.task = CsvTask::regression;
  CHECK_THAT(csv_error<DataError>(options), ContainsSubstring("it has 6 missing values"));

  // Spellings of one's own, and none.
  options.missing_values = {"4", "-999"};
  options.file = folder.write("b.csv", "a,y\n1,NA\n4,b\n 4 ,c\n40,NA\n");
  options.task = CsvTask::classification;
  CHECK_THAT(csv_error<DataError>(options),
             ContainsSubstring("it has 2 missing values: line 3, column 'a': '4'; line 4, column "
                               "'a': ' 4 ';"));
  options.missing_values = {};
  CHECK(load_csv(options).fitted.classes == std::vector<std::string>{"NA", "b", "c"});

  // Of many the first ones, in other files too, and only in columns that are used.
  options = {
      .file = folder.write("c.csv", "a,y,z\n1,1,NA\n2,2,\n"), .target = {"y"}, .features = {"a"}};
  CHECK(load_csv(options).train->size() == 2);
  std::string text = "a,y\n";
  for (int i = 0; i < 12; ++i) text += "1,\n";
  options.test_file = folder.write("d.csv", text);
  CHECK_THAT(csv_error<DataError>(options),
             ContainsSubstring("d.csv': it has 12 missing values: line 2, column 'y': ''; ") &&
                 ContainsSubstring("line 11, column 'y': ''; and 2 more; "));
}

TEST_CASE("labels that differ by blanks at their ends are one class") {
  const TemporaryFolder folder;
  CsvSetOptions options{
      .file = folder.write("a.csv", "x, kind\n1, cat\n2,cat\n3,\"cat \"\n4, dog\n"),
      .test_file = folder.write("b.csv", "kind,x\ncat\t,1\n dog,1\n"),
      .target = {"kind"},
      .task = CsvTask::classification};
  const DataSets sets = load_csv(options);
  CHECK(sets.fitted.classes == std::vector<std::string>{"cat", "dog"});
  CHECK(integers_of(whole(*sets.train).targets) == std::vector<std::int64_t>{0, 0, 0, 1});
  CHECK(integers_of(whole(*sets.test).targets) == std::vector<std::int64_t>{0, 1});
  // As a checkpoint of before has them.
  Fitted fitted = sets.fitted;
  fitted.classes = {" cat", " dog", "cat", "cat "};
  fitted.class_count = 4;
  CHECK(integers_of(whole(*load_csv(options, {.fitted = fitted}).train).targets) ==
        std::vector<std::int64_t>{0, 2, 3, 1});
}

TEST_CASE("a column without a name in front is no feature") {
  const TemporaryFolder folder;
  for (const char* const name : {"", " ", "\t "}) {
    CsvSetOptions options{.file = folder.write("a.csv", str(name, ",a,y\n0,5,1\n1,7,2\n")),
                          .target = {"y"},
                          .normalize = false};
    const DataSets sets = load_csv(options);
    CHECK(sets.fitted.inputs == std::vector<std::string>{"a"});
    CHECK(floats_of(whole(*sets.train).inputs) == CsvFloats{5, 7});
    CHECK_THAT(sets.notes.at(0), ContainsSubstring("1 left out (one without a name)"));
  }
  const CsvSetOptions named{.file = folder.write("b.csv", "Unnamed: 0,a,y\n0,5,1\n1,7,2\n"),
                            .target = {"y"}};
  const testing::CapturedStderr log;
  CHECK(load_csv(named).fitted.inputs.size() == 2);
  CHECK(log.text() == "lockstep: warning: csv: 'Unnamed: 0' of '" + named.file +
                          "' is pandas' name for an index, and an input: data.ignore: [\"Unnamed: "
                          "0\"] leaves it out\n");
}

TEST_CASE("where damaged rows are kept, each says all that is wrong with it") {
  const TemporaryFolder folder;
  CsvSetOptions options{
      .file = folder.write("a.csv",
                           "x,z,kind\n1,10,cat\nNA,bad,dog\n3,30,\n4,40\n1e300,50,dog\n6,60,cat\n"),
      .test_file = folder.write("b.csv", "x,z,kind\n7,70,cow\n8,80,cat\n"),
      .target = {"kind"},
      .task = CsvTask::classification,
      .normalize = false};
  const DataSets sets = load_csv(options, {.keeps_damaged = true});
  const std::string of_train = "data file '" + options.file + "': ";
  REQUIRE(sets.train->size() == 6);
  CHECK(damage_of(*sets.train, 1) ==
        of_train +
            "line 3: column 'x': 'NA' is a missing value; column 'z': 'bad' is no finite number");
  CHECK(damage_of(*sets.train, 2) == of_train + "line 4: column 'kind': '' is a missing value");
  CHECK(damage_of(*sets.train, 3) == of_train + "line 5: it has 2 fields, but the header has 3");
  CHECK(damage_of(*sets.train, 4) ==
        of_train + "line 6: column 'x': '1e300' is too large for float32");
  CHECK_THAT(damage_of(*sets.test, 0),
             ContainsSubstring("b.csv': line 2: column 'kind': 'cow' is none "
                               "of the training file's classes: 'cat', 'dog'"));
  // The others are as if these were not there.
  CHECK(sets.fitted.classes == std::vector<std::string>{"cat", "dog"});
  const Batch batch = sets.train->batch(std::vector<std::int64_t>{5, 0});
  CHECK(floats_of(batch.inputs) == CsvFloats{6, 60, 1, 10});
  CHECK(integers_of(batch.targets) == std::vector<std::int64_t>{0, 0});
  CHECK_THROWS_AS(load_csv(options), DataError);

  options.missing_values = {"NA"};
  CHECK_THAT(damage_of(*load_csv(options, {.keeps_damaged = true}).train, 2),
             EndsWith("line 4: column 'kind': '' is no class"));
  options = {.file = folder.write("c.csv", "x,z\n1,1\nNA,2\n3,?\n"), .target = {"z"}};
  const DataSets values = load_csv(options, {.keeps_damaged = true});
  CHECK((values.fitted.input_scales == std::vector<ColumnScale>{{2, 1}}));
  CHECK(floats_of(values.train->batch(std::vector<std::int64_t>{0}).inputs) == CsvFloats{-1});
  options.missing_values = {};
  options.file = folder.write("c.csv", "x,z\nNA,1\n2,1\n3,1\n");
  CHECK_THAT(damage_of(*load_csv(options, {.keeps_damaged = true}).train, 0),
             EndsWith("line 2: column 'x': 'NA' is no finite number"));
  options = {.file = folder.write("c.csv", "x,z\nNA,1\n"),
             .target = {"x"},
             .task = CsvTask::classification};
  CHECK_THAT(csv_error<DataError>(options, {.keeps_damaged = true}),
             EndsWith("no label in column 'x' is a class"));
}

TEST_CASE("of a table with more damaged rows than are told all are refused") {
  const TemporaryFolder folder;
  std::string text = "x,y,z\n0,0,0\n";
  for (int i = 0; i < 10'050; ++i) text += "?,?,0\n";
  const auto set =
      load_csv({.file = folder.write("a.csv", text), .target = {"y"}}, {.keeps_damaged = true})
          .train;
  CHECK_NOTHROW(set->batch(std::vector<std::int64_t>{0}));
  CHECK_THAT(damage_of(*set, 10'000),
             ContainsSubstring("line 10002: column 'x': '?' is a missing value"));
  for (const std::int64_t row : {10'001, 10'050}) {
    CHECK_THAT(damage_of(*set, row),
               ContainsSubstring("cells of this row are wrong, too, as of 10000"));
  }
}

TEST_CASE("a label that does not count is no class of a table") {
  const TemporaryFolder folder;
  CsvSetOptions options{.file = folder.write("a.csv", "x,y\n1,-1\n2,3\n3,5\n4,-1.0\n"),
                        .target = {"y"},
                        .task = CsvTask::classification};
  const DataSets sets = load_csv(options, {.ignored = -1});
  CHECK(sets.fitted.classes == std::vector<std::string>{"3", "5"});
  CHECK(integers_of(whole(*sets.train).targets) == std::vector<std::int64_t>{-1, 0, 1, -1});
  // What was a class of the model stays one.
  const Fitted fitted{.inputs = {"x"},
                      .input_scales = {{0, 1}},
                      .targets = {"y"},
                      .classes = {"-1", "3", "5"},
                      .class_count = 3};
  CHECK(integers_of(whole(*load_csv(options, {.fitted = fitted, .ignored = -1}).train).targets) ==
        std::vector<std::int64_t>{0, 1, 2, 0});
  options.file = folder.write("a.csv", "x,y\n1,cat\n2,-100\n3,dog\n");
  const DataSets names = load_csv(options, {.ignored = -100});
  CHECK(names.fitted.classes == std::vector<std::string>{"cat", "dog"});
  CHECK(integers_of(whole(*names.train).targets) == std::vector<std::int64_t>{0, -100, 1});
  options.file = folder.write("a.csv", "x,y\n1,-100\n");
  CHECK_THAT(csv_error<DataError>(options, {.ignored = -100}),
             ContainsSubstring("no label in column 'y' is a class: -100 does not count"));
}

TEST_CASE("columns of which float32 rounds whole numbers are named in one warning") {
  const TemporaryFolder folder;
  const auto warnings = [&](const CsvSetOptions& options) {
    const testing::CapturedStderr log;
    (void)load_csv(options);
    return log.text();
  };
  CsvSetOptions options{
      .file = folder.write("a.csv",
                           "a,b,c,d,y\n16777217,0.1,1e20,9007199254740993,16777219\n"
                           "16777216,0.3,2,1,16777221\n"),
      .target = {"y"},
      .normalize = false};
  CHECK(warnings(options) ==
        "lockstep: warning: csv: float32 rounds numbers of '" + options.file +
            "' in the columns 'y', 'a', 'd': line 2 has 16777219, which becomes 16777220\n");
  // Normalized, they can be told apart but where they were rounded before.
  options.normalize = options.normalize_targets = true;
  options.features = {"a", "b", "d"};
  CHECK(warnings(options) ==
        "lockstep: warning: csv: float32 rounds numbers of '" + options.file +
            "' in the column 'd': line 2 has 9007199254740993, which becomes 9007199254740992\n");
  options.features = {"b"};
  CHECK(warnings(options).empty());
  // numpy.savetxt writes all digits, and an exponent; with few of them a number is meant roughly.
  options = {.file = folder.write("e.csv",
                                  "a,b,c,d,e,f,y\n"
                                  "1.677721700000000000e+07,6.02e23,1.000000000000000000e+20,"
                                  "9.007199254740993E15,1.5e9,1.7000001002500001e+18,"
                                  "1.700000100250000000e+09\n"
                                  "0,1E+30,1,1,-1.6777216e+07,1,2\n"),
             .target = {"y"},
             .normalize = false};
  CHECK(
      warnings(options) ==
      "lockstep: warning: csv: float32 rounds numbers of '" + options.file +
          "' in the columns 'y', 'a', 'd', 'f': line 2 has 1.700000100250000000e+09, which becomes "
          "1700000128\n");
}

}  // namespace lockstep
