#include <cstdint>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "framework/data/csv.h"
#include "framework/data/data.h"
#include "framework/data/image_folder.h"
#include "framework/data/images.h"
#include "framework/data/sample_text.h"
#include "framework/data/tensor_set.h"
#include "framework/data/text.h"
#include "tests/catch.h"
#include "tests/data/made_set.h"
#include "tests/formats/sample_files.h"
#include "tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using testing::MadeSample;
using testing::MadeSet;
using testing::TemporaryFolder;

// Sample i is the number i, `length` times, but for one that is another.
MadeSet numbers(std::int64_t size, std::int64_t other = -1, std::vector<std::string> names = {},
                std::int64_t length = 1) {
  return MadeSet({.size = size,
                  .type = class_sample({length}, 2),
                  .class_names = std::move(names),
                  .make = [other](const MadeSample& sample) {
                    sample.input.fill_(sample.index == other ? -1 : sample.index);
                  }});
}

std::string print_of_csv(const TemporaryFolder& folder, const std::string& text) {
  const std::string file = folder.write("a.csv", text);
  return load_csv({.file = file, .target = {"y"}, .normalize = false}).train->fingerprint();
}

}  // namespace

TEST_CASE("a fingerprint is that of size, classes and samples, wherever they are") {
  const std::string expected = numbers(100).fingerprint();
  CHECK(numbers(100).fingerprint() == expected);
  CHECK(numbers(101).fingerprint() != expected);
  CHECK(numbers(100, 99).fingerprint() != expected);
  CHECK(numbers(100, 50).fingerprint() != expected);
  CHECK(numbers(100, -1, {"a", "b"}).fingerprint() != expected);
  CHECK(numbers(100, -1, {"a", "b"}).fingerprint() != numbers(100, -1, {"ab", ""}).fingerprint());
  CHECK(numbers(1).fingerprint() != numbers(1, 0).fingerprint());
  CHECK(Subset(std::make_shared<const MadeSet>(numbers(100)), {3}).fingerprint() == expected);
  // Of very many samples some are looked at, the first and the last among them.
  constexpr std::int64_t kMany = std::int64_t{1} << 40;
  const auto of_many = [](std::int64_t other) {
    return numbers(kMany, other, {}, /*length=*/100'000).fingerprint();
  };
  CHECK(of_many(-1) == of_many(-1));
  CHECK(of_many(-1) != of_many(kMany - 1));
  CHECK(of_many(-1) != of_many(0));
}

TEST_CASE("the fingerprint of a table notices each row and value") {
  const TemporaryFolder folder;
  const TemporaryFolder elsewhere;
  const std::string expected = print_of_csv(folder, "a,y\n1,2\n3,4\n");
  CHECK(print_of_csv(elsewhere, "a,y\n1,2\n3,4\n") == expected);
  CHECK(print_of_csv(folder, "a,y\n1,2\n3,4\n5,6\n") != expected);
  CHECK(print_of_csv(folder, "a,y\n1,2\n3,5\n") != expected);
  CHECK(print_of_csv(folder, "a,y\n1.5,2\n3,4\n") != expected);
}

TEST_CASE("the fingerprint of pictures in memory is that of pixels and labels") {
  const auto print = [](std::uint8_t last_pixel, std::int64_t label, std::int64_t crop) {
    return PictureSet({.height = 1,
                       .width = 2,
                       .classes = 2,
                       .pixels = {1, 2, 3, last_pixel},
                       .labels = {0, label},
                       .mean = {0},
                       .deviation = {1}},
                      {.crop = crop})
        .fingerprint();
  };
  CHECK(print(4, 1, 0) == print(4, 1, 3));
  CHECK(print(4, 1, 0) != print(5, 1, 0));
  CHECK(print(4, 1, 0) != print(4, 0, 0));
}

TEST_CASE("the fingerprint of a folder of pictures needs names and sizes alone") {
  const TemporaryFolder folder;
  const auto print = [&] {
    return load_image_folder({.root = folder.path().string()}).train->fingerprint();
  };
  folder.write("cat/a.png", "no picture");
  folder.write("dog/b.png", "none");
  const std::string expected = print();
  CHECK(print() == expected);
  folder.write("dog/c.png", "another");
  CHECK(print() != expected);
  std::filesystem::remove(folder.path("dog/c.png"));
  CHECK(print() == expected);
  folder.write("dog/b.png", "longer");
  CHECK(print() != expected);
  std::filesystem::remove(folder.path("dog/b.png"));
  folder.write("dog/d.png", "none");
  CHECK(print() != expected);
}

TEST_CASE("the fingerprint of a text notices bytes that make no sample more") {
  const TemporaryFolder folder;
  const auto print = [&](const std::string& text) {
    const DataSets sets = load_text({.path = folder.write("t", text), .context = 4});
    return std::pair(sets.train->size(), sets.train->fingerprint());
  };
  const auto expected = print("abcdefghijkl");
  CHECK(print("abcdefghijkl") == expected);
  CHECK(print("abcdefghijklm").first == expected.first);
  CHECK(print("abcdefghijklm").second != expected.second);
  CHECK(print("abcdeFghijkl").second != expected.second);
}

TEST_CASE("a sample that can't be made is found, also where its name throws, too") {
  const auto set = testing::made_set(
      {.size = 6,
       .make =
           [](const testing::MadeSample& sample) {
             if (sample.index == 4) throw DataError("no such line");
           },
       .name = [](std::int64_t /*index*/) -> std::string { throw std::out_of_range("no name"); }});
  CHECK(data::first_not_made(*set, std::vector<std::int64_t>{1, 4, 5}) == "sample 4");
}

TEST_CASE("what a config makes has the fingerprint of its sizes") {
  const auto print = [](const std::string& name, const DataContext& context) {
    return load_data(keys::Picked(name), context).train->fingerprint();
  };
  CHECK(print("pmean_example", {.replicas = 2}) == print("pmean_example", {.replicas = 3}));
  CHECK(print("synthetic", {.replicas = 2}) == print("synthetic", {.replicas = 3}));
}

}  // namespace lockstep
