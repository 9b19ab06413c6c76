#include <array>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/random.h"
#include "framework/base/text.h"
#include "framework/keys/choice.h"
#include "framework/keys/key_table.h"
#include "tests/catch.h"
#include "tests/support/allocated_bytes.h"
#include "tests/support/damage.h"
#include "tests/support/settings.h"

namespace lockstep::keys {
namespace {

using testing::below;
using testing::Random;

struct Net {
  std::vector<std::int64_t> hidden{3};
  bool recompute = false;
};
struct Tree {
  double depth = 1;
  std::optional<std::string> file;
};
struct Group {
  std::string pattern = "x";
  std::optional<double> decay;
};

ConfigKeys keys_of_group(Group& group) {
  return {{"pattern", text(group.pattern, of_length("a pattern", 100)), "", {.required = true}},
          {"decay", number_or_null(group.decay, at_least(0.0)), ""}};
}

// Values of every kind that a key may have, as train's config has them.
struct FuzzedConfig {
  Picked model{"net"};
  std::int64_t batch = 4;
  std::uint64_t seed = 0;
  int stage = 0;
  double lr = 0.1;
  std::array<double, 2> betas{0.9, 0.99};
  std::vector<double> weights;
  std::vector<std::string> names;
  std::optional<double> bucket;
  std::optional<std::int64_t> epochs = 1, steps, threads;
  std::chrono::milliseconds timeout{1000};
  std::string save = "state";
  std::vector<Group> groups;
};

std::vector<Section> fuzzed_table(FuzzedConfig& config) {
  const auto any = at_least(0.0);
  const auto natural = at_least<std::int64_t>(1);
  Section model{"model",
                {{"name", one_of(config.model.name, {"net", "tree"}), "", {.required = true}}}};
  add_choices(model, config.model.all,
              {choice<Net>("net", "",
                           [](Net& net) -> ConfigKeys {
                             return {{"hidden", list(net.hidden, at_least<std::int64_t>(1)), ""},
                                     {"recompute", flag(net.recompute), ""}};
                           }),
               choice<Tree>("tree", "", [](Tree& tree) -> ConfigKeys {
                 return {{"depth", number(tree.depth, at_least(0.0)), ""},
                         {"file", text_or_null(tree.file, of_length("a path", 50)), ""}};
               })});
  return {model,
          {"save", {{"what", one_of(config.save, {"state", "none"}), "", {.is_short_form = true}}}},
          {"rest",
           {{"batch", number(config.batch, natural), ""},
            {"seed", number(config.seed, at_least<std::uint64_t>(0)), ""},
            {"stage", number(config.stage, from_to(0, 3)), ""},
            {"lr", number(config.lr, greater_than(0.0)), ""},
            {"betas", list(config.betas, any), ""},
            {"weights", list(config.weights, any), ""},
            {"names", list(config.names, of_length("a name", 20)), ""},
            {"bucket", number_or_auto(config.bucket, any), ""},
            {"epochs", number_instead(config.epochs, natural), "", {.instead_of = {"steps"}}},
            {"steps", number_instead(config.steps, natural), "", {.instead_of = {"epochs"}}},
            {"threads", number_or_auto(config.threads, natural), ""},
            {"timeout", seconds(config.timeout, from_to(0.001, 1e6)), ""},
            {"groups", maps(config.groups, keys_of_group), ""}}}};
}

const std::vector<std::string> kSamples{
    "model: {name: net, hidden: [7, 8], recompute: true}\nsave: none\n"
    "rest: {batch: 32, lr: 1.0e-3, betas: [0.8, 0.99], timeout: 2.5, stage: 2}\n",
    "# a comment\nmodel:\n  name: tree\n  depth: 2.5\n  file: \"a \\x41 b\"\nrest:\n  steps: 100\n"
    "  groups:\n    - {pattern: '*.bias', decay: 0}\n    - {pattern: b, decay: null}\n"
    "  names: [a, 'b c']\n",
    "model: &m {name: net}\nrest: {seed: 18446744073709551615, bucket: auto, weights: [&w 1, "
    "*w]}\n",
    "model: {name: net}\nrest:\n  names:\n  - |\n    text\n  - >-\n    folded\n  epochs: 3\n"};

// Reads the text. False if it is refused; throws a logic_error if what was read is not consistent.
bool read_fuzzed(const std::string& text) {
  FuzzedConfig config;
  try {
    (void)read_keys(text, "fuzz.yaml", fuzzed_table(config));
  } catch (const ValueError& error) {
    if (std::string(error.what()).empty()) throw std::logic_error("an error without words");
    return false;
  }
  const std::string printed = keys_text(fuzzed_table(config));
  FuzzedConfig again;
  (void)read_keys(printed, "again.yaml", fuzzed_table(again));
  if (keys_text(fuzzed_table(again)) != printed) {
    throw std::logic_error("what is printed reads as something else");
  }
  return true;
}

}  // namespace

TEST_CASE("a damaged config is refused in words, or read as what its print says", "[fuzz][bulk]") {
  std::cout << "damaged configs: LOCKSTEP_SEED=" << testing::seed()
            << " LOCKSTEP_FUZZ=" << testing::fuzzed_files() << std::endl;
  for (const std::string& sample : kSamples) CHECK(read_fuzzed(sample));
  std::uint64_t read = 0;
  for (std::uint64_t file = 0; file < testing::fuzzed_files(); ++file) {
    Random random(lockstep::Key(testing::seed()).fold("configs").fold(file).bits());
    std::string text = kSamples[below(random, kSamples.size())];
    for (std::size_t damages = 1 + below(random, 3); damages > 0; --damages) {
      text = testing::damaged(std::move(text), kSamples, random);
    }
    const std::uint64_t before = testing::allocated_bytes();
    try {
      read += read_fuzzed(text) ? 1 : 0;
    } catch (const std::exception& error) {
      FAIL_CHECK("config " << file << ": " << error.what() << "\n" << text);
    }
    const std::uint64_t allocated = testing::allocated_bytes() - before;
    if (allocated > 3'000'000 + 20'000 * text.size()) {
      FAIL_CHECK("config " << file << " took " << allocated << " bytes:\n" << text);
    }
  }
  INFO(read << " of " << testing::fuzzed_files() << " were read");
  CHECK(read > testing::fuzzed_files() / 200);
  CHECK(read < testing::fuzzed_files());
}

}  // namespace lockstep::keys
