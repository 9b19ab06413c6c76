#include "framework/data/description.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "framework/base/text.h"
#include "framework/formats/csv.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMostCounted = 20'000'000;  // takes about 0.1 s
constexpr std::int64_t kMostCountedClasses = 1'000'000;
constexpr std::size_t kMostNamed = 10;

std::string words_of(const TensorType& type) {
  const std::string name = type.dtype == at::kFloat  ? "float32"
                           : type.dtype == at::kLong ? "int64"
                                                     : c10::toString(type.dtype);
  return type.shape.empty() ? name : str(name, " (", join(type.shape), ")");
}

std::string sets_line(const DataSets& data) {
  const auto* const rest = dynamic_cast<const Subset*>(data.train.get());
  const auto* const part = dynamic_cast<const Subset*>(data.validation.get());
  const bool is_split = rest != nullptr && part != nullptr && &rest->whole() == &part->whole();
  std::vector<std::string> sets;
  for (const auto& [name, set] : named_sets(data)) {
    const bool is_part = name == kValidationSet && is_split;
    std::string text = str(name, " ", counted(set->size(), "sample"));
    if (is_part) text += " (drawn from the training set)";
    const auto damaged = std::ssize(set->left_out());
    if (damaged > 0 && !is_part) {
      text += str(" (", damaged, " damaged ", damaged == 1 ? "is" : "are", " left out)");
    }
    sets.push_back(text);
  }
  return join(sets);
}

// A class's name, so that blanks around it are seen.
std::string shown(const std::string& name) {
  return formats::has_unseen_ends(name) ? str("'", cut(name, 40), "'") : cut(name, 40);
}

bool is_too_large(const Dataset& data) {
  return data.size() > kMostCounted || data.type().classes > kMostCountedClasses;
}

// How many samples of each class there are, and, last, of none. Nothing where that is not known.
std::vector<std::int64_t> counts_of(const Dataset& data, std::int64_t classes) {
  std::vector<std::int64_t> counts;
  if (is_too_large(data) || !data.label(0)) return counts;
  counts.resize(static_cast<std::size_t>(classes) + 1);
  for (std::int64_t i = 0; i < data.size(); ++i) {
    const std::int64_t label = data.label(i).value_or(classes);
    const bool is_class = label >= 0 && label < classes;
    ++counts[static_cast<std::size_t>(is_class ? label : classes)];
  }
  return counts;
}

std::string classes_text(const Dataset& data) {
  const std::int64_t classes = data.type().classes;
  const std::vector<std::string> names = data.class_names();
  const std::vector<std::int64_t> counts = counts_of(data, classes);
  std::vector<std::string> texts;
  const auto shown_classes = std::min<std::size_t>(static_cast<std::size_t>(classes), kMostNamed);
  for (std::size_t i = 0; i < shown_classes; ++i) {
    const std::string name = names.empty() ? std::to_string(i) : shown(names[i]);
    texts.push_back(counts.empty() ? name : str(name, " (", counts[i], ")"));
  }
  std::string text = str(counted(classes, "class", "classes"), ": ", join(texts));
  const auto more = static_cast<std::size_t>(classes) - shown_classes;
  if (more > 0) text += str(" and ", more, " more");
  if (!counts.empty()) {
    const auto empty = std::count(counts.begin(), counts.end() - 1, 0);
    if (empty > 0) text += str("; ", empty, " without a training sample");
    if (counts.back() > 0) text += str("; ", counted(counts.back(), "sample"), " of no class");
  } else if (is_too_large(data)) {
    text += "; their samples are too many to be counted here";
  }
  return text;
}

std::string task_line(const Dataset& data, const Fitted& fitted) {
  const SampleType type = data.type();
  const std::string inputs = str("inputs ", words_of(type.input));
  if (type.classes == 0) {
    const std::string names =
        fitted.targets.empty() ? "" : str(" (", shortened(listed(fitted.targets, 10), 400), ")");
    return str("regression of ", counted(type.target.values(), "value"), names, "; ", inputs);
  }
  const std::string ignored =
      type.ignored ? str("; target ", *type.ignored, " does not count") : "";
  if (type.input.dtype == at::kLong) {
    return str("tokens: a context of ", type.input.values(), ", a vocabulary of ", type.classes,
               ignored);
  }
  const std::string each =
      type.target.shape.empty() ? "" : str(" of ", words_of(type.target), " each");
  return str("classification", each, ", ", classes_text(data), ignored, "; ", inputs);
}

}  // namespace

std::vector<std::string> describe(const DataSets& data) {
  std::vector<std::string> lines{sets_line(data)};
  const auto sets = named_sets(data);
  if (!sets.empty()) lines.push_back(task_line(*sets.front().second, data.fitted));
  lines.insert(lines.end(), data.notes.begin(), data.notes.end());
  return lines;
}

}  // namespace lockstep
