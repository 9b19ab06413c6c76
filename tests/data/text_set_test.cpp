#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/data/text.h"
#include "tests/catch.h"
#include "tests/data/same_batches.h"
#include "tests/support/captured_stderr.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using formats::TextCorpus;
using testing::integers_of;
using testing::message_of;
using testing::TemporaryFolder;
using TextUse = TextWindows::Use;

// Byte i is i, so that tokens tell where they are from.
std::string counting(std::size_t bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes; ++i) text += static_cast<char>(i);
  return text;
}

std::shared_ptr<const TextCorpus> corpus_of(const TemporaryFolder& folder, std::size_t bytes) {
  return std::make_shared<const TextCorpus>(folder.write("text", counting(bytes)));
}

// How often each byte is a target that counts; checks that it follows its input.
std::map<std::int64_t, int> targets_of(const Dataset& set, std::int64_t epoch) {
  const Batch batch = testing::whole(set, epoch);
  const auto inputs = integers_of(batch.inputs);
  const auto targets = integers_of(batch.targets);
  std::map<std::int64_t, int> counts;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] == kIgnoredTarget) continue;
    CHECK(targets[i] == inputs[i] + 1);
    ++counts[targets[i]];
  }
  return counts;
}

std::map<std::int64_t, int> once(std::int64_t first, std::int64_t last) {
  std::map<std::int64_t, int> counts;
  for (std::int64_t byte = first; byte <= last; ++byte) counts[byte] = 1;
  return counts;
}

}  // namespace

TEST_CASE("a folder of texts holds files out for the test, and passes over others") {
  const TemporaryFolder folder;
  folder.write("texts/a", "aaaaaaaaaaaa");
  folder.write("texts/a.dat", "xxxx");
  folder.write("texts/b", "bbbbbbbbbbbb");
  folder.write("texts/held", "hhhhhhhhhhhh");
  TextSetOptions options{
      .path = folder.path("texts"), .exclude = {"*.dat"}, .held_out = {"h*"}, .context = 5};
  const DataSets sets = load_text(options);
  const auto letters_of = [](const Dataset& data) {
    std::set<char> letters;
    for (std::int64_t i = 0; i < data.size(); ++i) {
      const std::vector<std::int64_t> one{i};
      const Batch batch = data.batch(one);
      for (std::int64_t j = 0; j < 5; ++j) {
        letters.insert(static_cast<char>(batch.inputs[0][j].item<std::int64_t>()));
      }
    }
    return letters;
  };
  CHECK(letters_of(*sets.train) == std::set<char>{'a', 'b'});
  CHECK(letters_of(*sets.test) == std::set<char>{'h'});
  std::filesystem::create_directory_symlink("..", folder.path("texts/back"));
  std::string told;
  {
    const testing::CapturedStderr captured;
    CHECK(letters_of(*load_text(options).test) == std::set<char>{'h'});
    told = captured.text();
  }
  CHECK_THAT(told, ContainsSubstring("1 link to a folder is passed over, such as '" +
                                     folder.path("texts/back") + "': "));
  options.test_path = folder.path("texts/a");
  CHECK_THROWS_WITH(load_text(options),
                    "data.held_out: not together with data.test_path: keep one of them");
  options = {.path = folder.path("texts/a"), .held_out = {"b"}, .context = 5};
  CHECK_THROWS_WITH(load_text(options), ContainsSubstring("name files of a folder, but data.path"));
  options.path = folder.path("nowhere");
  CHECK_THAT(message_of<DataError>([&] { (void)load_text(options); }),
             StartsWith("text: there is no '" + folder.path("nowhere") + "'; it must be") &&
                 EndsWith("the head of a config in configs/ says where its data come from"));
}

TEST_CASE("a text's windows lie side by side, each byte with the next as its target") {
  const TemporaryFolder folder;
  const TextSet set(corpus_of(folder, 12), {.bytes = 12, .context = 5});
  CHECK(set.size() == 2);
  CHECK(set.type() == token_sample(5, 256));
  CHECK_FALSE(set.is_slow());
  const Batch batch = set.batch(std::vector<std::int64_t>{1, 0});
  CHECK(integers_of(batch.inputs) == std::vector<std::int64_t>{5, 6, 7, 8, 9, 0, 1, 2, 3, 4});
  CHECK(integers_of(batch.targets) == std::vector<std::int64_t>{6, 7, 8, 9, 10, 1, 2, 3, 4, 5});
  const TextSet part(corpus_of(folder, 12), {.offset = 4, .bytes = 4, .context = 3});
  CHECK(integers_of(part.batch(std::vector<std::int64_t>{0}).inputs) ==
        std::vector<std::int64_t>{4, 5, 6});
}

TEST_CASE("every byte of a text that is tested counts once, but the first") {
  const TemporaryFolder folder;
  for (std::size_t bytes = 6; bytes <= 33; ++bytes) {
    CAPTURE(bytes);
    const auto corpus = corpus_of(folder, bytes);
    const auto last = static_cast<std::int64_t>(bytes) - 1;
    TextWindows windows{.bytes = bytes, .context = 5, .use = TextUse::test_of_all};
    CHECK(targets_of(TextSet(corpus, windows), kUnaugmented) == once(1, last));
    windows.use = TextUse::test;
    CHECK(targets_of(TextSet(corpus, windows), kUnaugmented) == once(1, last - last % 5));
  }
}

TEST_CASE("the windows of a text to train on are shifted from epoch to epoch") {
  const TemporaryFolder folder;
  for (const std::size_t bytes : {6, 9, 10, 33, 35, 200}) {
    CAPTURE(bytes);
    const auto corpus = corpus_of(folder, bytes);
    const TextWindows windows{.bytes = bytes, .context = 5, .use = TextUse::train};
    const TextSet set(corpus, windows, 1);
    std::set<std::int64_t> starts;
    for (std::int64_t epoch = 0; epoch < 40; ++epoch) {
      const auto counts = targets_of(set, epoch);
      const std::int64_t first = counts.begin()->first;
      CHECK(counts == once(first, first + 5 * set.size() - 1));
      starts.insert(first);
    }
    CHECK(*starts.begin() == 1);
    CHECK(starts.size() == std::min<std::size_t>(5, bytes - 5));
    CHECK(targets_of(set, kUnaugmented).begin()->first == 1);
    testing::check_same_batches(set);
    const TextSet again(corpus, windows, 1);
    CHECK(at::equal(testing::whole(again, 3).inputs, testing::whole(set, 3).inputs));
  }
}

TEST_CASE(
    "the end of a text becomes the validation set, and no window to train on has a byte of it") {
  const TemporaryFolder folder;
  const std::string path = folder.write("text", counting(200));
  const DataSets sets = load_data(keys::Picked("text", TextSetOptions{.path = path, .context = 9}),
                                  {.seed = 1, .validation = 0.2});
  CHECK(sets.test == nullptr);
  CHECK(targets_of(*sets.validation, 0) == once(161, 196));
  for (std::int64_t epoch = 0; epoch < 40; ++epoch) {
    CHECK(targets_of(*sets.train, epoch).rbegin()->first < 160);
  }
  for (const double part : {0.02, 0.98}) {
    CHECK_THAT(message_of<ValueError>(
                   [&] { (void)load_text({.path = path, .context = 9}, {.validation = part}); }),
               ContainsSubstring("data.validation: of 200 bytes of text"));
  }
}

TEST_CASE("texts that are held out are files of their own") {
  const TemporaryFolder folder;
  TextSetOptions options{.path = folder.write("a", counting(30)),
                         .validation_path = folder.write("b", counting(8)),
                         .test_path = folder.write("c", counting(9)),
                         .context = 5,
                         .every_byte = true};
  const DataSets sets = load_text(options, {.validation = 0.5});
  CHECK(sets.train->size() == 5);
  CHECK(targets_of(*sets.validation, 0) == once(1, 7));
  CHECK(targets_of(*sets.test, 0) == once(1, 8));
  CHECK(sets.train->type() == token_sample(5, 256));
  CHECK(sets.test->type().ignored == kIgnoredTarget);
  options.every_byte = false;
  CHECK(load_text(options).test->size() == 1);

  options.context = 8;
  CHECK_THAT(message_of<DataError>([&] { (void)load_text(options); }),
             ContainsSubstring("data file '" + folder.path("b") +
                               "': it has 8 bytes of text, but data.context 8 needs 9"));
}

TEST_CASE("a stretch of a text must be there, and long enough") {
  const TemporaryFolder folder;
  const auto corpus = corpus_of(folder, 10);
  const auto error = [&](const TextWindows& windows) {
    return message_of<ValueError>([&] { const TextSet set(corpus, windows); });
  };
  CHECK(error({.bytes = 10, .context = 0}) == "text: context is 0, but must be at least 1");
  CHECK(error({.bytes = 5, .context = 5}) ==
        "text: a stretch of 5 bytes is too short for a context of 5: it needs one more");
  CHECK(error({.offset = 5, .bytes = 6, .context = 5}) ==
        "text: a stretch of 6 bytes from 5 on is not in a text of 10");
}

TEST_CASE("a text that is wanted alone needs no other") {
  const TemporaryFolder folder;
  const TextSetOptions options{.path = folder.path("gone"),
                               .validation_path = folder.path("gone"),
                               .test_path = folder.write("c", counting(9)),
                               .exclude = {"*.dat"},
                               .context = 5};
  const DataSets sets = load_text(options, {.wanted = {.train = false, .validation = false}});
  CHECK(testing::sizes_of(sets) == std::vector<std::int64_t>{0, 0, 1});
  // What is split off is part of the text to train on.
  const auto split = load_data(
      keys::Picked("text", TextSetOptions{.path = folder.write("d", counting(200)), .context = 9}),
      {.fitted = Fitted{.class_count = 256},
       .validation = 0.2,
       .wanted = {.train = false, .test = false}});
  CHECK(split.train == nullptr);
  CHECK(targets_of(*split.validation, 0) == once(161, 196));
}

}  // namespace lockstep
