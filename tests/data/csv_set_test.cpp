#include <cmath>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/data/csv.h"
#include "tests/catch.h"
#include "tests/data/same_batches.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using testing::floats_of;
using testing::integers_of;
using testing::message_of;
using testing::TemporaryFolder;
using CsvTask = CsvSetOptions::Task;
using CsvFloats = std::vector<float>;

Batch all_rows(const std::shared_ptr<const Dataset>& set) {
  return set->batch(testing::all_of(*set));
}

template <typename E>
std::string csv_set_error(const CsvSetOptions& options) {
  return message_of<E>([&] { (void)load_csv(options); });
}

}  // namespace

TEST_CASE("columns of a table become inputs and values, in the order of their names' list") {
  const TemporaryFolder folder;
  const std::string file = folder.write("a.csv", "a,y,b,z\n1,10,2,-1\n3,30,4,-3\n");
  const CsvSets all = load_csv({.file = file, .target = {"y"}, .normalize = false});
  CHECK(all.features == std::vector<std::string>{"a", "b", "z"});
  CHECK(all.classes.empty());
  CHECK(all.sets.validation == nullptr);
  CHECK(all.sets.test == nullptr);
  CHECK(all.sets.train->type() == value_sample({3}, 1));
  CHECK(floats_of(all_rows(all.sets.train).inputs) == CsvFloats{1, 2, -1, 3, 4, -3});
  CHECK(floats_of(all_rows(all.sets.train).targets) == CsvFloats{10, 30});

  const DataSets some =
      load_csv({.file = file, .target = {"z", "y"}, .features = {"b", "a"}, .normalize = false})
          .sets;
  CHECK(some.train->type() == value_sample({2}, 2));
  CHECK(floats_of(all_rows(some.train).inputs) == CsvFloats{2, 1, 4, 3});
  CHECK(floats_of(all_rows(some.train).targets) == CsvFloats{-1, 10, -3, 30});
  testing::check_same_batches(*some.train);
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
  const CsvSets all = load_csv(options);
  CHECK((all.feature_scales == std::vector<ColumnScale>{{5, 2}, {7, 0}}));
  CHECK((all.target_scales == std::vector<ColumnScale>{{0, 1}}));
  CHECK(floats_of(all_rows(all.sets.test).inputs) == CsvFloats{0, 0, 3, 0});
  CHECK(floats_of(all_rows(all.sets.test).targets) == CsvFloats{0, 1});

  options.normalize = false;
  options.normalize_targets = true;
  const CsvSets targets = load_csv(options);
  CHECK(targets.target_scales[0].mean == 4.5);
  CHECK(targets.target_scales[0].deviation == Approx(std::sqrt(5.25)).epsilon(1e-15));
  CHECK(floats_of(all_rows(targets.sets.test).inputs) == CsvFloats{5, 7, 11, 8});
  CHECK(floats_of(all_rows(targets.sets.test).targets)[0] ==
        static_cast<float>(-4.5 / targets.target_scales[0].deviation));
}

TEST_CASE("means and deviations of a table are right where naive sums fail") {
  const TemporaryFolder folder;
  CsvSetOptions options{.target = {"y"}};
  // Sums of squares would lose all digits of the first, and overflow with the second.
  options.file = folder.write("a.csv", "a,b,y\n1000000000.25,-1e300,0\n1000000000.75,1e300,0\n");
  const CsvSets all = load_csv(options);
  CHECK(all.feature_scales[0] == ColumnScale{1000000000.5, 0.25});
  CHECK(all.feature_scales[1] == ColumnScale{0, 1e300});
  CHECK(floats_of(all_rows(all.sets.train).inputs) == CsvFloats{-1, -1, 1, 1});
}

TEST_CASE("texts are classes in the order of their bytes, and numbers in that of numbers") {
  const TemporaryFolder folder;
  CsvSetOptions options{
      .file = folder.write("a.csv", "kind,x\nowl,1\nbee,2\nant,3\nbee,4\n"),
      .validation_file = folder.write("v.csv", "x,kind\n1,bee\n"),
      .target = {"kind"},
      .task = CsvTask::classification,
  };
  const CsvSets texts = load_csv(options);
  CHECK(texts.classes == std::vector<std::string>{"ant", "bee", "owl"});
  CHECK(texts.sets.train->class_names() == texts.classes);
  CHECK(texts.sets.train->type() == class_sample({1}, 3));
  CHECK(integers_of(all_rows(texts.sets.train).targets) == std::vector<std::int64_t>{2, 1, 0, 1});
  CHECK(integers_of(all_rows(texts.sets.validation).targets) == std::vector<std::int64_t>{1});
  testing::check_same_batches(*texts.sets.train);

  options.file = folder.write("b.csv", "kind,x\n10,1\n-2,2\n9,3\n9.0,4\n");
  options.validation_file = folder.write("w.csv", "kind,x\n1e1,1\n");
  const CsvSets numbers = load_csv(options);
  CHECK(numbers.classes == std::vector<std::string>{"-2", "9", "10"});
  CHECK(integers_of(all_rows(numbers.sets.train).targets) == std::vector<std::int64_t>{2, 0, 1, 1});
  CHECK(integers_of(all_rows(numbers.sets.validation).targets) == std::vector<std::int64_t>{2});
}

TEST_CASE("what is wrong with a table is told with file, line and column") {
  const TemporaryFolder folder;
  CsvSetOptions options{.file = folder.write("a.csv", "a,y\n1,ant\n2,bee\n"),
                        .target = {"y"},
                        .task = CsvTask::classification};
  const auto with_test = [&](const std::string& text) {
    CsvSetOptions both = options;
    both.test_file = folder.write("test.csv", text);
    return csv_set_error<DataError>(both);
  };
  const std::string of_test = "data file '" + folder.path("test.csv") + "': ";
  CHECK(with_test("a,y\n1,bee\n2,cow\n") ==
        of_test + "line 3: column 'y': 'cow' is none of the training file's classes: ant, bee");
  CHECK(with_test("a,y\n1,bee\nx,bee\n") ==
        of_test + "line 3: column 'a': 'x' is no finite number");
  CHECK(with_test("a,y\n") == of_test + "it has no rows, but its header");
  CHECK(with_test("a,y\n1e300,ant\n") ==
        of_test + "line 2: column 'a': '1e300' is too large for float32");
  options.test_file = folder.write("test.csv", "b,y\n1,bee\n");
  CHECK_THAT(csv_set_error<ValueError>(options), ContainsSubstring("has no column 'a'"));
  options.test_file = folder.path("none.csv");
  CHECK_THAT(csv_set_error<DataError>(options),
             ContainsSubstring("csv: there is no '" + folder.path("none.csv") + "'; it must be"));
  options.test_file.reset();
  options.file = folder.write("a.csv", "a,y\n1,ant\n2,\n");
  CHECK_THAT(csv_set_error<DataError>(options),
             ContainsSubstring("line 3: column 'y': '' is no class"));
}

TEST_CASE("columns that can't be are told before anything is read from them") {
  const TemporaryFolder folder;
  const std::string file = folder.write("a.csv", "a,y,z\n1,2,3\n");
  CHECK_THAT(csv_set_error<ValueError>({.file = file, .target = {}}),
             ContainsSubstring("data.target is empty, but must name a column"));
  CHECK_THAT(csv_set_error<ValueError>({.file = file, .target = {"x"}}),
             ContainsSubstring("has no column 'x'"));
  CHECK_THAT(csv_set_error<ValueError>({.file = file, .target = {"y"}, .features = {"a", "y"}}),
             ContainsSubstring("have the column 'y' twice"));
  CHECK_THAT(csv_set_error<ValueError>({.file = file, .target = {"a", "y", "z"}}),
             ContainsSubstring("has no column but the target"));
  CHECK_THAT(csv_set_error<ValueError>(
                 {.file = file, .target = {"a", "y"}, .task = CsvTask::classification}),
             ContainsSubstring("data.target has 2 columns, but classification has classes of one"));
  CHECK_THAT(csv_set_error<ValueError>({.file = file, .target = {"y"}, .separator = "::"}),
             ContainsSubstring("data.separator is '::', but must be one byte"));
}

}  // namespace lockstep
