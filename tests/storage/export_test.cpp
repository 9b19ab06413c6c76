#include "framework/storage/export.h"

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/storage/sample_checkpoint.h"
#include "tests/support/files.h"
#include "tests/support/message_of.h"

namespace fs = std::filesystem;

namespace lockstep {
namespace {

using storage::CheckpointReader;
using storage::Exported;
using storage::ExportOptions;
using storage::SafetensorsFile;

constexpr std::int64_t kStep = 12;

// A checkpoint with these tensors, and a folder to export to.
struct Sample {
  explicit Sample(std::vector<storage::ManifestTensor> tensors) {
    manifest = testing::sample_manifest(kStep);
    manifest.tensors = std::move(tensors);
    const storage::CheckpointFolder folder(home.path());
    folder.begin(kStep);
    testing::write_files(manifest, folder.unfinished(kStep));
    folder.publish(manifest);
    path = folder.of_step(kStep);
    fs::create_directory(home.path() / "to");
  }

  fs::path to(const std::string& name = "model.safetensors") const {
    return home.path() / "to" / name;
  }
  Exported write(const ExportOptions& options) const {
    return export_tensors(CheckpointReader(path), to(), options);
  }
  std::string bytes_of(const std::string& name) const {
    for (const storage::ManifestTensor& tensor : manifest.tensors) {
      if (tensor.name == name)
        return testing::sample_bytes(tensor, testing::elements_of(tensor), kStep);
    }
    return "none";
  }

  testing::TemporaryFolder home;
  storage::Manifest manifest;
  fs::path path;
};

// A training's state in two files.
Sample sample_state() {
  return Sample(
      {{.name = "buffers/count", .dtype = "I64", .shape = {}, .pieces = {{0, 0, 1}}},
       {.name = "optimizer/exp_avg/w", .dtype = "F32", .shape = {7}, .pieces = {{0, 0, 7}}},
       {.name = "parameters/b", .dtype = "BF16", .shape = {5}, .pieces = {{1, 0, 5}}},
       {.name = "parameters/none", .dtype = "F32", .shape = {0, 3}},
       {.name = "parameters/w",
        .dtype = "F32",
        .shape = {3, 5},
        .pieces = {{0, 0, 8}, {1, 8, 7}}}});
}

const ExportOptions kModel{.prefixes = {"parameters/", "buffers/"}};

std::string read_all(const SafetensorsFile& file, const std::string& name) {
  const storage::StoredTensor* const tensor = file.find(name);
  if (tensor == nullptr) return "missing";
  std::string bytes(tensor->bytes(), '\0');
  file.read(*tensor, 0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

}  // namespace

TEST_CASE("an export has the model's tensors under the model's names, aligned") {
  const Sample sample = sample_state();
  const Exported exported = sample.write(kModel);
  CHECK(exported.files == std::vector<fs::path>{sample.to()});
  CHECK(exported.tensors == 4);
  CHECK(exported.bytes == 8 + 10 + 60);
  const SafetensorsFile file(sample.to());
  CHECK(file.header().metadata == std::map<std::string, std::string>{{"format", "pt"}});
  ExportOptions with_metadata = kModel;
  with_metadata.metadata = {{"fitted", "{}"}};
  (void)export_tensors(CheckpointReader(sample.path), sample.to("b.safetensors"), with_metadata);
  CHECK(SafetensorsFile(sample.to("b.safetensors")).header().metadata ==
        std::map<std::string, std::string>{{"fitted", "{}"}, {"format", "pt"}});
  REQUIRE(file.header().tensors.size() == 4);
  for (const storage::StoredTensor& tensor : file.header().tensors) {
    CHECK(tensor.begin % storage::element_bytes(tensor.dtype) == 0);
  }
  CHECK(read_all(file, "count") == sample.bytes_of("buffers/count"));
  CHECK(read_all(file, "b") == sample.bytes_of("parameters/b"));
  CHECK(read_all(file, "w") == sample.bytes_of("parameters/w"));
  CHECK(file.find("w")->shape == std::vector<std::uint64_t>{3, 5});
  CHECK(file.find("none")->shape == std::vector<std::uint64_t>{0, 3});
  CHECK(file.find("count")->shape.empty());
}

TEST_CASE("an export has other tensors in the place of some") {
  const Sample sample(
      {{.name = "ema/w", .dtype = "F32", .shape = {7}, .pieces = {{0, 0, 7}}},
       {.name = "parameters/b", .dtype = "F32", .shape = {5}, .pieces = {{1, 0, 5}}},
       {.name = "parameters/w", .dtype = "F32", .shape = {7}, .pieces = {{1, 0, 7}}}});
  CHECK(sample.write({.prefixes = kModel.prefixes, .instead = "ema/"}).tensors == 2);
  const SafetensorsFile file(sample.to());
  CHECK(read_all(file, "w") == sample.bytes_of("ema/w"));
  CHECK(read_all(file, "b") == sample.bytes_of("parameters/b"));
  CHECK_THAT(testing::message_of<DataError>([&] {
               (void)export_tensors(CheckpointReader(sample.path), sample.to("other.safetensors"),
                                    {.prefixes = kModel.prefixes, .instead = "mean/"});
             }),
             ContainsSubstring("has no tensor whose name begins with mean/"));
}

TEST_CASE("an export of many bytes is written piece by piece") {
  constexpr std::uint64_t kElements = (std::uint64_t{5} << 20) / 2 + 3;
  const Sample sample({{.name = "parameters/long",
                        .dtype = "BF16",
                        .shape = {kElements},
                        .pieces = {{0, 0, 1000}, {1, 1000, kElements - 1000}}}});
  (void)sample.write(kModel);
  CHECK(read_all(SafetensorsFile(sample.to()), "long") == sample.bytes_of("parameters/long"));
}

TEST_CASE("what is too large for one file goes to several, with an index") {
  const Sample sample = sample_state();
  ExportOptions options = kModel;
  options.most_bytes = 18;
  const Exported exported = sample.write(options);
  const auto shard = [](int i) { return str("model-0000", i, "-of-00002.safetensors"); };
  // In the order of their names: b, count and none, then w, which alone exceeds most_bytes.
  CHECK(exported.files == std::vector<fs::path>{sample.to(shard(1)), sample.to(shard(2)),
                                                sample.to("model.safetensors.index.json")});
  CHECK(testing::entries(sample.to("")) == 3);
  CHECK(testing::read_text(exported.files.back()) == R"({
  "metadata": {
    "total_size": 78
  },
  "weight_map": {
    "b": "model-00001-of-00002.safetensors",
    "count": "model-00001-of-00002.safetensors",
    "none": "model-00001-of-00002.safetensors",
    "w": "model-00002-of-00002.safetensors"
  }
}
)");
  CHECK(read_all(SafetensorsFile(exported.files[0]), "b") == sample.bytes_of("parameters/b"));
  CHECK(read_all(SafetensorsFile(exported.files[1]), "w") == sample.bytes_of("parameters/w"));
}

TEST_CASE("one file is enough for an export that just fits") {
  const Sample sample = sample_state();
  ExportOptions options = kModel;
  options.most_bytes = 78;
  CHECK(sample.write(options).files == std::vector<fs::path>{sample.to()});
}

TEST_CASE("an export replaces files if it is asked to, once the new ones are whole") {
  const Sample sample = sample_state();
  ExportOptions options = kModel;
  options.replaces = true;
  const fs::path index = sample.to("model.safetensors.index.json");
  testing::write_text(sample.to("behind a link"), "mine");
  fs::create_symlink("behind a link", index);
  testing::write_text(sample.to("model-00002-of-00002.safetensors"), "mine, too");
  options.most_bytes = 77;
  const Exported exported = sample.write(options);
  REQUIRE(exported.files.size() == 3);
  CHECK(read_all(SafetensorsFile(exported.files[1]), "w") == sample.bytes_of("parameters/w"));
  CHECK_THAT(testing::read_text(sample.to("behind a link")), ContainsSubstring("weight_map"));
  CHECK(fs::is_symlink(index));
  // An error leaves existing files as they are.
  testing::write_text(index, "mine");
  testing::change_last_byte(sample.path / sample.manifest.files[1].name);
  CHECK_THROWS_WITH(sample.write(options), ContainsSubstring("is damaged"));
  CHECK(testing::read_text(index) == "mine");
}

TEST_CASE("an export that can't be written leaves nothing behind") {
  const Sample sample = sample_state();
  const auto refusal = [&](const fs::path& to, const ExportOptions& options) {
    const auto before = testing::entries(sample.to(""));
    const std::string message = testing::message_of<Error>(
        [&] { (void)export_tensors(CheckpointReader(sample.path), to, options); });
    CHECK(testing::entries(sample.to("")) == before);
    return message;
  };
  CHECK(refusal(sample.to("model.bin"), kModel) ==
        "'" + sample.to("model.bin").string() + "': the file's name must end in .safetensors");
  CHECK_THAT(refusal(sample.to("none/model.safetensors"), kModel),
             ContainsSubstring("can't be opened: No such file or directory"));
  CHECK(refusal(sample.to(), {.prefixes = {"weights/"}}) ==
        fs::canonical(sample.path).string() + " has no tensor whose name begins with weights/");
  CHECK(refusal(sample.to(), {.prefixes = {"parameters/", "optimizer/exp_avg/"}}) ==
        fs::canonical(sample.path).string() +
            ": 'optimizer/exp_avg/w' and 'parameters/w' would have one name in the file");

  const std::string index = sample.to("model.safetensors.index.json");
  testing::write_text(index, "mine");
  CHECK(refusal(sample.to(), {.prefixes = kModel.prefixes, .most_bytes = 1}) ==
        index + " exists already: name another file, or replace it with --force");
  CHECK(testing::read_text(index) == "mine");
  // Programs that load by the name would take the old export for the new one.
  CHECK(refusal(sample.to(), kModel) ==
        index +
            " is of an earlier export in several files: remove its files first, or name another "
            "file");
  fs::remove(index);
  (void)sample.write(kModel);
  CHECK(refusal(sample.to(), kModel) ==
        sample.to().string() + " exists already: name another file, or replace it with --force");
  CHECK(refusal(sample.to(), {.prefixes = kModel.prefixes, .most_bytes = 1, .replaces = true}) ==
        sample.to().string() +
            " is of an earlier export in one file: remove its files first, or "
            "name another file");

  // Only files are replaced.
  ExportOptions over = kModel;
  over.replaces = true;
  fs::create_directory(sample.to("folder.safetensors"));
  CHECK(refusal(sample.to("folder.safetensors"), over) ==
        sample.to("folder.safetensors").string() + " is no file, and only files are replaced");

  testing::change_last_byte(sample.path / sample.manifest.files[1].name);
  CHECK_THAT(refusal(sample.to("other.safetensors"), kModel), ContainsSubstring("is damaged"));
}

}  // namespace lockstep
