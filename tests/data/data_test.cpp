#include "framework/data/data.h"

#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "tests/catch.h"

using lockstep::data_names;
using lockstep::load_data;
using lockstep::Task;

TEST_CASE("load_data knows its sets by name") {
  CHECK(data_names() == std::vector<std::string>{"fashion_mnist", "pmean_example"});

  const auto example = load_data({}, 3);
  CHECK(example.train->size() == 12);
  CHECK(example.train->task() == Task::regression);
  CHECK(example.test == nullptr);

  const auto fashion = load_data({.name = "fashion_mnist"}, 3);
  CHECK(fashion.train->size() == 60000);
  CHECK(fashion.test->size() == 10000);
  CHECK(fashion.test->task() == Task::classification);
}

TEST_CASE("load_data names what it does not know") {
  CHECK_THROWS_AS(load_data({.name = "fashion-mnist"}, 1), lockstep::ValueError);
  CHECK_THROWS_WITH(load_data({.name = "fashion-mnist"}, 1),
                    "load_data: there is no data set 'fashion-mnist' (did you mean "
                    "'fashion_mnist'?); there are fashion_mnist, pmean_example");
  CHECK_THROWS_WITH(load_data({.name = "imagenet"}, 1),
                    "load_data: there is no data set 'imagenet'; there are fashion_mnist, "
                    "pmean_example");
  CHECK_THROWS_WITH(load_data({}, 0), "load_data: replicas is 0, but must be at least 1");
  CHECK_THROWS_AS(load_data({.name = "fashion_mnist", .root = "/no/such/folder"}, 1),
                  lockstep::DataError);
}
