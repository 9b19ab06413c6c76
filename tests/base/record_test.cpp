#include "framework/base/record.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "framework/base/errors.h"
#include "tests/catch.h"
#include "tests/support/allocated_bytes.h"

namespace lockstep {
namespace {

enum class Colour : unsigned char { red, green };
constexpr Colour last_of(Colour) {
  return Colour::green;
}

struct Part {
  std::int32_t number = 0;
  std::string name;
  LOCKSTEP_FIELDS(number, name)
  bool operator==(const Part&) const = default;
};

struct Empty {
  LOCKSTEP_FIELDS()
  bool operator==(const Empty&) const = default;
};

struct Whole {
  bool is_there = false;
  std::int64_t number = 0;
  Colour colour = Colour::red;
  std::array<std::byte, 3> bytes{};
  std::optional<Part> part;
  std::vector<Part> parts;
  std::map<std::string, std::uint64_t> counts;
  std::set<std::size_t> hosts;
  std::pair<std::uint16_t, std::string> pair;
  std::variant<Empty, Part, std::vector<std::int64_t>> kind;
  LOCKSTEP_FIELDS(is_there, number, colour, bytes, part, parts, counts, hosts, pair, kind)
  bool operator==(const Whole&) const = default;
};

Whole sample() {
  return {.is_there = true,
          .number = -2,
          .colour = Colour::green,
          .bytes = {std::byte{1}, std::byte{255}, std::byte{0}},
          .part = Part{-1, std::string("a\0b", 3)},
          .parts = {{1, "one"}, {2, ""}},
          .counts = {{"x", 1}, {"y", ~std::uint64_t{0}}},
          .hosts = {0, 7},
          .pair = {513, "last"},
          .kind = std::vector<std::int64_t>{-3, 4}};
}

std::string problem_of(const std::string& bytes) {
  try {
    (void)decode<Whole>(bytes, "a sample");
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a record comes back as it was") {
  CHECK(decode<Whole>(encode(sample()), "a sample") == sample());
  CHECK(decode<Whole>(encode(Whole{}), "a sample") == Whole{});
  Whole other;
  other.kind = Part{3, "three"};
  CHECK(decode<Whole>(encode(other), "a sample") == other);
}

TEST_CASE("a record's bytes: numbers from the lowest byte on, texts behind their size") {
  CHECK(encode(Part{0x0102, "ab"}) == std::string("\2\1\0\0\2\0\0\0ab", 10));
  CHECK(encode(std::optional<bool>(true)) == "\1\1");
  CHECK(encode(std::optional<bool>()) == std::string(1, '\0'));
  CHECK(encode(std::variant<Empty, bool>(true)) == "\1\1");
  CHECK(encode(std::string_view("x")) == encode(std::string("x")));
  CHECK(number_at(encode(std::uint64_t{0x123456789abcdef0}), 8) == 0x123456789abcdef0);
}

TEST_CASE("texts can be read without a copy, and what follows a record too") {
  const std::string bytes = encode(std::string("name")) + "rest";
  RecordReader reader(bytes, "a text");
  const auto text = reader.next<std::string_view>();
  CHECK(text == "name");
  CHECK(text.data() == bytes.data() + 4);
  CHECK(reader.rest() == "rest");
}

TEST_CASE("numbers are read without memory beside their own") {
  const std::string bytes = encode(std::vector<std::uint64_t>(10'000, 7));
  const std::uint64_t before = testing::allocated_bytes();
  const auto numbers = decode<std::vector<std::uint64_t>>(bytes, "a list");
  CHECK(testing::allocated_bytes() - before < 5 * bytes.size());  // the list grows by doubling
  CHECK(numbers.size() == 10'000);
}

TEST_CASE("a record that is cut, or has more behind it, is an error that names it") {
  const std::string bytes = encode(sample());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    INFO(size);
    CHECK_THAT(problem_of(bytes.substr(0, size)),
               Catch::Matchers::StartsWith("a sample is damaged: "));
  }
  CHECK(problem_of(bytes).empty());
  CHECK(problem_of(bytes + "x") == "a sample is damaged: more follows at byte " +
                                       std::to_string(bytes.size()) + " of " +
                                       std::to_string(bytes.size() + 1));
  CHECK(problem_of("") == "a sample is damaged: it is cut short at byte 0 of 0");
}

TEST_CASE("a record's sizes, kinds and values are checked before use") {
  std::string bytes = encode(sample());
  bytes[0] = 2;  // neither true nor false
  CHECK(problem_of(bytes) ==
        "a sample is damaged: there is 2, and the largest may be 1 at byte 0 of " +
            std::to_string(bytes.size()));
  bytes = encode(sample());
  bytes[9] = 2;  // no colour
  CHECK_THAT(problem_of(bytes), ContainsSubstring("there is 2"));
  const std::string huge("\xff\xff\xff\xff", 4);
  CHECK_THROWS_AS(decode<std::string>(huge, "a text"), DataError);
  CHECK_THROWS_AS(decode<std::vector<Empty>>(huge + "four", "a list"), DataError);
  CHECK_THROWS_AS((decode<std::variant<Empty, bool>>("\2", "a kind")), DataError);
}

TEST_CASE("damaged records are read as something, or refused") {
  std::mt19937 draws(37);
  const std::string whole = encode(sample());
  std::size_t refused = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = whole;
    for (int left = 3; left > 0; --left) bytes[draws() % bytes.size()] = static_cast<char>(draws());
    if (!problem_of(bytes).empty()) ++refused;
  }
  CHECK(refused > 100);
}

}  // namespace lockstep
