#include "framework/formats/text_corpus.h"

#include <cstdint>
#include <filesystem>
#include <iomanip>
#include <sstream>
#include <string>
#include <vector>

#include <sys/stat.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/formats/idx_files.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

namespace fs = std::filesystem;

using namespace lockstep;
using namespace lockstep::formats;
using namespace lockstep::testing;

namespace {

std::string copied(const TextCorpus& corpus, std::uint64_t offset, std::uint64_t size) {
  std::vector<std::uint8_t> bytes(size);
  corpus.copy(offset, bytes);
  return {bytes.begin(), bytes.end()};
}

std::string corpus_error(const std::string& path) {
  return message_of<DataError>([&] { const TextCorpus corpus(path); });
}

}  // namespace

TEST_CASE("a text is one file or all of a folder, in the order of names") {
  const TemporaryFolder folder;
  // Large enough to be mapped, and packed.
  const std::string large(100'000, 'l');
  const std::string text = "first" + large + "inner" + "" + "packed" + "Z";
  folder.write("a.txt", "first");
  folder.write("b/0", large);
  folder.write("b/1.txt", "inner");
  folder.write("c", "");
  folder.write("d.gz", gzip("packed"));
  folder.write("e", "Z");
  folder.write(".hidden", "hidden");

  const TextCorpus corpus(folder.path().string());
  CHECK(corpus.size() == text.size());
  CHECK(copied(corpus, 0, text.size()) == text);
  std::vector<std::string> paths;
  std::uint64_t offset = 0;
  for (const TextCorpus::SourceFile& part : corpus.sources()) {
    CHECK(part.offset == offset);
    offset += part.size;
    paths.push_back(part.path);
  }
  CHECK(paths == std::vector<std::string>{folder.path("a.txt"), folder.path("b/0"),
                                          folder.path("b/1.txt"), folder.path("c"),
                                          folder.path("d.gz"), folder.path("e")});
  CHECK(offset == text.size());

  for (const std::uint64_t begin : {0, 3, 4, 5, 100'004, 100'005, 100'009, 100'010, 100'016}) {
    for (const std::uint64_t size : {0, 1, 2, 7}) {
      if (begin + size <= text.size())
        CHECK(copied(corpus, begin, size) == text.substr(begin, size));
    }
  }
  CHECK(copied(corpus, text.size(), 0).empty());

  const TextCorpus one(folder.path("d.gz"));
  CHECK(copied(one, 0, 6) == "packed");
  CHECK(one.sources().size() == 1);
}

TEST_CASE("files that begin as no text does are known") {
  const TemporaryFolder folder;
  folder.write("Thumbs.db", std::string("\xd0\xcf\x11\0", 4));
  folder.write("late", std::string(8000, 'a') + std::string(1, '\0'));
  folder.write("latin", "caf\xe9");
  folder.write("packed", gzip(std::string("a\0b", 3)));
  std::vector<bool> found;
  const TextCorpus corpus(folder.path().string());
  for (const TextCorpus::SourceFile& part : corpus.sources()) found.push_back(part.is_binary);
  CHECK(found == std::vector<bool>{true, false, false, true});
}

TEST_CASE("texts that are not in UTF-8 are known, and in what they may be") {
  const TemporaryFolder folder;
  folder.write("a", "caf\xe9");
  folder.write("b", std::string("\xff\xfe") + std::string("c\0", 2));
  folder.write("c", std::string(7999, 'a') + "\xc3\xa9");  // a letter that is cut there
  folder.write("d", std::string("\xd0\xcf\x11\0", 4));
  const TextCorpus corpus(folder.path().string());
  const auto& sources = corpus.sources();
  CHECK_THAT(sources[0].not_utf8,
             ContainsSubstring("iconv -f LATIN1 -t UTF-8 '" + sources[0].path));
  CHECK_THAT(sources[1].not_utf8, ContainsSubstring("iconv -f UTF-16 -t UTF-8"));
  CHECK_FALSE(sources[1].is_binary);
  CHECK(sources[2].not_utf8.empty());
  CHECK(sources[3].not_utf8.empty());
}

TEST_CASE("bytes beyond the end of a text are a ValueError with the numbers") {
  const TemporaryFolder folder;
  const TextCorpus corpus(folder.write("a", "12345"));
  CHECK(message_of<ValueError>([&] { (void)copied(corpus, 3, 3); }) ==
        "text: 3 bytes from 3 on are asked for, but there are 5 in all");
  CHECK_THROWS_AS(copied(corpus, 6, 0), ValueError);
  CHECK_THROWS_AS(copied(corpus, ~std::uint64_t{0}, 2), ValueError);
}

TEST_CASE("what gives no text is an error that names it") {
  const TemporaryFolder folder;
  CHECK(corpus_error(folder.path("missing")) ==
        "data file '" + folder.path("missing") + "': there is no such file");
  const std::string none = "it has no text: there is no file with a byte in it";
  CHECK(corpus_error(folder.path().string()) ==
        "data file '" + folder.path().string() + "': " + none);
  folder.write("a", "");
  CHECK_THAT(corpus_error(folder.path("a")), ContainsSubstring(none));
  CHECK_THAT(corpus_error(folder.path().string()), ContainsSubstring(none));
  const std::string packed = gzip("text");
  folder.write("b.gz", packed.substr(0, packed.size() - 3));
  CHECK(corpus_error(folder.path().string()) ==
        "data file '" + folder.path("b.gz") +
            "': it is cut short: it ends after 4 bytes of content, in the middle of its gzip data");
  folder.write("b.gz", packed + "more");
  CHECK_THAT(corpus_error(folder.path().string()), ContainsSubstring("it is damaged"));
  folder.write("b.gz", packed);
  CHECK(corpus_error(folder.path().string()) == "no error");

  fs::create_directory(folder.path("c"));
  fs::create_symlink("../b.gz", folder.path("c/d"));
  CHECK(TextCorpus(folder.path().string()).size() == 8);
  fs::create_directory_symlink("..", folder.path("c/up"));
  const TextCorpus with_link(folder.path().string());
  CHECK(with_link.size() == 8);
  CHECK(with_link.passed_over() == std::vector<std::string>{folder.path("c/up")});
  fs::create_directory(folder.path("links"));
  fs::create_directory_symlink("../c", folder.path("links/c"));
  CHECK(corpus_error(folder.path("links")) == "data file '" + folder.path("links") + "': " + none +
                                                  "; links to folders are not followed");
  fs::create_symlink("nowhere", folder.path("c/e"));
  CHECK_THAT(corpus_error(folder.path().string()),
             ContainsSubstring("c/e': there is no such file"));
  fs::remove(folder.path("c/e"));
  REQUIRE(::mkfifo(folder.path("c/pipe").c_str(), 0600) == 0);
  CHECK_THAT(corpus_error(folder.path().string()),
             ContainsSubstring("c/pipe': it is a FIFO, not a file"));
}

TEST_CASE("zeros behind gzip data are passed over") {
  const TemporaryFolder folder;
  const std::string zeros(300'000, '\0');
  CHECK(copied(TextCorpus(folder.write("a.gz", gzip("text") + zeros)), 0, 4) == "text");
  const TextCorpus two(folder.write("b.gz", gzip("one") + std::string(5, '\0') + gzip("two")));
  CHECK(two.size() == 6);
  CHECK(copied(two, 0, 6) == "onetwo");
  CHECK_THAT(corpus_error(folder.write("c.gz", gzip("text") + zeros + "more")),
             ContainsSubstring("it is damaged"));
}

TEST_CASE("data that are packed in another way are no text") {
  const TemporaryFolder folder;
  const auto error = [&](const std::string& begin) {
    return corpus_error(folder.write("a", begin + "some bytes"));
  };
  CHECK(error(std::string("\xfd\x37zXZ\0", 6)) ==
        "data file '" + folder.path("a") +
            "': it is packed by xz, which can't be read: unpack it first, by 'xz -d'");
  CHECK_THAT(error("BZh91AY&SY"), ContainsSubstring("it is packed by bzip2"));
  CHECK_THAT(error("BZh1\x17rE8P\x90"), ContainsSubstring("it is packed by bzip2"));
  CHECK_THAT(error("\x28\xb5\x2f\xfd"), ContainsSubstring("it is packed by zstd"));
  CHECK_THAT(error("\x04\x22\x4d\x18"), ContainsSubstring("it is packed by lz4"));
  CHECK_THAT(error("PK\3\4"), ContainsSubstring("it is packed by zip, which can't be read: unpack "
                                                "it first, by 'unzip'; save a spreadsheet as CSV"));
  CHECK_THAT(error("7z\xbc\xaf\x27\x1c"), ContainsSubstring("it is packed by 7z"));
  CHECK_THAT(error("\x1f\x9d"), ContainsSubstring("it is packed by compress"));
  CHECK_THAT(error("LZIP\1"), ContainsSubstring("it is packed by lzip"));
  CHECK_THAT(error("Rar!\x1a\7"), ContainsSubstring("it is packed by rar"));
  CHECK_THAT(error("PAR1\x15"),
             ContainsSubstring("it is a Parquet file, which can't be read: write it as "));
  const std::string lzma("]\0\0\x80\0", 5);
  CHECK_THAT(error(lzma + std::string(8, '\xff') + '\0'),
             ContainsSubstring("it is packed by lzma"));
  CHECK_THAT(error(lzma + std::string("\x2a\1\0\0\0\0\0\0\0", 9)),
             ContainsSubstring("it is packed by lzma"));
  // POSIX's and GNU's kinds name themselves; the oldest, which automake writes, does not.
  for (const std::string& magic : {std::string("ustar\0"
                                               "00",
                                               8),
                                   std::string("ustar  \0", 8), std::string()}) {
    std::string header = "a/file" + std::string(142, '\0') + "        " + std::string(101, '\0');
    header += magic;
    header.resize(512);
    unsigned sum = 0;
    for (const char letter : header) sum += static_cast<unsigned char>(letter);
    TextStream digits;
    digits << std::oct << std::setw(6) << std::setfill('0') << sum << '\0';
    header.replace(148, 7, digits.str());
    CHECK_THAT(error(header), ContainsSubstring("it is packed by tar, which can't be read: "
                                                "unpack it first, by 'tar -xf'"));
    CHECK_THAT(corpus_error(folder.write("a.tar.gz", gzip(header))),
               ContainsSubstring("it is packed by tar"));
    header[0] = 'b';
    CHECK(error(header) == "no error");
  }
  CHECK_THAT(corpus_error(folder.write("a.gz", gzip(gzip("text")))),
             ContainsSubstring("it is packed by gzip twice"));
  std::string utf32;
  for (const char letter : std::string("]text")) utf32 += letter + std::string(3, '\0');
  for (const std::string& text :
       {std::string("BZh9 is how bzip2 begins"), std::string("7z"), std::string("PK"),
        std::string("\xfd"), std::string("LZIP 1"), std::string("Rar!"), std::string("PAR1,PAR2\n"),
        std::string("]"), utf32, std::string(257, 'a') + "ustar  is how tar's header goes on"}) {
    CHECK(error(text) == "no error");
  }
}
