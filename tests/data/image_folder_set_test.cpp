#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <sys/stat.h>

#include "framework/base/errors.h"
#include "framework/data/image_folder.h"
#include "tests/catch.h"
#include "tests/data/same_batches.h"
#include "tests/formats/sample_files.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using testing::floats_of;
using testing::integers_of;
using testing::message_of;
using testing::TemporaryFolder;
using testing::whole;
using Sizes = std::vector<std::int64_t>;

template <typename E>
std::string load_error(const ImageFolderOptions& options, const DataContext& context = {}) {
  return message_of<E>([&] { (void)load_image_folder(options, context); });
}

// A gray picture of height x width whose columns have these values.
std::string striped(std::uint32_t height, const std::vector<std::uint8_t>& columns) {
  std::string rows;
  for (std::uint32_t y = 0; y < height; ++y) {
    rows += '\0';
    rows.append(columns.begin(), columns.end());
  }
  return testing::png_file(
      {.width = static_cast<std::uint32_t>(columns.size()), .height = height, .color_type = 0},
      rows);
}

// Pixels as they are, from 0 to 255.
ImageFolderOptions gray_form(const TemporaryFolder& folder, std::int64_t height,
                             std::int64_t width) {
  return {
      .root = folder.path(),
      .form = {
          .height = height, .width = width, .channels = 1, .mean = {0}, .deviation = {1 / 255.0}}};
}

// Two classes to train on and to validate, one picture each, and three pictures in all to test.
void write_sets(const TemporaryFolder& folder) {
  folder.write("train/cat/a.png", striped(2, {10, 20}));
  folder.write("train/dog/b.png", striped(2, {30, 40}));
  folder.write("val/cat/c.png", striped(2, {50, 60}));
  folder.write("val/dog/d.png", striped(2, {70, 80}));
  folder.write("test/cat/e.png", striped(2, {90, 91}));
  folder.write("test/cat/f.png", striped(2, {92, 93}));
  folder.write("test/dog/g.png", striped(2, {94, 95}));
}

}  // namespace

TEST_CASE("a folder of pictures has its sets, classes and pixels") {
  const TemporaryFolder folder;
  write_sets(folder);
  ImageFolderOptions options = gray_form(folder, 2, 2);
  const DataSets sets = load_image_folder(options);
  CHECK(sets.train->type() == class_sample({1, 2, 2}, 2));
  CHECK(sets.train->is_slow());
  CHECK(testing::sizes_of(sets) == Sizes{2, 2, 3});
  const Batch test = whole(*sets.test);
  CHECK(integers_of(test.targets) == std::vector<std::int64_t>{0, 0, 1});
  CHECK(floats_of(test.inputs) ==
        std::vector<float>{90, 91, 90, 91, 92, 93, 92, 93, 94, 95, 94, 95});

  // The same folders as classes, without sets.
  options.root = folder.path("val");
  CHECK(testing::sizes_of(load_image_folder(options)) == Sizes{2, 0, 0});
}

TEST_CASE("a picture is scaled to cover the size, and its middle is taken") {
  const TemporaryFolder folder;
  folder.write("wide/a.png", striped(2, {9, 9, 50, 60, 9, 9}));
  folder.write("tall/b.png", striped(6, {50, 60}));
  const auto pixels = [&](std::int64_t height, std::int64_t width) {
    const DataSets sets = load_image_folder(gray_form(folder, height, width));
    return floats_of(whole(*sets.train).inputs);
  };
  // Classes are sorted: tall comes first.
  CHECK(pixels(2, 2) == std::vector<float>{50, 60, 50, 60, 50, 60, 50, 60});
  // At half the scale, whose filter is four pixels wide, the middle of a row of 9 9 50 60 9 9.
  const std::vector<float> half = pixels(1, 1);
  CHECK(half[0] == 55);
  CHECK(half[1] > 9);
  CHECK(half[1] < 55);
}

TEST_CASE("pictures are upright, and their middle is torchvision's, unless keys say otherwise") {
  const TemporaryFolder folder;
  const std::string rows("\0\1\2\3\4\5", 6);
  folder.write("a/a.png", testing::png_file({.width = 5, .height = 1, .color_type = 0}, rows,
                                            testing::png_chunk("eXIf", testing::exif_data(6))));
  const auto pixels = [&](const ImageFolderOptions& options) {
    return floats_of(load_image_folder(options).train->batch(std::vector<std::int64_t>{0}).inputs);
  };
  CHECK(pixels(gray_form(folder, 5, 1)) == std::vector<float>{1, 2, 3, 4, 5});
  ImageFolderOptions lying = gray_form(folder, 1, 5);
  lying.form.exif = false;
  CHECK(pixels(lying) == std::vector<float>{1, 2, 3, 4, 5});
  // Three pixels are left over: half of them is 1.5, of which the even one is 2.
  folder.write("a/a.png", striped(2, {1, 2, 3, 4, 5}));
  ImageFolderOptions middle = gray_form(folder, 2, 2);
  CHECK(pixels(middle) == std::vector<float>{3, 4, 3, 4});
  middle.form.crop_rounding = formats::CropRounding::down;
  CHECK(pixels(middle) == std::vector<float>{2, 3, 2, 3});
}

TEST_CASE("pictures have ImageNet's mean and deviation, unless others are given") {
  const TemporaryFolder folder;
  folder.write("train/one/a.png", striped(1, {255}));
  ImageFolderOptions options{.root = folder.path(), .form = {.height = 1, .width = 1}};
  const std::vector<std::int64_t> first{0};
  CHECK(floats_of(load_image_folder(options).train->batch(first).inputs) ==
        std::vector<float>{static_cast<float>((1 - 0.485) / 0.229),
                           static_cast<float>((1 - 0.456) / 0.224),
                           static_cast<float>((1 - 0.406) / 0.225)});
  options.form.channels = 1;
  CHECK(floats_of(load_image_folder(options).train->batch(first).inputs)[0] ==
        static_cast<float>((1 - 0.449) / 0.226));
  options.form.mean = {0.5, 0.5, 0.5};
  CHECK(load_error<ValueError>(options) ==
        "image_folder: data.mean and data.deviation must be one number a channel, but have 3 and 1 "
        "for 1 channel");
}

TEST_CASE("pictures are the same whoever asks, kept or not, and only training changes them") {
  const TemporaryFolder folder;
  write_sets(folder);
  ImageFolderOptions options = gray_form(folder, 2, 2);
  options.augmentation = {.crop = 1, .flip = true};
  std::vector<Batch> batches;
  for (const bool cache : {false, true}) {
    options.form.cache = cache;
    const DataSets sets = load_image_folder(options, {.seed = 3});
    testing::check_same_batches(*sets.train);
    testing::check_same_batches(*sets.test);
    CHECK(at::equal(whole(*sets.test, 4).inputs, whole(*sets.test).inputs));
    batches.push_back(whole(*sets.train, 2));
  }
  CHECK(at::equal(batches[0].inputs, batches[1].inputs));
}

TEST_CASE("kept pictures need their files once") {
  const TemporaryFolder folder;
  write_sets(folder);
  ImageFolderOptions options = gray_form(folder, 2, 2);
  options.form.cache = true;
  const DataSets sets = load_image_folder(options);
  const Batch before = whole(*sets.train);
  std::filesystem::remove_all(folder.path("train"));
  CHECK(at::equal(whole(*sets.train).inputs, before.inputs));
}

TEST_CASE("a picture that can't be decoded is told when it is asked for") {
  const TemporaryFolder folder;
  write_sets(folder);
  folder.write("train/dog/b.png", "no picture");
  for (const bool cache : {false, true}) {
    ImageFolderOptions options = gray_form(folder, 2, 2);
    options.form.cache = cache;
    const DataSets sets = load_image_folder(options);
    CHECK_NOTHROW(sets.train->batch(std::vector<std::int64_t>{0}));
    CHECK_THAT(message_of<DataError>([&] {
                 (void)sets.train->batch(std::vector<std::int64_t>{0, 1});
               }),
               ContainsSubstring("data file '" + folder.path("train/dog/b.png") + "': "));
  }
}

TEST_CASE("the classes of pictures are the training set's, of which other sets may lack some") {
  const TemporaryFolder folder;
  write_sets(folder);
  const auto error = [&] { return load_error<DataError>(gray_form(folder, 2, 2)); };
  folder.write("test/eel/h.png", striped(1, {1}));
  CHECK_THAT(error(),
             ContainsSubstring(folder.path("test")) &&
                 ContainsSubstring("its class 'eel' is none of those trained on: cat, dog"));
  std::filesystem::remove_all(folder.path("test"));
  // Numbered by its own folders, a dog would be a cat.
  for (const bool is_empty : {false, true}) {
    std::filesystem::remove_all(folder.path("val/cat"));
    if (is_empty) std::filesystem::create_directory(folder.path("val/cat"));
    const auto sets = load_image_folder(gray_form(folder, 2, 2));
    const auto& validation = dynamic_cast<const PictureFolder&>(*sets.validation);
    CHECK(validation.type() == sets.train->type());
    CHECK(integers_of(whole(validation).targets) == std::vector<std::int64_t>{1});
    CHECK(validation.classes_without_pictures() == std::vector<std::string>{"cat"});
  }
  std::filesystem::remove_all(folder.path("val/dog"));
  CHECK_THAT(error(), ContainsSubstring(folder.path("val")) &&
                          ContainsSubstring("its folders have no pictures"));
  std::filesystem::create_directory(folder.path("validation"));
  CHECK_THAT(error(), ContainsSubstring("it has both val and validation: keep one of them"));
  std::filesystem::remove_all(folder.path("val"));
  folder.write("validation/cat/a.png", striped(1, {1}));
  folder.write("validation/dog/a.png", striped(1, {1}));
  CHECK(load_image_folder(gray_form(folder, 2, 2)).validation->size() == 2);
  ImageFolderOptions none = gray_form(folder, 2, 2);
  none.root = folder.path("nowhere");
  CHECK_THAT(load_error<DataError>(none),
             ContainsSubstring("image_folder: there is no '" + folder.path("nowhere") +
                               "'; data.root must be a folder with train/CLASS/PICTURE"));
}

TEST_CASE("pictures of other folders are of the classes trained on, by name") {
  const TemporaryFolder folder;
  folder.write("cat/a.png", striped(1, {1}));
  folder.write("dog/b.png", striped(1, {2}));
  const ImageFolderOptions options = gray_form(folder, 1, 1);
  const Fitted fitted{.classes = {"bee", "cat", "dog"}, .class_count = 3};
  const auto set = load_image_folder(options, {.fitted = fitted}).train;
  CHECK(set->type() == class_sample({1, 1, 1}, 3));
  CHECK(set->class_names() == fitted.classes);
  CHECK(integers_of(whole(*set).targets) == std::vector<std::int64_t>{1, 2});
  folder.write("eel/c.png", striped(1, {3}));
  CHECK_THAT(load_error<DataError>(options, {.fitted = fitted}),
             ContainsSubstring(folder.path().string()) &&
                 ContainsSubstring("its class 'eel' is none of those trained on: bee, cat, dog"));
}

TEST_CASE("pictures to predict need no folder for each class") {
  const TemporaryFolder folder;
  folder.write("b.png", striped(1, {2}));
  folder.write("a/c.png", striped(1, {1}));
  ImageFolderOptions options = gray_form(folder, 1, 1);
  options.augmentation = {.crop = 1, .flip = true};
  const Fitted fitted{.classes = {"cat", "dog"}, .class_count = 2};
  const DataContext context{.fitted = fitted, .needs_targets = false};
  const auto names_in = [&](const Dataset& set) {
    std::vector<std::string> names;
    for (std::int64_t i = 0; i < set.size(); ++i) names.push_back(set.sample_name(i));
    return names;
  };
  using Names = std::vector<std::string>;
  const auto bare = load_image_folder(options, context).train;
  CHECK_FALSE(bare->has_targets());
  CHECK(bare->type() == class_sample({1, 1, 1}, 2));
  CHECK(bare->class_names() == fitted.classes);
  CHECK(names_in(*bare) == Names{"a/c.png", "b.png"});
  CHECK(names_in(Subset(bare, {1})) == Names{"b.png"});
  const Batch all = whole(*bare, 3);
  CHECK(floats_of(all.inputs) == std::vector<float>{1, 2});  // as they are, in any epoch
  CHECK(integers_of(all.targets) == std::vector<std::int64_t>{-1, -1});
  testing::check_same_batches(*bare);

  // For all else the folders are classes.
  CHECK_THAT(load_error<DataError>(options, {.fitted = fitted}),
             ContainsSubstring("its class 'a' is none of those trained on"));
  // No picture is left out where some lie beside the classes' folders.
  folder.write("dog/d.png", striped(1, {3}));
  CHECK(names_in(*load_image_folder(options, context).train) ==
        Names{"a/c.png", "b.png", "dog/d.png"});
  std::filesystem::remove(folder.path("b.png"));
  CHECK_THAT(load_error<DataError>(options, context),
             ContainsSubstring("its class 'a' is none of those trained on: cat, dog"));
  std::filesystem::remove_all(folder.path("a"));
  const auto labelled = load_image_folder(options, context).train;
  CHECK(labelled->has_targets());
  CHECK(names_in(*labelled) == Names{"dog/d.png"});
  CHECK(integers_of(whole(*labelled).targets) == std::vector<std::int64_t>{1});
  std::filesystem::remove_all(folder.path("dog"));
  CHECK_THAT(load_error<DataError>(options, context),
             ContainsSubstring("it has no pictures, which are .png, .jpg or .jpeg files"));
}

TEST_CASE("a set of pictures that is wanted alone needs no other") {
  const TemporaryFolder folder;
  write_sets(folder);
  const ImageFolderOptions options = gray_form(folder, 2, 2);
  const DataContext test{.fitted = Fitted{.classes = {"cat", "dog"}, .class_count = 2},
                         .wanted = {.train = false, .validation = false}};
  for (const char* const gone : {"val/cat", "train/dog", "train", "val"}) {
    std::filesystem::remove_all(folder.path(gone));
    CHECK(testing::sizes_of(load_image_folder(options, test)) == Sizes{0, 0, 3});
  }
  // Without targets, too, and beside files of another kind.
  folder.write("README", "test pictures");
  std::filesystem::rename(folder.path("test/cat/e.png"), folder.path("test/e.png"));
  DataContext bare = test;
  bare.needs_targets = false;
  CHECK(load_image_folder(options, bare).test->sample_name(2) == "e.png");
  // A folder of that name among others is one of a class, or of no class.
  folder.write("dog/a.png", striped(1, {1}));
  CHECK(load_image_folder(options, bare).test == nullptr);
}

TEST_CASE("folders of sets beside others are sets where the one to train on has classes") {
  const TemporaryFolder folder;
  folder.write("train/a.png", striped(1, {1}));
  folder.write("val/b.png", striped(1, {2}));
  const ImageFolderOptions options = gray_form(folder, 1, 1);
  const DataContext context{.fitted = Fitted{.classes = {"cat", "dog"}, .class_count = 2},
                            .needs_targets = false};
  const auto sizes = [&] { return testing::sizes_of(load_image_folder(options, context)); };
  CHECK(sizes() == Sizes{1, 1, 0});
  folder.write("notes.txt", "");
  CHECK(sizes() == Sizes{1, 1, 0});
  folder.write("other/c.png", striped(1, {3}));
  CHECK(sizes() == Sizes{3, 0, 0});
  folder.write("validation/d.png", striped(1, {4}));
  CHECK(sizes() == Sizes{4, 0, 0});
  std::filesystem::remove_all(folder.path("validation"));
  // As it is trained on, with what training passes over.
  folder.write("train/cat/e.png", striped(1, {5}));
  CHECK(sizes() == Sizes{2, 1, 0});
  std::filesystem::remove(folder.path("train/a.png"));
  CHECK(load_image_folder(options, context).train->has_targets());
}

namespace {

// Sets with damaged pictures in between: one is cut, one empty, one no picture.
void write_damaged_sets(const TemporaryFolder& folder, bool has_damaged) {
  write_sets(folder);
  folder.write("train/cat/m.png", striped(2, {15, 25}));
  folder.write("train/dog/z.png", striped(2, {35, 45}));
  if (!has_damaged) return;
  const std::string whole = striped(2, {1, 2});
  folder.write("train/cat/b.png", whole.substr(0, whole.size() - 14));
  folder.write("train/dog/a.png", "");
  folder.write("test/cat/ee.jpg", "no picture");
}

void check_same_samples(const DataSets& made, const DataSets& expected) {
  for (const auto& [name, set] : named_sets(expected)) {
    INFO(name);
    const auto other = name == kTrainSet  ? made.train
                       : name == kTestSet ? made.test
                                          : made.validation;
    REQUIRE(other->size() == set->size());
    CHECK(other->fingerprint() == set->fingerprint());
    for (std::int64_t i = 0; i < set->size(); ++i) {
      CHECK(other->sample_name(i) == set->sample_name(i));
      CHECK(other->label(i) == set->label(i));
    }
    for (const std::int64_t epoch : {kUnaugmented, std::int64_t{3}}) {
      const Batch batch = whole(*other, epoch);
      const Batch same = whole(*set, epoch);
      CHECK(floats_of(batch.inputs) == floats_of(same.inputs));
      CHECK(integers_of(batch.targets) == integers_of(same.targets));
    }
  }
}

}  // namespace

TEST_CASE("damaged pictures are left out and named, and the rest is as if they were not there") {
  const TemporaryFolder folder;
  const TemporaryFolder whole;
  write_damaged_sets(folder, true);
  write_damaged_sets(whole, false);
  ImageFolderOptions options = gray_form(whole, 2, 2);
  options.augmentation = {.crop = 1, .flip = true};
  const DataSets expected = load_image_folder(options);
  CHECK(expected.train->left_out().empty());
  options.root = folder.path();
  CHECK_THAT(message_of<DataError>([&] {
               const DataSets sets = load_image_folder(options);
               (void)testing::whole(*sets.train);
             }),
             ContainsSubstring("b.png"));
  options.on_damaged = OnDamaged::skip;
  const std::vector<std::string> of_train{"cat/b.png", "dog/a.png"};
  for (const std::int64_t threads : {1, 4}) {
    for (const bool is_cached : {false, true}) {
      options.form.cache = is_cached;
      std::vector<std::int64_t> seen;
      const DataSets sets = load_image_folder(
          options,
          {.search = {.threads = threads, .progress = [&](std::int64_t done, std::int64_t all) {
                        if (done == all) seen.push_back(all);
                      }}});
      CHECK(seen == std::vector<std::int64_t>{6, 2, 4});
      CHECK(sets.train->left_out() == of_train);
      CHECK(sets.validation->left_out().empty());
      CHECK(sets.test->left_out() == std::vector<std::string>{"cat/ee.jpg"});
      check_same_samples(sets, expected);
    }
  }
  // Known already: nothing is decoded, so no progress is told.
  std::int64_t told = 0;
  DataContext context{.search = {.progress = [&](std::int64_t, std::int64_t) { ++told; }},
                      .damaged = LeftOut{{"train", {"cat/a.png"}}}};
  CHECK(load_image_folder(options, context).train->left_out() ==
        std::vector<std::string>{"cat/a.png"});
  context.damaged = {};
  context.keeps_damaged = true;
  CHECK(load_image_folder(options, context).train->size() == 6);
  CHECK(told == 0);
}

TEST_CASE("pictures that lead nowhere are damaged as others are") {
  const TemporaryFolder folder;
  write_sets(folder);
  ImageFolderOptions options = gray_form(folder, 2, 2);
  const DataSets expected = load_image_folder(options);
  std::filesystem::create_symlink("nowhere", folder.path("train/cat/l.png"));
  REQUIRE(::mkfifo(folder.path("train/dog/p.png").c_str(), 0600) == 0);
  std::filesystem::create_directory(folder.path("test/dog/f.png"));
  const auto error = [&](const char* set_name, std::int64_t index) {
    const DataSets sets = load_image_folder(options);
    return testing::damage_of(set_name == kTrainSet ? *sets.train : *sets.test, index);
  };
  CHECK(error("train", 1) ==
        "data file '" + folder.path("train/cat/l.png") + "': there is no such file");
  CHECK_THAT(error("train", 3), ContainsSubstring("p.png': it is a FIFO"));
  CHECK_THAT(error("test", 2), ContainsSubstring("f.png': it is a folder"));
  options.on_damaged = OnDamaged::skip;
  const DataSets sets = load_image_folder(options);
  CHECK(sets.train->left_out() == std::vector<std::string>{"cat/l.png", "dog/p.png"});
  CHECK(sets.test->left_out() == std::vector<std::string>{"dog/f.png"});
  check_same_samples(sets, expected);
}

TEST_CASE("a class, or a set, of which all pictures are damaged is an error that names it") {
  const TemporaryFolder folder;
  write_sets(folder);
  folder.write("train/dog/b.png", "");
  ImageFolderOptions options = gray_form(folder, 2, 2);
  options.on_damaged = OnDamaged::skip;
  CHECK(load_error<DataError>(options) ==
        "data folder '" + folder.path("train/dog") + "': all its pictures are damaged");
  // A set to be predicted may lack classes.
  DataContext context{.fitted = Fitted{.classes = {"cat", "dog"}, .class_count = 2}};
  CHECK(load_image_folder(options, context).train->size() == 1);
  folder.write("train/cat/a.png", "");
  CHECK(load_error<DataError>(options, context) ==
        "all 2 pictures are damaged, such as '" + folder.path("train/cat/a.png") + "'");
}

}  // namespace lockstep
