#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/data/damaged.h"
#include "framework/data/dataset.h"
#include "framework/data/fitted.h"
#include "framework/formats/data_file.h"
#include "framework/keys/choice.h"

namespace lockstep {

/// The three sets of a source. Training takes the first. Whatever is decided on the way (the best
/// checkpoint, an early end) is decided by the second, so that the third remains a test.
struct DataSets {
  std::shared_ptr<const Dataset> train = nullptr;       ///< null where it is not wanted
  std::shared_ptr<const Dataset> validation = nullptr;  ///< null also where the source has none
  std::shared_ptr<const Dataset> test = nullptr;        ///< null also where the source has none
  Fitted fitted = {};  ///< to the training set, or DataContext::fitted
  /// What the source has decided beside that, for people: a phrase each, as describe() shows them.
  std::vector<std::string> notes = {};
};

/// By what name commands, metrics and checkpoints call them.
inline const std::string kTrainSet = "train";
inline const std::string kValidationSet = "validation";
inline const std::string kTestSet = "test";

/// Those that are there with their names, in the order of DataSets.
[[nodiscard]] std::vector<std::pair<std::string, std::shared_ptr<const Dataset>>> named_sets(
    const DataSets& data);

/// Dataset::left_out() of those of named_sets(), by name.
using LeftOut = std::map<std::string, std::vector<std::string>>;
[[nodiscard]] LeftOut left_out_of(const DataSets& data);

/// The sets that a job takes.
struct WantedSets {
  bool train = true;
  bool validation = true;
  bool test = true;
};

/// What a job wants of its data, beside the options of the source.
struct DataContext {
  std::int64_t replicas = 1;
  std::uint64_t seed = 0;  ///< of augmentation and of the split
  /// What was fitted when the model was trained that is to see these samples: the source reads all
  /// sets by it. None: it is fitted to the training set.
  std::optional<Fitted> fitted = {};
  /// The target that does not count, if the loss has one: labels of this number are no mistakes.
  std::optional<std::int64_t> ignored = {};
  bool needs_targets = true;  ///< samples without targets, of which predictions take, are refused
  double validation = 0.0;    ///< the part of the training set that becomes the validation set, if
                              ///< the source has none
  /// Files of the other sets need not be there: a source opens only those of these sets. Without
  /// `fitted` the training set is among them.
  WantedSets wanted{};
  DamageSearch search{};  ///< how sources look for damaged files, where they do so beforehand
  /// What is damaged and to be left out: no more is looked for. None: nobody has looked yet.
  std::optional<LeftOut> damaged = {};
  /// Samples that are damaged stay, whatever the source's options say, so far as it can tell them
  /// from others: pictures, rows of tables, labels of arrays. For callers that go on where batch()
  /// throws a DataError.
  bool keeps_damaged = false;
  /// Sets of sources whose samples have Dataset::columns() have them, which takes memory.
  bool keeps_columns = false;
  /// Gets what is damaged in place of the one who loads, as far as a source can go on then; the
  /// sets are incomplete, or not there. For those who want to know all, and train on nothing.
  formats::OnDamage on_damage = {};
};

/// Calls `load`, which reads a set. Its DataError goes to `context.on_damage`, if that is there, as
/// does its ValueError: what does not suit this set may suit the others.
void load_or_tell(const DataContext& context, const std::function<void()>& load);

/// Sets `set`, if it is wanted, to what `load` returns; the rest as load_or_tell().
void load_wanted(const DataContext& context, bool is_wanted, std::shared_ptr<const Dataset>& set,
                 const std::function<std::shared_ptr<const Dataset>()>& load);

/// A source of data that a config can name, with its options' keys.
struct DataKind : keys::Choice {
  std::function<DataSets(const keys::Picked& picked, const DataContext& context)> load;
  bool splits = false;  ///< load() itself takes DataContext::validation off the training set
  std::string sample = "sample";  ///< what people call one of its samples: "row"
  /// Makes the file or folder at `path` the test set of `picked`, for predictions. None: the source
  /// reads no file alone.
  std::function<void(keys::Picked& picked, const std::string& path)> take_path = nullptr;
};

/// A DataKind from two functions of its options:
///
///   struct PointsOptions { std::int64_t count = 1000; };
///   register_data(data_kind<PointsOptions>("points", "points on a line",
///       [](PointsOptions& o) -> keys::ConfigKeys {
///         return {{"count", number(o.count, …), "how many"}};
///       },
///       [](const PointsOptions& o, const DataContext& context) -> DataSets { … }));
template <typename Options>
[[nodiscard]] DataKind data_kind(std::string name, std::string help,
                                 keys::ConfigKeys (*keys)(Options& options),
                                 DataSets (*load)(const Options& options,
                                                  const DataContext& context)) {
  return {keys::choice<Options>(std::move(name), std::move(help), keys),
          [load](const keys::Picked& picked, const DataContext& context) {
            return load(picked.options<Options>(), context);
          }};
}

/// A DataKind without options.
[[nodiscard]] inline DataKind data_kind(std::string name, std::string help,
                                        std::function<DataSets(const DataContext& context)> load) {
  return {keys::choice(std::move(name), std::move(help)),
          [load = std::move(load)](const keys::Picked& /*picked*/, const DataContext& context) {
            return load(context);
          }};
}

namespace data {

/// Advice on the files of sources that take any: configs/ names some that a machine may lack.
inline constexpr const char* kSeeConfigs =
    "; the head of a config in configs/ says where its data come from";

/// The samples of a training set of `size` that DataContext::validation takes, and the rest.
struct SplitRows {
  IndexList validation, rest;  ///< in the order of a permutation by the seed
};
/// ValueError where one of these would have none, and without the memory for them.
[[nodiscard]] SplitRows split_rows(std::int64_t size, const DataContext& context);

/// DataError if nothing is at `path`: which source misses it, and `advice` on getting or making it.
void require_there(const std::string& source, const std::string& path, const std::string& advice);

}  // namespace data

/// The key `root` of a source whose files are in a folder. Needed, if `folder` has no default.
[[nodiscard]] keys::ConfigKey folder_key(std::string& folder);
/// A key of a source whose value is a file's path. Needed, if `file` has no default.
[[nodiscard]] keys::ConfigKey file_key(const std::string& name, std::string& file,
                                       const std::string& help);
/// The same for a file that a source can do without: null for none.
[[nodiscard]] keys::ConfigKey file_key(const std::string& name, std::optional<std::string>& file,
                                       const std::string& help);

/// Lets configs name a source. Before they are read, for one thread: first thing in main(). A
/// ValueError for a name that is there already.
void register_data(DataKind kind);

/// All sources that are known.
[[nodiscard]] const keys::Registry<DataKind>& data_registry();

/// Loads the sets of `picked` that are wanted. ValueError for an unknown name, less than one
/// replica, a part for validation outside of [0, 1) or that leaves no sample on one side, and where
/// the training set is not wanted and nothing was fitted to one; DataError for files that are
/// missing or damaged, and for other classes than `context.fitted` has. The samples that are split
/// off are the first of a permutation by the seed. For those the training set is loaded, too, and
/// for the rest a validation set of the source's own.
[[nodiscard]] DataSets load_data(const keys::Picked& picked, const DataContext& context);

}  // namespace lockstep
