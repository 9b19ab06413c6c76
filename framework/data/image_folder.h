#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/mutex.h"
#include "framework/data/data.h"
#include "framework/data/images.h"
#include "framework/formats/image_folder.h"
#include "framework/formats/resize.h"

namespace lockstep {

/// How the pictures of a folder become inputs.
struct PictureForm {
  std::int64_t height = 224;
  std::int64_t width = 224;
  std::int64_t channels = 3;  ///< 1 or 3, whatever the files have
  /// By channel, of pixels scaled to 0 … 1. None: ImageNet's, for gray pictures 0.449 and 0.226.
  std::vector<double> mean{};
  std::vector<double> deviation{};
  bool exif = true;  ///< turn pictures upright, as their EXIF data say
  formats::CropRounding crop_rounding = formats::CropRounding::even;
  bool cache = false;  ///< a process keeps the pictures that it has decoded, resized, as bytes
};

/// Pictures in a folder for each class (formats::ImageFolder), decoded by batch(). A picture is
/// scaled until it just covers height x width, its sides in proportion, and its middle is taken
/// (torchvision's Resize and CenterCrop). Inputs are as PictureInputs makes them.
///
/// A file that can't be decoded is a DataError of batch(), which names it.
class PictureFolder final : public Dataset {
 public:
  /// Reads names alone. `classes` are those that there may be, by number, some without a folder or
  /// pictures; none: the folder's, in the order of their names. ValueError for a form that is not
  /// as above, DataError for a class that there may not be. `on_damage` is ImageFolder's.
  PictureFolder(const std::string& root, const PictureForm& form, Augmentation augmentation = {},
                std::uint64_t seed = 0, const std::vector<std::string>& classes = {},
                const formats::OnDamage& on_damage = {});

  /// The pictures in and below a folder, or one picture that is no folder, as samples without
  /// targets, of models of `classes`.
  [[nodiscard]] static std::shared_ptr<const PictureFolder> without_targets(
      const std::string& root, const PictureForm& form, std::vector<std::string> classes);

  /// This set without the pictures with these numbers, whose names are left_out() then. Nothing of
  /// the rest is cached yet. DataError if none is left.
  [[nodiscard]] std::shared_ptr<const PictureFolder> without(
      const std::vector<std::int64_t>& pictures) const;

  [[nodiscard]] std::int64_t size() const override { return folder_.size(); }
  [[nodiscard]] SampleType type() const override {
    return class_sample({form_.channels, form_.height, form_.width}, std::ssize(classes_));
  }
  [[nodiscard]] bool is_slow() const override { return true; }

  [[nodiscard]] bool has_targets() const override { return !folder_.classes().empty(); }
  [[nodiscard]] std::optional<std::int64_t> label(std::int64_t index) const override;
  /// Its path in the folder.
  [[nodiscard]] std::string sample_name(std::int64_t index) const override {
    return folder_.name(index);
  }
  /// In the order of the classes' numbers.
  [[nodiscard]] std::vector<std::string> class_names() const override { return classes_; }
  /// Those that have no picture here.
  [[nodiscard]] std::vector<std::string> classes_without_pictures() const;
  [[nodiscard]] std::vector<std::string> left_out() const override { return left_out_; }
  /// Of names and sizes of files.
  [[nodiscard]] std::string fingerprint() const override;

 private:
  using Pixels = std::vector<std::uint8_t>;  // (channels, height, width)

  PictureFolder(formats::ImageFolder folder, const PictureForm& form, Augmentation augmentation,
                std::uint64_t seed, std::vector<std::string> classes);
  PictureFolder(const PictureFolder& whole, const std::vector<std::int64_t>& pictures);
  [[nodiscard]] Batch gather(std::span<const std::int64_t> indices,
                             std::int64_t epoch) const override;
  [[nodiscard]] Pixels decoded(std::int64_t index) const;
  [[nodiscard]] const Pixels& cached(std::int64_t index) const;

  formats::ImageFolder folder_;
  PictureForm form_;
  PictureInputs inputs_;
  std::vector<std::string> classes_;
  std::vector<std::int64_t> numbers_;  // of the folder's classes
  std::vector<std::string> left_out_;
  mutable Mutex mutex_;
  mutable std::vector<Pixels> cache_ LOCKSTEP_GUARDED_BY(mutex_);  // what is there stays as it is
};

/// What becomes of pictures that can't be decoded.
enum class OnDamaged {
  stop,  ///< batch() throws the DataError
  skip,  ///< all are decoded once when the set is loaded, and the damaged ones are left out
};

struct ImageFolderOptions {
  std::string root{};
  PictureForm form{};
  Augmentation augmentation{};
  OnDamaged on_damaged = OnDamaged::stop;
  /// A picture, or a folder, that is the test set: nothing is looked for in root. No key.
  std::optional<std::string> given{};
};

/// The sets in a folder: root/train, perhaps root/val or root/validation, and perhaps root/test,
/// each with CLASS/PICTURE. Without root/train its folders are classes, all to train on. The
/// classes are root/train's: other sets may lack some, with a warning, and others are a DataError,
/// as is both val and validation. Other files are passed over with a warning.
///
/// With `context.fitted` the classes are its own, for all sets. A root that has nothing but folders
/// of sets needs no root/train then. Where `context.needs_targets` is not set, a root with other
/// pictures or folders has sets only if root/train has a folder of a class. A set's folder, or a
/// root without sets, may then also have pictures in itself, or folders of which none is a class:
/// all pictures in and below it are taken, without targets, with a warning where some have a
/// class's folder.
///
/// With OnDamaged::skip a warning counts the pictures that are left out and names the first ten.
/// DataError where none is left, and, in root/train without `context.fitted`, where none of a class
/// is left.
[[nodiscard]] DataSets load_image_folder(const ImageFolderOptions& options,
                                         const DataContext& context = {});

/// For the registry.
[[nodiscard]] DataKind image_folder_kind();

}  // namespace lockstep
