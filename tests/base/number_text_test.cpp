#include "framework/base/number_text.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "tests/catch.h"

using namespace lockstep;

TEST_CASE("a number's shortest text reads back as it") {
  CHECK(shortest_text(0.1) == "0.1");
  CHECK(shortest_text(0.16F) == "0.16");
  CHECK(shortest_text(1e23) == "1e+23");
  CHECK(shortest_text(1e23, std::chars_format::fixed) == "99999999999999991611392");
  CHECK(shortest_text(250.0, std::chars_format::scientific) == "2.5e+02");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(shortest_text(nan) == "nan");
  CHECK(shortest_text(-nan) == "nan");
  const double largest = -std::numeric_limits<double>::max();
  CHECK(shortest_text(largest, std::chars_format::fixed).size() == 310);
  for (const double number : {largest, std::numeric_limits<double>::denorm_min(), 1.0 / 3, -0.0}) {
    CHECK(parse_number<double>(shortest_text(number)) == number);
    CHECK(parse_number<double>(shortest_text(number, std::chars_format::fixed)) == number);
  }
}

TEST_CASE("a number is all of a text, and one that its type holds") {
  CHECK(parse_number<std::int64_t>("-12") == -12);
  CHECK(parse_number<double>("1e3") == 1000);
  for (const char* const text : {"", " 1", "1 ", "+1", "1.5", "x", "9223372036854775808"}) {
    INFO(text);
    CHECK(!parse_number<std::int64_t>(text));
  }
  CHECK(!parse_number<std::uint64_t>("-1"));
  CHECK(!parse_number<double>("1e999"));
}

TEST_CASE("sizes are read in the units that people write") {
  for (const auto& [text, bytes] : {std::pair{"8", std::int64_t{8}},
                                    {"8B", 8},
                                    {"64KiB", 65'536},
                                    {"3 MiB", 3 << 20},
                                    {"1024GiB", std::int64_t{1} << 40},
                                    {"1KB", 1'000},
                                    {"500MB", 500'000'000},
                                    {"5GB", 5'000'000'000}}) {
    INFO(text);
    CHECK(parse_size(text) == bytes);
  }
  for (const std::string text : {"", "KiB", "0", "-8", "1.5MiB", "8k", "8KiBs", " 8", "8 5",
                                 "8589934592GiB", "99999999999999999999"}) {
    INFO(text);
    CHECK(parse_size(text) == std::nullopt);
  }
}

TEST_CASE("a size is written in the largest unit that it is a whole number of") {
  for (const std::string text :
       {"8 B", "1000 B", "1 KiB", "1025 B", "64 KiB", "1 MiB", "1536 KiB", "2 GiB"}) {
    CHECK(size_text(parse_size(text).value()) == text);
  }
}
