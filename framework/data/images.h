#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/random.h"
#include "framework/data/dataset.h"
#include "framework/keys/key.h"

namespace lockstep {

/// How pictures differ from epoch to epoch, as is usual for small ones (He et al. 2015, 4.2).
struct Augmentation {
  /// Each picture is surrounded by so many black pixels, and a part of the old size is taken.
  std::int64_t crop = 0;
  bool flip = false;  ///< each picture is mirrored, left to right, or not
};

/// The keys of augmentation: `crop` and `flip`.
[[nodiscard]] keys::Keys augmentation_keys(Augmentation& augmentation);

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

/// Pictures that are held in memory, as bytes. Inputs are float32 (channels, height, width), as
/// PictureInputs makes them.
class PictureSet : public Dataset {
 public:
  /// ValueError for sizes that do not fit together, labels out of range and a deviation of 0.
  explicit PictureSet(Pictures pictures, Augmentation augmentation = {}, std::uint64_t seed = 0);

  [[nodiscard]] std::int64_t size() const override { return std::ssize(pictures_.labels); }
  [[nodiscard]] SampleType type() const override;
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

}  // namespace lockstep
