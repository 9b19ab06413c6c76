#include "trainers/commands/given_files.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

#include <ATen/ops/cat.h>

#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/formats/folder_entries.h"
#include "trainers/commands/shown_data.h"

namespace lockstep {
namespace {

// The samples of one path.
struct Given {
  std::string path;
  std::shared_ptr<const Dataset> set;
  std::vector<std::size_t> columns = {};  // the places of the columns that all have
};

// One behind another.
class GivenSet final : public Dataset {
 public:
  explicit GivenSet(std::vector<Given> given) : given_(std::move(given)) {
    for (const Given& each : given_) {
      ends_.push_back((ends_.empty() ? 0 : ends_.back()) + each.set->size());
    }
    columns_ = filtered(given_[0].set->columns(), [&](const std::string& name) {
      return std::ranges::all_of(given_, [&](const Given& each) {
        return std::ranges::count(each.set->columns(), name) > 0;
      });
    });
    for (Given& each : given_) {
      const std::vector<std::string> own = each.set->columns();
      each.columns = mapped(columns_, [&](const std::string& name) {
        return static_cast<std::size_t>(std::ranges::find(own, name) - own.begin());
      });
    }
  }

  [[nodiscard]] std::int64_t size() const override { return ends_.back(); }
  [[nodiscard]] SampleType type() const override { return given_[0].set->type(); }
  [[nodiscard]] std::vector<std::string> class_names() const override {
    return given_[0].set->class_names();
  }
  [[nodiscard]] bool is_slow() const override { return given_[0].set->is_slow(); }
  [[nodiscard]] bool has_targets() const override {
    return std::ranges::all_of(given_, [](const Given& each) { return each.set->has_targets(); });
  }
  [[nodiscard]] std::optional<std::int64_t> label(std::int64_t index) const override {
    const auto [each, own] = find(index);
    return each.set->label(own);
  }
  [[nodiscard]] std::string sample_name(std::int64_t index) const override {
    const auto [each, own] = find(index);
    const std::string name = each.set->sample_name(own);
    if (name.empty()) return each.path;
    // That of a picture is its path in the folder, or its name alone.
    std::error_code error;
    const bool is_folder = std::filesystem::is_directory(each.path, error);
    return is_folder ? formats::path_in(each.path, name) : each.path;
  }
  [[nodiscard]] std::vector<std::string> columns() const override { return columns_; }
  [[nodiscard]] std::string text(std::int64_t index, std::size_t column) const override {
    const auto [each, own] = find(index);
    return each.set->text(own, each.columns[column]);
  }

 private:
  struct Place {
    const Given& given;
    std::int64_t index;  // there
  };

  [[nodiscard]] Place find(std::int64_t index) const {
    const auto place = std::ranges::upper_bound(ends_, index) - ends_.begin();
    const Given& given = given_[static_cast<std::size_t>(place)];
    return {given, index - (ends_[static_cast<std::size_t>(place)] - given.set->size())};
  }

  // What follows one another in one of them is made together.
  [[nodiscard]] Batch gather(std::span<const std::int64_t> indices,
                             std::int64_t epoch) const override {
    std::vector<at::Tensor> inputs, targets;
    std::vector<std::int64_t> own;
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const auto [given, index] = find(indices[i]);
      own.push_back(index);
      if (i + 1 < indices.size() && &find(indices[i + 1]).given == &given) continue;
      const Batch part = given.set->batch(own, epoch);
      inputs.push_back(part.inputs);
      targets.push_back(part.targets);
      own.clear();
    }
    return inputs.empty() ? given_[0].set->batch({}, epoch)
                          : Batch{at::cat(inputs), at::cat(targets)};
  }

  std::vector<Given> given_;
  std::vector<std::int64_t> ends_;  // of each in all of them
  std::vector<std::string> columns_;
};

}  // namespace

std::shared_ptr<const Dataset> load_given(const keys::Picked& picked, const DataContext& context,
                                          const std::vector<std::string>& paths) {
  const DataKind& kind = data_registry().at(picked.name);
  require(kind.take_path != nullptr, "the data set ", picked.name,
          " reads no file that is named alone, such as '", cut(paths.at(0)),
          "': --split names one of its sets, and --set data.KEY=VALUE other data");
  std::vector<Given> given;
  for (const std::string& path : paths) {
    require<DataError>(formats::is_there(path), "there is no '", cut(path), "'");
    keys::Picked own = picked;
    kind.take_path(own, path);
    given.push_back({path, load_shown(own, context).test});
  }
  if (given.size() == 1 && given[0].set->sample_name(0).empty()) return given[0].set;
  return std::make_shared<const GivenSet>(std::move(given));
}

}  // namespace lockstep
