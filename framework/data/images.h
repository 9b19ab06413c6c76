#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/random.h"
#include "framework/data/data.h"
#include "framework/keys/key.h"

namespace lockstep {

/// How pictures differ from epoch to epoch, as is usual for small ones (He et al. 2015, 4.2).
struct Augmentation {
  /// Each picture is surrounded by so many black pixels, and a part of the old size is taken.
  std::int64_t crop = 0;
  bool flip = false;  ///< each picture is mirrored, left to right, or not
};

/// The keys of augmentation: `crop` and `flip`.
[[nodiscard]] keys::ConfigKeys augmentation_keys(Augmentation& augmentation);

/// Pictures of one size with a label each, in bytes.
struct Pictures {
  std::int64_t channels = 1;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t classes = 0;
  std::vector<std::uint8_t> pixels{};  ///< (size, channels, height, width)
  std::vector<std::int64_t> labels{};  ///< (size), each 0 … classes-1
  std::vector<double> mean{};          ///< by channel, of pixels scaled to 0 … 1 …
  std::vector<double> deviation{};     ///< … which are normalized by these
  std::vector<std::string> names{};    ///< of the classes; or none
};

/// What becomes of pixels, for DataSets::notes: "pixels are scaled to 0 … 1, then normalized by …".
[[nodiscard]] std::string pixels_note(const std::vector<double>& mean,
                                      const std::vector<double>& deviation,
                                      const Augmentation& augmentation);

/// How the bytes of a picture become inputs: augmented, scaled to 0 … 1 and normalized, (x - mean)
/// / deviation. Augmentation draws from keys (seed, epoch, picture).
class PictureInputs {
 public:
  /// `mean` and `deviation` are by channel. ValueError for a deviation of 0, and lists that are
  /// empty or of different sizes.
  PictureInputs(std::int64_t height, std::int64_t width, const std::vector<double>& mean,
                const std::vector<double>& deviation, Augmentation augmentation,
                std::uint64_t seed);

  /// `pixels` and what is written are (channels, height, width).
  void write(const std::uint8_t* pixels, std::int64_t picture, std::int64_t epoch,
             float* into) const;

 private:
  std::int64_t height_;
  std::int64_t width_;
  Augmentation augmentation_;
  Key key_;
  std::vector<std::array<float, 256>> table_;  // by channel: the value of each byte
};

/// Pictures that are held in memory, as bytes. Inputs are as PictureInputs makes them.
class PictureSet : public Dataset {
 public:
  /// ValueError for sizes that do not fit together, labels out of range and a deviation of 0.
  explicit PictureSet(Pictures pictures, Augmentation augmentation = {}, std::uint64_t seed = 0);

  [[nodiscard]] std::int64_t size() const override { return std::ssize(pictures_.labels); }
  [[nodiscard]] SampleType type() const override {
    return class_sample({pictures_.channels, pictures_.height, pictures_.width}, pictures_.classes);
  }
  [[nodiscard]] std::vector<std::string> class_names() const override { return pictures_.names; }
  [[nodiscard]] std::optional<std::int64_t> label(std::int64_t index) const override {
    return pictures_.labels.at(static_cast<std::size_t>(index));
  }
  [[nodiscard]] std::string fingerprint() const override;

 private:
  [[nodiscard]] Batch gather(std::span<const std::int64_t> indices,
                             std::int64_t epoch) const override;

  Pictures pictures_;
  PictureInputs inputs_;
};

/// A source of a `Set` to train on and one to test with, of (root, split, augmentation, seed).
/// `Options` are root and augmentation. `tell` tells of all damaged files of one of them.
template <typename Set, typename Options>
[[nodiscard]] DataKind picture_kind(std::string name, std::string help,
                                    const std::vector<double>& mean,
                                    const std::vector<double>& deviation,
                                    void (*tell)(const std::string& root, typename Set::Split split,
                                                 const formats::OnDamage& damage)) {
  const auto keys_of = [](Options& options) {
    keys::ConfigKeys keys = augmentation_keys(options.augmentation);
    keys.insert(keys.begin(), folder_key(options.root));
    return keys;
  };
  const auto load = [=](const keys::Picked& picked, const DataContext& context) {
    using Split = typename Set::Split;
    const auto options = picked.options<Options>();
    DataSets sets{.notes = {pixels_note(mean, deviation, options.augmentation)}};
    const auto tell_of = [&](bool is_wanted, Split split) {
      if (!is_wanted || !context.on_damage) return;
      load_or_tell(context, [&] { tell(options.root, split, context.on_damage); });
    };
    tell_of(context.wanted.train, Split::train);
    tell_of(context.wanted.test, Split::test);
    load_wanted(context, context.wanted.train, sets.train, [&] {
      return std::make_shared<const Set>(options.root, Split::train, options.augmentation,
                                         context.seed);
    });
    load_wanted(context, context.wanted.test, sets.test,
                [&] { return std::make_shared<const Set>(options.root, Split::test); });
    return sets;
  };
  DataKind kind{keys::choice<Options>(std::move(name), std::move(help), keys_of), load};
  kind.sample = "picture";
  return kind;
}

}  // namespace lockstep
