#include "framework/engines/node_list.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "framework/base/number_text.h"
#include "framework/base/text.h"

namespace lockstep::engines {
namespace {

constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kInNames =
    "0123456789-._abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
constexpr std::size_t kLongestName = 253;  // in the DNS
constexpr int kMostParts = 16;             // of one name: each makes all names anew
constexpr std::int64_t kLargestInName = 999'999'999'999;

// Reads a list from its beginning to its end.
class ListReader {
 public:
  explicit ListReader(std::string_view list) : list_(list) {}

  void check(bool holds, const std::string& rule) const {
    require(holds, "the list '", cut(list_, 200), "', behind its first ",
            counted(static_cast<std::int64_t>(at_), "letter"), ": ", rule);
  }
  void check_count(std::size_t count) const {
    if (count > kMostNodes) check(false, str("these are more than ", kMostNodes, " hosts"));
  }
  [[nodiscard]] bool is_at_end() const { return at_ == list_.size(); }
  [[nodiscard]] bool is_next(std::string_view next) const {
    return list_.substr(at_).starts_with(next);
  }
  // Reads `next` if it follows. Returns true if it does.
  bool take(std::string_view next) {
    const bool follows = is_next(next);
    if (follows) at_ += next.size();
    return follows;
  }
  void expect(std::string_view next) { check(take(next), str("expected '", next, "'")); }
  // Reads the letters of these that follow, at least one.
  std::string_view take_some(std::string_view letters, const char* what) {
    const std::size_t end = std::min(list_.find_first_not_of(letters, at_), list_.size());
    check(end > at_, str("expected ", what));
    return list_.substr(std::exchange(at_, end), end - at_);
  }
  std::int64_t number_of(std::string_view digits, std::int64_t least, std::int64_t most) const {
    const auto number = parse_number<std::int64_t>(digits);
    check(number && *number >= least && *number <= most,
          str("a number from ", least, " to ", most, " was expected, not ", cut(digits)));
    return *number;
  }
  std::int64_t take_number(std::int64_t least, std::int64_t most) {
    return number_of(take_some(kDigits, "a number"), least, most);
  }

 private:
  std::string_view list_;
  std::size_t at_ = 0;
};

// Reads the numbers in brackets: "8-11,020]" is 8, 9, 10, 11 and 020. Each has at least as many
// digits as the first of its range.
std::vector<std::string> take_ranges(ListReader& list) {
  std::vector<std::string> all;
  do {
    const std::string_view digits = list.take_some(kDigits, "a number");
    const std::int64_t first = list.number_of(digits, 0, kLargestInName);
    const std::int64_t last = list.take("-") ? list.take_number(first, kLargestInName) : first;
    list.check_count(all.size() + static_cast<std::size_t>(last - first) + 1);
    for (std::int64_t number = first; number <= last; ++number) {
      const std::string text = std::to_string(number);
      all.push_back(std::string(digits.size() - std::min(digits.size(), text.size()), '0') + text);
    }
  } while (list.take(","));
  list.expect("]");
  return all;
}

// Reads the names of one of a list's parts: "rack[0-1]n[01-02]", the last number fastest.
std::vector<std::string> take_names(ListReader& list) {
  std::vector<std::string> names{""};
  int parts = 0;
  do {
    list.check(++parts <= kMostParts, str("a name has at most ", kMostParts, " parts"));
    const std::vector<std::string> next =
        list.take("[") ? take_ranges(list)
                       : std::vector{std::string(list.take_some(kInNames, "a host's name"))};
    list.check_count(names.size() * next.size());
    std::vector<std::string> longer;
    for (const std::string& name : names) {
      for (const std::string& text : next) {
        if (name.size() + text.size() > kLongestName) {
          list.check(false, str("a host's name has at most ", kLongestName, " letters"));
        }
        longer.push_back(name + text);
      }
    }
    names = std::move(longer);
  } while (!list.is_at_end() && !list.is_next(","));
  return names;
}

}  // namespace

std::vector<std::string> node_names(std::string_view text) {
  ListReader list(text);
  std::vector<std::string> all;
  do {
    std::vector<std::string> names = take_names(list);
    list.check_count(all.size() + names.size());
    std::ranges::move(names, std::back_inserter(all));
  } while (list.take(","));
  return all;
}

std::vector<std::int64_t> numbers_of_nodes(std::string_view text) {
  ListReader list(text);
  std::vector<std::int64_t> all;
  do {
    const std::int64_t number = list.take_number(1, 1'000'000);
    std::size_t nodes = 1;
    if (list.take("(x")) {
      nodes = static_cast<std::size_t>(list.take_number(1, static_cast<std::int64_t>(kMostNodes)));
      list.expect(")");
    }
    list.check_count(all.size() + nodes);
    all.insert(all.end(), nodes, number);
  } while (list.take(","));
  list.check(list.is_at_end(), "expected ',' or the list's end");
  return all;
}

}  // namespace lockstep::engines
