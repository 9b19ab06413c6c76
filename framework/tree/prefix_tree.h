#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "framework/base/range.h"
#include "framework/tree/tree.h"

namespace lockstep {

/// An entry of in_axes (not cut), out_axes (not stacked) and P() (a dimension that is not cut). (In
/// a namespace of its own, since g++ 12 finds that `none` of an enum class shadows it otherwise.)
inline namespace prefix_entries {
inline constexpr std::nullopt_t none = std::nullopt;
}

namespace tree_detail {
template <Key K>
std::string name_of(const K& key) {
  if constexpr (Text<K>) {
    return key;
  } else {
    return text_of_value(key);
  }
}
}  // namespace tree_detail

/// Options for the leaves of trees, as in JAX's prefix trees: one entry for all leaves of a tree,
/// or a list with one entry for each of its parts, which may itself be a list. Parts are the
/// elements of a tuple, pair, vector or array, the members of a struct as LOCKSTEP_TREE names them,
/// and the entries of a map, by key:
///
///   0      {0, std::nullopt}      {0, {1, std::nullopt}}      {{"w", 0}, {"b", std::nullopt}}
///
/// The entries of a struct may also be listed by member name, as a map's by key, in any order. A
/// tuple, pair, vector, map, struct or initializer_list of entries is such a list, too.
template <typename Entry>
class PrefixTree {
 public:
  /// The key of a part. (A std::string would take a 0 for a null pointer.)
  struct Key {
    template <std::size_t N>
    Key(const char (&text)[N]) : name(text) {}        // NOLINT
    Key(std::string text) : name(std::move(text)) {}  // NOLINT
    std::string name;
  };

  /// Makes an empty prefix: is_left_out().
  PrefixTree() = default;
  template <typename T>
  requires(!std::is_same_v<T, PrefixTree> && std::is_convertible_v<const T&, Entry>)
      PrefixTree(const T& entry)  // NOLINT
      : entry_(entry), form_(Form::entry) {}
  PrefixTree(std::initializer_list<PrefixTree> parts)  // NOLINT
      : parts_(parts), form_(Form::list) {}
  PrefixTree(std::initializer_list<std::pair<Key, PrefixTree>> parts)
      : form_(Form::list) {  // NOLINT
    for (const auto& [key, part] : parts) add(key.name, part);
  }
  template <typename T>
  requires(!std::is_same_v<T, PrefixTree> && !std::is_convertible_v<const T&, Entry> &&
           (tree_detail::HasParts<T> || tree_detail::Map<T> || tree_detail::is_sequence<T> ||
            tree_detail::is_a<T, std::initializer_list>)) PrefixTree(const T& parts)  // NOLINT
      : form_(Form::list) {
    if constexpr (tree_detail::HasParts<T>) {
      std::apply([&](const auto&... each) { (parts_.emplace_back(each), ...); },
                 tree_detail::parts_of(parts));
    } else if constexpr (tree_detail::Map<T>) {
      for (const auto& [key, part] : parts) add(tree_detail::name_of(key), part);
    } else {
      for (const auto& part : parts) parts_.emplace_back(part);
    }
    if (parts_.empty()) form_ = Form::left_out;
  }

  [[nodiscard]] bool is_left_out() const noexcept { return form_ == Form::left_out; }
  [[nodiscard]] bool is_list() const noexcept { return form_ == Form::list; }
  /// Returns the entry, if this is no list; Entry() if it is left out.
  [[nodiscard]] const Entry& entry() const noexcept { return entry_; }
  [[nodiscard]] const std::vector<PrefixTree>& parts() const noexcept { return parts_; }
  /// Returns the keys of the parts; empty if they have none.
  [[nodiscard]] const std::vector<std::string>& keys() const noexcept { return keys_; }

  /// Calls visit(entry) for each entry in the prefix.
  template <typename Visit>
  void for_each(const Visit& visit) const {
    if (!is_list()) visit(entry_);
    for (const PrefixTree& part : parts_) part.for_each(visit);
  }

 private:
  enum class Form { left_out, entry, list };

  void add(const std::string& key, PrefixTree part) {
    keys_.push_back(key);
    parts_.push_back(std::move(part));
  }

  Entry entry_{};
  std::vector<PrefixTree> parts_;
  std::vector<std::string> keys_;
  Form form_ = Form::left_out;
};

namespace tree_detail {

// Throws ValueError, starting with `where`, unless a list has an entry for each of `count` parts.
template <typename Entry>
void check_parts(const PrefixTree<Entry>& prefix, std::size_t count, bool keyed,
                 const std::string& where) {
  require(prefix.keys().empty() != keyed, where,
          keyed ? " is a map: its entries have keys, {{\"key\", entry}, …}"
                : " is no map: its entries have no keys");
  require(prefix.parts().size() == count, where, " has ", count, count == 1 ? " part" : " parts",
          ", its entry ", prefix.parts().size());
}

// Returns, for each part of a T, the index of its entry in the list.
template <HasParts T, typename Entry>
std::vector<std::size_t> places_of_parts(const PrefixTree<Entry>& prefix, std::size_t count,
                                         const std::string& where) {
  std::vector<std::size_t> places = consecutive(std::size_t{0}, count);
  if constexpr (requires(const T* type) { lockstep_tree_names(type); }) {
    const auto& keys = prefix.keys();
    if (!keys.empty()) {
      const auto names = split_names(lockstep_tree_names(static_cast<const T*>(nullptr)));
      const std::string members = ": its members are " + join(names);
      for (const std::string& key : keys) {
        require(std::ranges::count(keys, key) == 1, where, " has two entries for '", key, "'");
        require(std::ranges::count(names, key) == 1, where, " has no '", key, "'", members);
      }
      for (std::size_t i = 0; i < count; ++i) {
        const auto found = std::ranges::find(keys, names[i]);
        require(found != keys.end(), where, " has no entry for '", names[i], "'", members);
        places[i] = static_cast<std::size_t>(found - keys.begin());
      }
      return places;
    }
  }
  check_parts(prefix, count, false, where);
  return places;
}

// Calls visit(entry) for each leaf of the tree, in order. Throws ValueError, starting with `where`,
// if the prefix is built otherwise, or lacks a leaf's entry, or has a static value's but Entry().
template <typename Entry, typename T, typename Visit>
void for_each_entry(const PrefixTree<Entry>& prefix, const T& tree, const std::string& where,
                    const Visit& visit) {
  if (!prefix.is_list()) {
    require(kind<T> != Kind::fixed || prefix.entry() == Entry(), where,
            " is no tree of tensors: its entry must be none (P() in shard_map)");
    for_each_leaf(tree, [&](const Tensor&) {
      require(!prefix.is_left_out(), where,
              " has an empty entry; to leave it whole write none (P() in shard_map)");
      visit(prefix.entry());
    });
    return;
  }
  if constexpr (HasParts<T>) {
    const auto all = [&](const auto&... parts) {
      const auto places = places_of_parts<T>(prefix, sizeof...(parts), where);
      std::size_t next = 0;
      const auto one = [&](const auto& part) {
        for_each_entry(prefix.parts()[places[next]], part, str(where, ".", part_name<T>(next)),
                       visit);
        ++next;
      };
      (one(parts), ...);
    };
    std::apply(all, parts_of(tree));
  } else if constexpr (is_a<T, std::optional>) {
    if (tree.has_value()) for_each_entry(prefix, *tree, where, visit);
  } else if constexpr (Map<T>) {
    check_parts(prefix, tree.size(), true, where);
    for_each_in_order(tree, [&](const auto& key, const auto& value) {
      const auto found = std::find(prefix.keys().begin(), prefix.keys().end(), name_of(key));
      require(found != prefix.keys().end(), where, " has the key ", text_of_value(key),
              ", its entry has not");
      for_each_entry(prefix.parts()[static_cast<std::size_t>(found - prefix.keys().begin())], value,
                     str(where, "[", text_of_value(key), "]"), visit);
    });
  } else if constexpr (is_sequence<T>) {
    check_parts(prefix, tree.size(), false, where);
    for (std::size_t i = 0; i < tree.size(); ++i) {
      for_each_entry(prefix.parts()[i], tree[i], str(where, "[", i, "]"), visit);
    }
  } else if (prefix.parts().size() == 1 && prefix.keys().empty()) {
    for_each_entry(prefix.parts()[0], tree, where, visit);
  } else {
    throw ValueError(str(where, " is one value, its entry has ", prefix.parts().size(), " parts"));
  }
}

}  // namespace tree_detail
}  // namespace lockstep
