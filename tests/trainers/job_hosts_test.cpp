#include "trainers/commands/job_hosts.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "framework/data/data.h"
#include "tests/catch.h"
#include "tests/data/made_set.h"
#include "tests/support/temporary_folder.h"
#include "tests/trainers/parsed_config.h"

namespace lockstep {

TEST_CASE("hosts compare some samples of data that are slow to read, and how many there are") {
  const Config config = testing::parse(testing::kNames);
  const auto compared = [&](std::int64_t size, std::int64_t odd) {
    std::int64_t made = 0;
    // Sample i is i, but for one that may be another.
    const auto data = testing::made_set(
        {.size = size, .is_slow = true, .make = [&](const testing::MadeSample& sample) {
           ++made;
           sample.input.fill_(sample.index == odd ? -1 : sample.index);
         }});
    RunOptions options;
    auto same = host_options(
                    {}, config, {.train = data}, options, [] {}, [] {})
                    .same;
    CHECK(made >= std::min<std::int64_t>(size, 1000));
    CHECK(made <= std::min<std::int64_t>(size, 1100));
    return same;
  };
  CHECK(compared(50'000, -1) == compared(50'000, -1));
  CHECK(compared(50'000, -1) != compared(50'000, 150));
  CHECK(compared(50'000, -1) != compared(49'999, -1));
  CHECK(compared(900, -1) != compared(900, 7));
}

TEST_CASE("hosts compare which pictures are left out") {
  const Config config = testing::parse(testing::kNames);
  const auto compared = [&](const std::vector<std::string>& left_out) {
    RunOptions options;
    return host_options(
               {}, config, {.train = testing::made_set({.size = 2, .left_out = left_out})}, options,
               [] {}, [] {})
        .same.at("what is damaged and left out of the train data");
  };
  CHECK(compared({}) == "nothing");
  CHECK(compared({"a.png", "b.png"}) == compared({"a.png", "b.png"}));
  // Only so much of a value is compared.
  const std::string longer(300, 'x');
  CHECK(compared({longer, "b.png"}).substr(0, 200) != compared({longer, "c.png"}).substr(0, 200));
}

TEST_CASE("the paths of a data set's files are not what hosts compare, but what is in them") {
  const testing::TemporaryFolder folder;
  const auto compared = [&](const std::string& name, const std::string& rows) {
    const std::string path = folder.write(name, "x,y\n" + rows);
    const Config config =
        testing::parse("model: {name: linear}\ndata: {name: csv, file: " + path + ", target: y}\n");
    const DataSets data = load_data(config.data, {});
    RunOptions options;
    return host_options(
               {}, config, data, options, [] {}, [] {})
        .same;
  };
  const auto same = compared("a.csv", "1,2\n3,4\n");
  CHECK(same == compared("b.csv", "1,2\n3,4\n"));
  CHECK(same != compared("b.csv", "1,2\n3,5\n"));
  CHECK_FALSE(same.contains("data.file"));
  CHECK(same.contains("data.target"));
  CHECK(same.contains("data.name"));
}

TEST_CASE("the places in a config are the paths of the data set that is chosen") {
  const std::string model = "model: {name: linear}\n";
  using Places = std::set<std::string>;
  CHECK(place_keys(testing::parse(model + "data: {name: synthetic}\n")).empty());
  CHECK(place_keys(testing::parse(model + "data: {name: cifar10}\n")) == Places{"data.root"});
  CHECK(place_keys(testing::parse(model + "data: {name: text, path: a}\n")) ==
        Places{"data.path", "data.validation_path", "data.test_path"});
}

}  // namespace lockstep
