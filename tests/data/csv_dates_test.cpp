#include "framework/data/csv_dates.h"

#include <string>
#include <vector>

#include "framework/base/range.h"
#include "tests/catch.h"

namespace lockstep {
namespace {

using data::moment_of;

std::vector<double> parts_of(const std::string& text, const std::string& format = data::kIsoDates) {
  const auto moment = moment_of(text, format);
  REQUIRE(moment);
  return mapped(data::date_parts(), [&](const auto& part) { return date_part(*moment, part); });
}

}  // namespace

// As pandas' Timestamp has them: days is (t - 1970-01-01) / 1 day, weekday dayofweek, yearday
// dayofyear.
TEST_CASE("a date has the parts that calendars give it") {
  CHECK(parts_of("1970-01-01") == std::vector<double>{0, 1970, 1, 1, 3, 1, 0, 0, 0});
  CHECK(parts_of(" 2024-12-31T18:30:15\t") ==
        std::vector<double>{20088 + (18 * 3600 + 30 * 60 + 15) / 86400.0, 2024, 12, 31, 1, 366, 18,
                            30, 15});
  CHECK(parts_of("1969-07-20 20:17") ==
        std::vector<double>{-165 + (20 * 60 + 17) / 1440.0, 1969, 7, 20, 6, 201, 20, 17, 0});
  CHECK(parts_of("2000-02-29T00:00:00.25Z").back() == 0.25);
}

TEST_CASE("a date with an offset is in UTC, though that is another day") {
  CHECK(parts_of("2024-01-01T00:30+01:00") ==
        std::vector<double>{19722 + 23.5 / 24, 2023, 12, 31, 6, 365, 23, 30, 0});
  CHECK(parts_of("2023-12-31T23:30:00-0130") ==
        std::vector<double>{19723 + 1.0 / 24, 2024, 1, 1, 0, 1, 1, 0, 0});
}

TEST_CASE("texts that are no dates have none") {
  for (const char* const text :
       {"", "2024", "2024-1-1", "2023-02-29", "2024-13-01", "2024-01-01T", "2024-01-01T25:00",
        "2024-01-01T12:00+", "2024-01-01 noon", "01.02.2024", "20240101", "2024-01-01x"}) {
    INFO(text);
    CHECK_FALSE(moment_of(text, data::kIsoDates));
  }
}

TEST_CASE("dates of another form are read as strptime() has it") {
  CHECK(parts_of("31.12.2024", "%d.%m.%Y") == parts_of("2024-12-31"));
  CHECK(parts_of("12/31/24 18:30", "%m/%d/%y %H:%M") == parts_of("2024-12-31T18:30"));
  CHECK_FALSE(moment_of("31.02.2024", "%d.%m.%Y"));
  CHECK_FALSE(moment_of("1.1.2024 and more", "%d.%m.%Y"));
}

}  // namespace lockstep
