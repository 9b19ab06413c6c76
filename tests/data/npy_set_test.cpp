#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/data/npy.h"
#include "tests/catch.h"
#include "tests/data/same_batches.h"
#include "tests/formats/sample_files.h"
#include "tests/support/captured_stderr.h"
#include "tests/support/message_of.h"
#include "tests/support/occurrences.h"
#include "tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using Catch::Matchers::StartsWith;
using testing::floats_of;
using testing::integers_of;
using testing::message_of;
using testing::npy_file;
using testing::TemporaryFolder;
using testing::whole;
using NpyFloats = std::vector<float>;
using NpyIntegers = std::vector<std::int64_t>;

template <typename T>
std::string array_file(const std::string& shape, const std::vector<T>& values) {
  const char kind = std::is_floating_point_v<T> ? 'f' : std::is_signed_v<T> ? 'i' : 'u';
  return npy_file(str(sizeof(T) == 1 ? '|' : '<', kind, sizeof(T)), false, shape,
                  {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
}

// A pair of arrays in a folder of its own.
class ArrayPair {
 public:
  ArrayPair(const std::string& inputs, const std::string& targets)
      : options_{.inputs = folder_.write("x.npy", inputs),
                 .targets = folder_.write("y.npy", targets)} {}

  NpySetOptions& options() { return options_; }
  [[nodiscard]] const NpySetOptions& options() const { return options_; }
  [[nodiscard]] DataSets load() const { return load_npy(options_); }
  std::string write(const std::string& name, const std::string& array) const {
    return folder_.write(name, array);
  }
  /// Without the file's path.
  [[nodiscard]] std::string error(const std::string& name) const {
    const std::string message = message_of<DataError>([&] { (void)load(); });
    const std::string prefix = "data file '" + folder_.path(name) + "': ";
    return message.starts_with(prefix) ? message.substr(prefix.size()) : message;
  }

 private:
  TemporaryFolder folder_;
  NpySetOptions options_;
};

const std::string kClasses3 = array_file<std::uint8_t>("(3,)", {1, 0, 4});

}  // namespace

TEST_CASE("arrays of numbers are float32 inputs, with classes or values as targets") {
  const ArrayPair classes(array_file<double>("(3, 2)", {1, 2, 3, 4, 5, 6.5}), kClasses3);
  const DataSets sets = classes.load();
  CHECK(sets.train->type() == class_sample({2}, 5));
  CHECK(floats_of(whole(*sets.train).inputs) == NpyFloats{1, 2, 3, 4, 5, 6.5});
  CHECK(integers_of(whole(*sets.train).targets) == NpyIntegers{1, 0, 4});
  CHECK(testing::sizes_of(sets) == NpyIntegers{3, 0, 0});
  testing::check_same_batches(*sets.train);

  const DataSets values = ArrayPair(array_file<std::int16_t>("(2,)", {-7, 8}),
                                    array_file<float>("(2, 1)", {0.5F, 1.5F}))
                              .load();
  CHECK(values.train->type() == value_sample({1}, 1));
  CHECK(floats_of(whole(*values.train).inputs) == NpyFloats{-7, 8});
  CHECK(floats_of(whole(*values.train).targets) == NpyFloats{0.5, 1.5});

  const DataSets planes = ArrayPair(array_file<float>("(1, 2, 1, 2)", {1, 2, 3, 4}),
                                    npy_file("|b1", false, "(1,)", "\1"))
                              .load();
  CHECK(planes.train->type() == class_sample({2, 1, 2}, 2));
  CHECK(floats_of(whole(*planes.train).inputs) == NpyFloats{1, 2, 3, 4});
}

TEST_CASE("arrays of bytes with height and width are pictures, channels last") {
  const std::vector<std::uint8_t> bytes{0, 51, 102, 153, 204, 255, 0, 0, 255, 255, 51, 51};
  const std::string one_class = array_file<std::int64_t>("(1,)", {2});
  const DataSets colour = ArrayPair(array_file("(1, 2, 2, 3)", bytes), one_class).load();
  CHECK(colour.train->type() == class_sample({3, 2, 2}, 3));
  CHECK(floats_of(whole(*colour.train).inputs) == NpyFloats{0, 0.6F, 0, 1,        //
                                                            0.2F, 0.8F, 0, 0.2F,  //
                                                            0.4F, 1, 1, 0.2F});
  const DataSets gray = ArrayPair(array_file("(3, 2, 2)", bytes), kClasses3).load();
  CHECK(gray.train->type() == class_sample({1, 2, 2}, 5));
  CHECK(floats_of(whole(*gray.train).inputs)[5] == 1);
  testing::check_same_batches(*gray.train);
}

TEST_CASE("arrays of integers of one shape are tokens, each with its target") {
  ArrayPair pair(array_file<std::uint16_t>("(2, 3)", {1, 2, 3, 4, 5, 6}),
                 array_file<std::int32_t>("(2, 3)", {2, 3, 9, 5, 6, 7}));
  const DataSets sets = pair.load();
  CHECK(sets.train->type() == token_sample(3, 10));
  CHECK(integers_of(whole(*sets.train).inputs) == NpyIntegers{1, 2, 3, 4, 5, 6});
  CHECK(integers_of(whole(*sets.train).targets) == NpyIntegers{2, 3, 9, 5, 6, 7});
  testing::check_same_batches(*sets.train);
  pair.options().classes = 50;
  CHECK(pair.load().train->type() == token_sample(3, 50));
  pair.options().classes = 7;
  CHECK(pair.error("y.npy") == "element [0, 2] is 9, but must be 0 ... 6: see data.classes");
  pair.options().classes = std::nullopt;
  pair.options().test_inputs = pair.write("x2.npy", array_file<std::int8_t>("(1, 3)", {1, -1, 0}));
  pair.options().test_targets = pair.write("y2.npy", array_file<std::int8_t>("(1, 3)", {1, 1, 0}));
  CHECK(pair.error("x2.npy") ==
        "element [0, 1] is -1, but must be 0 ... 9: see data.classes and loss.ignore_index");
}

TEST_CASE("further arrays must be like those to train on") {
  ArrayPair pair(array_file<float>("(3, 2)", {1, 2, 3, 4, 5, 6}), kClasses3);
  NpySetOptions& options = pair.options();
  options.test_inputs = pair.write("x2.npy", array_file<double>("(1, 2)", {7, 8}));
  CHECK(message_of<ValueError>([&] { (void)pair.load(); }) ==
        "npy: data.test_inputs is there, but data.test_targets is not");
  options.test_targets = pair.write("y2.npy", array_file<std::int64_t>("(1,)", {3}));
  const DataSets sets = pair.load();
  CHECK(sets.test->type() == sets.train->type());
  CHECK(floats_of(whole(*sets.test).inputs) == NpyFloats{7, 8});

  pair.write("y2.npy", array_file<std::int64_t>("(1,)", {5}));
  CHECK(pair.error("y2.npy") == "element [0] is 5, but must be 0 ... 4: see data.classes");
  pair.write("y2.npy", array_file<float>("(1,)", {5}));
  CHECK(pair.error("y2.npy") ==
        "its samples give targets of Float (1), but those to train on of Long ()");
  pair.write("y2.npy", array_file<std::int64_t>("(1,)", {3}));
  pair.write("x2.npy", array_file<float>("(1, 3)", {7, 8, 9}));
  CHECK(pair.error("x2.npy") ==
        "its samples give inputs of Float (3), but those to train on of Float (2)");
  options.test_inputs.reset();
  CHECK(message_of<ValueError>([&] { (void)pair.load(); }) ==
        "npy: data.test_targets is there, but data.test_inputs is not");
}

TEST_CASE("arrays that make no samples are told with their numbers") {
  const std::string pair = array_file<float>("(2, 1)", {1, 2});
  CHECK_THAT(ArrayPair(pair, kClasses3).error("y.npy"),
             ContainsSubstring("it has 3 samples, but '") && ContainsSubstring("x.npy' has 2"));
  CHECK(ArrayPair(array_file<float>("(0, 2)", {}), kClasses3).error("x.npy") ==
        "its shape (0, 2) has no samples");
  CHECK(ArrayPair(pair, array_file<float>("()", {1})).error("y.npy") ==
        "its shape () has no samples");
  CHECK(ArrayPair(pair, array_file<std::int8_t>("(2,)", {1, -1})).error("y.npy") ==
        "element [1] is -1, but must be 0 ... 1: see data.classes and loss.ignore_index");
  CHECK_THAT(ArrayPair(pair, array_file<std::int8_t>("(2, 1)", {1, 1})).error("y.npy"),
             ContainsSubstring("its shape is (2, 1), but classes must be (samples)"));
  CHECK_THAT(ArrayPair(pair, array_file<float>("(2, 1, 1)", {1, 1})).error("y.npy"),
             ContainsSubstring("its shape is (2, 1, 1), but values to predict must be"));
  CHECK_THAT(ArrayPair(pair, array_file<std::int64_t>("(2,)", {1, 2'000'000'000})).error("y.npy"),
             ContainsSubstring("element [1] is 2000000000, but classes and tokens must be whole"));
  CHECK_THAT(
      ArrayPair(array_file<std::uint8_t>("(3, 5, 1, 5)", std::vector<std::uint8_t>(75)), kClasses3)
          .error("x.npy"),
      ContainsSubstring("its shape is (3, 5, 1, 5), but uint8 must be"));
  CHECK_THAT(message_of<DataError>([] { (void)load_npy({.inputs = "no.npy", .targets = "no"}); }),
             ContainsSubstring("npy: there is no 'no.npy'; numpy.save(path, array) makes"));
}

TEST_CASE("other arrays have the classes trained on, and may be inputs alone for predictions") {
  ArrayPair pair(array_file<float>("(3, 1)", {1, 2, 3}), kClasses3);
  const Fitted fitted{.class_count = 7};
  CHECK(load_npy(pair.options(), {.fitted = fitted}).train->type() == class_sample({1}, 7));
  CHECK_THAT(message_of<DataError>(
                 [&] { (void)load_npy(pair.options(), {.fitted = Fitted{.class_count = 4}}); }),
             ContainsSubstring("element [2] is 4, but must be 0 ... 3"));

  pair.options().test_inputs = pair.write("t.npy", array_file<float>("(2, 1)", {8, 9}));
  CHECK_THROWS_AS(load_npy(pair.options(), {.fitted = fitted}), ValueError);
  const DataContext context{.fitted = fitted, .needs_targets = false};
  const auto alone = load_npy(pair.options(), context).test;
  CHECK_FALSE(alone->has_targets());
  CHECK(alone->type() == class_sample({1}, 7));
  CHECK(floats_of(whole(*alone).inputs) == NpyFloats{8, 9});
  CHECK(integers_of(whole(*alone).targets) == NpyIntegers{-1, -1});
  pair.options().test_inputs = pair.write("t.npy", array_file<float>("(2, 2)", {8, 9, 8, 9}));
  CHECK_THAT(message_of<DataError>([&] { (void)load_npy(pair.options(), context); }),
             ContainsSubstring("its samples give inputs of Float (2), but those to train on of "
                               "Float (1)"));
  pair.options().test_inputs.reset();
  pair.options().test_targets = pair.write("u.npy", kClasses3);
  CHECK_THROWS_AS(load_npy(pair.options(), context), ValueError);
}

TEST_CASE("arrays that are wanted alone are read as those trained on") {
  ArrayPair pair(array_file<float>("(3, 1)", {1, 2, 3}),
                 array_file<float>("(3, 2)", {1, 2, 3, 4, 5, 6}));
  const Fitted fitted{.sample = pair.load().train->type()};
  pair.options().inputs = pair.options().targets = "gone.npy";
  pair.options().validation_inputs = pair.options().validation_targets = "gone.npy";
  pair.options().test_inputs = pair.write("t.npy", array_file<float>("(1, 1)", {8}));
  DataContext context{
      .fitted = fitted, .needs_targets = false, .wanted = {.train = false, .validation = false}};
  const DataSets sets = load_npy(pair.options(), context);
  CHECK(testing::sizes_of(sets) == NpyIntegers{0, 0, 1});
  CHECK(sets.test->type() == value_sample({1}, 2));
  CHECK(floats_of(whole(*sets.test).inputs) == NpyFloats{8});
  pair.options().test_targets = pair.write("u.npy", array_file<float>("(1,)", {8}));
  CHECK(message_of<DataError>([&] { (void)load_npy(pair.options(), context); }) ==
        "data file '" + *pair.options().test_targets +
            "': its samples give targets of Float (1), but those to train on of Float (2)");
  // Where the samples are not known, those to train on say what they are.
  context.fitted = Fitted();
  CHECK_THAT(message_of<DataError>([&] { (void)load_npy(pair.options(), context); }),
             ContainsSubstring("npy: there is no 'gone.npy'"));
}

TEST_CASE("targets that do not count are none of an array's classes or tokens") {
  const ArrayPair tokens(array_file<std::int64_t>("(2, 2)", {1, 2, 3, 4}),
                         array_file<std::int64_t>("(2, 2)", {-100, 3, 4, -100}));
  CHECK(tokens.error("y.npy") ==
        "element [0, 0] is -100, but must be 0 ... 4: see data.classes and loss.ignore_index");
  const DataSets sets = load_npy(tokens.options(), {.ignored = -100});
  CHECK(sets.train->type() == token_sample(2, 5));
  CHECK(integers_of(whole(*sets.train).targets) == NpyIntegers{-100, 3, 4, -100});
  CHECK_THAT(message_of<DataError>([&] { (void)load_npy(tokens.options(), {.ignored = -1}); }),
             ContainsSubstring("element [0, 0] is -100, but must be 0 ... 4: see data.classes"));
  // Inputs have none.
  const ArrayPair inputs(array_file<std::int64_t>("(1, 2)", {-100, 2}),
                         array_file<std::int64_t>("(1, 2)", {1, 2}));
  CHECK_THAT(message_of<DataError>([&] { (void)load_npy(inputs.options(), {.ignored = -100}); }),
             ContainsSubstring("x.npy': element [0, 0] is -100"));
  // As in pictures of objects, 255.
  const ArrayPair labels(array_file<float>("(3, 1)", {1, 2, 3}),
                         array_file<std::uint8_t>("(3,)", {255, 0, 2}));
  CHECK(load_npy(labels.options(), {.ignored = 255}).train->type() == class_sample({1}, 3));
  CHECK(load_npy(labels.options(), {}).train->type() == class_sample({1}, 256));
}

TEST_CASE("where damaged samples are kept, labels and tokens that are none are told by batches") {
  const auto error = [](const DataSets& sets, std::int64_t index) {
    const std::string message = testing::damage_of(*sets.train, index);
    return message.substr(std::min(message.find("': "), message.size() - 3) + 3);
  };
  const DataContext context{.keeps_damaged = true};
  ArrayPair pair(array_file<float>("(5, 1)", {1, 2, 3, 4, 5}),
                 array_file<double>("(5,)", {0, -1, 2.5, 1e300, 2}));
  pair.options().task = NpySetOptions::Task::classification;
  const DataSets sets = load_npy(pair.options(), context);
  CHECK(sets.train->type() == class_sample({1}, 3));
  CHECK(integers_of(sets.train->batch(std::vector<std::int64_t>{4, 0}).targets) ==
        NpyIntegers{2, 0});
  CHECK(error(sets, 1) ==
        "element [1] is -1, but must be 0 ... 2: see data.classes and loss.ignore_index");
  CHECK(error(sets, 2) == "element [2] is 2.5, but must be 0 ... 2");
  CHECK(sets.train->label(3) == -1);
  pair.options().classes = 2;
  CHECK(error(load_npy(pair.options(), context), 4) ==
        "element [4] is 2, but must be 0 ... 1: see data.classes");
  CHECK_THROWS_AS(pair.load(), DataError);

  const ArrayPair tokens(array_file<std::int64_t>("(2, 2)", {1, -100, 3, 4}),
                         array_file<std::int64_t>("(2, 2)", {0, 1, -100, 2}));
  DataContext ignoring = context;
  ignoring.ignored = -100;
  const DataSets texts = load_npy(tokens.options(), ignoring);
  CHECK_THAT(error(texts, 0),
             StartsWith("element [0, 1] is -100, but must be 0 ... 4: see data.classes"));
  CHECK(integers_of(texts.train->batch(std::vector<std::int64_t>{1}).targets) ==
        NpyIntegers{-100, 2});
}

TEST_CASE("floats that are whole numbers ask whether they are classes") {
  ArrayPair pair(array_file<float>("(3, 1)", {1, 2, 3}), array_file<double>("(3,)", {0, 2, 1}));
  CHECK(pair.error("y.npy") ==
        "its elements are whole numbers of type float64, which may be classes or values: set "
        "data.task to classification or regression");
  pair.options().task = NpySetOptions::Task::classification;
  CHECK(pair.load().train->type() == class_sample({1}, 3));
  CHECK(integers_of(whole(*pair.load().train).targets) == NpyIntegers{0, 2, 1});
  pair.options().task = NpySetOptions::Task::regression;
  CHECK(pair.load().train->type() == value_sample({1}, 1));
  CHECK(floats_of(whole(*pair.load().train).targets) == NpyFloats{0, 2, 1});
  // What was trained on them knows.
  pair.options().task = NpySetOptions::Task::automatic;
  const Fitted fitted{.sample = value_sample({1}, 1)};
  CHECK(load_npy(pair.options(), {.fitted = fitted}).train->type() == value_sample({1}, 1));

  // Classes of one-hot code would be learnt as so many values.
  pair.write("y.npy", array_file<float>("(3, 2)", {0, 1, 1, 0, 0, 1}));
  CHECK(pair.error("y.npy") ==
        "its rows are 0 but for a single 1, as classes of one-hot code are: save the classes' "
        "numbers (array.argmax(1)), or set data.task to regression");
  pair.options().task = NpySetOptions::Task::regression;
  CHECK(pair.load().train->type() == value_sample({1}, 2));
  pair.options().task = NpySetOptions::Task::automatic;
  for (const NpyFloats& values : {NpyFloats{0, 1, 1, 0, 1, 1}, NpyFloats{0, 1, 1, 0, 0, 0.5F}}) {
    pair.write("y.npy", array_file<float>("(3, 2)", values));
    CHECK(pair.load().train->type() == value_sample({1}, 2));
  }

  // A missing label makes floats of integers.
  const float nan = std::numeric_limits<float>::quiet_NaN();
  pair.write("y.npy", array_file<float>("(3, 1)", {1, nan, 0}));
  CHECK_THAT(pair.error("y.npy"), ContainsSubstring("whole numbers of type float32"));
  pair.options().task = NpySetOptions::Task::classification;
  CHECK(pair.error("y.npy") ==
        "element [1, 0] is nan, but classes and tokens must be whole numbers less than 1000000000");
  pair.write("y.npy", array_file<float>("(3, 1)", {1, 2, 0}));
  CHECK(integers_of(whole(*pair.load().train).targets) == NpyIntegers{1, 2, 0});
  // From there on a float is also its neighbour.
  pair.options().classes = 100'000'000;
  pair.write("y.npy", array_file<float>("(3,)", {1, 16777216, 0}));
  CHECK(pair.error("y.npy") == "element [1] is 16777216, but must be 0 ... 99999999");
  pair.write("y.npy", array_file<float>("(3,)", {1, 2.5, 0}));
  CHECK(pair.error("y.npy") == "element [1] is 2.5, but must be 0 ... 99999999");
  // Integers are values if that is said.
  pair.options().task = NpySetOptions::Task::regression;
  pair.write("y.npy", array_file<std::int32_t>("(3, 2)", {1, 2, 3, 4, 5, 6}));
  CHECK(pair.load().train->type() == value_sample({1}, 2));
}

TEST_CASE("what is no number for float32 is told with its place as batches are made") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto error = [](const ArrayPair& pair, std::vector<std::int64_t> samples) {
    const auto set = pair.load().train;
    const std::string message = message_of<DataError>([&] { (void)set->batch(samples); });
    return message.substr(std::min(message.find("': "), message.size() - 3) + 3);
  };
  const ArrayPair inputs(array_file<double>("(3, 2)", {1, 2, 3, nan, 1e39, 6}), kClasses3);
  CHECK(inputs.load().train->batch(std::vector<std::int64_t>{0}).inputs.size(0) == 1);
  CHECK(error(inputs, {0, 1}) == "element [1, 1] is nan, but must be a finite number");
  CHECK(error(inputs, {2}) == "element [2, 0] is 1e+39, which float32 can't hold");
  // float16: -infinity.
  const ArrayPair targets(array_file<float>("(2, 1)", {1, 2}),
                          npy_file("<f2", false, "(2, 2)", std::string("\1\1\2\2\0\xfc\3\3", 8)));
  CHECK(error(targets, {0, 1}) == "element [1, 0] is -inf, but must be a finite number");
}

TEST_CASE("numbers are read where they are exact, and told where float32 rounds them") {
  const auto warnings = [](const ArrayPair& pair) {
    const testing::CapturedStderr log;
    const auto set = pair.load().train;
    for (int i = 0; i < 2; ++i) (void)whole(*set);
    return log.text();
  };
  const ArrayPair ids(array_file<std::uint64_t>("(3, 2)", {1, 1ULL << 63, 16777217, 5, 6, 7}),
                      kClasses3);
  CHECK(floats_of(whole(*ids.load().train).inputs) ==
        NpyFloats{1, 9223372036854775808.F, 16777216, 5, 6, 7});
  CHECK_THAT(warnings(ids), ContainsSubstring("npy: float32 rounds numbers of '") &&
                                ContainsSubstring("x.npy': element [1, 0] is 16777217, which "
                                                  "becomes 16777216 (said once)\n"));
  CHECK(testing::count(warnings(ids), "\n") == 1);
  const ArrayPair values(array_file<double>("(2,)", {0.1, 1e30}),
                         array_file<double>("(2,)", {0.5, 1234567891}));
  CHECK_THAT(warnings(values), ContainsSubstring("y.npy': element [1] is 1234567891, which "
                                                 "becomes 1234567936"));
  CHECK(testing::count(warnings(values), "\n") == 1);
  const ArrayPair stamps(array_file<double>("(2,)", {-16777216.4, 6.02e23}),
                         array_file<double>("(2,)", {0.5, 1700000000.25}));
  CHECK(warnings(stamps).empty());
  const ArrayPair later(array_file<double>("(2,)", {0.1, 9.5e15}),
                        array_file<double>("(2,)", {0.5, 1700000100.25}));
  CHECK_THAT(warnings(later), ContainsSubstring("y.npy': element [1] is 1700000100.25, which "
                                                "becomes 1700000128"));
  CHECK(testing::count(warnings(later), "\n") == 1);
  const ArrayPair nanoseconds(array_file<double>("(2,)", {1e20, 1.70000010025e18}),
                              array_file<double>("(2,)", {0.5, 1.5}));
  CHECK_THAT(warnings(nanoseconds), ContainsSubstring("x.npy': element [1] is 17000001002"));
  const ArrayPair labels(array_file<std::uint16_t>("(3, 1, 2)", {1, 2, 3, 4, 5, 65535}),
                         array_file<std::uint64_t>("(3,)", {1, 1ULL << 63, 0}));
  CHECK_THAT(labels.error("y.npy"), ContainsSubstring("element [1] is 9223372036854775808, but"));
}

TEST_CASE("pictures of bytes may have their channels in front") {
  const std::vector<std::uint8_t> bytes{0,  51, 102, 153, 204, 255, 0, 0, 255, 255,
                                        51, 51, 1,   2,   3,   4,   5, 6, 7,   8};
  const std::string one_class = array_file<std::int64_t>("(1,)", {2});
  const ArrayPair first(array_file("(1, 2, 2, 5)", bytes), one_class);
  CHECK(first.load().train->type() == class_sample({2, 2, 5}, 3));
  const NpyFloats values = floats_of(whole(*first.load().train).inputs);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    CHECK(values[i] == static_cast<float>(bytes[i]) / 255);
  }
  // Where both may be, they are behind.
  const ArrayPair last(array_file("(1, 1, 5, 4)", bytes), one_class);
  CHECK(last.load().train->type() == class_sample({4, 1, 5}, 3));
}

}  // namespace lockstep
