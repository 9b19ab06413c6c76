#include "trainers/run/memory_report.h"

#include <cstddef>
#include <string>
#include <utility>

#include <sys/resource.h>

#include "framework/base/errors.h"
#include "framework/base/limits.h"
#include "framework/data/data.h"
#include "framework/maps/pmap.h"
#include "tests/catch.h"
#include "tests/data/made_set.h"
#include "tests/formats/sample_files.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/trainers/parsed_config.h"
#include "trainers/config/config_options.h"
#include "trainers/run/check_job.h"

namespace lockstep {
namespace {

std::string prediction(const std::string& text) {
  const Config config = testing::parse(text);
  return prediction_text(config, load_data(config.data, data_context(config)));
}

}  // namespace

TEST_CASE("the activations of a batch that no host could take are predicted") {
  const std::string text = prediction(
      "model: {name: mlp, hidden: [100]}\n"
      "data: {name: synthetic, samples: 10000000, batch_size: 1000000000}\n");
  const std::string row = "  activations ";
  REQUIRE_THAT(text, ContainsSubstring(row));
  const double gib = std::stod(text.substr(text.find(row) + row.size()));
  constexpr double kLayer = 1e7 * 100 * 4 / (1 << 30);  // the hidden layer's values
  CHECK(gib > 2 * kLayer);
  CHECK(gib < 4 * kLayer);
}

TEST_CASE("a job that has lost a host is compared with a prediction for those that are left") {
  Config config = testing::parse(
      "model: {name: mlp, hidden: [64]}\ndata: {name: synthetic}\n"
      "parallel: {replicas: 4, launch: threads}\n");
  const DataSets data = load_data(config.data, data_context(config));
  const Config left = config;  // one host, whose replicas are threads of this process
  config.launch.hosts.count = 2;
  config.launch.hosts.replicas = 2;
  pmap(
      [&] {
        const auto model = make_whole_model(config, data.train->type());
        const ZeroTrainer trainer(*model, zero_options(config, *model));
        const MemoryReport report = memory_report(config, data, trainer, {});
        if (report.predicted.host.total() != predicted_memory(left, data).host.total())
          throw Error("it is another host's");
      },
      {.axis_name = "data", .axis_size = 4})();
  CHECK(predicted_memory(config, data).host.total() < predicted_memory(left, data).host.total());
}

TEST_CASE("an epoch's order of samples is predicted, and refused where it does not fit") {
  const std::string job =
      "model: {name: linear}\n"
      "data: {name: synthetic, samples: 10000000, features: 1}\n"
      "parallel: {replicas: ";
  CHECK_THAT(prediction(job + "2}\n"),
             ContainsSubstring("order of samples") && ContainsSubstring("38.1 MiB  76.3 MiB"));
  const Config config = testing::parse(job + "200}\n");
  const DataSets data{.train = testing::made_set({.size = 1'000'000'000})};
  CHECK_THAT(testing::message_of<ValueError>([&] { check_memory(config, data); }),
             ContainsSubstring("order of samples 745.1 GiB"));
}

TEST_CASE("inputs of a batch that no host could take are refused with the numbers") {
  const Config config = testing::parse(
      "model: {name: resnet, depth: 8, width: 4}\n"
      "data: {name: pmean_example, batch_size: 1000}\nparallel: {replicas: 1}\n");
  const auto large_pictures =
      testing::made_set({.size = 1000, .type = class_sample({3, 80'000, 80'000}, 2)});
  const DataSets data{.train = large_pictures};
  CHECK_THAT(testing::message_of<ValueError>([&] { check_memory(config, data); }),
             ContainsSubstring("a batch's inputs 69.8 TiB"));
  CHECK_THAT(prediction_text(config, data), ContainsSubstring("  a batch's inputs   69.8 TiB") &&
                                                ContainsSubstring(" left: the job does not fit."));
}

TEST_CASE("a process' limit is held against what one process takes, and the host's memory apart") {
  Config config = testing::parse(
      "model: {name: linear}\ndata: {name: synthetic, samples: 10000000, features: 1}\n");
  config.launch.replicas = 20;  // whose orders of samples take 763 MiB together, and each 38.1
  const DataSets data = load_data(config.data, data_context(config));
  for (const auto& [resource, name] :
       {std::pair(RLIMIT_AS, "of addresses (ulimit -v) that it may have "),
        std::pair(RLIMIT_DATA, "of private memory (ulimit -d) that it may have ")}) {
    rlimit before{};
    REQUIRE(::getrlimit(resource, &before) == 0);
    rlimit little = before;
    little.rlim_cur = rlim_t{1} << 50;  // so that what is in use is told
    REQUIRE(::setrlimit(resource, &little) == 0);
    const std::size_t used = memory_limits().front().used;
    const auto message_with = [&](std::size_t left, LaunchMode mode) {
      config.launch.mode = mode;
      little.rlim_cur = used + left;
      (void)::setrlimit(resource, &little);
      const std::string message =
          testing::message_of<ValueError>([&] { check_memory(config, data); });
      (void)::setrlimit(resource, &before);
      return message;
    };
    constexpr std::size_t kEach = std::size_t{100} << 20;
    CHECK(message_with(kEach, LaunchMode::processes) == "no error");
    CHECK_THAT(message_with(kEach, LaunchMode::threads),
               ContainsSubstring("a process of it takes 76") && ContainsSubstring(name));
    CHECK_THAT(message_with(kEach / 4, LaunchMode::processes),
               ContainsSubstring("a process of it takes 38."));
  }
}

TEST_CASE("a billion classes are refused with the numbers, before their memory is taken") {
  const testing::TemporaryFolder folder;
  const std::string inputs(16 * sizeof(float), '\0');
  folder.write("x.npy", testing::npy_file("<f4", false, "(4, 4)", inputs));
  folder.write("y.npy", testing::npy_file("<i8", false, "(4,)", std::string(4 * 8, '\0')));
  const Config config = testing::parse(
      "model: {name: linear}\n"
      "data: {name: npy, inputs: " +
      folder.path("x.npy") + ", targets: " + folder.path("y.npy") +
      ", classes: 1000000000, batch_size: 4}\nparallel: {replicas: 64}\n");
  rusage before{};
  REQUIRE(::getrusage(RUSAGE_SELF, &before) == 0);
  const DataSets data = load_data(config.data, data_context(config));
  check_job(config, data);
  CHECK_THAT(prediction_text(config, data), ContainsSubstring(" left: the job does not fit."));
  CHECK_THAT(testing::message_of<ValueError>([&] { check_memory(config, data); }),
             ContainsSubstring("this job does not fit: on this host it takes "));
  rusage after{};
  REQUIRE(::getrusage(RUSAGE_SELF, &after) == 0);
  CHECK(after.ru_maxrss - before.ru_maxrss < 500'000);  // KiB
}

TEST_CASE("a model whose bytes overflow a number is refused with the bytes that are there") {
  std::string widths = "1000000";
  for (int i = 0; i < 100; ++i) widths += ", 1000000";
  const auto message = testing::message_of<ValueError>([&] {
    (void)prediction("model: {name: mlp, hidden: [" + widths + "]}\ndata: {name: synthetic}\n");
  });
  CHECK_THAT(message, Catch::Matchers::StartsWith("the model's 100000"));
  CHECK_THAT(message,
             ContainsSubstring(" parameters alone take 363.8 TiB a copy, and this host has "));
}

}  // namespace lockstep
