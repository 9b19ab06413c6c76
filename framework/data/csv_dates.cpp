#include "framework/data/csv_dates.h"

#include <cmath>
#include <ctime>
#include <utility>

#include "framework/base/number_text.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/formats/csv.h"

namespace lockstep::data {
namespace {

namespace chrono = std::chrono;

constexpr double kDay = 86400;

std::optional<Moment> moment_at(int year, unsigned month, unsigned day, double seconds) {
  const chrono::year_month_day date{chrono::year(year), chrono::month(month), chrono::day(day)};
  if (!date.ok()) return std::nullopt;
  // A time beyond midnight, as offsets from UTC make it, is of a day beside this one.
  const double days = std::floor(seconds / kDay);
  return Moment{.day = chrono::sys_days(date) + chrono::days(static_cast<int>(days)),
                .seconds = seconds - days * kDay};
}

// Takes an ISO text apart, from its beginning.
class IsoReader {
 public:
  explicit IsoReader(std::string_view text) : rest_(text) {}

  [[nodiscard]] bool at_end() const { return rest_.empty(); }
  bool takes(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  // So many digits, of a number up to `most`.
  std::optional<int> number(std::size_t digits, int most) {
    if (rest_.size() < digits) return std::nullopt;
    int number = 0;
    for (const char digit : rest_.substr(0, digits)) {
      if (digit < '0' || digit > '9') return std::nullopt;
      number = 10 * number + (digit - '0');
    }
    if (number > most) return std::nullopt;
    rest_.remove_prefix(digits);
    return number;
  }
  // ".25", if that is here.
  double fraction() {
    if (!rest_.starts_with('.')) return 0;
    const std::size_t end = std::min(rest_.find_first_not_of("0123456789", 1), rest_.size());
    const std::string digits = str("0", rest_.substr(0, end), "0");
    rest_.remove_prefix(end);
    return parse_number<double>(digits).value_or(0);
  }

 private:
  std::string_view rest_;
};

// The seconds of "12:30:05.25+01:00" in UTC; none if that does not stand here, and end here.
std::optional<double> iso_time(IsoReader& reader) {
  const auto hour = reader.number(2, 23);
  if (!hour || !reader.takes(":")) return std::nullopt;
  const auto minute = reader.number(2, 59);
  if (!minute) return std::nullopt;
  double seconds = 3600.0 * *hour + 60.0 * *minute;
  if (reader.takes(":")) {
    const auto second = reader.number(2, 60);
    if (!second) return std::nullopt;
    seconds += *second + reader.fraction();
  }
  if (reader.takes("Z") || reader.at_end()) return seconds;
  const bool is_east = reader.takes("+");
  if (!is_east && !reader.takes("-")) return std::nullopt;
  const auto hours = reader.number(2, 23);
  if (!hours) return std::nullopt;
  double offset = 3600.0 * *hours;
  if (!reader.at_end()) {
    (void)reader.takes(":");
    const auto minutes = reader.number(2, 59);
    if (!minutes) return std::nullopt;
    offset += 60.0 * *minutes;
  }
  return is_east ? seconds - offset : seconds + offset;
}

std::optional<Moment> iso_moment(std::string_view text) {
  IsoReader reader(text);
  const auto year = reader.number(4, 9999);
  if (!year || !reader.takes("-")) return std::nullopt;
  const auto month = reader.number(2, 12);
  if (!month || !reader.takes("-")) return std::nullopt;
  const auto day = reader.number(2, 31);
  if (!day) return std::nullopt;
  double seconds = 0;
  if (reader.takes("T") || reader.takes(" ")) {
    const auto time = iso_time(reader);
    if (!time) return std::nullopt;
    seconds = *time;
  }
  if (!reader.at_end()) return std::nullopt;
  return moment_at(*year, static_cast<unsigned>(*month), static_cast<unsigned>(*day), seconds);
}

using Part = double (*)(const Moment& moment, const chrono::year_month_day& date);

const std::vector<std::pair<std::string, Part>>& parts() {
  using Date = chrono::year_month_day;
  static const std::vector<std::pair<std::string, Part>> table{
      {"days",
       [](const Moment& moment, const Date& /*date*/) {
         return static_cast<double>(moment.day.time_since_epoch().count()) + moment.seconds / kDay;
       }},
      {"year", [](const Moment& /*moment*/,
                  const Date& date) { return static_cast<double>(static_cast<int>(date.year())); }},
      {"month",
       [](const Moment& /*moment*/, const Date& date) {
         return static_cast<double>(static_cast<unsigned>(date.month()));
       }},
      {"day",
       [](const Moment& /*moment*/, const Date& date) {
         return static_cast<double>(static_cast<unsigned>(date.day()));
       }},
      {"weekday",
       [](const Moment& moment, const Date& /*date*/) {
         return static_cast<double>(chrono::weekday(moment.day).iso_encoding() - 1);
       }},
      {"yearday",
       [](const Moment& moment, const Date& date) {
         const chrono::sys_days first(date.year() / chrono::January / 1);
         return static_cast<double>((moment.day - first).count() + 1);
       }},
      {"hour", [](const Moment& moment,
                  const Date& /*date*/) { return std::floor(moment.seconds / 3600); }},
      {"minute",
       [](const Moment& moment, const Date& /*date*/) {
         return std::floor(std::fmod(moment.seconds, 3600) / 60);
       }},
      {"second",
       [](const Moment& moment, const Date& /*date*/) { return std::fmod(moment.seconds, 60); }},
  };
  return table;
}

}  // namespace

std::optional<Moment> moment_of(std::string_view text, const std::string& format) {
  text = formats::trimmed(text);
  if (format == kIsoDates) return iso_moment(text);
  std::tm time{};
  time.tm_year = 70;
  time.tm_mday = 1;
  const std::string copy(text);  // ends with the zero byte that strptime() looks for
  const char* const end = strptime(copy.c_str(), format.c_str(), &time);
  if (end == nullptr || end != copy.c_str() + copy.size()) return std::nullopt;
  const double seconds = 3600.0 * time.tm_hour + 60.0 * time.tm_min + time.tm_sec;
  return moment_at(time.tm_year + 1900, static_cast<unsigned>(time.tm_mon) + 1,
                   static_cast<unsigned>(time.tm_mday),
                   seconds - static_cast<double>(time.tm_gmtoff));
}

std::vector<std::string> date_parts() {
  return mapped(parts(), [](const auto& part) { return part.first; });
}

double date_part(const Moment& moment, std::string_view part) {
  for (const auto& [name, value] : parts()) {
    if (name == part) return value(moment, chrono::year_month_day(moment.day));
  }
  throw ValueError(str("there is no part '", part, "' of a date"));
}

}  // namespace lockstep::data
