#include "trainers/run/check_job.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/checkpoint/weights.h"
#include "framework/data/data.h"
#include "tests/catch.h"
#include "tests/data/made_set.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/trainers/parsed_config.h"
#include "trainers/config/config_options.h"
#include "trainers/run/course.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

std::string message_of_job(const Config& config) {
  const DataSets data = load_data(config.data, data_context(config));
  return message_of<ValueError>([&] { check_job(config, data); });
}

const std::string kWarmup =
    "schedule.warmup_steps: must be at most the run's 1 step (trainer.epochs 1 of 1 step each), "
    "is 7";
const std::string kAccumulate =
    "trainer.accumulate: times parallel.replicas it must be at most the training set's samples, of "
    "which there are 4; is 5 times 1";

std::string no_match(const std::string& pattern) {
  return "optimizer.groups: no parameter matches the pattern '" + pattern +
         "'; the parameters are w, b";
}

std::string taken(const std::string& pattern, const std::string& names) {
  return "optimizer.groups: earlier groups match all that the pattern '" + pattern +
         "' does: " + names;
}

}  // namespace

TEST_CASE("weights to begin with that are not finite are refused by their names") {
  const TemporaryFolder folder;
  const std::string file = folder.path() / "w.safetensors";
  const auto message = [&](const std::string& except) {
    const Config config = parse(
        "model: {name: mlp, hidden: [3], init_from: " + file + "}\ndata: {name: pmean_example}\n",
        {"model.init_from_except=" + except});
    const DataSets data = load_data(config.data, data_context(config));
    return message_of<Error>([&] { check_initial_weights(config, data); });
  };
  const Config config = parse("model: {name: mlp, hidden: [3]}\ndata: {name: pmean_example}\n");
  const auto model =
      make_whole_model(config, load_data(config.data, data_context(config)).train->type());
  save_safetensors(*model, file);
  CHECK(message("[]") == "no error");
  for (const double value : {std::nan(""), -HUGE_VAL}) {
    model->named_parameters()["1.weight"].data()[0][2] = value;
    save_safetensors(*model, file);
    CHECK_THAT(message("[]"), ContainsSubstring("c.yaml:1:") &&
                                  ContainsSubstring("model.init_from: " + file +
                                                    ": '1.weight' has NaN or infinity"));
    CHECK(message("['1.*']") == "no error");
  }
}

TEST_CASE("a step of one sample that batch normalization can't train on is refused at once") {
  const auto message = [](std::int64_t size, std::int64_t side, const std::string& keys,
                          const ResumePoint* point = nullptr) {
    const DataSets data{.train =
                            made_set({.size = size, .type = class_sample({1, side, side}, 2)})};
    const Config config = parse(
        "model: {name: resnet, depth: 8, width: 8}\n"
        "data: {name: pmean_example, batch_size: 3}\nparallel: {replicas: 2}\n",
        keys.empty() ? std::vector<std::string>{} : std::vector{keys});
    return message_of<ValueError>([&] { check_job(config, data, point); });
  };
  // 4 times 4 become 1 times 1.
  const std::string rest = message(7, 4, "");
  CHECK_THAT(rest, ContainsSubstring("c.yaml:2:29: data.batch_size: an epoch's last step has 1 "
                                     "sample of 7 in steps of 6 (data.drop_last: true leaves it "
                                     "out") &&
                       ContainsSubstring("one value for each channel"));
  CHECK(message(7, 4, "data.drop_last=true") == "no error");
  CHECK(message(7, 4, "trainer.steps=1") == "no error");  // does not come to the second
  CHECK(message(7, 8, "") == "no error");
  CHECK(message(8, 4, "") == "no error");
  // Three samples in two microbatches of two replicas: two, and one.
  CHECK_THAT(message(27, 4, "trainer.accumulate=2"),
             ContainsSubstring("an epoch's last step has 3 samples of 27 in steps of 12"));
  CHECK(message(26, 4, "trainer.accumulate=2") == "no error");
  CHECK(message(8, 4, "trainer.global_batch=2") == "no error");
  // Seven of 18 samples are left of the epoch in which a run goes on, in steps of three times two.
  Course before;
  before.batch = before.schedule_batch = 10;
  before.schedule_steps = before.phase_steps = 20;
  ResumePoint point;
  point.info.step = 1;
  point.info.counts = {{kSamplesCount, 11}};
  add_course(before, point.info);
  CHECK_THAT(message(18, 4, "trainer.steps=20", &point),
             ContainsSubstring("an epoch's last step has 1 sample of 7 in steps of 6"));
  CHECK(message(18, 4, "trainer.steps=20") == "no error");
  CHECK(message(18, 4, "trainer.steps=1", &point) == "no error");  // it has had its steps
}

TEST_CASE("a loss must know the targets that do not count, also of sets that are held out") {
  const TemporaryFolder folder;
  const std::string path = folder.write("text", std::string(50, 'a'));
  const std::string text =
      "model: {name: gpt, layers: 1, heads: 1, width: 2}\n"
      "data: {name: text, path: " +
      path + ", test_path: " + path +
      ", context: 8}\n"
      "loss: {name: cross_entropy}\n";
  const std::string every_byte = "data.every_byte=true";
  CHECK(message_of_job(parse(text)) == "no error");
  CHECK(message_of_job(parse(text, {every_byte, "loss.ignore_index=-100"})) == "no error");
  CHECK(message_of_job(parse(text, {every_byte})) ==
        "c.yaml:3:8: loss.name: some of the data's targets are -100 and do not count: this needs "
        "loss cross_entropy with loss.ignore_index -100");
  CHECK_THAT(message_of_job(parse(text, {every_byte, "loss.name=auto"})),
             ContainsSubstring("--set loss.name=auto: loss.name: some of the data's targets are"));
}

TEST_CASE("the loss auto has the cross entropy's options where the targets are classes") {
  const std::string classes =
      "model: {name: linear}\ndata: {name: synthetic, task: classification, classes: 3}\n";
  const auto message = [&](const std::string& text, const std::string& loss) {
    return message_of_job(parse(text + "loss: " + loss + "\n"));
  };
  CHECK(message(classes, "{class_weights: [1, 2, 3], label_smoothing: 0.1}") == "no error");
  CHECK_THAT(
      message(classes, "{class_weights: [1, 2]}"),
      ContainsSubstring("c.yaml:3:8: loss.class_weights has 2 entries, but there are 3 classes"));
  CHECK_THAT(message("model: {name: linear}\ndata: {name: pmean_example}\n", "{ignore_index: 1}"),
             ContainsSubstring("loss auto is mean_squared_error for targets that are values"));
}

TEST_CASE("a loss that does not fit the data does not have the metrics blamed, too") {
  const std::string data =
      "model: {name: linear}\ndata: {name: synthetic, task: classification, classes: 3}\n";
  CHECK(message_of_job(parse(data + "loss: mean_squared_error\ntrainer: {metrics: [r2]}\n")) ==
        "c.yaml:3:7: loss.name: loss mean_squared_error needs targets that are values, not "
        "classes");
}

TEST_CASE("data of one class are refused") {
  const TemporaryFolder folder;
  const std::string table = folder.write("table.csv", "x,kind\n1,blue\n2,blue\n3,blue\n");
  const std::string csv = "model: {name: linear}\ndata: {name: csv, file: " + table +
                          ", target: [kind], task: classification}\n";
  CHECK(message_of_job(parse(csv)) ==
        "c.yaml:2:8: data.name: csv has only one class ('blue'): there is nothing to learn");
}

TEST_CASE("all that does not suit a job's data is reported at once, sorted by line") {
  const std::string text = kNames +
                           "trainer: {accumulate: 5}\n"
                           "optimizer:\n"
                           "  groups:\n"
                           "    - {pattern: norm}\n"
                           "    - {pattern: \"?\"}\n"
                           "    - {pattern: w}\n"
                           "    - {pattern: head, lr_scale: 2}\n"
                           "schedule: {name: cosine, warmup_steps: 7}\n";
  CHECK(message_of_job(parse(text)) == "c.yaml:3:11: " + kAccumulate +            //
                                           "\nc.yaml:6:8: " + no_match("norm") +  //
                                           "\nc.yaml:8:8: " + taken("w", "w") +   //
                                           "\nc.yaml:9:8: " + no_match("head") +  //
                                           "\nc.yaml:10:26: " + kWarmup);
  // The flags come last.
  const std::string groups = "optimizer.groups=[{pattern: x}, {pattern: y}]";
  CHECK(message_of_job(parse(text, {"trainer.accumulate=5", groups})) ==
        "c.yaml:10:26: " + kWarmup + "\n--set trainer.accumulate=5: " + kAccumulate + "\n--set " +
            groups + ": " + no_match("x") + "\n--set " + groups + ": " + no_match("y"));
}

TEST_CASE("leaving out an epoch's last samples must leave a step") {
  const std::string text =
      "model: {name: linear}\n"
      "data: {name: synthetic, samples: 10, batch_size: 6, drop_last: true}\n"
      "parallel: {replicas: 2}\n";
  CHECK(message_of_job(parse(text)) ==
        "c.yaml:2:53: data.drop_last: leaves no step: it takes 12 samples, and the training set "
        "has 10");
  CHECK(message_of_job(parse(text, {"data.batch_size=5"})) == "no error");
}

TEST_CASE("patterns of trainer.freeze match some parameters, and leave some") {
  const auto message = [](const std::string& freeze, const std::string& more = "") {
    return message_of_job(parse(kNames + more + "trainer:\n  freeze: " + freeze + "\n"));
  };
  CHECK(message("[b]") == "no error");
  CHECK(message("[b, '[ab]']") == "no error");
  CHECK(message("[norm, b, 'x*']") ==
        "c.yaml:4:3: trainer.freeze: no parameter matches the pattern 'norm'; the parameters are "
        "w, b\n"
        "c.yaml:4:3: trainer.freeze: no parameter matches the pattern 'x*'; the parameters are "
        "w, b");
  CHECK(message("['?']", "optimizer: {groups: [{pattern: w}]}\n") ==
        "c.yaml:5:3: trainer.freeze: no parameter is left to train; the parameters are w, b");
  // A group is for parameters that are trained.
  CHECK(message("[w]", "optimizer: {groups: [{pattern: w}]}\n") ==
        "c.yaml:3:23: optimizer.groups: no parameter matches the pattern 'w'; the parameters are "
        "b");
}

TEST_CASE(
    "messages name few of a large model's parameters, and a thousand groups are soon checked") {
  const auto repeated = [](const std::string& item) {
    std::string items;
    for (int i = 0; i < 999; ++i) items += item + ", ";
    return "[" + items + item + "]";
  };
  const std::string model =
      "model: {name: mlp, hidden: " + repeated("1") + "}\ndata: {name: synthetic}\n";
  for (const std::string& keys :
       {std::string("trainer: {freeze: [x]}"), std::string("trainer: {freeze: ['*']}"),
        std::string("optimizer: {groups: [{pattern: x}]}"),
        "optimizer: {groups: " + repeated("{pattern: '*'}") + "}"}) {
    const std::string message = message_of_job(parse(model + keys + "\n"));
    INFO(message);
    CHECK(message.size() < 10'000);
    CHECK_THAT(message, ContainsSubstring("0.weight, 0.bias, 1.weight, "));
  }
}

TEST_CASE("what does not suit the data of a job without a file has no place") {
  Config config = parse(kNames + "schedule: {name: cosine, warmup_steps: 7}\n");
  config.zero.accumulate = 5;
  config.places.clear();
  CHECK(message_of_job(config) == kWarmup + "\n" + kAccumulate);
  config.schedule.warmup_steps = 0;
  CHECK(message_of_job(config) == kAccumulate);
}
