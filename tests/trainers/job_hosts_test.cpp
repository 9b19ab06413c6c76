#include "trainers/job_hosts.h"

#include <string>

#include "framework/data/data.h"
#include "tests/catch.h"
#include "tests/support/temporary_folder.h"
#include "tests/trainers/parsed_config.h"

namespace lockstep {

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
