#include "framework/formats/cifar10.h"

#include <array>
#include <filesystem>
#include <span>
#include <sstream>

#include "framework/base/text.h"

namespace fs = std::filesystem;

namespace lockstep::formats {
namespace {

constexpr std::size_t kRecordBytes = 1 + Cifar10::kPixelBytes;

std::vector<std::string> read_class_names(const std::string& path) {
  if (!is_there(path)) return {};
  const FileBytes file = open_data(path).content();
  std::istringstream lines(std::string(file.bytes.begin(), file.bytes.end()));
  std::vector<std::string> names;
  for (std::string line; names.size() <= Cifar10::kClasses && std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) names.push_back(line);
  }
  if (names.size() != Cifar10::kClasses) {
    fail_file(path, str("it must name ", Cifar10::kClasses, " classes, one a line, but has ",
                        names.size() > Cifar10::kClasses ? "more" : std::to_string(names.size())));
  }
  return names;
}

void read_batch(const std::string& path, Cifar10& into) {
  const File file = open_data(path);
  const std::uint64_t size = file.size();
  if (size == 0 || size % kRecordBytes != 0) {
    fail_file(path, str("it has ", counted(static_cast<std::int64_t>(size), "byte"),
                        ", but must be one or more records of ", kRecordBytes));
  }
  const std::size_t records = size / kRecordBytes;
  into.labels.reserve(into.labels.size() + records);
  into.pixels.reserve(into.pixels.size() + records * Cifar10::kPixelBytes);
  std::array<std::uint8_t, kRecordBytes> record{};
  for (std::size_t i = 0; i < records; ++i) {
    file.read(i * kRecordBytes, std::as_writable_bytes(std::span(record)));
    const std::uint8_t label = record[0];
    if (label >= Cifar10::kClasses) {
      fail_file(path, str("the label of record ", i, " is ", int{label}, ", but labels are 0 ... ",
                          Cifar10::kClasses - 1));
    }
    into.labels.push_back(label);
    into.pixels.insert(into.pixels.end(), record.begin() + 1, record.end());
  }
}

}  // namespace

Cifar10::Cifar10(const std::string& root, Split split, const OnDamage& on_damage) {
  const fs::path folder(root);
  const auto read = [&](const std::string& name) {
    do_or_tell(on_damage, [&] { read_batch((folder / name).string(), *this); });
  };
  if (split == Split::test) {
    read("test_batch.bin");
  } else {
    for (int batch = 1; batch <= 5; ++batch) read(str("data_batch_", batch, ".bin"));
  }
  class_names = read_class_names((folder / "batches.meta.txt").string());
}

}  // namespace lockstep::formats
