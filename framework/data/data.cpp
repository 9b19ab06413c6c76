#include "framework/data/data.h"

#include <climits>
#include <cmath>

#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/memory.h"
#include "framework/base/random.h"
#include "framework/base/text.h"
#include "framework/data/cifar10.h"
#include "framework/data/csv.h"
#include "framework/data/fashion_mnist.h"
#include "framework/data/image_folder.h"
#include "framework/data/npy.h"
#include "framework/data/synthetic.h"
#include "framework/data/tensor_set.h"
#include "framework/data/text.h"
#include "framework/tree/error_place.h"

namespace lockstep {
namespace {

class PmeanExample final : public TensorSet {
 public:
  explicit PmeanExample(const Batch& all)
      : TensorSet(all.inputs, all.targets, value_sample({1}, 1)) {}

  // Another number of replicas is another number of samples, on which a run may go on.
  std::string fingerprint() const override { return "4 samples a replica"; }
};

// Four samples a replica: inputs x = 0, 1, …, 4·replicas-1, targets 2x + 0.5. Taken in order and
// cut over the replicas, replica r has 4r … 4r+3.
DataSets load_pmean_example(const DataContext& context) {
  // 2x + 0.5 is exact in float32's 24 bits up to x = 2^22 - 1.
  constexpr std::int64_t kMostReplicas = std::int64_t{1} << 20;
  require(context.replicas <= kMostReplicas, "pmean_example: replicas is ", context.replicas,
          ", but must be 1 ... ", kMostReplicas);
  const Batch all = empty_batch(value_sample({1}, 1), 4 * context.replicas);
  for (std::int64_t i = 0; i < all.inputs.size(0); ++i) {
    const auto x = static_cast<float>(i);
    all.inputs.data_ptr<float>()[i] = x;
    all.targets.data_ptr<float>()[i] = 2 * x + 0.5F;
  }
  return {.train = std::make_shared<const PmeanExample>(all)};
}

const keys::Rule<std::string> kPath = keys::of_length("a path", PATH_MAX - 1);

keys::KeyTraits of_place(bool is_required) {
  return {.required = is_required, .may_change = true, .is_place = true};
}

// Takes a part of the training set away, for validation.
void split_off(DataSets& sets, const DataContext& context) {
  auto [validation, rest] = data::split_rows(sets.train->size(), context);
  sets.validation = std::make_shared<const Subset>(sets.train, std::move(validation));
  rest.sort();  // in the source's order where samples are not shuffled
  sets.train = std::make_shared<const Subset>(sets.train, std::move(rest));
}

// Takes a part of the training set of `kind` away where the job wants that. Whether it does is up
// to the source's own validation set, so that is loaded first.
DataSets load_split(const DataKind& kind, const keys::Picked& picked, const DataContext& context) {
  DataContext own = context;
  own.wanted.validation = context.wanted.validation || context.wanted.train;
  DataSets sets = kind.load(picked, own);
  if (!own.wanted.validation) return sets;
  if (sets.validation) {
    log_info(
        str("data.validation takes nothing: ", picked.name, " has a validation set of its own"));
    return sets;
  }
  if (!sets.train && !own.wanted.train) {
    own.wanted = {.train = true, .validation = false, .test = false};
    sets.train = kind.load(picked, own).train;
  }
  if (!sets.train && context.on_damage) return sets;
  load_or_tell(context, [&] { split_off(sets, context); });
  return sets;
}

// DataError if the set has other classes than those of `fitted`. A set may not know their names.
void check_classes(const std::string& set_name, const Dataset& set, const Fitted& fitted) {
  const std::vector<std::string> own = set.class_names();
  const std::int64_t count = set.type().classes;
  const bool has_others = !own.empty() && !fitted.classes.empty() && own != fitted.classes;
  if (count == fitted.class_count && !has_others) return;
  const auto described = [](std::int64_t classes, const std::vector<std::string>& names) {
    if (classes == 0) return std::string("values to predict");
    return str(counted(classes, "class", "classes"),
               names.empty() ? "" : str(" (", shortened(join(names), 200), ")"));
  };
  throw DataError(
      str(set_name, " has ", described(count, own),
          ", but must have those trained on: ", described(fitted.class_count, fitted.classes)));
}

}  // namespace

std::vector<std::pair<std::string, std::shared_ptr<const Dataset>>> named_sets(
    const DataSets& data) {
  std::vector<std::pair<std::string, std::shared_ptr<const Dataset>>> sets{
      {kTrainSet, data.train}, {kValidationSet, data.validation}, {kTestSet, data.test}};
  std::erase_if(sets, [](const auto& named) { return named.second == nullptr; });
  return sets;
}

LeftOut left_out_of(const DataSets& data) {
  LeftOut names;
  for (const auto& [name, set] : named_sets(data)) names[name] = set->left_out();
  return names;
}

void load_or_tell(const DataContext& context, const std::function<void()>& load) {
  formats::do_or_tell(context.on_damage, [&] {
    try {
      load();
    } catch (const ValueError& error) {
      if (!context.on_damage) throw;
      throw DataError(error.what());
    }
  });
}

void load_wanted(const DataContext& context, bool is_wanted, std::shared_ptr<const Dataset>& set,
                 const std::function<std::shared_ptr<const Dataset>()>& load) {
  if (is_wanted) load_or_tell(context, [&] { set = load(); });
}

data::SplitRows data::split_rows(std::int64_t size, const DataContext& context) {
  const auto part =
      static_cast<std::int64_t>(std::llround(context.validation * static_cast<double>(size)));
  require(part >= 1 && part < size, "data.validation: of ", counted(size, "training sample"), " ",
          context.validation, " would be ", part, ", and both sides need one at least");
  const std::string lack = lack_of_memory(static_cast<std::size_t>(IndexList::bytes(size) + 1));
  require(lack.empty(), "data.validation: which of ", size, " training samples it has takes ",
          lack);
  IndexList rest = IndexList::permuted(Key(context.seed).fold("validation"), size);
  IndexList validation = rest.take(part);
  return {std::move(validation), std::move(rest)};
}

void data::require_there(const std::string& source, const std::string& path,
                         const std::string& advice) {
  require<DataError>(formats::is_there(path), source, ": there is no '", path, "'; ", advice);
}

keys::ConfigKey folder_key(std::string& folder) {
  return {"root", keys::text(folder, keys::of_length("a folder's path", PATH_MAX - 1)),
          "the folder of its files", of_place(folder.empty())};
}

keys::ConfigKey file_key(const std::string& name, std::string& file, const std::string& help) {
  return {name, keys::text(file, kPath), help, of_place(file.empty())};
}

keys::ConfigKey file_key(const std::string& name, std::optional<std::string>& file,
                         const std::string& help) {
  return {name, keys::text_or_null(file, kPath), help, of_place(false)};
}

namespace {

keys::Registry<DataKind>& known_data() {
  // A new source is a file of its own and a line here.
  static keys::Registry<DataKind> kinds(
      "data set",
      {
          fashion_mnist_kind(),
          cifar10_kind(),
          image_folder_kind(),
          csv_kind(),
          npy_kind(),
          text_kind(),
          synthetic_kind(),
          data_kind("pmean_example", "4 samples a replica of y = 2x + 0.5", load_pmean_example),
      });
  return kinds;
}

}  // namespace

const keys::Registry<DataKind>& data_registry() {
  return known_data();
}

void register_data(DataKind kind) {
  known_data().add(std::move(kind));
}

DataSets load_data(const keys::Picked& picked, const DataContext& context) {
  require_at_least(1, "load_data: replicas", context.replicas);
  require(context.validation >= 0 && context.validation < 1, "load_data: validation is ",
          context.validation, ", but must be at least 0 and less than 1");
  require(context.wanted.train || context.fitted.has_value(),
          "load_data: without a training set there must be what was fitted to one");
  const DataKind& kind = data_registry().at(picked.name);
  const bool splits = context.validation > 0 && !kind.splits;
  DataSets sets = foreign_placed(
      [&] { return "in the loading of the data '" + picked.name + "'"; },
      [&] { return splits ? load_split(kind, picked, context) : kind.load(picked, context); });
  if (!context.wanted.train) sets.train = nullptr;
  if (!context.wanted.validation) sets.validation = nullptr;
  if (!context.wanted.test) sets.test = nullptr;
  if (context.fitted) {
    sets.fitted = *context.fitted;
  } else if (!sets.train && context.on_damage) {
    return sets;
  } else {
    sets.fitted.classes = sets.train->class_names();
    sets.fitted.class_count = sets.train->type().classes;
    sets.fitted.sample = sets.train->type();
  }
  check_fitted(sets.fitted);
  for (const auto& [name, set] : named_sets(sets)) {
    const std::string set_name = str(picked.name, ": its ", name, " set");
    load_or_tell(context, [&, tested = set] { check_classes(set_name, *tested, sets.fitted); });
    require(!context.needs_targets || set->has_targets(), set_name, " has no targets");
  }
  return sets;
}

}  // namespace lockstep
