#include "trainers/commands/job_hosts.h"

#include <algorithm>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/zeros.h>

#include "framework/data/data.h"
#include "tests/catch.h"
#include "tests/trainers/parsed_config.h"
#include "trainers/bench/testing/temporary_folder.h"

namespace lockstep {
namespace {

// Sample i is i, but for one that may be another.
class SlowCount final : public Dataset {
 public:
  SlowCount(std::int64_t size, std::int64_t odd) : size_(size), odd_(odd) {}
  std::int64_t size() const override { return size_; }
  SampleType type() const override { return value_sample({1}, 1); }
  bool is_slow() const override { return true; }
  mutable std::int64_t made = 0;

 private:
  Batch gather(std::span<const std::int64_t> indices, std::int64_t /*epoch*/) const override {
    made += std::ssize(indices);
    Batch batch{at::zeros({std::ssize(indices), 1}), at::zeros({std::ssize(indices), 1})};
    for (std::size_t i = 0; i < indices.size(); ++i) {
      batch.inputs.data_ptr<float>()[i] =
          indices[i] == odd_ ? -1.0F : static_cast<float>(indices[i]);
    }
    return batch;
  }

  std::int64_t size_;
  std::int64_t odd_;
};

}  // namespace

TEST_CASE("hosts compare some samples of data that are slow to read, and how many there are") {
  const Config config = testing::parse(testing::kNames);
  const auto compared = [&](std::int64_t size, std::int64_t odd) {
    const auto data = std::make_shared<const SlowCount>(size, odd);
    RunOptions options;
    auto same = host_options(
                    {}, config, {.train = data}, options, [] {}, [] {})
                    .same;
    CHECK(data->made >= std::min<std::int64_t>(size, 1000));
    CHECK(data->made <= std::min<std::int64_t>(size, 1100));
    return same;
  };
  CHECK(compared(50'000, -1) == compared(50'000, -1));
  CHECK(compared(50'000, -1) != compared(50'000, 150));
  CHECK(compared(50'000, -1) != compared(49'999, -1));
  CHECK(compared(900, -1) != compared(900, 7));
}

TEST_CASE("hosts compare which pictures are left out") {
  class Rest final : public Dataset {
   public:
    explicit Rest(std::vector<std::string> left_out) : left_out_(std::move(left_out)) {}
    std::int64_t size() const override { return 2; }
    SampleType type() const override { return value_sample({1}, 1); }
    std::vector<std::string> left_out() const override { return left_out_; }

   private:
    Batch gather(std::span<const std::int64_t> indices, std::int64_t /*epoch*/) const override {
      return {at::zeros({std::ssize(indices), 1}), at::zeros({std::ssize(indices), 1})};
    }
    std::vector<std::string> left_out_;
  };
  const Config config = testing::parse(testing::kNames);
  const auto compared = [&](const std::vector<std::string>& left_out) {
    RunOptions options;
    return host_options(
               {}, config, {.train = std::make_shared<const Rest>(left_out)}, options, [] {}, [] {})
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
