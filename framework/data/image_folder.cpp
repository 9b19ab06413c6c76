#include "framework/data/image_folder.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <set>
#include <span>
#include <system_error>
#include <utility>

#include "framework/base/logging.h"
#include "framework/base/text.h"
#include "framework/data/fingerprint.h"
#include "framework/formats/folder_entries.h"
#include "framework/formats/image.h"

namespace fs = std::filesystem;

namespace lockstep {
namespace {

constexpr std::int64_t kLongestSide = 10'000;

PictureForm complete(PictureForm form) {
  const bool is_gray = form.channels == 1;
  require(is_gray || form.channels == 3, "image_folder: channels is ", form.channels,
          ", but must be 1 or 3");
  require(
      std::min(form.height, form.width) >= 1 && std::max(form.height, form.width) <= kLongestSide,
      "image_folder: height and width are ", form.height, " and ", form.width,
      ", but must be 1 ... ", kLongestSide);
  using Values = std::vector<double>;
  if (form.mean.empty()) form.mean = is_gray ? Values{0.449} : Values{0.485, 0.456, 0.406};
  if (form.deviation.empty()) {
    form.deviation = is_gray ? Values{0.226} : Values{0.229, 0.224, 0.225};
  }
  const auto channels = static_cast<std::size_t>(form.channels);
  require(form.mean.size() == channels && form.deviation.size() == channels,
          "image_folder: data.mean and data.deviation must be one number a channel, but have ",
          form.mean.size(), " and ", form.deviation.size(), " for ",
          counted(form.channels, "channel"));
  return form;
}

// The middle of the picture, at the scale at which it just covers height x width.
formats::Image fitted(const formats::Image& image, const PictureForm& form) {
  const auto [height, width] = std::pair(form.height, form.width);
  const bool is_wide = image.width * height >= image.height * width;
  return formats::center_crop(
      formats::resize(image,
                      is_wide ? height : std::max(height, image.height * width / image.width),
                      is_wide ? std::max(width, image.width * height / image.height) : width),
      height, width, form.crop_rounding);
}

// Warns of the classes to train on that a set lacks: its figures say nothing of these.
void warn_of_lacking(const PictureFolder& set, const fs::path& folder) {
  const std::vector<std::string> lacking = set.classes_without_pictures();
  if (lacking.empty()) return;
  log_warning(str("image_folder: '", folder.string(), "' has no pictures of ", lacking.size(),
                  " of the ", counted(std::ssize(set.class_names()), "class", "classes"),
                  " to train on: ", shortened(join(lacking), 200)));
}

// DataSets::validation's folder, or none.
fs::path validation_folder(const fs::path& root) {
  const fs::path brief = root / "val";
  const fs::path full = root / "validation";
  if (!formats::is_there(full)) return brief;
  if (formats::is_there(brief)) {
    formats::fail_folder(root.string(), "it has both val and validation: keep one of them");
  }
  return full;
}

// Warns of the files that were passed over because they break `rule`.
void warn_of(const std::vector<std::string>& others, const std::string& root, const char* rule) {
  if (others.empty()) return;
  log_warning(str("image_folder: of '", root, "' ", counted(std::ssize(others), "file"),
                  others.size() == 1 ? " is" : " are", " passed over, such as '", others.front(),
                  "': ", rule));
}

bool has_class_folder(const std::vector<formats::FolderEntry>& entries,
                      const std::vector<std::string>& classes) {
  return std::ranges::any_of(entries, [&](const formats::FolderEntry& entry) {
    return entry.type == fs::file_type::directory && std::ranges::count(classes, entry.name) > 0;
  });
}

// Whether pictures in and below a folder are taken without classes. Says so where some have one.
bool has_bare_pictures(const fs::path& folder, const std::vector<std::string>& classes) {
  const auto entries = formats::entries_of(folder.string());
  const bool has_classes = has_class_folder(entries, classes);
  const bool has_pictures = std::ranges::any_of(entries, formats::is_picture);
  if (has_classes && has_pictures) {
    log_warning(str("image_folder: in '", folder.string(), "' pictures lie beside the classes' ",
                    "folders, so all are taken without targets"));
  }
  return has_pictures || !has_classes;
}

// Whether a folder has sets and nothing else, where `classes` are those trained on.
bool has_sets_alone(const fs::path& root, const std::vector<std::string>& classes) {
  const auto entries = formats::entries_of(root.string());
  bool is_any = false;
  for (const formats::FolderEntry& entry : entries) {
    if (formats::is_picture(entry)) return false;
    if (entry.type != fs::file_type::directory) continue;
    const bool is_set = entry.name == "train" || entry.name == "val" ||
                        entry.name == "validation" || entry.name == "test";
    if (!is_set || std::ranges::count(classes, entry.name) > 0) return false;
    is_any = true;
  }
  return is_any;
}

// The numbers of a set's pictures that are known to be damaged.
std::vector<std::int64_t> numbers_of(const PictureFolder& set, const LeftOut& damaged,
                                     const std::string& set_name) {
  const auto names = damaged.find(set_name);
  if (names == damaged.end()) return {};
  const std::set<std::string> wanted(names->second.begin(), names->second.end());
  return filtered(consecutive(std::int64_t{0}, set.size()),
                  [&](std::int64_t i) { return wanted.contains(set.sample_name(i)); });
}

// The numbers of a set's pictures that can't be decoded, with a warning that names some.
std::vector<std::int64_t> find_damaged_of(const PictureFolder& set, const fs::path& folder,
                                          const DamageSearch& search) {
  std::vector<std::int64_t> numbers;
  std::vector<std::string> names;
  find_damaged(set, search, [&](const DamagedSample& damaged) {
    numbers.push_back(damaged.index);
    names.push_back(set.sample_name(damaged.index));
  });
  if (!numbers.empty()) {
    log_warning(str("image_folder: of ", counted(set.size(), "picture"), " in '", folder.string(),
                    "' ", numbers.size(), numbers.size() == 1 ? " is" : " are",
                    " damaged and left out, as data.on_damaged: skip says: ", listed(names, 10),
                    "; the command check says what is wrong with each"));
  }
  return numbers;
}

keys::ConfigKeys image_folder_keys(ImageFolderOptions& options) {
  PictureForm& form = options.form;
  const auto side = keys::from_to<std::int64_t>(1, kLongestSide);
  keys::ConfigKeys keys{
      folder_key(options.root),
      {"height", number(form.height, side),
       "height in pixels to which pictures are scaled and cut"},
      {"width", number(form.width, side), "width in pixels to which pictures are scaled and cut"},
      {"channels",
       number(form.channels,
              keys::Rule<std::int64_t>{
                  "1 or 3", [](std::int64_t channels) { return channels == 1 || channels == 3; }}),
       "1: gray; 3: red, green and blue"},
      {"mean", keys::list(form.mean, keys::kPart),
       "of each channel, of pixels from 0 to 1; []: ImageNet's"},
      {"deviation", keys::list(form.deviation, keys::kPositive),
       "of each channel, of pixels from 0 to 1; []: ImageNet's"},
      {"exif", keys::flag(form.exif), "turn pictures upright, as their EXIF data say"},
      {"crop_rounding", keys::one_of(form.crop_rounding, {"even", "down"}),
       "where the middle begins that is half a pixel off: even as torchvision has it"},
      {"cache", keys::flag(form.cache), "keep decoded pictures in memory, in each process"},
      {"on_damaged",
       keys::one_of(options.on_damaged, {"stop", "skip"}),
       "pictures that can't be decoded: an error, or left out; skip decodes all once before a "
       "start",
       {.may_change = true}},
  };
  std::ranges::move(augmentation_keys(options.augmentation), std::back_inserter(keys));
  return keys;
}

}  // namespace

PictureFolder::PictureFolder(const std::string& root, const PictureForm& form,
                             Augmentation augmentation, std::uint64_t seed,
                             const std::vector<std::string>& classes,
                             const formats::OnDamage& on_damage)
    : PictureFolder(formats::ImageFolder(root, !classes.empty(), on_damage), form, augmentation,
                    seed, classes) {
  for (const std::string& name : folder_.classes()) {
    const auto found = std::ranges::find(classes_, name);
    if (found == classes_.end()) {
      formats::fail_folder(root, str("its class '", name, "' is none of those trained on: ",
                                     shortened(join(classes_), 200)));
    }
    numbers_.push_back(found - classes_.begin());
  }
  warn_of(folder_.passed_over(), root,
          "pictures end in .png, .jpg or .jpeg, and lie in a folder for each class");
}

PictureFolder::PictureFolder(formats::ImageFolder folder, const PictureForm& form,
                             Augmentation augmentation, std::uint64_t seed,
                             std::vector<std::string> classes)
    : folder_(std::move(folder)),
      form_(complete(form)),
      inputs_(form_.height, form_.width, form_.mean, form_.deviation, augmentation, seed),
      classes_(classes.empty() ? folder_.classes() : std::move(classes)),
      cache_(form_.cache ? static_cast<std::size_t>(folder_.size()) : 0) {}

std::shared_ptr<const PictureFolder> PictureFolder::without_targets(
    const std::string& root, const PictureForm& form, std::vector<std::string> classes) {
  const std::shared_ptr<const PictureFolder> made(new PictureFolder(
      formats::ImageFolder::without_classes(root), form, {}, 0, std::move(classes)));
  warn_of(made->folder_.passed_over(), root,
          "pictures end in .png, .jpg or .jpeg, and links to folders are not followed");
  return made;
}

PictureFolder::PictureFolder(const PictureFolder& whole, const std::vector<std::int64_t>& pictures)
    : folder_(whole.folder_),
      form_(whole.form_),
      inputs_(whole.inputs_),
      classes_(whole.classes_),
      numbers_(whole.numbers_) {
  for (const std::int64_t index : pictures) left_out_.push_back(folder_.name(index));
  folder_.leave_out(pictures);
  if (form_.cache) cache_.resize(static_cast<std::size_t>(folder_.size()));
}

std::shared_ptr<const PictureFolder> PictureFolder::without(
    const std::vector<std::int64_t>& pictures) const {
  require<DataError>(std::ssize(pictures) != size(), "all ", counted(size(), "picture"),
                     " are damaged, such as '", folder_.path(0), "'");
  return std::shared_ptr<const PictureFolder>(new PictureFolder(*this, pictures));
}

std::vector<std::string> PictureFolder::classes_without_pictures() const {
  std::vector<bool> has_pictures(classes_.size());
  for (std::int64_t i = 0; i < size() && has_targets(); ++i) {
    has_pictures[static_cast<std::size_t>(label(i).value())] = true;
  }
  std::vector<std::string> names;
  for (std::size_t number = 0; number < classes_.size(); ++number) {
    if (!has_pictures[number]) names.push_back(classes_[number]);
  }
  return names;
}

std::optional<std::int64_t> PictureFolder::label(std::int64_t index) const {
  if (!has_targets()) return std::nullopt;
  return numbers_[static_cast<std::size_t>(folder_.label(index))];
}

std::string PictureFolder::fingerprint() const {
  data::Fingerprint made(*this);
  for (std::int64_t i = 0; i < size(); ++i) {
    const fs::path picture = folder_.path(i);
    std::error_code error;
    made.add(folder_.label(i));
    made.add(picture.filename().string());
    made.add(static_cast<std::int64_t>(fs::file_size(picture, error)));
  }
  return made.text();
}

Batch PictureFolder::gather(std::span<const std::int64_t> indices, std::int64_t epoch) const {
  const std::int64_t values = type().input.values();
  Batch batch = empty_batch(type(), std::ssize(indices));
  float* input = batch.inputs.data_ptr<float>();
  std::int64_t* target = batch.targets.data_ptr<std::int64_t>();
  for (const std::int64_t index : indices) {
    if (form_.cache) {
      inputs_.write(cached(index).data(), index, epoch, input);
    } else {
      inputs_.write(decoded(index).data(), index, epoch, input);
    }
    input += values;
    *target++ = label(index).value_or(-1);
  }
  return batch;
}

PictureFolder::Pixels PictureFolder::decoded(std::int64_t index) const {
  const formats::Image image = fitted(
      formats::read_image(folder_.path(index), {.channels = form_.channels, .exif = form_.exif}),
      form_);
  Pixels planes;
  planes.reserve(image.pixels.size());
  const auto channels = static_cast<std::size_t>(form_.channels);
  for (std::size_t channel = 0; channel < channels; ++channel) {
    for (std::size_t i = channel; i < image.pixels.size(); i += channels) {
      planes.push_back(image.pixels[i]);
    }
  }
  return planes;
}

const PictureFolder::Pixels& PictureFolder::cached(std::int64_t index) const {
  const auto at = static_cast<std::size_t>(index);
  {
    const MutexLock lock(mutex_);
    if (!cache_[at].empty()) return cache_[at];
  }
  Pixels pixels = decoded(index);
  const MutexLock lock(mutex_);
  Pixels& kept = cache_[at];
  if (kept.empty()) kept = std::move(pixels);
  return kept;
}

DataSets load_image_folder(const ImageFolderOptions& options, const DataContext& context) {
  const PictureForm form = complete(options.form);
  const fs::path root(options.root);
  if (!options.given) {
    data::require_there(
        "image_folder", options.root,
        "data.root must be a folder with train/CLASS/PICTURE and perhaps the same in "
        "val/ and test/, or with CLASS/PICTURE; pictures are PNG or JPEG files");
  }
  const auto classes = context.fitted ? context.fitted->classes : std::vector<std::string>();
  using Set = std::shared_ptr<const PictureFolder>;
  auto known = classes;  // of every set, once there is one
  const auto set_of_all = [&](const fs::path& folder, Augmentation augmentation) -> Set {
    std::error_code error;
    if (!context.needs_targets && !classes.empty() &&
        (!fs::is_directory(folder, error) || has_bare_pictures(folder, classes))) {
      return PictureFolder::without_targets(folder.string(), form, classes);
    }
    PictureForm own = form;
    own.cache = form.cache && !context.on_damage;  // nothing is to be kept
    return std::make_shared<const PictureFolder>(folder.string(), own, augmentation, context.seed,
                                                 known, context.on_damage);
  };
  const auto set_in = [&](const std::string& name, const fs::path& folder,
                          Augmentation augmentation) -> Set {
    Set set = set_of_all(folder, augmentation);
    if (options.on_damaged == OnDamaged::stop || context.keeps_damaged) return set;
    const auto damaged = context.damaged ? numbers_of(*set, *context.damaged, name)
                                         : find_damaged_of(*set, folder, context.search);
    if (damaged.empty()) return set;
    set = set->without(damaged);
    if (const auto empty = set->classes_without_pictures(); known.empty() && !empty.empty()) {
      formats::fail_folder((folder / empty.front()).string(), "all its pictures are damaged");
    }
    return set;
  };
  DataSets sets{.notes = {str("pictures are scaled until they cover ", form.height, " x ",
                              form.width, " pixels, of which the middle is taken; ",
                              form.channels == 1 ? "gray" : "in colour"),
                          pixels_note(form.mean, form.deviation, options.augmentation)}};
  if (options.given) {
    load_wanted(context, context.wanted.test, sets.test,
                [&] { return set_in(kTestSet, *options.given, {}); });
    return sets;
  }
  const bool has_train = formats::is_there(root / "train");
  const bool needs_classes = context.needs_targets || classes.empty();
  const bool has_sets =
      (has_train && needs_classes) || (!classes.empty() && has_sets_alone(root, classes)) ||
      (has_train && has_class_folder(formats::entries_of((root / "train").string()), classes));
  Set train;
  if (context.wanted.train && (has_train || !has_sets)) {
    load_or_tell(context, [&] {
      train = set_in(kTrainSet, has_sets ? root / "train" : root, options.augmentation);
      known = train->class_names();
    });
  }
  const auto other = [&](const std::string& name, const fs::path& folder) -> Set {
    if (!formats::is_there(folder)) return nullptr;
    Set set = set_in(name, folder, {});
    if (train && set->has_targets()) warn_of_lacking(*set, folder);
    return set;
  };
  sets.train = train;
  load_wanted(context, has_sets && context.wanted.validation, sets.validation,
              [&] { return other(kValidationSet, validation_folder(root)); });
  load_wanted(context, has_sets && context.wanted.test, sets.test,
              [&] { return other(kTestSet, root / "test"); });
  return sets;
}

DataKind image_folder_kind() {
  DataKind kind =
      data_kind<ImageFolderOptions>("image_folder", "PNG and JPEG files in a folder for each class",
                                    image_folder_keys, load_image_folder);
  kind.sample = "picture";
  kind.take_path = [](keys::Picked& picked, const std::string& path) {
    picked.all.of<ImageFolderOptions>(picked.name).given = path;
  };
  return kind;
}

}  // namespace lockstep
