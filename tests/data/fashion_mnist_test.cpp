#include "framework/data/fashion_mnist.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ops/equal.h>

#include "framework/base/errors.h"
#include "framework/base/random.h"
#include "tests/catch.h"
#include "tests/data/same_batches.h"
#include "tests/formats/idx_files.h"
#include "tests/support/message_of.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr const char* kImages = "t10k-images-idx3-ubyte";
constexpr const char* kLabels = "t10k-labels-idx1-ubyte";

// Pictures that are black but for their number at pixel 5.
std::string image_file(std::uint32_t count, std::uint32_t rows = 28, std::uint32_t columns = 28) {
  std::string bytes = idx_header({count, rows, columns});
  for (std::uint32_t i = 0; i < count; ++i) {
    std::string picture(std::size_t{rows} * columns, '\0');
    picture[5] = static_cast<char>(i);
    bytes += picture;
  }
  return bytes;
}

std::string label_file(const std::string& labels) {
  return idx_header({static_cast<std::uint32_t>(labels.size())}) + labels;
}

std::string load_error(const std::string& root,
                       FashionMnist::Split split = FashionMnist::Split::test) {
  return message_of<DataError>([&] { const FashionMnist set(root, split); });
}

const FashionMnist& real_train() {
  static const FashionMnist set(kFashionMnistRoot, FashionMnist::Split::train);
  return set;
}

const FashionMnist& real_test() {
  static const FashionMnist set(kFashionMnistRoot, FashionMnist::Split::test);
  return set;
}

// Sums over a whole set.
struct Totals {
  std::int64_t pixels = 0;  // as the file has them
  std::int64_t labels = 0;
  double inputs = 0;
  double squares = 0;  // of the inputs
};

Totals totals(const FashionMnist& set) {
  Totals sums;
  for (std::int64_t start = 0; start < set.size(); start += 1000) {
    std::vector<std::int64_t> indices(1000);
    std::iota(indices.begin(), indices.end(), start);
    const auto batch = set.batch(indices);
    const auto* input = batch.inputs.data_ptr<float>();
    for (std::int64_t i = 0; i < batch.inputs.numel(); ++i) {
      const auto value = static_cast<double>(input[i]);
      sums.pixels += std::lround((value * 0.3530 + 0.2860) * 255);
      sums.inputs += value;
      sums.squares += value * value;
    }
    for (const std::int64_t label : integers_of(batch.targets)) sums.labels += label;
  }
  return sums;
}

}  // namespace

TEST_CASE("Debian's Fashion-MNIST has its known sizes, labels and sums") {
  CHECK(real_train().size() == 60000);
  CHECK(real_test().size() == 10000);
  CHECK(real_train().type() == class_sample({1, 28, 28}, 10));
  REQUIRE(real_train().class_names().size() == 10);
  CHECK(real_train().class_names()[9] == "Ankle boot");

  const std::vector<std::int64_t> first{0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  CHECK(integers_of(real_train().batch(first).targets) ==
        std::vector<std::int64_t>{9, 0, 0, 3, 0, 2, 7, 2, 5, 5});
  CHECK(integers_of(real_test().batch(first).targets) ==
        std::vector<std::int64_t>{9, 2, 1, 1, 6, 1, 4, 6, 5, 7});

  const Totals train = totals(real_train());
  CHECK(train.pixels == 3431114169);
  CHECK(train.labels == 270000);
  const Totals test = totals(real_test());
  CHECK(test.pixels == 573469082);
  CHECK(test.labels == 45000);
}

TEST_CASE("a batch of Fashion-MNIST holds the normalized rows asked for, in their order") {
  const std::vector<std::int64_t> indices{59999, 0, 0, 31415};
  const auto batch = real_train().batch(indices);
  CHECK(batch.inputs.scalar_type() == at::kFloat);
  CHECK(batch.inputs.sizes().vec() == std::vector<std::int64_t>{4, 1, 28, 28});
  CHECK(batch.targets.scalar_type() == at::kLong);
  CHECK(batch.targets.sizes().vec() == std::vector<std::int64_t>{4});
  for (std::int64_t row = 0; row < 4; ++row) {
    const std::vector<std::int64_t> one{indices[static_cast<std::size_t>(row)]};
    const auto alone = real_train().batch(one);
    CHECK(at::equal(batch.inputs[row], alone.inputs[0]));
    CHECK(at::equal(batch.targets[row], alone.targets[0]));
  }
  // The first picture of the train set, row 12: pixels 10 … 14 are 6, 0, 99, 244, 222.
  const float* pixels = batch.inputs.data_ptr<float>() + 784 + 12 * 28 + 10;
  const double expected[] = {6, 0, 99, 244, 222};
  for (int i = 0; i < 5; ++i) {
    CHECK(pixels[i] == static_cast<float>((expected[i] / 255.0 - 0.2860) / 0.3530));
  }
}

TEST_CASE("the train set is normalized to mean 0 and deviation 1") {
  const Totals train = totals(real_train());
  const double count = 60000.0 * 784;
  CHECK(std::abs(train.inputs / count) < 1e-3);
  CHECK(std::abs(train.squares / count - 1) < 1e-3);
}

TEST_CASE("a batch belongs to its caller") {
  const std::vector<std::int64_t> indices{7};
  const auto before = real_test().batch(indices);
  const auto written = real_test().batch(indices);
  written.inputs.fill_(3);
  written.targets.fill_(3);
  const auto after = real_test().batch(indices);
  CHECK(at::equal(before.inputs, after.inputs));
  CHECK(at::equal(before.targets, after.targets));
}

TEST_CASE("an empty batch has rows of the right kind, none of them") {
  const auto batch = real_test().batch({});
  CHECK(batch.inputs.sizes().vec() == std::vector<std::int64_t>{0, 1, 28, 28});
  CHECK(batch.inputs.scalar_type() == at::kFloat);
  CHECK(batch.targets.sizes().vec() == std::vector<std::int64_t>{0});
  CHECK(batch.targets.scalar_type() == at::kLong);
}

TEST_CASE("an index outside the set is a ValueError with the numbers") {
  const std::vector<std::int64_t> beyond{3, 10000, 5};
  CHECK_THROWS_AS(real_test().batch(beyond), ValueError);
  CHECK_THROWS_WITH(real_test().batch(beyond),
                    "dataset: index 10000 (number 1 of 3 in the batch) is outside 0 ... 9999: the "
                    "set has 10000 samples");
  const std::vector<std::int64_t> negative{-1};
  CHECK_THROWS_WITH(real_test().batch(negative), ContainsSubstring("index -1 (number 0 of 1"));
}

TEST_CASE("several threads take batches of one set") {
  constexpr std::uint64_t kSeed = 20240229;
  CAPTURE(kSeed);
  const std::int64_t size = real_test().size();
  std::vector<std::vector<std::int64_t>> indices;
  for (std::uint64_t t = 0; t < 4; ++t) indices.push_back(permutation(Key(kSeed).fold(t), size));
  std::vector<Batch> batches(indices.size());
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < indices.size(); ++t) {
    threads.emplace_back([&, t] { batches[t] = real_test().batch(indices[t]); });
  }
  for (auto& thread : threads) thread.join();
  for (std::size_t t = 0; t < indices.size(); ++t) {
    const auto alone = real_test().batch(indices[t]);
    CHECK(at::equal(batches[t].inputs, alone.inputs));
    CHECK(at::equal(batches[t].targets, alone.targets));
  }
}

TEST_CASE("a set may be packed or plain, and plain wins") {
  const TemporaryFolder folder;
  folder.write(std::string(kImages) + ".gz", gzip(image_file(2)));
  folder.write(std::string(kLabels) + ".gz", gzip(label_file({3, 4})));
  CHECK(FashionMnist(folder.path(), FashionMnist::Split::test).size() == 2);

  folder.write(kImages, image_file(3));
  folder.write(kLabels, label_file({7, 8, 9}));
  const FashionMnist set(folder.path(), FashionMnist::Split::test);
  const auto batch = whole(set);
  CHECK(integers_of(batch.targets) == std::vector<std::int64_t>{7, 8, 9});
  const auto black = static_cast<float>(-0.2860 / 0.3530);
  for (std::int64_t i = 0; i < 3; ++i) {
    const float* row = batch.inputs.data_ptr<float>() + 784 * i;
    CHECK(row[4] == black);
    CHECK(row[5] == static_cast<float>((static_cast<double>(i) / 255.0 - 0.2860) / 0.3530));
  }
}

TEST_CASE("a missing file is an error that says what was tried and who has it") {
  const TemporaryFolder folder;
  CHECK(load_error(folder.path()) ==
        "fashion_mnist: there is neither '" + folder.path(kImages) + "' nor '" +
            folder.path(kImages) +
            ".gz'; Debian's package dataset-fashion-mnist has the files in " + kFashionMnistRoot);
  folder.write(kImages, image_file(2));
  CHECK_THAT(load_error(folder.path()), ContainsSubstring(folder.path(kLabels)));
  CHECK_THAT(load_error(folder.path("no-such-folder")), ContainsSubstring("no-such-folder/t10k"));
  CHECK_THAT(load_error(folder.path(), FashionMnist::Split::train),
             Catch::Matchers::StartsWith("fashion_mnist: there is neither '" +
                                         folder.path("train-images-idx3-ubyte") + "'"));
}

TEST_CASE("a folder in a file's place is an error, even beside a packed file") {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.path(kImages));
  folder.write(std::string(kImages) + ".gz", gzip(image_file(2)));
  folder.write(kLabels, label_file({3, 4}));
  CHECK_THAT(load_error(folder.path()), ContainsSubstring("it is a folder, not a file"));
}

TEST_CASE("headers that can't make a set are refused before any value is read") {
  const TemporaryFolder folder;
  // Files with holes have the size that their headers promise, 3 GB, and would be read.
  const auto promise = [&](const char* name, const std::vector<std::uint32_t>& shape) {
    const std::string header = idx_header(shape);
    std::uintmax_t size = 1;
    for (const std::uint32_t length : shape) size *= length;
    std::filesystem::resize_file(folder.write(name, header), header.size() + size);
  };
  promise(kImages, {1000, 2000, 1500});
  promise(kLabels, {1000});
  CHECK_THAT(load_error(folder.path()),
             ContainsSubstring("its pictures are of 2000 x 1500 pixels, but must be of 28 x 28"));
  promise(kImages, {1, 28, 28});
  promise(kLabels, {3'000'000'000U});
  CHECK_THAT(load_error(folder.path()), ContainsSubstring("it has 3000000000 labels, but '") &&
                                            ContainsSubstring("has 1 picture"));
  promise(kImages, {4'000'000, 28, 28});
  promise(kLabels, {2});
  CHECK_THAT(load_error(folder.path()), ContainsSubstring("it has 2 labels, but '"));
}

TEST_CASE("files that do not make a set are errors with the numbers") {
  const TemporaryFolder folder;
  folder.write(kImages, image_file(3));
  folder.write(kLabels, label_file({3, 4}));
  CHECK(load_error(folder.path()) == "data file '" + folder.path(kLabels) +
                                         "': it has 2 labels, but '" + folder.path(kImages) +
                                         "' has 3 pictures");

  folder.write(kLabels, label_file({3, 10, 4}));
  CHECK(load_error(folder.path()) ==
        "data file '" + folder.path(kLabels) + "': label number 1 is 10, but labels are 0 ... 9");
  folder.write(kLabels, label_file({3, 4, '\xff'}));
  CHECK_THAT(load_error(folder.path()), ContainsSubstring("label number 2 is 255"));

  folder.write(kLabels, label_file({3, 4, 5}));
  folder.write(kImages, image_file(3, 28, 32));
  CHECK(load_error(folder.path()) ==
        "data file '" + folder.path(kImages) +
            "': its pictures are of 28 x 32 pixels, but must be of 28 x 28");

  folder.write(kImages, image_file(0));
  CHECK(load_error(folder.path()) ==
        "data file '" + folder.path(kImages) + "': it has no pictures");

  // Labels where the pictures should be.
  folder.write(kImages, label_file({3, 4, 5}));
  CHECK_THAT(load_error(folder.path()),
             ContainsSubstring("its number of dimensions is 1, but must be 3"));
}
