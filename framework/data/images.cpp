#include "framework/data/images.h"

#include <algorithm>
#include <cstddef>

#include "framework/base/text.h"
#include "framework/data/fingerprint.h"

namespace lockstep {
namespace {

// How one picture is augmented.
struct Change {
  std::int64_t down = 0;  // where the part begins that is taken, from the picture's own corner
  std::int64_t right = 0;
  bool is_mirrored = false;
};

Change draw_change(const Augmentation& augmentation, const Key& key) {
  Change change;
  const auto positions = static_cast<std::uint64_t>(2 * augmentation.crop + 1);
  change.down = static_cast<std::int64_t>(key.draw(0) % positions) - augmentation.crop;
  change.right = static_cast<std::int64_t>(key.draw(1) % positions) - augmentation.crop;
  change.is_mirrored = augmentation.flip && (key.draw(2) & 1) != 0;
  return change;
}

// A row of `width` pixels of `row`, which is nullptr outside of the picture.
void write_row(const std::uint8_t* row, std::int64_t width, const Change& change,
               const std::array<float, 256>& table, float* into) {
  const std::int64_t first = std::clamp<std::int64_t>(-change.right, 0, width);
  const std::int64_t last = std::clamp<std::int64_t>(width - change.right, first, width);
  if (row == nullptr) {
    std::fill_n(into, width, table[0]);
    return;
  }
  std::fill(into, into + first, table[0]);
  for (std::int64_t x = first; x < last; ++x) into[x] = table[row[x + change.right]];
  std::fill(into + last, into + width, table[0]);
  if (change.is_mirrored) std::reverse(into, into + width);
}

}  // namespace

keys::ConfigKeys augmentation_keys(Augmentation& augmentation) {
  return {
      {"crop", number(augmentation.crop, keys::from_to<std::int64_t>(0, 1000)),
       "training pictures are shifted at random by up to so many pixels"},
      {"flip", keys::flag(augmentation.flip), "training pictures are mirrored at random"},
  };
}

std::string pixels_note(const std::vector<double>& mean, const std::vector<double>& deviation,
                        const Augmentation& augmentation) {
  std::string note = str("pixels are scaled to 0 ... 1, then normalized by mean ", join(mean),
                         " and deviation ", join(deviation));
  std::vector<std::string> changes;
  if (augmentation.crop > 0) {
    changes.push_back(str("shifted by up to ", counted(augmentation.crop, "pixel")));
  }
  if (augmentation.flip) changes.emplace_back("mirrored");
  if (!changes.empty()) {
    note += str("; training pictures are ", join(changes, " and "), ", at random");
  }
  return note;
}

PictureInputs::PictureInputs(std::int64_t height, std::int64_t width,
                             const std::vector<double>& mean, const std::vector<double>& deviation,
                             Augmentation augmentation, std::uint64_t seed)
    : height_(height),
      width_(width),
      augmentation_(augmentation),
      key_(Key(seed).fold("augmentation")) {
  require(!mean.empty() && mean.size() == deviation.size() && !std::ranges::count(deviation, 0.0),
          "pictures: a mean and a deviation other than 0 are needed for each channel, but these "
          "are [",
          join(mean), "] and [", join(deviation), "]");
  require_at_least(0, "pictures: crop", augmentation.crop);
  for (std::size_t channel = 0; channel < mean.size(); ++channel) {
    std::array<float, 256>& table = table_.emplace_back();
    for (std::size_t value = 0; value < table.size(); ++value) {
      table[value] = static_cast<float>((static_cast<double>(value) / 255.0 - mean[channel]) /
                                        deviation[channel]);
    }
  }
}

void PictureInputs::write(const std::uint8_t* pixels, std::int64_t picture, std::int64_t epoch,
                          float* into) const {
  Change change;
  if (epoch != kUnaugmented && (augmentation_.crop > 0 || augmentation_.flip)) {
    change = draw_change(augmentation_, key_.fold(epoch).fold(picture));
  }
  for (const auto& table : table_) {
    for (std::int64_t y = 0; y < height_; ++y, into += width_) {
      const std::int64_t from = y + change.down;
      const bool is_inside = from >= 0 && from < height_;
      write_row(is_inside ? pixels + from * width_ : nullptr, width_, change, table, into);
    }
    pixels += height_ * width_;
  }
}

PictureSet::PictureSet(Pictures pictures, Augmentation augmentation, std::uint64_t seed)
    : pictures_(std::move(pictures)),
      inputs_(pictures_.height, pictures_.width, pictures_.mean, pictures_.deviation, augmentation,
              seed) {
  const auto pixels = pictures_.channels * pictures_.height * pictures_.width;
  require(pictures_.channels >= 1 && pixels >= 1 &&
              std::ssize(pictures_.pixels) == pixels * std::ssize(pictures_.labels),
          "pictures: ", pictures_.pixels.size(), " bytes are not ", pictures_.labels.size(),
          " pictures of ", pictures_.channels, " x ", pictures_.height, " x ", pictures_.width);
  require(pictures_.names.empty() || std::ssize(pictures_.names) == pictures_.classes,
          "pictures: there are ", counted(std::ssize(pictures_.names), "name"), " for ",
          counted(pictures_.classes, "class", "classes"));
  require(std::ssize(pictures_.mean) == pictures_.channels, "pictures: there are ",
          counted(std::ssize(pictures_.mean), "mean"), " for ",
          counted(pictures_.channels, "channel"));
  for (const std::int64_t label : pictures_.labels) {
    require(label >= 0 && label < pictures_.classes, "pictures: label ", label,
            " is outside 0 ... ", pictures_.classes - 1);
  }
}

std::string PictureSet::fingerprint() const {
  data::Fingerprint made(*this);
  made.add({reinterpret_cast<const char*>(pictures_.pixels.data()), pictures_.pixels.size()});
  for (const std::int64_t label : pictures_.labels) made.add(label);
  return made.text();
}

Batch PictureSet::gather(std::span<const std::int64_t> indices, std::int64_t epoch) const {
  const std::int64_t pixels = type().input.values();
  Batch batch = empty_batch(type(), std::ssize(indices));
  float* input = batch.inputs.data_ptr<float>();
  std::int64_t* target = batch.targets.data_ptr<std::int64_t>();
  for (const std::int64_t index : indices) {
    inputs_.write(pictures_.pixels.data() + index * pixels, index, epoch, input);
    input += pixels;
    *target++ = pictures_.labels[static_cast<std::size_t>(index)];
  }
  return batch;
}

}  // namespace lockstep
