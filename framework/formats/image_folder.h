#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/formats/data_file.h"
#include "framework/formats/folder_entries.h"

namespace lockstep::formats {

/// Whether a file is a picture by its name, which ends in .png, .jpg or .jpeg, in any case.
[[nodiscard]] bool is_picture(const FolderEntry& file);

/// Pictures that lie in a folder for each class: root/CLASS/NAME with an ending of .png, .jpg or
/// .jpeg in upper or lower case. Only names are read here; see read_image(). Classes are sorted by
/// name, pictures by class and then name, byte by byte: alike on every machine.
///
/// Passed over are names that begin with a dot, and files of other kinds: the latter are listed, so
/// that callers can tell of them. Links count as what they lead to. A picture's name counts as one
/// whatever has it: a link to nothing, say, or a folder, shows when the picture is read. DataError,
/// naming file or folder, for a root without classes or pictures, classes that differ by blanks at
/// their ends alone, a class without pictures unless classes `may_be_empty`, another folder inside
/// a class, whose pictures would be missed, and folders that can't be read. Any thread.
class ImageFolder {
 public:
  /// What breaks these rules in a class goes to `on_damage`, if that is there, and is left out.
  explicit ImageFolder(const std::string& root, bool may_be_empty = false,
                       const OnDamage& on_damage = {});

  /// Pictures that have no classes, in root and all folders below it, sorted by their paths there,
  /// byte by byte; or root alone, whatever its name, if that is there and no folder. The rest is as
  /// above, but DataError for a root without pictures, and links to folders are passed over, since
  /// they may lead back.
  [[nodiscard]] static ImageFolder without_classes(const std::string& root);

  [[nodiscard]] const std::vector<std::string>& classes() const noexcept { return classes_; }
  [[nodiscard]] std::int64_t size() const noexcept { return std::ssize(pictures_); }

  /// Of picture `index`, which is 0 … size() - 1; otherwise ValueError.
  [[nodiscard]] std::string path(std::int64_t index) const { return path_in(root_, name(index)); }
  /// Its path in root: "cat/1.png".
  [[nodiscard]] const std::string& name(std::int64_t index) const { return picture(index).name; }
  /// The place of its class in classes(); -1 without classes.
  [[nodiscard]] std::int64_t label(std::int64_t index) const { return picture(index).label; }

  /// Takes the pictures with these numbers out; the others keep their order.
  void leave_out(const std::vector<std::int64_t>& pictures);

  /// Paths of files that are no pictures by their names, sorted; with classes all files in root,
  /// without them also links to folders.
  [[nodiscard]] const std::vector<std::string>& passed_over() const noexcept {
    return passed_over_;
  }

 private:
  struct Picture {
    std::string name;  // its path in root
    std::int64_t label;
  };

  ImageFolder() = default;
  void read_class(const std::string& name, bool may_be_empty, const OnDamage& on_damage);
  // A file by its path in root.
  void add(const std::string& name, std::int64_t label);
  [[nodiscard]] const Picture& picture(std::int64_t index) const;

  std::string root_;
  std::vector<std::string> classes_;
  std::vector<Picture> pictures_;
  std::vector<std::string> passed_over_;
};

}  // namespace lockstep::formats
