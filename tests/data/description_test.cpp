#include "framework/data/description.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/data/csv.h"
#include "framework/data/image_folder.h"
#include "framework/data/npy.h"
#include "framework/data/synthetic.h"
#include "framework/data/text.h"
#include "tests/catch.h"
#include "tests/data/made_set.h"
#include "tests/formats/sample_files.h"
#include "tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using testing::TemporaryFolder;
using Lines = std::vector<std::string>;

// Sample i is of class i % classes, but for some of none.
std::shared_ptr<const Dataset> labels(std::int64_t size, std::int64_t classes, Lines names = {}) {
  return testing::made_set(
      {.size = size,
       .type = class_sample({2}, classes),
       .class_names = std::move(names),
       .label = [classes](std::int64_t index) { return index == 5 ? -100 : index % classes; }});
}

std::string line_of_classes(std::int64_t size, std::int64_t classes) {
  return describe({.train = labels(size, classes)}).at(1);
}

std::string array_of(const std::string& descr, const std::string& shape, const std::string& bytes) {
  return testing::npy_file(descr, false, shape, bytes);
}

}  // namespace

TEST_CASE("a table's lines say its columns, classes and what becomes of the values") {
  const TemporaryFolder folder;
  const std::string file = folder.write(
      "a.csv",
      "id,a,b,one,kind\n1,1,2,7,cat\n2,3,4,7,dog\n3,5,6,7,dog\n4,7,8,7,dog\n5,9,1,7,dog\n");
  CsvSetOptions options{.file = file,
                        .target = {"kind"},
                        .features = {"a", "b", "one"},
                        .task = CsvSetOptions::Task::classification};
  CHECK(describe(load_csv(options)) ==
        Lines{"train 5 samples", "classification, 2 classes: cat (1), dog (4); inputs float32 (3)",
              "columns: 3 inputs (a, b, one), 1 target (kind), 1 left out (id)",
              "inputs are normalized to mean 0 and deviation 1 of the training set; 1 constant "
              "column becomes 0 (one)"});
  options = {.file = file,
             .test_file = file,
             .target = {"a", "b"},
             .features = {"one"},
             .normalize = false};
  CHECK(describe(load_csv(options)) ==
        Lines{"train 5 samples, test 5 samples",
              "regression of 2 values (a, b); inputs float32 (1)",
              "columns: 1 input (one), 2 targets (a, b), 2 left out (id, kind)",
              "inputs and targets are as the file has them"});
  options.normalize = true;
  options.normalize_targets = true;
  options.features = {"id"};
  CHECK(describe(load_csv(options)).at(3) ==
        "inputs and targets are normalized to mean 0 and deviation 1 of the training set");
}

TEST_CASE("ten classes are named with their samples, and how many more there are") {
  CHECK(line_of_classes(6, 3) ==
        "classification, 3 classes: 0 (2), 1 (2), 2 (1); 1 sample of no class; inputs float32 (2)");
  CHECK(
      line_of_classes(24, 12) ==
      "classification, 12 classes: 0 (2), 1 (2), 2 (2), 3 (2), 4 (2), 5 (1), 6 (2), 7 (2), 8 (2), "
      "9 (2) and 2 more; 1 sample of no class; inputs float32 (2)");
  CHECK(line_of_classes(4, 100) ==
        "classification, 100 classes: 0 (1), 1 (1), 2 (1), 3 (1), 4 (0), 5 (0), 6 (0), 7 (0), "
        "8 (0), 9 (0) and 90 more; 96 without a training sample; inputs float32 (2)");
  CHECK(describe({.train = labels(3, 3, Lines{"a", " a", ""})}).at(1) ==
        "classification, 3 classes: a (1), ' a' (1), '' (1); inputs float32 (2)");
  CHECK(describe({.train = labels(3, 3, Lines{"cat", "cat\xc2\xa0", "K\xc3\xa4tzch\xc3\xa9"})})
            .at(1) ==
        "classification, 3 classes: cat (1), 'cat\xc2\xa0' (1), K\xc3\xa4tzch\xc3\xa9 (1); inputs "
        "float32 (2)");
  const std::string not_counted = "; their samples are too many to be counted here; ";
  CHECK(line_of_classes(1'000'000'000'000, 2) ==
        "classification, 2 classes: 0, 1" + not_counted + "inputs float32 (2)");
  CHECK_THAT(line_of_classes(10, 1'000'000'000), ContainsSubstring(not_counted));
}

TEST_CASE("folders, arrays, texts and made samples say what they are") {
  const TemporaryFolder folder;
  for (const std::string name : {"train/cat/a.png", "train/dog/b.png", "train/dog/c.png"}) {
    folder.write(name, "no picture");  // only names are read
  }
  const ImageFolderOptions pictures{
      .root = folder.path(),
      .form = {.height = 4, .width = 6, .channels = 1, .mean = {0.25}, .deviation = {0.5}},
      .augmentation = {.crop = 2, .flip = true}};
  CHECK(
      describe(load_image_folder(pictures)) ==
      Lines{
          "train 3 samples",
          "classification, 2 classes: cat (1), dog (2); inputs float32 (1, 4, 6)",
          "pictures are scaled until they cover 4 x 6 pixels, of which the middle is taken; gray",
          "pixels are scaled to 0 ... 1, then normalized by mean 0.25 and deviation 0.5; training "
          "pictures are shifted by up to 2 pixels and mirrored, at random"});

  const std::string text = folder.write("text", std::string(100, 'x'));
  CHECK(describe(load_text({.path = text, .context = 8}, {.validation = 0.2})) ==
        Lines{"train 9 samples, validation 2 samples",
              "tokens: a context of 8, a vocabulary of 256",
              "text: 1 file, 100 bytes in all, each byte a token; the last 20 bytes are the "
              "validation set"});

  const std::string inputs =
      folder.write("x.npy", array_of("|u1", "(3, 2, 2)", std::string(12, '\1')));
  const std::string targets =
      folder.write("y.npy", array_of("|i1", "(3,)", std::string("\0\2\2", 3)));
  CHECK(describe(load_npy({.inputs = inputs, .targets = targets})) ==
        Lines{"train 3 samples",
              "classification, 3 classes: 0 (1), 1 (0), 2 (2); 1 without a training sample; inputs "
              "float32 (1, 2, 2)",
              "arrays: inputs uint8 (3, 2, 2), targets int8 (3); inputs are pictures, whose pixels "
              "are scaled to 0 ... 1"});

  CHECK(describe(load_data(keys::Picked("synthetic"), {.validation = 0.25})).at(0) ==
        "train 7500 samples, validation 2500 samples (drawn from the training set), test 1000 "
        "samples");
}

}  // namespace lockstep
