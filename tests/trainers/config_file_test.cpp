#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <c10/util/Logging.h>  // before Catch2: the last to define CHECK is heard

#include "framework/base/errors.h"
#include "models/cnn.h"
#include "models/mlp.h"
#include "tests/catch.h"
#include "tests/support/temporary_folder.h"
#include "tests/trainers/parsed_config.h"
#include "trainers/config/config.h"

namespace lockstep {
namespace {

using testing::kNames;

std::filesystem::path committed(const std::string& name) {
  return std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "configs" / name;
}

}  // namespace

TEST_CASE("a config is read from its file, whose path begins the messages") {
  const testing::TemporaryFolder folder;
  const std::string good = folder.write("good.yaml", kNames);
  CHECK(load_config(good).data.name == "pmean_example");
  CHECK(load_config(good, {keys::parse_set("trainer.seed=3")}).zero.seed == 3);
  const std::string bad = folder.write("bad.yaml", kNames + "optimizer:\n  lrr: 1\n");
  CHECK_THROWS_WITH(load_config(bad),
                    bad + ":4:3: unknown key 'lrr' in optimizer (did you mean 'lr'?)");
}

TEST_CASE("a config that cannot be read is a DataError with the reason") {
  CHECK_THROWS_AS(load_config("/nowhere/c.yaml"), DataError);
  CHECK_THROWS_WITH(load_config("/nowhere/c.yaml"),
                    "cannot read the config /nowhere/c.yaml: No such file or directory");
  CHECK_THROWS_WITH(load_config("/"), "cannot read the config /: it is a folder, not a file");
}

TEST_CASE("a config that is too long for one is not read to its end") {
  CHECK_THROWS_WITH(load_config("/dev/zero"),
                    "cannot read the config /dev/zero: it is a device, not a file");
  const std::string comment = "#" + std::string(256 * 1024 - kNames.size() - 1, 'x');
  const testing::TemporaryFolder folder;
  CHECK(load_config(folder.write("long.yaml", kNames + comment)).data.name == "pmean_example");
  const std::string longer = folder.write("longer.yaml", kNames + comment + "x");
  CHECK_THROWS_AS(load_config(longer), DataError);
  CHECK_THROWS_WITH(load_config(longer), "cannot read the config " + longer +
                                             ": it is longer than 256 KiB, more than any config");
}

TEST_CASE("the committed configs load") {
  const Config linear = load_config(committed("pmean_linear.yaml"));
  CHECK(linear.model.name == "linear");
  CHECK(linear.data.name == "pmean_example");
  CHECK(linear.data_use.batch_size == 4);
  CHECK_FALSE(linear.data_use.shuffle);
  CHECK(linear.zero.optimizer.name == "sgd");
  CHECK(linear.zero.optimizer.lr == 0.01);
  CHECK(linear.launch.replicas == 4);
  CHECK(linear.trainer.steps == 1);

  const Config mlp = load_config(committed("fashion_mnist_mlp.yaml"));
  CHECK(mlp.model.options<MlpOptions>().hidden == std::vector<std::int64_t>{1024, 1024});
  CHECK(mlp.data.name == "fashion_mnist");
  CHECK(mlp.data_use.batch_size == 64);
  CHECK(mlp.zero.optimizer.name == "adamw");
  CHECK(mlp.zero.optimizer.lr == 0.001);
  CHECK(mlp.launch.replicas == 2);
  CHECK(mlp.trainer.epochs == 10);
  CHECK(mlp.trainer.log_every == 100);

  const Config cnn = load_config(committed("fashion_mnist_cnn.yaml"));
  CHECK(cnn.model.name == "cnn");
  CHECK(cnn.model.options<CnnOptions>().channels == std::vector<std::int64_t>{32, 64});
  CHECK(cnn.model.options<CnnOptions>().dense == std::vector<std::int64_t>{128});
  CHECK(cnn.data.name == "fashion_mnist");
  CHECK(cnn.zero.optimizer.name == "adamw");
  CHECK(cnn.launch.replicas == 2);
}

}  // namespace lockstep
