#include "framework/data/cifar10.h"

#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "framework/data/presence.h"
#include "framework/formats/cifar10.h"

namespace lockstep {
namespace {

// By channel, of the training set's pixels.
std::vector<double> cifar10_mean() {
  return {0.4914, 0.4822, 0.4465};
}
std::vector<double> cifar10_deviation() {
  return {0.2470, 0.2435, 0.2616};
}

Pictures load_cifar10(const std::string& root, Cifar10::Split split) {
  using File = formats::Cifar10;
  const bool is_train = split == Cifar10::Split::train;
  data::require_there(
      "cifar10", std::filesystem::path(root) / (is_train ? "data_batch_1.bin" : "test_batch.bin"),
      "data.root must be the folder cifar-10-batches-bin that cifar-10-binary.tar.gz has, the "
      "\"binary version\" from https://www.cs.toronto.edu/~kriz/cifar.html");
  const File file(root, is_train ? File::Split::train : File::Split::test);
  return {.channels = 3,
          .height = File::kSide,
          .width = File::kSide,
          .classes = File::kClasses,
          .pixels = {file.pixels().begin(), file.pixels().end()},
          .labels = {file.labels().begin(), file.labels().end()},
          .mean = cifar10_mean(),
          .deviation = cifar10_deviation(),
          .names = file.class_names()};
}

// All files that are damaged, where the context wants to know them.
void tell_damaged(const std::string& root, const DataContext& context) {
  using File = formats::Cifar10;
  if (!context.on_damage) return;
  for (const auto& [is_wanted, split] : {std::pair(context.wanted.train, File::Split::train),
                                         std::pair(context.wanted.test, File::Split::test)}) {
    if (!is_wanted) continue;
    load_or_tell(context, [&, which = split] { (void)File(root, which, context.on_damage); });
  }
}

}  // namespace

Cifar10::Cifar10(const std::string& root, Split split, Augmentation augmentation,
                 std::uint64_t seed)
    : PictureSet(load_cifar10(root, split), augmentation, seed) {}

DataKind cifar10_kind() {
  return data_kind<Cifar10Options>(
      "cifar10", "32 x 32 colour pictures of 10 kinds of things, 50000 and 10000",
      [](Cifar10Options& options) {
        keys::Keys keys{folder_key(options.root)};
        for (keys::Key& key : augmentation_keys(options.augmentation)) keys.push_back(key);
        return keys;
      },
      [](const Cifar10Options& options, const DataContext& context) {
        using Split = Cifar10::Split;
        DataSets sets;
        sets.notes = {pixels_note(cifar10_mean(), cifar10_deviation(), options.augmentation)};
        tell_damaged(options.root, context);
        if (context.wanted.train) {
          load_or_tell(context, [&] {
            sets.train = std::make_shared<const Cifar10>(options.root, Split::train,
                                                         options.augmentation, context.seed);
          });
        }
        if (context.wanted.test) {
          load_or_tell(context, [&] {
            sets.test = std::make_shared<const Cifar10>(options.root, Split::test);
          });
        }
        return sets;
      });
}

}  // namespace lockstep
