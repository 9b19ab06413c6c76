#include "trainers/run/data_record.h"

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ops/zeros.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/data/tensor_set.h"
#include "tests/catch.h"
#include "tests/data/made_set.h"
#include "tests/support/message_of.h"
#include "trainers/run/resume.h"

namespace lockstep {
namespace {

using testing::made_set;
using testing::message_of;
using Lines = std::vector<std::string>;

std::shared_ptr<const Dataset> samples(std::int64_t count, double value = 0) {
  return std::make_shared<const TensorSet>(at::zeros({count, 1}).fill_(value),
                                           at::zeros({count, 1}), value_sample({1}, 1));
}

DataSets sets(std::shared_ptr<const Dataset> train, std::shared_ptr<const Dataset> validation,
              std::shared_ptr<const Dataset> test) {
  return {.train = std::move(train), .validation = std::move(validation), .test = std::move(test)};
}

}  // namespace

TEST_CASE("sets of one source have its fingerprint, which is taken once") {
  int taken = 0;
  const auto source =
      made_set({.size = 4, .fingerprint = [&taken] { return std::to_string(++taken); }});
  const auto part = std::make_shared<const Subset>(source, std::vector<std::int64_t>{0, 1, 2});
  const auto of_part = std::make_shared<const Subset>(part, std::vector<std::int64_t>{2});
  const auto other = made_set({.size = 4, .fingerprint = [] { return "of another"; }});
  CHECK((records_of(sets(part, of_part, source)) ==
         SetRecords{{"train", {3, "1"}}, {"validation", {1, "1"}}, {"test", {4, "1"}}}));
  CHECK(taken == 1);
  CHECK((records_of(sets(source, nullptr, other)) ==
         SetRecords{{"train", {4, "2"}}, {"test", {4, "of another"}}}));
}

TEST_CASE("records of sets are the same after a way as text") {
  const SetRecords records{{"train", {3, "\"a\",\n\\"}}, {"test", {1, ""}}};
  CHECK((parse_sets(sets_text(records)) == records));
  const SetRecords with_damaged{{"train", {3, "f", {"a.png", "\xff.png"}}}};
  CHECK((parse_sets(sets_text(with_damaged)) == with_damaged));
  CHECK(parse_sets(sets_text({})).empty());
  CHECK_THROWS(parse_sets(""));
}

TEST_CASE("a change of the damaged pictures names those that are damaged now and no longer") {
  const auto change = [](const std::vector<std::string>& before,
                         const std::vector<std::string>& now) {
    const auto size = [](const auto& names) { return 10 - std::ssize(names); };
    return join(changes_of_sets({{"train", {size(before), "f", before}}},
                                {{"train", {size(now), "g", now}}}));
  };
  CHECK(change({}, {"b", "c"}) ==
        "the training set had 10 samples and has 8: b, c are damaged now");
  CHECK(change({"a", "b"}, {"b"}) ==
        "the training set had 8 samples and has 9: a is no longer among the damaged");
  CHECK(change({"a"}, {"b"}) ==
        "the training set of 9 samples has other contents: b is damaged "
        "now, a is no longer among the damaged");
  CHECK(change({"a"}, {"a"}) == "the training set of 9 samples has other contents");
}

TEST_CASE("a checkpoint says what was fitted and what sets there were, to the last bit") {
  DataSets data = sets(samples(5), nullptr, samples(2));
  data.fitted = {.inputs = {"a", "\"b\",\n", "\xff\xfe",
                            "gr\xc3\xb6\xc3\x9f"
                            "e"},
                 .input_scales = {{0.1, 1.0 / 3}, {-1e300, 5e-324}, {0, 0}, {1, 2}},
                 .targets = {"t"},
                 .target_scales = {{std::numeric_limits<double>::max(), 1}},
                 .classes = {"", "\x80"},
                 .class_count = 2,
                 .sample = SampleType{{at::kFloat, {3, 2}}, {at::kLong, {}}, 2, -100}};
  const DataRecord record{.fitted = data.fitted, .sets = records_of(data)};
  REQUIRE(record.sets.size() == 2);
  CHECK((record.sets.at("test") == SetRecord{2, samples(2)->fingerprint()}));
  CheckpointInfo info;
  add_record(record, info);
  CHECK(data_record("c", info) == record);
  Fitted table = data.fitted;
  table.inputs = {"a", "b", "c"};
  table.input_scales = {{0, 1}, {2, 3}, {4, 5}};
  table.forms = {
      {}, {.categories = {"x", "\xff"}, .has_missing = true}, {.date_parts = {"year", "days"}}};
  table.input_means = {0.1, -1e300, 3};
  add_record({.fitted = table, .sets = records_of(data)}, info);
  CHECK(data_record("c", info).fitted == table);
  table.forms[1] = {.categories = {"x"}, .has_other = true};
  add_record({.fitted = table, .sets = records_of(data)}, info);
  CHECK(data_record("c", info).fitted == table);
  CHECK(fitted_text({.classes = {"x", "\xff"}, .class_count = 2}) ==
        R"({"inputs":[],"input_scales":[],"targets":[],"target_scales":[],)"
        R"("classes":["x",[255]],"class_count":2})");
  CHECK_THAT(fitted_text({.sample = token_sample(4, 256)}),
             ContainsSubstring(R"("sample":{"input":{"dtype":"Long","shape":[4]},)"
                               R"("target":{"dtype":"Long","shape":[4]},"classes":256}})"));
  for (const at::ScalarType dtype :
       {at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf, at::kBFloat16, at::kFloat,
        at::kDouble, at::kBool, at::kComplexFloat}) {
    Fitted fitted{.sample = value_sample({4}, 1)};
    fitted.sample->input.dtype = dtype;
    info.texts[kFittedText] = fitted_text(fitted);
    CHECK(data_record("c", info).fitted == fitted);
  }
}

TEST_CASE("a checkpoint that does not say what its data were is refused") {
  CheckpointInfo info;
  CHECK(message_of<DataError>([&] { (void)data_record("runs/c", info); }) ==
        "runs/c is no checkpoint of train: it has no 'fitted'");
  add_record({.fitted = {.sample = value_sample({1}, 1)},
              .sets = records_of(sets(samples(5), nullptr, nullptr))},
             info);
  const CheckpointInfo whole = info;
  const auto refused = [&](const std::string& name, const std::string& text) {
    info = whole;
    info.texts[name] = text;
    const std::string message = message_of<DataError>([&] { (void)data_record("c", info); });
    CHECK_THAT(message, ContainsSubstring("c has a damaged '" + name + "': "));
  };
  refused(kSetsText, "{");
  refused(kSetsText, R"({"train": {"size": "many", "fingerprint": ""}})");
  refused(kFittedText, "[]");
  refused(kFittedText, fitted_text({.inputs = {"a"}, .input_scales = {{0, 1}, {0, 1}}}));
  refused(kFittedText, fitted_text({.classes = {"a"}, .class_count = 2}));
  std::string scaled =
      fitted_text({.targets = {"y"}, .target_scales = {{0, 1}}, .sample = value_sample({1}, 1)});
  refused(kFittedText, scaled.replace(scaled.find(R"(,"unit_figures")"), 20, ""));
  std::string sample = fitted_text({.sample = value_sample({1}, 1)});
  REQUIRE(sample.find("Float") != std::string::npos);
  refused(kFittedText, std::string(sample).replace(sample.find("Float"), 5, "Fleet"));
  refused(kFittedText, sample.replace(sample.find("[1]"), 3, "[-1]"));
  refused(kFittedText, fitted_text({}));
}

TEST_CASE("what has become of data is told by set, with both sizes") {
  const auto before = records_of(sets(samples(5), samples(2), nullptr));
  const auto changes = [&](const DataSets& now) {
    return changes_of_sets(before, records_of(now));
  };
  CHECK(changes(sets(samples(5), samples(2), nullptr)).empty());
  CHECK(changes(sets(samples(6), samples(2), nullptr)) ==
        Lines{"the training set had 5 samples and has 6"});
  CHECK(changes(sets(samples(5, 1), samples(1), nullptr)) ==
        Lines{"the training set of 5 samples has other contents",
              "the validation set had 2 samples and has 1"});
  CHECK(changes(sets(samples(5), nullptr, samples(1))) ==
        Lines{"the validation set had 2 samples and is not there",
              "the test set was not there and has 1 sample"});
}

}  // namespace lockstep
