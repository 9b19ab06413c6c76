#include "framework/storage/checkpoint_reader.h"

#include <cstdint>
#include <span>
#include <string>

#include <sys/resource.h>
#include <sys/stat.h>

#include "framework/base/errors.h"
#include "tests/catch.h"
#include "tests/storage/sample_checkpoint.h"
#include "tests/support/files.h"
#include "tests/support/message_of.h"

using namespace lockstep;
using storage::CheckpointReader;
using storage::Manifest;
using storage::ManifestTensor;
namespace fs = std::filesystem;

namespace {

// The folder of a checkpoint, whose files a test changes.
class SampleFolder {
 public:
  SampleFolder() { write_again(); }

  [[nodiscard]] const fs::path& path() const { return folder_.path(); }
  [[nodiscard]] fs::path file(std::size_t index) const {
    return path() / manifest.files[index].name;
  }
  // Writes files and manifest as `manifest` says.
  void write_again() {
    testing::write_files(manifest, path());
    write_manifest();
  }
  void write_manifest() const {
    testing::write_text(path() / "manifest.json", storage::write_manifest(manifest));
  }
  [[nodiscard]] std::string refusal() const {
    return testing::message_of<DataError>([&] { CheckpointReader{path()}; });
  }
  // Returns the error of verify(); the constructor finds nothing.
  [[nodiscard]] std::string verdict() const {
    const CheckpointReader reader(path());
    return testing::message_of<DataError>([&] { reader.verify(); });
  }

  Manifest manifest = testing::sample_manifest(12);

 private:
  testing::TemporaryFolder folder_;
};

std::string read_elements(const CheckpointReader& reader, const ManifestTensor& tensor,
                          std::uint64_t offset, std::uint64_t count) {
  std::string bytes(count * storage::element_bytes(tensor.dtype), ' ');
  reader.read(tensor, offset, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

}  // namespace

TEST_CASE("a checkpoint's tensors are read, whole or in part, from all files") {
  const SampleFolder sample;
  const CheckpointReader reader(sample.path());
  CHECK(reader.manifest() == sample.manifest);
  CHECK_NOTHROW(reader.verify());
  for (const ManifestTensor& tensor : reader.manifest().tensors) {
    const std::uint64_t elements = testing::elements_of(tensor);
    const std::size_t element = storage::element_bytes(tensor.dtype);
    const std::string whole = testing::sample_bytes(tensor, elements, 12);
    for (std::uint64_t begin = 0; begin <= elements; ++begin) {
      for (std::uint64_t count = 0; begin + count <= elements; ++count) {
        if (read_elements(reader, tensor, begin, count) !=
            whole.substr(begin * element, count * element)) {
          FAIL_CHECK(tensor.name << " " << begin << " " << count);
        }
      }
    }
  }
}

TEST_CASE("a checkpoint's tensors are found by name") {
  const SampleFolder sample;
  const CheckpointReader reader(sample.path());
  for (const ManifestTensor& tensor : reader.manifest().tensors) {
    CHECK(reader.find(tensor.name) == &tensor);
  }
  for (const char* name : {"", "a", "bia", "biass", "weights"}) CHECK(reader.find(name) == nullptr);
}

TEST_CASE("what is outside of a checkpoint's tensor is a ValueError") {
  const SampleFolder sample;
  const CheckpointReader reader(sample.path());
  const ManifestTensor& weight = *reader.find("weight");
  const auto message = [&](const ManifestTensor& tensor, std::uint64_t offset,
                           std::uint64_t count) {
    return testing::message_of<ValueError>(
        [&] { (void)read_elements(reader, tensor, offset, count); });
  };
  CHECK(message(weight, 10, 6) ==
        "checkpoint: elements 10 to 10 + 6 of tensor 'weight', which has 15");
  CHECK_THAT(message(weight, 16, 0), ContainsSubstring("which has 15"));
  CHECK_THAT(message(weight, ~std::uint64_t{0}, 2), ContainsSubstring("which has 15"));
  CHECK_THAT(message(*reader.find("empty"), 0, 1), ContainsSubstring("which has 0"));
  std::string bytes(5, ' ');
  CHECK_THROWS_WITH(reader.read(weight, 0, std::as_writable_bytes(std::span(bytes))),
                    "checkpoint: 5 bytes of tensor 'weight', whose elements have 4");
  CHECK_THROWS_AS(reader.verify(2), ValueError);
}

TEST_CASE("a checkpoint is read by way of a link, which may lead elsewhere meanwhile") {
  const SampleFolder sample;
  const testing::TemporaryFolder home;
  fs::create_directory_symlink(sample.path(), home.path() / "latest");
  const CheckpointReader reader(home.path() / "latest");
  fs::remove(home.path() / "latest");
  CHECK(reader.folder() == fs::canonical(sample.path()));
  CHECK_NOTHROW(reader.verify());
}

TEST_CASE("a folder that is no checkpoint is refused by name") {
  const testing::TemporaryFolder home;
  const auto refusal = [&](const std::string& name) {
    return testing::message_of<DataError>([&] { CheckpointReader(home.path() / name); });
  };
  CHECK(refusal("none") == "checkpoint " + home.path("none") + ": No such file or directory");
  CHECK(refusal("") == home.path().string() + " is no checkpoint: it has no manifest.json");
  (void)home.write("file", "x");
  CHECK(refusal("file") == home.path("file") + " is no checkpoint: it has no manifest.json");
  (void)home.write("manifest.json", "{}\n");
  CHECK_THAT(refusal(""), ContainsSubstring(home.path("manifest.json") +
                                            ": not a checkpoint's manifest: it is damaged"));
  fs::resize_file(home.path("manifest.json"), storage::kLongestManifest + 1);
  CHECK(refusal("") ==
        home.path("manifest.json") + " has 1073741825 bytes, and the most are 1073741824");
}

TEST_CASE("a checkpoint's file that is missing, longer or no file is refused at once") {
  const SampleFolder sample;
  const fs::path file = sample.file(1);
  const std::string whole = testing::read_text(file);
  testing::write_text(file, whole + "x");
  CHECK(sample.refusal() == file.string() + " has " + std::to_string(whole.size() + 1) +
                                " bytes, and by manifest.json " + std::to_string(whole.size()));
  fs::remove(file);
  CHECK(sample.refusal() == file.string() + ": No such file or directory");
  fs::create_directory(file);
  CHECK(sample.refusal() == file.string() + " is no regular file");
  fs::remove(file);
  REQUIRE(::mkfifo(file.c_str(), 0600) == 0);  // to open it would block
  CHECK(sample.refusal() == file.string() + " is no regular file");
  fs::remove(file);
  testing::write_text(sample.path() / "elsewhere", whole);
  fs::create_symlink("elsewhere", file);
  CHECK(sample.refusal() == file.string() + " is no regular file");
  fs::remove(file);
  fs::rename(sample.path() / "elsewhere", file);
  fs::rename(sample.path() / "manifest.json", sample.path() / "elsewhere");
  fs::create_symlink("elsewhere", sample.path() / "manifest.json");
  CHECK(sample.refusal() == (sample.path() / "manifest.json").string() + " is no regular file");
}

TEST_CASE("a checkpoint's file with a changed byte is found by its checksum") {
  const SampleFolder sample;
  const std::string right = testing::checksum_text(testing::read_text(sample.file(0)));
  testing::change_last_byte(sample.file(0));
  const std::string wrong = testing::checksum_text(testing::read_text(sample.file(0)));
  CHECK(sample.verdict() == sample.file(0).string() + " is damaged: its bytes have the checksum " +
                                wrong + ", and by manifest.json " + right);
  const CheckpointReader reader(sample.path());
  CHECK_THROWS_AS(reader.verify(0), DataError);
  CHECK_NOTHROW(reader.verify(1));
}

TEST_CASE("a checkpoint's file of many bytes is compared to its end") {
  SampleFolder sample;
  constexpr std::uint64_t kBytes = (std::uint64_t{9} << 20) + 5;
  sample.manifest.tensors = {
      {.name = "long", .dtype = "U8", .shape = {kBytes}, .pieces = {{1, 0, kBytes}}}};
  sample.write_again();
  CHECK(sample.verdict() == "no error");
  testing::change_last_byte(sample.file(1));
  CHECK_THAT(sample.verdict(), ContainsSubstring("is damaged"));
}

TEST_CASE("a checkpoint's files hold what the manifest says") {
  SampleFolder sample;
  const Manifest right = sample.manifest;
  const std::string file = sample.file(1).string();
  // The files are as `sample.manifest` was when it was written; the manifest is as it was before.
  const auto write_files_only = [&] {
    sample.write_again();
    sample.manifest.tensors = right.tensors;
    sample.write_manifest();
  };
  const auto check_flags = [&](const std::string& found) {
    write_files_only();
    CHECK(sample.verdict() ==
          file + ": tensor 'flags' is " + found + ", and by manifest.json it is BOOL [3]");
    const CheckpointReader reader(sample.path());
    CHECK(testing::message_of<DataError>([&] {
            (void)read_elements(reader, *reader.find("flags"), 0, 3);
          }) == sample.verdict());
  };

  sample.manifest.tensors[2].dtype = "U8";
  check_flags("U8 [3]");
  sample.manifest.tensors[2] = {
      .name = "flags", .dtype = "BOOL", .shape = {4}, .pieces = {{1, 0, 4}}};
  check_flags("BOOL [4]");
  sample.manifest.tensors[2].name = "flagz";
  check_flags("missing");

  sample.manifest.tensors.push_back(
      {.name = "x", .dtype = "I8", .shape = {2}, .pieces = {{1, 0, 2}}});
  write_files_only();
  CHECK(sample.verdict() == file + ": tensor 'x' is not in manifest.json");

  testing::write_text(file, "no safetensors");
  sample.manifest.files[1].bytes = 14;
  sample.manifest.files[1].checksum = testing::checksum_text("no safetensors");
  sample.write_manifest();
  CHECK_THAT(sample.verdict(), ContainsSubstring(file + ": not a safetensors file: "));
}

TEST_CASE("a file of a checkpoint that goes away before it is read is refused by name") {
  const SampleFolder sample;
  const CheckpointReader reader(sample.path());
  fs::remove(sample.file(0));
  CHECK_THROWS_WITH(reader.verify(), sample.file(0).string() + ": No such file or directory");
  CHECK_THROWS_WITH(read_elements(reader, *reader.find("bias"), 0, 6),
                    sample.file(0).string() + ": No such file or directory");
  CHECK_NOTHROW(read_elements(reader, *reader.find("bias"), 2, 4));
}

TEST_CASE("a checkpoint with more files than a process may open is read") {
  SampleFolder sample;
  constexpr std::size_t kFiles = 400;
  sample.manifest.files.clear();
  ManifestTensor many{.name = "many", .dtype = "I16", .shape = {kFiles, 3}};
  for (std::size_t i = 0; i < kFiles; ++i) {
    sample.manifest.files.push_back({.name = "file-" + std::to_string(i)});
    many.pieces.push_back({.file = i, .offset = 3 * i, .size = 3});
  }
  sample.manifest.tensors = {many};
  sample.write_again();
  struct rlimit before {};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  struct rlimit few = before;
  few.rlim_cur = 200;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
  std::string bytes;
  const std::string message = testing::message_of<Error>([&] {
    const CheckpointReader reader(sample.path());
    reader.verify();
    bytes = read_elements(reader, many, 0, 3 * kFiles);
  });
  ::setrlimit(RLIMIT_NOFILE, &before);
  CHECK(message == "no error");
  CHECK(bytes == testing::sample_bytes(many, 3 * kFiles, 12));
}
