#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/data/csv.h"
#include "framework/keys/yaml_text.h"
#include "tests/catch.h"
#include "tests/data/csv_error.h"
#include "tests/data/same_batches.h"
#include "tests/support/captured_stderr.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using testing::csv_error;
using testing::damage_of;
using testing::floats_of;
using testing::integers_of;
using testing::message_of;
using testing::TemporaryFolder;
using testing::whole;
using Floats = std::vector<float>;
using Texts = std::vector<std::string>;

Floats inputs_of(const Dataset& set) {
  return floats_of(whole(set).inputs);
}

// Of these inputs.
Floats inputs_of(const Dataset& set, std::int64_t begin, std::int64_t end) {
  return floats_of(whole(set).inputs.slice(1, begin, end).contiguous());
}

std::string log_of(const CsvSetOptions& options) {
  const testing::CapturedStderr log;
  (void)load_csv(options);
  return log.text();
}

}  // namespace

TEST_CASE("columns that are ignored are neither inputs nor targets") {
  const TemporaryFolder folder;
  CsvSetOptions options{.file = folder.write("a.csv", "patient,a,b,y\nmax,1,2,3\nmia,4,5,6\n"),
                        .target = {"y"},
                        .ignore = {"patient"},
                        .normalize = false};
  const DataSets sets = load_csv(options);
  CHECK(sets.fitted.inputs == Texts{"a", "b"});
  CHECK_THAT(sets.notes.at(0), EndsWith("1 left out (patient)"));
  // Other files need not have them.
  options.file = folder.write("b.csv", "a,b,y\n7,8,9\n");
  CHECK(inputs_of(*load_csv(options, {.fitted = sets.fitted}).train) == Floats{7, 8});
  CHECK_THAT(csv_error<ValueError>(options), ContainsSubstring("has no column 'patient'"));
  options.file = folder.path("a.csv");
  options.features = {"b", "patient", "a"};
  CHECK(load_csv(options).fitted.inputs == Texts{"b", "a"});
  options.ignore = {"y"};
  CHECK(csv_error<ValueError>(options) == "csv: data.ignore has the target 'y'");
  options.features = {};
  options.ignore = {"patient", "a", "b"};
  CHECK_THAT(csv_error<ValueError>(options),
             EndsWith("has no column but the target and those of data.ignore"));
  options.ignore = {"a"};
  CHECK(csv_error<ValueError>(options, {.fitted = sets.fitted}) ==
        "csv: data.ignore has ['a'], which are inputs of the model");
}

TEST_CASE("all columns of text are named at once, with what can be done about each") {
  const TemporaryFolder folder;
  CsvSetOptions options{
      .file = folder.write("a.csv",
                           "city,size,when,cost,y\nBonn,1,2024-01-01,\"1.234,5\",3\n"
                           "Ulm,2,2024-01-02,\"5,5\",4\n"),
      .target = {"y"}};
  const std::string of_file = "data file '" + options.file + "': ";
  CHECK(csv_error<DataError>(options) ==
        of_file +
            "3 of 4 input columns have cells that are no numbers: 'city' (line 2: 'Bonn'), 'when' "
            "(line 2: "
            "'2024-01-01', a date), 'cost' (line 2: '1.234,5', a number with data.decimal: ',' and "
            "data.thousands: '.'); data.ignore: [city, when, cost] leaves them out, "
            "data.categories: [city, when, cost] makes an input of each different text (auto: for "
            "all columns of text), data.dates: [when] makes numbers of dates");
  // train check says so, too, once, and not for each row.
  CHECK(csv_error<DataError>(options, {.keeps_damaged = true}) == csv_error<DataError>(options));
  // Dates and numbers in another form are no categories unless that is said.
  options.finds_categories = true;
  CHECK_THAT(csv_error<DataError>(options),
             ContainsSubstring("2 of 4 input columns have cells that are no numbers: 'when' ") &&
                 // Those that were found stay, whoever pastes this.
                 ContainsSubstring("data.categories: [city, when, cost] makes"));
  options.decimal = ",";
  options.thousands = ".";
  options.dates = {"when"};
  options.normalize = false;
  CHECK(inputs_of(*load_csv(options).train) == Floats{1, 0, 1, 19723, 1234.5, 0, 1, 2, 19724, 5.5});
  options.file = folder.write("d.csv", "a,b,y\n12%,$1.5,1\n7 %,($3),2\n");
  options.decimal = ".";
  options.thousands.reset();
  options.dates = {};
  CHECK_THAT(csv_error<DataError>(options),
             ContainsSubstring("'a' (line 2: '12%', a number once the signs around it are taken "
                               "out of the file), 'b' (line 2: '$1.5', a number once "));
  options.file = folder.write("e.csv", "a,b,y\n\"$1,234,567\",\"1,200\",1\n$900,\"5,123\",2\n");
  CHECK_THAT(csv_error<DataError>(options),
             ContainsSubstring("out of the file, with data.thousands: ',')") &&
                 ContainsSubstring("'b' (line 2: '1,200', a number with data.decimal: ',' or "
                                   "data.thousands: ',')"));
  options.finds_categories = false;
  options.file = folder.write("f.csv", "a,b,y\n01.03.2024,x,1\n31.12.2024,y,2\n");
  CHECK_THAT(csv_error<DataError>(options),
             ContainsSubstring("'a' (line 2: '01.03.2024', a date), 'b' (line 2: 'x');") &&
                 EndsWith("data.dates: [a] with data.date_format: \"%d.%m.%Y\" makes numbers of "
                          "dates"));
  // What is written already stays in what is to be written.
  options.file = folder.path("a.csv");
  options.ignore = {"size"};
  options.dates = {"when"};
  options.categories = {"city"};
  CHECK_THAT(csv_error<DataError>(options),
             ContainsSubstring("1 of 3 input columns has cells that are no numbers: 'cost' ") &&
                 ContainsSubstring("data.ignore: [size, cost] leaves it out, data.categories: "
                                   "[city, cost] makes"));
  options = {.file = folder.write("c.csv", "a,y\n1,cat\n2,dog\n"), .target = {"y"}};
  CHECK_THAT(csv_error<DataError>(options),
             EndsWith("the target is not numbers: 'y' (line 2: 'cat'); data.task: classification "
                      "predicts which text it is"));
}

TEST_CASE("texts among a column's numbers are told with all of such columns and what to write") {
  const TemporaryFolder folder;
  CsvSetOptions options{
      .file = folder.write("a.csv",
                           "a,b,t,y\n1,1,1,1\n2,-,B 52,2\n3,3,3,3\n"
                           "4,unknown,4,4\n5,5,5,5\n6,6,A/5 21171 or something,6\n"),
      .target = {"y"}};
  const std::string of_file = "data file '" + options.file + "': ";
  // They are no categories, unless that is said.
  for (const bool finds : {false, true}) {
    INFO(finds);
    options.finds_categories = finds;
    CHECK_THAT(
        csv_error<DataError>(options),
        StartsWith(of_file +
                   "2 of 3 input columns have cells that are no numbers: 'b' (line 3: '-'; 2 of 6 "
                   "values), 't' (line 3: 'B 52'; 2 of 6 values); data.ignore: [b, t] leaves them "
                   "out, data.categories: [b, t] makes an input of each different text; "
                   "data.missing_values: [") &&
            EndsWith(", \"-\", unknown] counts such as missing, which data.missing: mean fills "
                     "and drop leaves out"));
  }
  options.finds_categories = false;
  options.categories = {"t"};
  options.missing = CsvMissing::mean;
  options.missing_values = {"?"};
  const std::string error = csv_error<DataError>(options);
  CHECK_THAT(error,
             EndsWith("; data.missing_values: [\"?\", \"-\", unknown] counts such as missing"));
  options.missing_values = {"?", "-", "unknown"};
  CHECK(load_csv(options).train->size() == 6);

  // Of a target, of other files and behind the first thousand rows.
  options = {.file = folder.write("b.csv", "a,y\n1,1\n2,unknown\n3,3\n4,unknown\n5,5\n"),
             .target = {"y"}};
  CHECK_THAT(csv_error<DataError>(options),
             ContainsSubstring("line 3: column 'y': 'unknown' is no finite number, as are 2 of 5 "
                               "values; data.missing_values: [") &&
                 EndsWith(", unknown] counts such as missing, which data.missing: mean fills and "
                          "drop leaves out"));
  // What counted as missing before is among them.
  const Texts usual = CsvSetOptions::usual_missing_values();
  const std::string list =
      join(mapped(usual, [](const std::string& text) { return keys::yaml_text(text); }));
  CHECK_THAT(csv_error<DataError>(options), ContainsSubstring("[" + list + ", unknown]"));
  options.target = {"a"};
  options.file = folder.write("c.csv", "a,y\n1,1\n");
  options.test_file = folder.write("d.csv", "a,y\n1,\"2,5\"\n3,4\n");
  CHECK_THAT(csv_error<DataError>(options),
             EndsWith("d.csv': line 2: column 'y': '2,5' is no finite number; it is a number with "
                      "data.decimal: ','"));
  std::string text = "a,y\n";
  for (int i = 0; i < 1200; ++i) text += "1,1\n";
  options = {.file = folder.write("e.csv", text + "zero,1\n"), .target = {"y"}};
  CHECK_THAT(csv_error<DataError>(options),
             ContainsSubstring("'a' (line 1202: 'zero'; 1 of 1201 values); data.ignore: [a] "));
}

TEST_CASE("categories become inputs of their own, in their column's place") {
  const TemporaryFolder folder;
  CsvSetOptions options{
      .file = folder.write(
          "a.csv", "a,city,class,y\n1,Rome,3,1\n2, Bonn,1,2\n3,Rome,10,3\n4,\"Bonn \",3,4\n"),
      .test_file = folder.write("b.csv", "y,class,city,a\n0,1.0,Rome,9\n"),
      .target = {"y"},
      .normalize = true,
      .categories = {"class", "city"}};
  const DataSets sets = load_csv(options);
  CHECK(sets.fitted.inputs == Texts{"a", "city", "class"});
  CHECK((sets.fitted.forms == std::vector<ColumnForm>{{},
                                                      {.categories = {"Bonn", "Rome"}},
                                                      {.categories = {"1", "3", "10"}}}));
  CHECK(sets.fitted.input_scales.size() == 1);
  CHECK(sets.train->type() == value_sample({6}, 1));
  CHECK(inputs_of(*sets.train, 0, 1)[0] == static_cast<float>(-1.5 / std::sqrt(1.25)));
  CHECK(inputs_of(*sets.train, 1, 6) ==
        Floats{0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 1, 1, 0, 0, 1, 0});
  CHECK(inputs_of(*sets.test, 1, 6) == Floats{0, 1, 1, 0, 0});
  CHECK_THAT(sets.notes.at(1), EndsWith("these are 6 numbers: city (2 categories), class (3 "
                                        "categories)"));
  testing::check_same_batches(*sets.train);

  // What the training file does not have.
  options.test_file = folder.write("b.csv", "y,class,city,a\n0,1,Oslo,9\n");
  CHECK_THAT(csv_error<DataError>(options),
             EndsWith("b.csv': line 2: column 'city': 'Oslo' is none of the training set's "
                      "categories: 'Bonn', 'Rome'; data.unseen: other trains with an input for "
                      "such"));
  CHECK_THAT(damage_of(*load_csv(options, {.keeps_damaged = true}).test, 0),
             ContainsSubstring("'Oslo' is none of"));
  options.unseen = CsvUnseen::other;
  options.categories = {"city"};
  options.features = {"city"};
  const DataSets open = load_csv(options);
  CHECK(inputs_of(*open.train) == Floats{0, 1, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0});
  CHECK(inputs_of(*open.test) == Floats{0, 0, 1});

  // As checkpoints are read: the categories are the model's, and the options must ask for these.
  options.file = folder.write("c.csv", "city,y\nBonn,1\n");
  options.test_file.reset();
  CHECK(inputs_of(*load_csv(options, {.fitted = open.fitted}).train) == Floats{1, 0, 0});
  options.unseen = CsvUnseen::error;
  CHECK(csv_error<ValueError>(options, {.fitted = open.fitted}) ==
        "csv: data.unseen is error, but the model was trained with other");
  options.categories = {};
  CHECK(csv_error<ValueError>(options, {.fitted = open.fitted}) ==
        "csv: data.categories is [], but the model was trained with ['city']");
  options.finds_categories = true;
  options.unseen = CsvUnseen::other;
  CHECK_NOTHROW(load_csv(options, {.fitted = open.fitted}));
}

TEST_CASE("what can't be a column of categories or dates is told") {
  const TemporaryFolder folder;
  CsvSetOptions options{.file = folder.write("a.csv", "a,y,z\nx,1,2024-01-01\n"), .target = {"y"}};
  options.categories = {"y"};
  CHECK(csv_error<ValueError>(options) ==
        "csv: data.categories has the column 'y', which is no input");
  options.categories = {"a", "z"};
  options.dates = {"z"};
  CHECK(csv_error<ValueError>(options) ==
        "csv: the column 'z' stands in data.categories and data.dates");
  options.categories = {"a"};
  options.date_parts = {"week"};
  CHECK_THAT(csv_error<ValueError>(options), ContainsSubstring("data.date_parts must be one of"));
  options.date_parts = {};
  CHECK_THAT(csv_error<ValueError>(options), ContainsSubstring("data.date_parts is empty"));
  options.date_parts = {"year"};
  options.thousands = ".";
  CHECK_THAT(csv_error<ValueError>(options), ContainsSubstring("must differ"));
}

TEST_CASE("rows of which a value is missing can be left out of each set") {
  const TemporaryFolder folder;
  CsvSetOptions options{
      .file = folder.write("a.csv", "a,b,kind,y\n1,1,u,1\nNA,2,v,2\n3,?,u,3\n5,4,u,4\n9,9,u,\n"),
      .test_file = folder.write("b.csv", "a,b,kind,y\n,1,u,1\n1,1,u,1\n"),
      .target = {"y"},
      .ignore = {"b"},
      .missing = CsvMissing::drop,
      .categories = {"kind"}};
  std::string log;
  const DataSets sets = [&] {
    const testing::CapturedStderr captured;
    DataSets made = load_csv(options);
    log = captured.text();
    return made;
  }();
  CHECK(log == "lockstep: csv: '" + options.file +
                   "': 2 of 5 rows are left out, as values are missing; missing: a (1), y (1)\n"
                   "lockstep: csv: '" +
                   *options.test_file +
                   "': 1 of 2 rows is left out, as values are missing; missing: a (1)\n");
  CHECK(testing::sizes_of(sets) == std::vector<std::int64_t>{3, 0, 1});
  // Neither the mean nor the categories are of rows that are left out.
  CHECK(sets.fitted.input_scales[0].mean == 3);
  CHECK(sets.fitted.forms[1].categories == Texts{"u"});
  CHECK(floats_of(whole(*sets.train).targets) == Floats{1, 3, 4});
  CHECK(inputs_of(*sets.train)[2] == 0);

  // Nor does another cell of such a row matter, and rows behind it are told by their own line.
  options.test_file = folder.write("b.csv", "a,b,kind,y\nNA,1,w,bad\n1,1,w,1\n");
  CHECK_THAT(csv_error<DataError>(options), ContainsSubstring("line 3: column 'kind': 'w'"));
  const DataSets kept = load_csv(options, {.keeps_damaged = true});
  REQUIRE(kept.test->size() == 1);
  CHECK_THAT(damage_of(*kept.test, 0), ContainsSubstring("line 3: column 'kind': 'w'"));

  options.test_file = folder.write("b.csv", "a,b,kind,y\nNA,1,u,1\n");
  CHECK_THAT(csv_error<DataError>(options),
             EndsWith("b.csv': no row is left without those that miss a value: a (1); data.ignore "
                      "takes columns out, and data.missing: mean fills inputs"));
}

TEST_CASE("missing inputs can be filled by what the training set has") {
  const TemporaryFolder folder;
  CsvSetOptions options{
      .file = folder.write("a.csv", "a,kind,y\n1,u,1\n-999,v,2\n3,,3\n5,u,NA\n8,u,5\n"),
      .test_file = folder.write("b.csv", "a,kind,y\n100,v,1\n?,?,2\n"),
      .target = {"y"},
      .normalize = false,
      .missing_values = {"-999", "", "NA", "?"},
      .missing = CsvMissing::mean,
      .categories = {"kind"}};
  const DataSets sets = load_csv(options);
  // A row without its target is left out, and has no part in the mean.
  CHECK(sets.fitted.input_means == std::vector<double>{4});
  CHECK((sets.fitted.forms[1] == ColumnForm{.categories = {"u", "v"}, .has_missing = true}));
  CHECK(inputs_of(*sets.train) == Floats{1, 1, 0, 0, 4, 0, 1, 0, 3, 0, 0, 1, 8, 1, 0, 0});
  CHECK(floats_of(whole(*sets.train).targets) == Floats{1, 2, 3, 5});
  CHECK(inputs_of(*sets.test) == Floats{100, 0, 1, 0, 4, 0, 0, 1});
  CHECK_THAT(log_of(options),
             ContainsSubstring("2 missing values are filled by the training set's means, or a "
                               "category of their own, 1 of 5 rows is left out, as targets are "
                               "missing; missing: a (1), kind (1), y (1)\n"));
  // The means are those of the checkpoint.
  options.file = folder.write("c.csv", "a,kind,y\n,u,1\n50,v,1\n");
  CHECK(inputs_of(*load_csv(options, {.fitted = sets.fitted}).train) ==
        Floats{4, 1, 0, 0, 50, 0, 1, 0});

  // Normalized, a filled value is 0.
  options.file = folder.path("a.csv");
  options.normalize = true;
  const DataSets scaled = load_csv(options);
  CHECK(scaled.fitted.input_means.empty());
  CHECK(scaled.fitted.input_scales[0].mean == 4);
  CHECK(inputs_of(*scaled.train)[4] == 0);
  Fitted fitted = scaled.fitted;
  fitted.input_scales.clear();
  options.normalize = false;
  CHECK_THAT(csv_error<ValueError>(options, {.fitted = fitted}),
             ContainsSubstring("and so has no means"));

  // A missing category is one that the training set must have, as any other.
  options.file = folder.write("d.csv", "a,kind,y\n1,u,1\n2,v,2\n");
  CHECK_THAT(csv_error<DataError>(options),
             ContainsSubstring("b.csv': line 3: column 'kind': '?' is missing, and a missing value "
                               "is none of the training set's categories: 'u', 'v'; "));
  options.file = folder.write("d.csv", "a,kind,y\n,u,1\n,v,2\n");
  CHECK_THAT(csv_error<DataError>(options),
             EndsWith("the column 'a' has no value in the training set, and so no mean: "
                      "data.ignore leaves it out"));
}

TEST_CASE("predictions take rows without targets, and name those without an input in their place") {
  const TemporaryFolder folder;
  CsvSetOptions options{.file = folder.write("a.csv", "a,y\n1,1\n3,2\n,3\n"),
                        .test_file = folder.write("b.csv", "a,y\n1,\n,2\n3,4\n"),
                        .target = {"y"},
                        .missing = CsvMissing::drop};
  const DataSets trained = load_csv(options);
  const DataContext predicts{.fitted = trained.fitted,
                             .needs_targets = false,
                             .wanted = {.train = false},
                             .keeps_damaged = true};
  const auto warning = [&] {
    const testing::CapturedStderr log;
    (void)load_csv(options, predicts);
    return log.text();
  };
  CHECK(warning() == "lockstep: warning: csv: '" + *options.test_file +
                         "' has 1 missing value, and rows with such get no prediction; "
                         "data.missing: mean fills inputs by the training set's means\n");
  const auto set = load_csv(options, predicts).test;
  REQUIRE(set->size() == 3);
  CHECK_THAT(damage_of(*set, 1), EndsWith("b.csv': line 3: column 'a': '' is a missing value"));
  const Batch rest = set->batch(std::vector<std::int64_t>{0, 2});
  CHECK(floats_of(rest.inputs) == Floats{-1, 1});
  CHECK(std::isnan(floats_of(rest.targets)[0]));
  CHECK(floats_of(rest.targets)[1] == 4);
  // It is known to be the run's own set.
  CHECK(set->fingerprint() == trained.test->fingerprint());

  options.missing = CsvMissing::mean;
  const auto filled = load_csv(options, predicts).test;
  CHECK(floats_of(whole(*filled).inputs) == Floats{-1, 0, 1});
  options.test_file = folder.write("b.csv", "a,y\n$1,1\n$2,2\n");
  CHECK(warning() == "lockstep: warning: csv: '" + *options.test_file +
                         "': 'a' (line 2: '$1', a number once the signs around it are taken out of "
                         "the file) is to be numbers\n");
  options.task = CsvSetOptions::Task::classification;
  options.missing = CsvMissing::drop;
  options.file = folder.write("c.csv", "a,y\n1,1\n3,\n5,2\n");
  options.test_file.reset();
  const DataSets classes = load_csv(options);
  const auto labels =
      load_csv(options, {.fitted = classes.fitted, .needs_targets = false, .keeps_damaged = true})
          .train;
  CHECK(integers_of(whole(*labels).targets) == std::vector<std::int64_t>{0, -1, 1});
}

TEST_CASE("what is fitted is not fitted to the samples taken for validation") {
  const TemporaryFolder folder;
  std::string text = "a,kind,y\n";
  for (int i = 0; i < 20; ++i) text += str(i * i, ",k", i, ",", i, "\n");
  CsvSetOptions options{.file = folder.write("a.csv", text),
                        .target = {"y"},
                        .normalize_targets = true,
                        .categories = {"kind"},
                        .unseen = CsvUnseen::other};
  const DataContext context{.seed = 3, .validation = 0.3};
  const auto held = data::split_rows(20, context).validation;
  std::vector<bool> is_held(20);
  for (std::int64_t i = 0; i < held.size(); ++i) {
    is_held[static_cast<std::size_t>(held[i])] = true;
  }
  double sum = 0, target_sum = 0;
  for (int i = 0; i < 20; ++i) {
    if (!is_held[static_cast<std::size_t>(i)]) {
      sum += i * i;
      target_sum += i;
    }
  }
  const DataSets sets = load_csv(options, context);
  CHECK(sets.fitted.input_scales[0].mean == Approx(sum / 14).epsilon(1e-14));
  CHECK(sets.fitted.target_scales[0].mean == Approx(target_sum / 14).epsilon(1e-14));
  CHECK(sets.fitted.forms[1].categories.size() == 14);
  for (std::int64_t i = 0; i < 20; ++i) {
    const bool is_other =
        floats_of(whole(*sets.train).inputs)[static_cast<std::size_t>(i * 16 + 15)] == 1;
    CHECK(is_other == is_held[static_cast<std::size_t>(i)]);
  }
  options.unseen = CsvUnseen::error;
  CHECK_THAT(
      csv_error<DataError>(options, context),
      ContainsSubstring(" (this row is of the part that data.validation takes); data.unseen: "));
  // A validation file is the set then, and nothing is taken.
  options.validation_file = options.file;
  CHECK(load_csv(options, context).fitted.forms[1].categories.size() == 20);
}

TEST_CASE("dates become numbers of their own, which are normalized as others") {
  const TemporaryFolder folder;
  CsvSetOptions options{
      .file = folder.write("a.csv", "a,when,y\n1,2024-03-01,1\n2,2024-03-03,2\n3,,3\n"),
      .target = {"y"},
      .missing = CsvMissing::mean,
      .dates = {"when"},
      .date_parts = {"day", "weekday"}};
  const DataSets sets = load_csv(options);
  CHECK((sets.fitted.forms == std::vector<ColumnForm>{{}, {.date_parts = {"day", "weekday"}}}));
  CHECK((sets.fitted.input_scales ==
         std::vector<ColumnScale>{{2, std::sqrt(2.0 / 3)}, {2, 1}, {5, 1}}));
  CHECK(inputs_of(*sets.train, 1, 3) == Floats{-1, -1, 1, 1, 0, 0});
  options.date_parts = {"day", "year"};
  CHECK(csv_error<ValueError>(options, {.fitted = sets.fitted}) ==
        "csv: data.date_parts is ['day', 'year'], but the model was trained with ['day', "
        "'weekday']");
  CHECK_THAT(load_csv(options).notes.at(2), EndsWith("1 constant column becomes 0 (when's year)"));
  options.date_format = "%d.%m.%Y";
  CHECK_THAT(csv_error<DataError>(options),
             EndsWith("line 2: column 'when': '2024-03-01' is no date as data.date_format has it: "
                      "'%d.%m.%Y'; data.date_format: iso reads all of the column"));
  options.file = folder.write("b.csv", "a,when,y\n1,01.03.2024,1\n");
  options.date_parts = {"days"};
  options.normalize = false;
  CHECK(inputs_of(*load_csv(options).train) == Floats{1, 19783});
}

TEST_CASE("a column that is wrong as a whole is told once, and before what follows from it") {
  const TemporaryFolder folder;
  CsvSetOptions options{
      .file = folder.write("a.csv", "a,Tag,y\n1,22.04.2022,1\n2,NA,2\n3,1.05.2022,3\n"),
      .target = {"y"},
      .missing = CsvMissing::mean,
      .dates = {"Tag"}};
  const std::string rule =
      "line 2: column 'Tag': '22.04.2022' is no date such as 2024-03-01 or 2024-03-01T12:30:00; "
      "data.date_format: \"%d.%m.%Y\" reads all of the column";
  const DataContext keeps{.keeps_damaged = true};
  for (const CsvMissing missing : {CsvMissing::mean, CsvMissing::drop}) {
    options.missing = missing;
    CHECK_THAT(csv_error<DataError>(options), EndsWith("a.csv': " + rule));
    CHECK_THAT(csv_error<DataError>(options, keeps),
               EndsWith("a.csv': " + rule + "; so it is with all 2 values of the column"));
  }
  // Only a part of them, none of which has a mean; and one that is right.
  options.missing = CsvMissing::mean;
  options.file = folder.write("b.csv", "a,Tag,y\n1,22.04.2022,1\n2,NA,2\n");
  CHECK_THAT(csv_error<DataError>(options, keeps), EndsWith("b.csv': " + rule));
  options.file = folder.write("c.csv", "a,Tag,y\n1,22.04.2022,1\n2,x,2\n3,2022-04-23,3\n");
  CHECK_THAT(damage_of(*load_csv(options, keeps).train, 1),
             EndsWith("line 3: column 'Tag': 'x' is no date such as 2024-03-01 or "
                      "2024-03-01T12:30:00; data.date_format says how others are written"));

  // So are other columns of other sets. Of what is predicted each row is told.
  options = {.file = folder.write("d.csv", "a,kind,y\n1,u,1\n2,v,2\n"),
             .test_file = folder.write("e.csv", "a,kind,y\n1e300,w,1\n2e300,x,2\n"),
             .target = {"y"},
             .normalize = false,
             .categories = {"kind"}};
  CHECK_THAT(csv_error<DataError>(options, keeps),
             ContainsSubstring("e.csv': line 2: column 'a': '1e300' is too large for float32; so "
                               "it is with all 2 values of the column; line 2: column 'kind': 'w' "
                               "is none of the training set's categories"));
  const DataSets trained =
      load_csv({.file = options.file, .target = {"y"}, .normalize = false, .categories = {"kind"}});
  const DataSets predicted = load_csv(options, {.fitted = trained.fitted,
                                                .needs_targets = false,
                                                .wanted = {.train = false},
                                                .keeps_damaged = true});
  CHECK_THAT(damage_of(*predicted.test, 1),
             ContainsSubstring("line 3: column 'a': '2e300' is too large"));
}

TEST_CASE("True and False are 1 and 0 where numbers are needed, and classes where these are") {
  const TemporaryFolder folder;
  CsvSetOptions options{.file = folder.write("a.csv", "a,y\nTrue,false\n False,TRUE\n1,0\n"),
                        .target = {"y"},
                        .normalize = false};
  const DataSets sets = load_csv(options);
  CHECK(inputs_of(*sets.train) == Floats{1, 0, 1});
  CHECK(floats_of(whole(*sets.train).targets) == Floats{0, 1, 0});
  options.file = folder.write("b.csv", "a,y\nTrue,False\nFalse,True\n");
  options.task = CsvSetOptions::Task::classification;
  CHECK(load_csv(options).fitted.classes == Texts{"False", "True"});
}

TEST_CASE("numbers may be written as elsewhere, and their groups of digits must be such") {
  const TemporaryFolder folder;
  const auto read = [&](const std::string& cells, const std::string& decimal,
                        const std::optional<std::string>& thousands) {
    CsvSetOptions options{.file = folder.write("a.csv", "a;y\n" + cells),
                          .target = {"y"},
                          .separator = ";",
                          .decimal = decimal,
                          .thousands = thousands,
                          .normalize = false};
    return inputs_of(*load_csv(options).train);
  };
  CHECK(read("1.234.567,5;1\n-0,25;2\n12;3\n1e3;4\n", ",", ".") ==
        Floats{1234567.5, -0.25, 12, 1000});
  CHECK(read("1,234.5;1\n+12,34,567;2\n", ".", ",") == Floats{1234.5, 1234567});
  CHECK(read("1\xe2\x80\xaf"
             "234,5;1\n999;2\n",
             ",", "\xe2\x80\xaf") == Floats{1234.5, 999});
  for (const char* const cell : {"1,2", "1234,567", ",123", "1,,234", "1.5,000", "1,234,"}) {
    INFO(cell);
    const std::string cells = str("1;1\n2;2\n", cell, ";3\n");
    CHECK_THAT(message_of<DataError>([&] { (void)read(cells, ".", ","); }),
               ContainsSubstring(str("no numbers: 'a' (line 4: '", cell, "'")));
  }
  CHECK_THAT(message_of<DataError>([&] { (void)read("1;1\n2;2\n1.5;3\n", ",", std::nullopt); }),
             ContainsSubstring("(line 4: '1.5', a number with data.decimal: '.'; 1 of 3 values)"));
  CHECK(read("16777217;1\n", ",", std::nullopt) == Floats{16777216});
}

TEST_CASE("categories that look like a mistake are warned of") {
  const TemporaryFolder folder;
  CsvSetOptions options{.file = folder.write("a.csv", "sex,y\nmale,1\nMale,2\nfemale,3\n"),
                        .target = {"y"},
                        .categories = {"sex"}};
  CHECK(log_of(options) == "lockstep: warning: csv: column 'sex' of '" + options.file +
                               "' has categories that differ by the case of letters alone: 'Male' "
                               "and 'male'\n");
  std::string text = "name,y\n";
  for (int i = 0; i < 60; ++i) text += str("n", i, ",1\n");
  options.file = folder.write("b.csv", text);
  options.categories = {"name"};
  CHECK_THAT(log_of(options), ContainsSubstring("has 60 categories in 60 rows: are these"));
}

}  // namespace lockstep
