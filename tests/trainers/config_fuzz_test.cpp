#include <algorithm>
#include <cctype>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/ops/zeros.h>
#include <sys/resource.h>

#include "framework/base/errors.h"
#include "framework/base/memory.h"
#include "framework/base/non_copyable.h"
#include "framework/base/random.h"
#include "framework/base/text.h"
#include "framework/data/data.h"
#include "framework/data/tensor_set.h"
#include "framework/data/text.h"
#include "tests/catch.h"
#include "tests/support/damage.h"
#include "tests/support/settings.h"
#include "trainers/config/config.h"
#include "trainers/config/config_options.h"
#include "trainers/run/check_job.h"
#include "trainers/run/memory_report.h"

namespace lockstep {
namespace {

using testing::below;
using testing::Random;

constexpr std::uint64_t kMostMemory = 256 << 20;
constexpr double kMostSeconds = 10;
constexpr std::size_t kLongestMessage = 16 << 10;

// While it lives, this process gets so many bytes of addresses more and no others.
class AddressLimit : private NonCopyable {
 public:
  explicit AddressLimit(std::uint64_t more) {
    (void)::getrlimit(RLIMIT_AS, &before_);
    std::ifstream pages("/proc/self/statm");
    rlimit limit = before_;
    pages >> limit.rlim_cur;
    limit.rlim_cur = std::min(limit.rlim_cur * 4096 + more, before_.rlim_cur);
    (void)::setrlimit(RLIMIT_AS, &limit);
  }
  ~AddressLimit() { (void)::setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_{};
};

// The shipped configs, each without its comments and with all of its keys.
std::vector<std::string> shipped_configs() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(LOCKSTEP_SOURCE_DIR "/configs")) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  std::vector<std::string> texts;
  for (const auto& path : files) {
    std::ifstream file(path);
    std::string text;
    for (std::string line; std::getline(file, line);) {
      if (!line.starts_with('#')) text += line + "\n";
    }
    texts.push_back(text);
    texts.push_back(to_yaml(parse_config(texts.back(), path.string())));
  }
  return texts;
}

bool is_of_word(char letter) {
  return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_' || letter == '.';
}

struct Part {
  std::size_t begin = 0;
  std::size_t size = 0;
};

// The words and numbers of a text, or the parts of it between brackets.
std::vector<Part> words_of(const std::string& text, bool are_numbers) {
  std::vector<Part> words;
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::size_t end = i;
    while (end < text.size() && is_of_word(text[end])) ++end;
    if (end == i) continue;
    if ((std::isdigit(static_cast<unsigned char>(text[i])) != 0) == are_numbers) {
      words.push_back({i, end - i});
    }
    i = end;
  }
  return words;
}

std::vector<Part> lists_of(const std::string& text) {
  std::vector<Part> lists;
  for (std::size_t i = text.find('['); i < text.size(); i = text.find('[', i + 1)) {
    lists.push_back({i, std::min(text.find(']', i), text.size() - 1) + 1 - i});
  }
  return lists;
}

std::vector<Part> lines_of(const std::string& text) {
  std::vector<Part> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    lines.push_back({begin, end - begin});
    begin = end;
  }
  return lines;
}

// The key with which a line begins.
std::string key_of(const std::string& line) {
  return line.substr(0, line.find(':'));
}

// A damage after which a text may be read still: a number becomes another one, or a line that of
// another config.
std::string changed(std::string text, const std::vector<std::string>& samples, Random& random) {
  const std::vector<std::string> kWhole{"0",  "1",   "2",    "3",      "7",       "8",
                                        "16", "100", "1000", "100000", "1000000", "1000000000"};
  const std::vector<std::string> kBroken{"0.0", "1.0", "0.5", "1.0e-300", "1.0e+9", "1.0e+30"};
  const bool is_of_number = below(random, 3) > 0;
  const auto parts = is_of_number ? words_of(text, true) : lines_of(text);
  if (parts.empty()) return text;
  const Part part = parts[below(random, parts.size())];
  const std::string old = text.substr(part.begin, part.size);
  if (is_of_number) {
    const auto& numbers = old.find('.') == std::string::npos ? kWhole : kBroken;
    return text.replace(part.begin, part.size, numbers[below(random, numbers.size())]);
  }
  const std::string& other = samples[below(random, samples.size())];
  for (const Part& line : lines_of(other)) {
    const std::string its = other.substr(line.begin, line.size);
    if (key_of(its) == key_of(old)) return text.replace(part.begin, part.size, its);
  }
  return text;
}

// A damage after which it mostly is no config.
std::string spoilt(std::string text, const std::vector<std::string>& samples, Random& random) {
  const std::vector<std::string> kNumbers{"-1",  "1e9",  "1e30",
                                          "nan", ".inf", "9223372036854775807"};
  const std::vector<std::string> kLists{"[]", "[[1]]", "[1, 1000000]", "{}"};
  const auto one_of = [&](const auto& choices) { return choices[below(random, choices.size())]; };
  const auto replace = [&](const std::vector<Part>& parts, const auto& with) {
    if (parts.empty()) return text;
    const Part part = one_of(parts);
    return text.replace(part.begin, part.size, with(text.substr(part.begin, part.size)));
  };
  switch (below(random, 6)) {
    case 0:
      return replace(lines_of(text), [](const std::string&) { return ""; });
    case 1:
      return replace(lines_of(text), [](const std::string& line) { return line + line; });
    case 2: {
      const std::string& other = samples[below(random, samples.size())];
      const Part name = one_of(words_of(other, false));
      return replace(words_of(text, false),
                     [&](const std::string&) { return other.substr(name.begin, name.size); });
    }
    case 3:
      return replace(lists_of(text), [&](const std::string& list) {
        return below(random, 2) == 0 ? one_of(kLists) : "[" + list + "]";
      });
    case 4:
      return replace(words_of(text, true), [&](const std::string&) { return one_of(kNumbers); });
    default:
      return testing::damaged(std::move(text), samples, random);
  }
}

// Sets of so many samples that are all 0.
DataSets zeros(std::int64_t samples, const SampleType& type) {
  const auto rows = [&](const TensorType& each) {
    std::vector<std::int64_t> shape{samples};
    shape.insert(shape.end(), each.shape.begin(), each.shape.end());
    return at::zeros(shape, each.dtype);
  };
  const auto set = std::make_shared<TensorSet>(rows(type.input), rows(type.target), type);
  return {.train = set, .validation = set, .test = set};
}

// In place of files, samples as theirs are.
DataSets data_of(const Config& config) {
  constexpr std::int64_t kSamples = 300;
  const std::string& name = config.data.name;
  if (name == "synthetic" || name == "pmean_example") {
    return load_data(config.data, data_context(config));
  }
  if (name == "text") {
    return zeros(3, token_sample(config.data.options<TextSetOptions>().context, 256));
  }
  if (name == "csv") return zeros(kSamples, value_sample({10}, 1));
  return zeros(kSamples, class_sample({name == "fashion_mnist" ? 1 : 3, 28, 28}, 10));
}

enum class End { refused, ready };

// Goes the way of `train --dry-run`. Throws what it may not throw; a logic_error for a print that
// reads as something else.
End dry_run(const std::string& text) {
  try {
    const Config config = parse_config(text, "fuzz.yaml");
    if (!(parse_config(to_yaml(config), "again.yaml") == config)) {
      throw std::logic_error("what is printed reads as something else");
    }
    const DataSets data = data_of(config);
    check_job(config, data);
    if (prediction_text(config, data).empty()) throw std::logic_error("no prediction");
    check_memory(config, data);
    return End::ready;
  } catch (const Error& error) {
    const std::string message = error.what();
    const bool is_right = dynamic_cast<const ValueError*>(&error) != nullptr ||
                          dynamic_cast<const DataError*>(&error) != nullptr;
    if (!is_right) throw;
    if (message.empty()) throw std::logic_error("an error without words");
    if (message.size() > kLongestMessage) {
      throw std::logic_error(str("an error of ", message.size(), " bytes: ", cut(message, 500)));
    }
    return End::refused;
  }
}

}  // namespace

TEST_CASE("a damaged config of train is refused in words, or a job whose memory is known",
          "[fuzz]") {
  const std::uint64_t count = testing::fuzzed_files(20);
  std::cout << "damaged configs of train: LOCKSTEP_SEED=" << testing::seed()
            << " LOCKSTEP_FUZZ=" << count << std::endl;
  const std::vector<std::string> samples = shipped_configs();
  for (std::size_t i = 0; i < samples.size(); i += 2) {  // also starts the threads that stay
    INFO(samples[i]);
    CHECK(dry_run(samples[i]) == End::ready);
  }
  std::uint64_t ready = 0;
  for (std::uint64_t file = 0; file < count; ++file) {
    if (file % 500 == 499) std::cout << "." << std::flush;
    Random random(Key(testing::seed()).fold("train's configs").fold(file).bits());
    std::string text = samples[below(random, samples.size())];
    for (std::size_t changes = 1 + below(random, 6); changes > 0; --changes) {
      text = changed(std::move(text), samples, random);
    }
    if (below(random, 3) == 0) text = spoilt(std::move(text), samples, random);
    const std::clock_t begin = std::clock();
    try {
      // Of each anew: oneDNN keeps the code that it makes for a shape.
      const AddressLimit limit(kMostMemory);
      if (dry_run(text) == End::ready) ++ready;
    } catch (const std::exception& error) {
      FAIL_CHECK("config " << file << ": " << error.what() << "\n" << text);
    }
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    if (seconds > kMostSeconds) {
      FAIL_CHECK("config " << file << " took " << seconds << " s:\n" << text);
    }
  }
  INFO(ready << " of " << count << " were jobs");
  CHECK(ready > 0);
  CHECK(ready < count);
}

}  // namespace lockstep
