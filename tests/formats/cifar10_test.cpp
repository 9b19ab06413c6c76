#include "framework/formats/cifar10.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "tests/catch.h"
#include "tests/formats/sample_files.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

using namespace lockstep;
using namespace lockstep::formats;
using namespace lockstep::testing;

namespace {

constexpr auto kTest = Cifar10::Split::test;

std::string cifar10_error(const TemporaryFolder& folder, Cifar10::Split split = kTest) {
  return message_of<DataError>([&] { const Cifar10 set(folder.path().string(), split); });
}

}  // namespace

TEST_CASE("CIFAR-10's train set is its five batches in their order, and its test set the sixth") {
  const TemporaryFolder folder;
  for (int batch = 1; batch <= 5; ++batch) {
    std::string bytes;
    for (int i = 0; i < batch; ++i) bytes += cifar10_record(batch + i, batch * 10 + i);
    folder.write("data_batch_" + std::to_string(batch) + ".bin", bytes);
  }
  folder.write("test_batch.bin", cifar10_record(9, 200) + cifar10_record(0, 201));

  const Cifar10 train(folder.path().string(), Cifar10::Split::train);
  CHECK(train.labels.size() == 15);
  CHECK(train.labels == std::vector<std::uint8_t>{1, 2, 3, 3, 4, 5, 4, 5, 6, 7, 5, 6, 7, 8, 9});
  const std::vector<int> shifts{10, 20, 21, 30, 31, 32, 40, 41, 42, 43, 50, 51, 52, 53, 54};
  REQUIRE(train.pixels.size() == 15 * 3072);
  for (std::size_t i = 0; i < 15; ++i) {
    const std::string record = cifar10_record(0, shifts[i]);
    const auto pixels = std::span(train.pixels).subspan(i * 3072, 3072);
    CHECK(std::string(pixels.begin(), pixels.end()) == record.substr(1));
  }
  CHECK(train.class_names.empty());

  const Cifar10 test(folder.path().string(), kTest);
  CHECK(test.labels.size() == 2);
  CHECK(test.labels == std::vector<std::uint8_t>{9, 0});
}

TEST_CASE("CIFAR-10's class names are read where the file is there, and must be ten") {
  const TemporaryFolder folder;
  folder.write("test_batch.bin", cifar10_record(1, 1));
  const std::vector<std::string> names{"airplane", "automobile", "bird",  "cat",  "deer",
                                       "dog",      "frog",       "horse", "ship", "truck"};
  for (const std::string line_end : {"\n", "\r\n"}) {
    std::string text;
    for (const std::string& name : names) text += name + line_end;
    folder.write("batches.meta.txt", text + line_end);
    CHECK(Cifar10(folder.path().string(), kTest).class_names == names);
  }
  folder.write("batches.meta.txt", "cat\ndog");
  CHECK(cifar10_error(folder) == "data file '" + folder.path("batches.meta.txt") +
                                     "': it must name 10 classes, one a line, but has 2");
  folder.write("batches.meta.txt", std::string(2000, 'a') + "\n1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11");
  CHECK_THAT(cifar10_error(folder), ContainsSubstring("but has more"));
}

TEST_CASE("a file that is no batch of CIFAR-10 is an error that names it") {
  const TemporaryFolder folder;
  CHECK(cifar10_error(folder) ==
        "data file '" + folder.path("test_batch.bin") + "': there is no such file");
  const std::string record = cifar10_record(3, 7);
  for (const std::string& bytes : {std::string(), record.substr(1), record + 'x'}) {
    folder.write("test_batch.bin", bytes);
    CHECK(cifar10_error(folder) == "data file '" + folder.path("test_batch.bin") + "': it has " +
                                       std::to_string(bytes.size()) +
                                       " bytes, but must be one or more records of 3073");
  }
  folder.write("test_batch.bin", record + cifar10_record(10, 7));
  CHECK_THAT(cifar10_error(folder),
             ContainsSubstring("the label of record 1 is 10, but labels are 0 ... 9"));
  for (int batch = 1; batch <= 4; ++batch) {
    folder.write("data_batch_" + std::to_string(batch) + ".bin", record);
  }
  CHECK_THAT(cifar10_error(folder, Cifar10::Split::train), ContainsSubstring("data_batch_5.bin"));
}
