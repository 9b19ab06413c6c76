#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/random.h"
#include "framework/base/text.h"
#include "framework/formats/cifar10.h"
#include "framework/formats/csv.h"
#include "framework/formats/idx.h"
#include "framework/formats/image.h"
#include "framework/formats/npy.h"
#include "framework/formats/resize.h"
#include "framework/formats/text_corpus.h"
#include "tests/catch.h"
#include "tests/formats/idx_files.h"
#include "tests/formats/sample_files.h"
#include "tests/support/allocated_bytes.h"
#include "tests/support/damage.h"
#include "tests/support/settings.h"
#include "tests/support/temporary_folder.h"

using namespace lockstep;
using testing::gzip;
using testing::npy_file;
using testing::png_chunk;
using testing::png_file;
using testing::TemporaryFolder;

namespace {

// A format: small files of it, and what reads one. Readers throw DataError, or give data that are
// consistent; otherwise `read` throws a logic_error.
struct Format {
  std::string name;
  std::string file;  // its name
  std::vector<std::string> samples;
  std::function<void(const TemporaryFolder& folder, const std::string& path)> read;
  std::uint64_t memory;  // bytes that may be allocated for each one of the file
  std::function<std::string(std::string bytes)> repair = {};  // checksums, for instance
};

void must(bool holds, const char* rule) {
  if (!holds) throw std::logic_error(rule);
}

void read_idx(const TemporaryFolder&, const std::string& path) {
  formats::IdxFile file(path, 2);
  const std::vector<std::int64_t> shape = file.shape();
  must(std::ssize(file.read_values()) == shape.at(0) * shape.at(1), "as many values as the shape");
}

void read_cifar10(const TemporaryFolder& folder, const std::string&) {
  const formats::Cifar10 set(folder.path().string(), formats::Cifar10::Split::test);
  must(!set.labels.empty(), "a record at least");
  must(set.pixels.size() == set.labels.size() * 3072, "as many pixels as labels");
  must(std::ranges::max(set.labels) < 10, "labels of ten classes");
  must(set.class_names.empty() || set.class_names.size() == 10, "ten names or none");
}

void read_csv(const TemporaryFolder&, const std::string& path) {
  const formats::CsvFile file(path);
  must(file.columns() > 0, "a column at least");
  for (std::size_t column = 0; column < file.columns(); ++column) {
    must(file.column(file.header()[column]) == column, "a column by its name");
    for (std::size_t row = 0; row < file.rows(); ++row) (void)file.text(row, column);
    const std::vector<double> numbers = file.numbers(std::span(&column, 1));
    must(numbers.size() == file.rows(), "as many numbers as rows");
    must(std::ranges::none_of(numbers, [](double number) { return std::isinf(number); }),
         "finite numbers");
  }
}

void read_npy(const TemporaryFolder&, const std::string& path) {
  const formats::NpyArray array(path);
  std::size_t count = 1;
  for (const std::int64_t size : array.shape()) count *= static_cast<std::size_t>(size);
  const auto copied = [](const auto& values) {
    return std::vector(values.begin(), values.end()).size();
  };
  must(std::visit(copied, array.elements()) == count, "as many elements as the shape");
}

void read_picture(const TemporaryFolder&, const std::string& path) {
  for (const std::int64_t channels : {1, 3}) {
    const formats::Image image = formats::read_image(path, {.channels = channels});
    must(image.channels == channels, "channels as asked for");
    must(image.height > 0 && image.width > 0, "a pixel at least");
    must(std::ssize(image.pixels) == image.height * image.width * channels,
         "as many pixels as the size");
    if (image.pixels.size() < 10'000) {
      must(formats::resize(image, 3, 4).pixels.size() == static_cast<std::size_t>(12 * channels),
           "a picture that can be resized");
    }
  }
}

void read_corpus(const TemporaryFolder& folder, const std::string&) {
  const formats::TextCorpus corpus(folder.path().string());
  std::vector<std::uint8_t> bytes(corpus.size());
  corpus.copy(0, bytes);
  must(corpus.sources().size() == 1 && corpus.sources()[0].size == bytes.size(), "one source");
}

std::uint32_t big_endian_at(const std::string& bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = at; i < at + 4; ++i) {
    value = value << 8 | static_cast<std::uint8_t>(bytes[i]);
  }
  return value;
}

// With right checksums in all of its chunks, so that damages reach what is in these.
std::string repaired_png(std::string bytes) {
  constexpr std::size_t kStart = 8;
  constexpr std::size_t kAround = 12;  // length, type and checksum
  for (std::size_t at = kStart; at + kAround <= bytes.size();) {
    const std::size_t length = big_endian_at(bytes, at);
    if (length > bytes.size() - at - kAround) break;
    bytes.replace(at, length + kAround,
                  png_chunk(bytes.substr(at + 4, 4), bytes.substr(at + 8, length)));
    at += length + kAround;
  }
  return bytes;
}

std::vector<std::string> npy_samples() {
  const std::string data(24, '\1');
  return {npy_file("<f4", false, "(2, 3)", data),      npy_file("<i8", true, "(3,)", data, 2),
          npy_file("|b1", true, "(2, 3, 4)", data, 3), npy_file("<u2", false, "()", "ab"),
          npy_file(">f8", true, "(1, 3)", data),       npy_file(">f2", false, "(3, 4)", data)};
}

std::vector<std::string> png_samples() {
  std::string rows;
  for (int y = 0; y < 6; ++y) {
    rows += static_cast<char>(y % 5);  // the filter
    for (int x = 0; x < 48; ++x) rows += static_cast<char>(x * 5 + y);
  }
  return {
      png_file({.width = 16, .height = 6}, rows),
      png_file({.width = 6, .height = 6, .bits = 16, .color_type = 6}, rows),
      png_file({.width = 384, .height = 6, .bits = 1, .color_type = 0}, rows),
      png_file({.width = 8, .height = 6, .color_type = 2, .interlace = 1}, std::string(156, '\0')),
      png_file({.width = 48, .height = 6, .color_type = 3}, rows,
               png_chunk("PLTE", std::string(768, '\5')) + png_chunk("tRNS", std::string(9, '\7')) +
                   png_chunk("tEXt", "text")),
      png_file({.width = 16, .height = 6}, rows, png_chunk("eXIf", testing::exif_data(6, true)))};
}

std::vector<std::string> jpeg_samples() {
  std::vector<std::uint8_t> pixels(std::size_t{24} * 17 * 4);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i / 7);
  return {testing::jpeg_file({.width = 24, .height = 17}, pixels),
          testing::jpeg_file({.width = 24, .height = 17, .progressive = true}, pixels),
          testing::jpeg_file({.width = 24, .height = 17, .separate_scans = true}, pixels),
          testing::jpeg_file({.width = 24, .height = 17, .channels = 1}, pixels),
          testing::with_exif(testing::jpeg_file({.width = 24, .height = 17}, pixels),
                             testing::exif_data(8)),
          testing::jpeg_file({.width = 9, .height = 9, .channels = 4}, pixels)};
}

// What unpacks may take as many times the memory, and some vectors grow by doubling.
constexpr std::uint64_t kUnpacked = 4 * 1032;
// Three bytes a pixel of one bit, unpacked, read twice.
constexpr std::uint64_t kPictures = 2 * 2 * 8 * 3 * 1032;

std::vector<Format> all_formats() {
  const std::string idx = testing::idx_header({3, 4}) + "123456789012";
  std::string names;
  for (int i = 0; i < 10; ++i) names += "class" + std::to_string(i) + "\n";
  const std::string text = "A text that packs a little, a little, a little.";
  return {{"idx", "a.idx", {idx}, read_idx, 8},
          {"idx.gz",
           "a.idx.gz",
           {gzip(idx), gzip(idx.substr(0, 9)) + gzip(idx.substr(9))},
           read_idx,
           kUnpacked},
          {"cifar10",
           "test_batch.bin",
           {testing::cifar10_record(3, 5) + testing::cifar10_record(9, 6)},
           read_cifar10,
           8},
          {"cifar10 names", "batches.meta.txt", {names}, read_cifar10, 200},
          {"csv",
           "a.csv",
           {"a,b,c\n1,2,3\n4,5,6\n", "\"a\",\"b,\"\"\"\r\n\"1\r\n\",-2e5\r\nx,\"\"\r\n",
            "\xef\xbb\xbfname\n1.5\n\n", ", a,b\n0,1e400,-0\n\n \n"},
           read_csv,
           200},
          {"npy", "a.npy", npy_samples(), read_npy, 8},
          {"png", "a.png", png_samples(), read_picture, kPictures, repaired_png},
          {"jpeg", "a.jpg", jpeg_samples(), read_picture, kPictures},
          {"text.gz", "a.gz", {gzip(text), gzip(text) + gzip(text)}, read_corpus, kUnpacked}};
}

enum class Finding { read, refused, wrong };

// How a file is found, and in `what` why it is wrong.
Finding finding(const Format& format, const TemporaryFolder& folder, const std::string& path,
                std::size_t bytes, std::string& what) {
  constexpr std::uint64_t kAlways = 300'000;  // zlib, libpng and libjpeg take some
  const std::uint64_t before = testing::allocated_bytes();
  Finding found = Finding::read;
  try {
    format.read(folder, path);
  } catch (const DataError& error) {
    found = Finding::refused;
    what = error.what();
    if (what.find(folder.path().string()) == std::string::npos) found = Finding::wrong;
  } catch (const std::exception& error) {
    found = Finding::wrong;
    what = error.what();
  }
  const std::uint64_t allocated = testing::allocated_bytes() - before;
  if (allocated > kAlways + format.memory * bytes) {
    found = Finding::wrong;
    what = str("it took ", allocated, " bytes of memory for ", bytes, "; ", what);
  }
  return found;
}

}  // namespace

TEST_CASE("a damaged file of a foreign format is refused or read consistently", "[fuzz][bulk]") {
  std::cout << "damaged foreign files: LOCKSTEP_SEED=" << testing::seed()
            << " LOCKSTEP_FUZZ=" << testing::fuzzed_files() << std::endl;
  const std::uint64_t before = testing::allocated_bytes();
  const std::vector<Format> formats = all_formats();
  CHECK(testing::allocated_bytes() - before > 10'000);  // they are counted
  std::vector<TemporaryFolder> folders(formats.size());
  std::string what;
  for (std::size_t i = 0; i < formats.size(); ++i) {
    const Format& format = formats[i];
    if (format.file == "batches.meta.txt") {
      folders[i].write("test_batch.bin", testing::cifar10_record(1, 1));
    }
    for (const std::string& sample : format.samples) {
      const std::string path = folders[i].write(format.file, sample);
      const Finding found = finding(format, folders[i], path, sample.size(), what);
      INFO(format.name << ": " << what);
      CHECK(found == Finding::read);
    }
  }

  std::vector<int> refused(formats.size());
  std::vector<int> read(formats.size());
  for (std::uint64_t file = 0; file < testing::fuzzed_files(); ++file) {
    const std::size_t i = file % formats.size();
    const Format& format = formats[i];
    testing::Random random(Key(testing::seed()).fold("fuzz").fold(file).bits());
    std::string bytes = format.samples[testing::below(random, format.samples.size())];
    for (std::size_t damages = 1 + testing::below(random, 3); damages > 0; --damages) {
      bytes = testing::damaged(std::move(bytes), format.samples, random);
    }
    if (format.repair && testing::below(random, 4) != 0) bytes = format.repair(std::move(bytes));
    const std::string path = folders[i].write(format.file, bytes);
    switch (finding(format, folders[i], path, bytes.size(), what)) {
      case Finding::read:
        ++read[i];
        break;
      case Finding::refused:
        ++refused[i];
        break;
      case Finding::wrong:
        FAIL_CHECK("file " << file << ", of " << format.name << ": " << what);
    }
  }
  for (std::size_t i = 0; i < formats.size(); ++i) {
    INFO(formats[i].name << ": " << read[i] << " read, " << refused[i] << " refused");
    CHECK(refused[i] > 0);
    CHECK(read[i] + refused[i] >= static_cast<int>(testing::fuzzed_files() / formats.size()));
  }
  // Of some formats nearly every damage shows: 50 files of them may all be refused.
  CHECK(std::ranges::count(read, 0) <= static_cast<std::ptrdiff_t>(formats.size()) / 2);
}
