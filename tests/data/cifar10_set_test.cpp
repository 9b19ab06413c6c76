#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/data/cifar10.h"
#include "tests/catch.h"
#include "tests/data/same_batches.h"
#include "tests/formats/sample_files.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using testing::cifar10_record;
using testing::message_of;
using testing::TemporaryFolder;
using testing::whole;

// Batch b has one picture, of class b and with the shift b.
void write_cifar10(const TemporaryFolder& folder) {
  for (int batch = 1; batch <= 5; ++batch) {
    folder.write(str("data_batch_", batch, ".bin"), cifar10_record(batch, batch));
  }
  folder.write("test_batch.bin", cifar10_record(9, 0) + cifar10_record(0, 3));
}

DataSets load_cifar10_from(const std::string& root, Augmentation augmentation = {}) {
  return load_data(
      keys::Picked("cifar10", Cifar10Options{.root = root, .augmentation = augmentation}),
      {.seed = 5});
}

}  // namespace

TEST_CASE("CIFAR-10's bytes become planes that are normalized by channel") {
  const TemporaryFolder folder;
  write_cifar10(folder);
  const DataSets sets = load_cifar10_from(folder.path());
  CHECK(testing::sizes_of(sets) == std::vector<std::int64_t>{5, 0, 2});
  CHECK(sets.train->type() == class_sample({3, 32, 32}, 10));
  CHECK(sets.train->class_names().empty());
  folder.write("batches.meta.txt", "0\n1\n2\n3\n4\n5\n6\n7\n8\nlast one\n");
  CHECK(load_cifar10_from(folder.path()).test->class_names().back() == "last one");
  const Batch train = whole(*sets.train);
  CHECK(testing::integers_of(train.targets) == std::vector<std::int64_t>{1, 2, 3, 4, 5});
  const Batch test = whole(*sets.test);
  CHECK(testing::integers_of(test.targets) == std::vector<std::int64_t>{9, 0});
  const double mean[] = {0.4914, 0.4822, 0.4465};
  const double deviation[] = {0.2470, 0.2435, 0.2616};
  const float* value = test.inputs.data_ptr<float>() + 3072;
  bool same = true;
  for (int i = 0; i < 3072; ++i) {
    const int channel = i / 1024;
    const int byte = (3 + 7 * i) % 256;
    same =
        same && value[i] == static_cast<float>((byte / 255.0 - mean[channel]) / deviation[channel]);
  }
  CHECK(same);
}

TEST_CASE("CIFAR-10's training set alone is augmented, by the epoch") {
  const TemporaryFolder folder;
  write_cifar10(folder);
  const DataSets sets = load_cifar10_from(folder.path(), {.crop = 4, .flip = true});
  testing::check_same_batches(*sets.train);
  CHECK_FALSE(at::equal(whole(*sets.train, 0).inputs, whole(*sets.train, 1).inputs));
  CHECK(at::equal(whole(*sets.test, 0).inputs, whole(*sets.test).inputs));
}

TEST_CASE("without CIFAR-10's files one is told where to get them") {
  const TemporaryFolder folder;
  const std::string message =
      message_of<DataError>([&] { (void)load_cifar10_from(folder.path()); });
  CHECK_THAT(message,
             ContainsSubstring("cifar10: there is no '" + folder.path("data_batch_1.bin") + "'; "));
  CHECK_THAT(message, ContainsSubstring("https://www.cs.toronto.edu/~kriz/cifar.html"));
  write_cifar10(folder);
  folder.write("data_batch_4.bin", cifar10_record(10, 1));
  CHECK_THAT(message_of<DataError>([&] { (void)load_cifar10_from(folder.path()); }),
             ContainsSubstring("data_batch_4.bin"));
}

}  // namespace lockstep
