#include "framework/formats/image_folder.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <sys/stat.h>

#include "framework/base/errors.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

namespace fs = std::filesystem;

using namespace lockstep;
using namespace lockstep::formats;
using namespace lockstep::testing;

namespace {

std::string folder_error(const std::string& root) {
  return message_of<DataError>([&] { const ImageFolder folder(root); });
}

// A folder of empty files.
class SampleFolder {
 public:
  explicit SampleFolder(const std::vector<std::string>& names) {
    for (const std::string& name : names) add(name);
  }
  void add(const std::string& name) const { folder_.write(name, ""); }
  [[nodiscard]] std::string root() const { return folder_.path().string(); }
  [[nodiscard]] std::string path(const std::string& name) const { return folder_.path(name); }

 private:
  TemporaryFolder folder_;
};

}  // namespace

TEST_CASE("pictures in a folder for each class are sorted by class and name") {
  const SampleFolder sample(
      {"dog/b.jpg", "dog/a.PNG", "cat/10.jpeg", "cat/9.Jpg", "Zebra/\xc3\xa4.png", "Zebra/z.JPEG"});
  const ImageFolder folder(sample.root());
  CHECK(folder.classes() == std::vector<std::string>{"Zebra", "cat", "dog"});
  const std::vector<std::string> names{"Zebra/z.JPEG", "Zebra/\xc3\xa4.png", "cat/10.jpeg",
                                       "cat/9.Jpg",    "dog/a.PNG",          "dog/b.jpg"};
  REQUIRE(folder.size() == 6);
  for (std::int64_t i = 0; i < 6; ++i) {
    CHECK(folder.path(i) == sample.path(names[static_cast<std::size_t>(i)]));
    CHECK(folder.label(i) == i / 2);
  }
  CHECK(folder.passed_over().empty());
  CHECK_THROWS_AS(folder.path(6), ValueError);
  CHECK_THROWS_AS(folder.label(-1), ValueError);
}

TEST_CASE("files that are no pictures are passed over and listed, hidden ones are not listed") {
  const SampleFolder sample(
      {"dog/a.png", "dog/a.txt", "dog/png", ".git/x.png", "dog/.hidden.png", "README", "z.png"});
  const ImageFolder folder(sample.root());
  CHECK(folder.classes() == std::vector<std::string>{"dog"});
  CHECK(folder.size() == 1);
  CHECK(folder.passed_over() ==
        std::vector<std::string>{sample.path("README"), sample.path("dog/a.txt"),
                                 sample.path("dog/png"), sample.path("z.png")});
}

TEST_CASE("links count as what they lead to") {
  const SampleFolder sample({"dog/a.png", "other/b"});
  fs::create_symlink(sample.path("other/b"), sample.path("dog/b.png"));
  fs::create_directory_symlink("dog", sample.path("wolf"));
  fs::remove(sample.path("other/b"));
  fs::remove(sample.path("other"));
  CHECK(ImageFolder(sample.root()).name(1) == "dog/b.png");  // its batch() will tell
  sample.add("other/b");
  sample.add("other/c.png");
  const ImageFolder folder(sample.root());
  CHECK(folder.classes() == std::vector<std::string>{"dog", "other", "wolf"});
  CHECK(folder.size() == 5);
  CHECK(folder.path(4) == sample.path("wolf/b.png"));

  // A link back is a folder inside a class.
  fs::create_directory_symlink("..", sample.path("dog/again"));
  CHECK_THAT(folder_error(sample.root()), ContainsSubstring("dog/again': it lies inside a class"));
}

TEST_CASE("a picture's name counts as one, whatever has it") {
  const SampleFolder sample({"dog/a.png", "e.png/f.png"});
  fs::create_symlink("nowhere", sample.path("dog/b.png"));
  fs::create_symlink("loop.png", sample.path("dog/loop.png"));
  REQUIRE(::mkfifo(sample.path("dog/pipe.png").c_str(), 0600) == 0);
  fs::create_directories(sample.path("dog/folder.PNG/inner"));
  const std::vector<std::string> dogs{"dog/a.png", "dog/b.png", "dog/folder.PNG", "dog/loop.png",
                                      "dog/pipe.png"};
  for (const bool has_classes : {true, false}) {
    const ImageFolder folder =
        has_classes ? ImageFolder(sample.root()) : ImageFolder::without_classes(sample.root());
    REQUIRE(folder.size() == 6);
    for (std::int64_t i = 0; i < 5; ++i) CHECK(folder.name(i) == dogs[static_cast<std::size_t>(i)]);
    // A folder beside those of classes is one of a class.
    CHECK(folder.name(5) == (has_classes ? "e.png/f.png" : "e.png"));
    CHECK(folder.passed_over().empty());
  }
}

TEST_CASE("a folder that gives no classes or pictures is an error that names it") {
  const SampleFolder sample({});
  CHECK(folder_error(sample.path("missing")) ==
        "data folder '" + sample.path("missing") + "': there is no such folder");
  CHECK(folder_error(sample.root()) ==
        "data folder '" + sample.root() +
            "': it has no folders, but must have one with pictures for each class");
  sample.add("file.png");
  CHECK_THAT(folder_error(sample.path("file.png")), ContainsSubstring("it is no folder"));
  CHECK_THAT(folder_error(sample.root()), ContainsSubstring("it has no folders"));
  sample.add("cat/a.png");
  sample.add("dog/a.txt");
  CHECK(folder_error(sample.root()) ==
        "data folder '" + sample.path("dog") +
            "': it has no pictures, but a class must have .png, .jpg or .jpeg files");
  CHECK(ImageFolder(sample.root(), true).classes() == std::vector<std::string>{"cat", "dog"});
  fs::remove(sample.path("cat/a.png"));
  CHECK_THAT(message_of<DataError>([&] { (void)ImageFolder(sample.root(), true); }),
             ContainsSubstring("its folders have no pictures"));
  sample.add("cat/a.png");
  sample.add("dog/inner/a.png");
  CHECK_THAT(folder_error(sample.root()), ContainsSubstring("dog/inner': it lies inside a class"));
}

TEST_CASE("folders of classes that differ by blanks at their ends are an error") {
  const SampleFolder sample({"cat/a.png", "cat a/b.png", "cat /c.png", "dog/d.png"});
  CHECK_THAT(
      folder_error(sample.root()),
      ContainsSubstring("the classes 'cat' and 'cat ' differ by blanks at their ends alone"));
}

TEST_CASE("pictures without classes are all below a folder, in the order of their paths") {
  const SampleFolder sample({"b.png", "a/z.JPG", "a/deep/er/1.jpeg", "a.png", "a/README", "a b.png",
                             ".git/x.png", "a/.x.png", "empty/notes"});
  const auto folder = ImageFolder::without_classes(sample.root());
  CHECK(folder.classes().empty());
  const std::vector<std::string> names{"a b.png", "a.png", "a/deep/er/1.jpeg", "a/z.JPG", "b.png"};
  REQUIRE(folder.size() == 5);
  for (std::int64_t i = 0; i < 5; ++i) {
    CHECK(folder.name(i) == names[static_cast<std::size_t>(i)]);
    CHECK(folder.path(i) == sample.path(folder.name(i)));
    CHECK(folder.label(i) == -1);
  }
  CHECK(folder.passed_over() ==
        std::vector<std::string>{sample.path("a/README"), sample.path("empty/notes")});

  const auto error = [](const std::string& root) {
    return message_of<DataError>([&] { (void)ImageFolder::without_classes(root); });
  };
  CHECK(error(sample.path("empty")) == "data folder '" + sample.path("empty") +
                                           "': it has no pictures, which are .png, .jpg or .jpeg "
                                           "files");
  CHECK(error(sample.path("missing")) ==
        "data folder '" + sample.path("missing") + "': there is no such folder");
  fs::create_directory_symlink("..", sample.path("a/deep/up"));
  const auto with_link = ImageFolder::without_classes(sample.root());
  CHECK(with_link.size() == 5);
  CHECK(with_link.passed_over() == std::vector<std::string>{sample.path("a/README"),
                                                            sample.path("a/deep/up"),
                                                            sample.path("empty/notes")});
  fs::create_directory_symlink("../a", sample.path("empty/a"));
  CHECK_THAT(error(sample.path("empty")), ContainsSubstring("; links to folders are not followed"));
}
