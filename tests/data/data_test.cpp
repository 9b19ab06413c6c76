#include "framework/data/data.h"

#include <algorithm>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/zeros.h>

#include "framework/base/errors.h"
#include "tests/catch.h"
#include "tests/data/made_set.h"
#include "tests/data/same_batches.h"
#include "tests/support/message_of.h"

namespace lockstep {
namespace {

using testing::message_of;

DataSets load(const std::string& name, const DataContext& context = {}) {
  return load_data(keys::Picked(name), context);
}

// The x of each sample of a part of the pmean example: its number in the whole.
std::vector<float> numbers_of(const Dataset& data) {
  return testing::floats_of(testing::whole(data).inputs);
}

// Gives what its type does not say.
class Liar final : public Dataset {
 public:
  Liar(Batch made, SampleType type) : made_(std::move(made)), type_(std::move(type)) {}
  std::int64_t size() const override { return 2; }
  SampleType type() const override { return type_; }

 private:
  Batch gather(std::span<const std::int64_t> /*indices*/, std::int64_t /*epoch*/) const override {
    return made_;
  }
  Batch made_;
  SampleType type_;
};

}  // namespace

TEST_CASE("load_data knows its sets by name") {
  const auto names = data_registry().names();
  CHECK(std::ranges::count(names, "fashion_mnist") == 1);
  CHECK(std::ranges::count(names, "pmean_example") == 1);

  const auto example = load("pmean_example", {.replicas = 3});
  CHECK(testing::sizes_of(example) == std::vector<std::int64_t>{12, 0, 0});
  CHECK(example.train->type() == value_sample({1}, 1));

  const auto fashion = load("fashion_mnist");
  CHECK(fashion.train->size() == 60000);
  CHECK(fashion.test->size() == 10000);
  CHECK(fashion.test->type() == class_sample({1, 28, 28}, 10));
}

TEST_CASE("lists of what was fitted must belong together") {
  CHECK_NOTHROW(check_fitted({.inputs = {"a"}, .targets = {"y"}, .class_count = 3}));
  const auto message = [](const Fitted& fitted) {
    return message_of<ValueError>([&] { check_fitted(fitted); });
  };
  CHECK(message({.inputs = {"a"}, .input_scales = {{0, 1}, {0, 1}}}) ==
        "fitted: 2 scales for 1 inputs");
  CHECK(message({.classes = {"x"}, .class_count = 2}) == "fitted: 1 names for 2 classes");
  CHECK(message({.inputs = {"a"}, .input_scales = {{NAN, 1}}}) ==
        "fitted: a scale is nan and 1, but must be finite");
}

TEST_CASE("load_data names what it does not know") {
  CHECK_THAT(
      message_of<ValueError>([] { (void)load("fashion-mnist"); }),
      ContainsSubstring(
          "there is no data set 'fashion-mnist' (did you mean 'fashion_mnist'?); there are "));
  CHECK(message_of<ValueError>([] { (void)load("pmean_example", {.replicas = 0}); }) ==
        "load_data: replicas is 0, but must be at least 1");
  CHECK(message_of<ValueError>([] { (void)load("pmean_example", {.validation = 1}); }) ==
        "load_data: validation is 1, but must be at least 0 and less than 1");
}

TEST_CASE("a validation set is a part of the training set that the seed chooses") {
  const auto split = [](std::uint64_t seed, double part) {
    return load("pmean_example", {.replicas = 5, .seed = seed, .validation = part});
  };
  const DataSets sets = split(1, 0.25);
  CHECK(testing::sizes_of(sets) == std::vector<std::int64_t>{15, 5, 0});
  const auto trained = numbers_of(*sets.train), validated = numbers_of(*sets.validation);
  std::set<float> all(trained.begin(), trained.end());
  all.insert(validated.begin(), validated.end());
  CHECK(all.size() == 20);
  CHECK(std::ranges::is_sorted(trained));
  CHECK(numbers_of(*split(1, 0.25).validation) == validated);
  CHECK(numbers_of(*split(2, 0.25).validation) != validated);
  for (const auto& [part, count] : {std::pair{"0.01", 0}, {"0.99", 20}}) {
    INFO(part);
    CHECK_THAT(message_of<ValueError>([&] { (void)split(1, std::stod(part)); }),
               ContainsSubstring(str("data.validation: of 20 training samples ", part, " would be ",
                                     count, ", and both sides need one at least")));
    // Those who want to know all get it, and the training set as it is.
    std::string told;
    const DataSets whole = load(
        "pmean_example", {.replicas = 5,
                          .validation = std::stod(part),
                          .on_damage = [&](const DataError& damage) { told = damage.what(); }});
    CHECK_THAT(told, ContainsSubstring("data.validation: of 20 training samples "));
    CHECK(whole.train->size() == 20);
  }
}

TEST_CASE("a batch that is not of the data set's type is refused, with both") {
  const std::vector<std::int64_t> two{0, 1};
  const auto says = [&](const Batch& made, const SampleType& type, const std::string& words) {
    CHECK(message_of<ValueError>([&] { (void)Liar(made, type).batch(two); }) == words);
  };
  const at::Tensor classes = at::zeros({2}, at::kLong);
  says({at::zeros({2, 4}), classes}, class_sample({3}, 5),
       "dataset: inputs must be Float (2, 3), as its type says, not Float (2, 4)");
  says({at::zeros({2, 3}), classes.to(at::kInt)}, class_sample({3}, 5),
       "dataset: targets must be Long (2), as its type says, not Int (2)");
  says({at::zeros({2, 3}), {}}, class_sample({3}, 5),
       "dataset: targets must be Long (2), as its type says, not undefined");
  CHECK_NOTHROW(Liar({at::zeros({2, 3}), classes}, class_sample({3}, 5)).batch(two));
}

TEST_CASE("the type of samples says what a model gives") {
  CHECK(value_sample({2, 3}, 4).outputs() == 4);
  CHECK(value_sample({2, 3}, 4).input.values() == 6);
  CHECK(class_sample({2, 3}, 10).outputs() == 10);
  CHECK(token_sample(8, 256).outputs() == 256);
  CHECK(token_sample(8, 256).target == TensorType{at::kLong, {8}});
}

TEST_CASE("a part of a data set needs samples that are there") {
  const auto whole = load("pmean_example", {.replicas = 1}).train;
  CHECK(numbers_of(Subset(whole, {3, 1})) == std::vector<float>{3, 1});
  CHECK_THROWS_WITH(Subset(whole, std::vector<std::int64_t>{}),
                    "a part of a data set needs at least one sample");
  CHECK_THROWS_WITH(Subset(whole, {0, 4}),
                    "a part of a data set of 4 samples has the samples 0 ... 4");
  CHECK_THROWS_WITH(Subset(whole, {0, -1}),
                    "a part of a data set of 4 samples has the samples -1 ... 0");
}

TEST_CASE("a source's classes are part of what is fitted, and must be those that were") {
  const Fitted fitted = load("fashion_mnist").fitted;
  CHECK(fitted.class_count == 10);
  REQUIRE(fitted.classes.size() == 10);
  CHECK(fitted.classes[9] == "Ankle boot");
  CHECK(load("fashion_mnist", {.fitted = fitted}).fitted == fitted);
  CHECK(message_of<DataError>(
            [&] { (void)load("pmean_example", {.fitted = Fitted{.class_count = 2}}); }) ==
        "pmean_example: its train set has values to predict, but must have those trained on: 2 "
        "classes");
  Fitted others = fitted;
  std::swap(others.classes[0], others.classes[1]);
  CHECK_THAT(message_of<DataError>([&] { (void)load("fashion_mnist", {.fitted = others}); }),
             ContainsSubstring("must have those trained on: 10 classes (Trouser, T-shirt/top, "));
  // Names that one side does not know contradict nothing.
  others.classes.clear();
  CHECK(load("fashion_mnist", {.fitted = others}).fitted == others);
}

TEST_CASE("all sets have the training set's classes, from the first run on") {
  const auto named = [](std::int64_t classes, std::vector<std::string> names) {
    return testing::made_set({.type = class_sample({1}, classes), .class_names = std::move(names)});
  };
  static std::shared_ptr<const Dataset> test;
  static const bool is_registered = [] {
    register_data(data_kind("named", "has classes with names", [](const DataContext&) {
      return DataSets{.train = testing::made_set(
                          {.type = class_sample({1}, 2), .class_names = {"odd", "even"}}),
                      .test = test};
    }));
    return true;
  }();
  REQUIRE(is_registered);
  const auto message = [&](std::int64_t classes, std::vector<std::string> names) {
    test = named(classes, std::move(names));
    return message_of<DataError>([] { (void)load("named"); });
  };
  CHECK(message(2, {"even", "odd"}) ==
        "named: its test set has 2 classes (even, odd), but must have those trained on: 2 classes "
        "(odd, even)");
  CHECK(message(3, {}) ==
        "named: its test set has 3 classes, but must have those trained on: 2 classes (odd, even)");
  test = named(2, {});
  const Fitted fitted = load("named").fitted;
  CHECK((fitted.classes == std::vector<std::string>{"odd", "even"}));
  CHECK(load("named", {.fitted = fitted}).fitted == fitted);
}

TEST_CASE("a source is asked for the sets that a job wants, and for what they are split from") {
  struct Asked {
    bool has_validation = false;
    std::vector<std::string> sets{};
  };
  static Asked asked;
  static const bool is_registered = [] {
    register_data(data_kind("asked", "says what it is asked for", [](const DataContext& context) {
      const auto set = [](const char* name) {
        asked.sets.emplace_back(name);
        return load("pmean_example", {.replicas = 5}).train;
      };
      DataSets sets;
      if (context.wanted.train) sets.train = set("train");
      if (context.wanted.validation && asked.has_validation) sets.validation = set("validation");
      if (context.wanted.test) sets.test = set("test");
      return sets;
    }));
    return true;
  }();
  REQUIRE(is_registered);
  using Names = std::vector<std::string>;
  // Which sets come, of those that were asked for.
  const auto check = [&](bool has_validation, double part, const WantedSets& wanted,
                         const Names& expected, const std::vector<std::int64_t>& sizes) {
    INFO(has_validation << " " << part << " " << wanted.train << wanted.validation << wanted.test);
    asked = {.has_validation = has_validation};
    const DataSets sets = load("asked", {.fitted = Fitted(), .validation = part, .wanted = wanted});
    CHECK(asked.sets == expected);
    CHECK(testing::sizes_of(sets) == sizes);
  };
  const WantedSets train{.validation = false, .test = false};
  const WantedSets validation{.train = false, .test = false};
  const WantedSets test{.train = false, .validation = false};
  for (const double part : {0.0, 0.25}) {
    check(false, part, test, {"test"}, {0, 0, 20});
    check(true, part, validation, {"validation"}, {0, 20, 0});
  }
  check(false, 0, train, {"train"}, {20, 0, 0});
  check(false, 0, validation, {}, {0, 0, 0});
  check(false, 0.25, train, {"train"}, {15, 0, 0});
  check(true, 0.25, train, {"train", "validation"}, {20, 0, 0});
  check(false, 0.25, validation, {"train"}, {0, 5, 0});
  check(false, 0.25, {.train = false}, {"test", "train"}, {0, 5, 20});
  CHECK(message_of<ValueError>([&] { (void)load("asked", {.wanted = test}); }) ==
        "load_data: without a training set there must be what was fitted to one");
  const auto fitted = load("asked", {.wanted = train}).fitted;
  CHECK(fitted.sample == value_sample({1}, 1));
  CHECK(load("asked", {.fitted = fitted, .wanted = test}).fitted == fitted);
}

}  // namespace lockstep
