#include "framework/formats/csv.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "framework/base/errors.h"
#include "framework/formats/decimal.h"
#include "framework/formats/utf8.h"
#include "tests/catch.h"
#include "tests/formats/idx_files.h"
#include "tests/support/message_of.h"

using namespace lockstep;
using namespace lockstep::formats;
using namespace lockstep::testing;

namespace {

using Catch::Matchers::EndsWith;

using Row = std::vector<std::string>;

// The header, then the rows.
std::vector<Row> table(const CsvFile& file) {
  std::vector<Row> rows{file.header()};
  for (std::size_t row = 0; row < file.rows(); ++row) {
    rows.emplace_back();
    for (std::size_t column = 0; column < file.columns(); ++column) {
      rows.back().emplace_back(file.text(row, column));
    }
  }
  return rows;
}

std::vector<Row> read_table(const std::string& text, char separator = ',') {
  const TemporaryFolder folder;
  return table(CsvFile(folder.write("table.csv", text), {.separator = separator}));
}

// What the error says behind the file's name.
std::string csv_error(const std::string& text) {
  const TemporaryFolder folder;
  const std::string path = folder.write("table.csv", text);
  const std::string message = message_of<DataError>([&] { const CsvFile file(path); });
  const std::string prefix = "data file '" + path + "': ";
  return message.starts_with(prefix) ? message.substr(prefix.size()) : message;
}

}  // namespace

TEST_CASE("a CSV file is a table whose first line names the columns") {
  const std::vector<Row> expected{{"x", "y"}, {"1", "2"}, {"3", ""}};
  CHECK(read_table("x,y\n1,2\n3,\n") == expected);
  CHECK(read_table("x,y\n1,2\n3,") == expected);
  CHECK(read_table("x,y\r\n1,2\r\n3,\r\n") == expected);
  CHECK(read_table("x,y\r\n1,2\n3,") == expected);
  CHECK(read_table("\xef\xbb\xbfx,y\n1,2\n3,\n") == expected);
  CHECK(read_table(gzip("x,y\n1,2\n3,\n")) == expected);
  CHECK(read_table("x;y\n1;2\n3;\n", ';') == expected);
  CHECK(read_table("x\ty\n1\t2\n3\t\n", '\t') == expected);
  CHECK(read_table("x,y\n") == std::vector<Row>{{"x", "y"}});
  CHECK(read_table("x,y") == std::vector<Row>{{"x", "y"}});
  CHECK(read_table("x\n\n1\n") == std::vector<Row>{{"x"}, {""}, {"1"}});
}

TEST_CASE("a field in quotes holds separators, line ends and quotes") {
  CHECK(read_table("\"a,b\",\"c\"\"d\"\r\n\"1\r\n2\",\"\"\n\"\"\"\",\"\n\"") ==
        std::vector<Row>{{"a,b", "c\"d"}, {"1\r\n2", ""}, {"\"", "\n"}});
  CHECK(read_table("a;b\n1,5;\"2;5\"\n", ';') == std::vector<Row>{{"a", "b"}, {"1,5", "2;5"}});
}

TEST_CASE("blanks around a field in quotes are passed over") {
  const std::vector<Row> expected{{"x", "y,z"}, {" 1", "2 "}, {"", "a \"b\""}};
  CHECK(read_table("\"x\", \"y,z\"\n 1,\t\"2 \" \n\"\" , \"a \"\"b\"\"\" \r\n") == expected);
  CHECK(read_table("\"x\"\t \"y\"\n1\t\n", '\t') == std::vector<Row>{{"x", "y"}, {"1", ""}});
}

TEST_CASE("what breaks the rules of CSV is an error with its line") {
  CHECK(csv_error("") == "it is empty, but must have a header");
  CHECK(csv_error("\xef\xbb\xbf") == "it is empty, but must have a header");
  CHECK(
      csv_error("a,b\n1,2\n1,2,3\n") ==
      "line 3: it has 3 fields, but the header has 2; a field with a separator in it needs quotes, "
      "and a line must not end with one");
  CHECK(csv_error("a,b\n\"1\n\n\",2\n1\n") == "line 5: it has 1 field, but the header has 2");
  CHECK(csv_error("a,b\n1,2\n\n3,4\n") == "line 3: it is blank, but the header has 2");
  CHECK(csv_error("a,b\n1,\"2\n3,4\n") == "line 2: a quote opens here, and none closes it");
  CHECK(csv_error("a,b\n1,\"2\"3\n") == "line 2: text behind the quote that closes a field");
  CHECK(csv_error("a,b\n1,\"\n\"\r4\n") == "line 3: text behind the quote that closes a field");
  CHECK(csv_error("a,b\n1,2\"\n") == "line 2: a quote inside a field that doesn't begin with one");
  CHECK(csv_error("a,b\r1,2\r") ==
        "line 1: a carriage return without a line feed behind it, outside of quotes");
  CHECK(csv_error(",,b\n1,2,3\n") == "line 1: the name of column number 1 is empty");
  CHECK(csv_error("a,b,\n1,2,3\n") ==
        "line 1: the name of column number 2 is empty: is there a separator at the line's end?");
  CHECK(csv_error("a, ,b\n1,2,3\n") == "line 1: the name of column number 1 is empty");
  CHECK(csv_error(" \n1\n") == "line 1: the name of column number 0 is empty");
  CHECK(csv_error("\n1\n") == "line 1: the name of column number 0 is empty");
  CHECK(csv_error("a,b,\"a\"\n1,2,3\n") == "line 1: the name 'a' occurs twice");
  const std::string zero_byte = "a zero byte: it is no text, or not in UTF-8";
  CHECK(csv_error(std::string("a\0,b", 4)) == "line 1: " + zero_byte);
  CHECK(csv_error(std::string("a\n\"\0\"", 5)) == "line 2: " + zero_byte);
  const TemporaryFolder folder;
  CHECK(message_of<DataError>([&] { const CsvFile file(folder.path("missing")); }) ==
        "data file '" + folder.path("missing") + "': there is no such file");
}

TEST_CASE("a table whose header seems to have another separator says so, whatever is found") {
  const std::string semicolon = "; is the separator ';'? data.separator: \";\" says so";
  CHECK(csv_error("a;b;c\n1,5;2,5;3\n") ==
        "line 2: it has 3 fields, but the header has 1" + semicolon);
  CHECK(csv_error("\"a, b\";\"c, d\"\n1;2\n") ==
        "line 1: text behind the quote that closes a field" + semicolon);
  CHECK_THAT(csv_error("a|b, c|d\n1|2|3\n"),
             EndsWith("; is the separator '|'? data.separator: \"|\" says so"));
  CHECK_THAT(csv_error("a (x;y;z),b,c,d\n1\n"), EndsWith("it has 1 field, but the header has 4"));
  CHECK_THAT(
      csv_error("\xef\xbb\xbfsep=;\na;b\n1;2,5\n"),
      EndsWith("line 3: it has 2 fields, but the header has 1; its first line, 'sep=', is for "
               "Excel: take it out, so that the names are the first"));
}

TEST_CASE("text that is not in UTF-8 is refused with its place and what converts it") {
  CHECK(read_table("Stra\xc3\x9f"
                   "e,\xe2\x82\xac\n\xf0\x9f\x90\xa6,\xed\x9f\xbf\n")
            .size() == 2);
  const TemporaryFolder folder;
  const std::string path = folder.path("table.csv");
  const auto error = [&](const std::string& text) {
    folder.write("table.csv", text);
    return message_of<DataError>([&] { const CsvFile file(path, {.keeps_ragged = true}); });
  };
  const std::string of_file = "data file '" + path + "': ";
  const auto advice = [&](const std::string& name) {
    return " is not in UTF-8; if that is " + name + ", this makes UTF-8 of it: iconv -f " + name +
           " -t UTF-8 '" + path + "' > NEW";
  };
  CHECK(error("x,city\n1,Ulm\n2\n3,K\xf6ln\n") ==
        of_file + "line 4: column 'city'" + advice("LATIN1"));
  CHECK(error("x,city\n\"1\n\",\"K\xf6ln\"\n") ==
        of_file + "line 2: column 'city'" + advice("LATIN1"));
  CHECK(error("gr\xf6\xdf"
              "e,y\n1,2\n") == of_file + "line 1: the header" + advice("LATIN1"));
  CHECK(error("x,y\n\x80 5,K\xf6ln\n") == of_file + "line 2: column 'x'" + advice("WINDOWS-1252"));
  CHECK(error(std::string("\xff\xfex\0,\0", 6)) == of_file + "it" + advice("UTF-16"));
  CHECK_THAT(utf8_advice("a.csv.gz", "\xf6"),
             ContainsSubstring(": zcat 'a.csv.gz' | iconv -f LATIN1 -t UTF-8 > NEW"));
  // Cut letters, ones that are longer than they need to be, halves of a pair, and too large ones.
  for (const char* const wrong : {"\xc3", "\xe2\x82", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80",
                                  "\xf0\x80\x80\xaf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80"}) {
    CHECK_THAT(error(std::string("x,y\n1,") + wrong + "\n"),
               ContainsSubstring("line 2: column 'y' is not in UTF-8"));
  }
}

TEST_CASE("a name of a column is refused where it is longer than names may be") {
  const std::string longest(1000, 'x');
  CHECK(read_table(longest + ",\"y\"\n1,2\n")[0] == Row{longest, "y"});
  const std::string error = "line 1: the name of a column is longer than 1000 bytes";
  CHECK(csv_error("a," + longest + "x\n1,2\n") == error);
  CHECK(csv_error("a,\"" + longest + "\"\"\"\n1,2\n") == error);
  CHECK(csv_error(std::string(std::size_t{1} << 20, 'x') + "\n1\n") == error);
  CHECK(read_table("a\n" + longest + longest + "\n")[1] == Row{longest + longest});
}

TEST_CASE("a hollow table is refused where its zeros begin", "[bulk]") {
  const TemporaryFolder folder;
  for (const std::string begin : {"", "x,y\n", "x,y\n1,2\n"}) {
    const std::string path = folder.write("table.csv", begin);
    std::filesystem::resize_file(path, std::uintmax_t{10} << 30);
    const std::string message = message_of<DataError>([&] { const CsvFile file(path); });
    const auto line = 1 + std::ranges::count(begin, '\n');
    // Where the host has less, it is refused before.
    CHECK((message.ends_with("line " + std::to_string(line) +
                             ": a zero byte: it is no text, or not in UTF-8") ||
           message.find("its text takes 10.0 GiB, and ") != std::string::npos));
  }
}

TEST_CASE("a table with many columns is read in a time that grows with them", "[bulk]") {
  constexpr std::size_t kColumns = 100'000;
  std::string text;
  for (std::size_t i = 0; i < kColumns; ++i) text += "column " + std::to_string(i) + ',';
  text += "last\n";
  for (std::size_t i = 0; i < kColumns; ++i) text += std::to_string(i) + ',';
  text += "-1\n";
  const TemporaryFolder folder;
  const CsvFile file(folder.write("table.csv", text));
  std::vector<std::size_t> columns;
  bool is_right = file.columns() == kColumns + 1 && file.rows() == 1;
  for (std::size_t i = 0; i < kColumns; ++i) {
    columns.push_back(file.column("column " + std::to_string(i)));
    is_right = is_right && columns.back() == i;
  }
  const std::vector<double> numbers = file.numbers(columns);
  for (std::size_t i = 0; i < kColumns; ++i) {
    is_right = is_right && numbers[i] == static_cast<double>(i);
  }
  CHECK(is_right);
}

TEST_CASE("a number has the bits that the library's own reader gives it") {
  std::mt19937_64 random(1);
  std::size_t wrong = 0;
  for (int i = 0; i < 200'000; ++i) {
    std::string text = random() % 2 == 0 ? "-" : "";
    for (std::uint64_t n = random() % 17; n > 0; --n)
      text += static_cast<char>('0' + random() % 10);
    if (random() % 4 != 0) text += '.';
    for (std::uint64_t n = random() % 17; n > 0; --n)
      text += static_cast<char>('0' + random() % 10);
    if (random() % 8 == 0) text += "e-" + std::to_string(random() % 30);
    double expected = 0;
    const char* const end = text.data() + text.size();
    const auto [read, error] = std::from_chars(text.data(), end, expected);
    const auto found = csv_number(text);
    const bool is_number = error == std::errc() && read == end;
    const bool is_right = found.has_value() == is_number &&
                          (!is_number || std::bit_cast<std::uint64_t>(*found) ==
                                             std::bit_cast<std::uint64_t>(expected));
    if (!is_right) {
      INFO(text);
      CHECK(is_right);
      ++wrong;
    }
  }
  CHECK(wrong == 0);
  CHECK(std::signbit(csv_number("-0").value()));
}

TEST_CASE("several columns are read together as each alone") {
  const TemporaryFolder folder;
  const CsvFile file(folder.write("table.csv", "a,b,c\n1,x,3\n4,y,z\n"));
  using Columns = std::vector<std::size_t>;
  CHECK(file.numbers(Columns{0, 0}) == std::vector<double>{1, 4, 1, 4});
  CHECK(file.numbers(Columns{}).empty());
  const std::vector<double> numbers = file.numbers(Columns{0, 2, 1});
  CHECK(std::vector(numbers.begin(), numbers.begin() + 3) == std::vector<double>{1, 4, 3});
  for (std::size_t i = 3; i < 6; ++i) CHECK(std::isnan(numbers[i]));
  CHECK_THROWS_AS(file.numbers(Columns{3}), ValueError);
}

TEST_CASE("a column of a CSV file is found by its name and read as texts or numbers") {
  const TemporaryFolder folder;
  const CsvFile file(folder.write("table.csv", "name,size\nx,1\n\"y\n\", -2.5e-1\t\nz,+0x\n"));
  CHECK(file.column("size") == 1);
  const auto texts = [&](std::size_t column) {
    return std::vector{file.text(0, column), file.text(1, column), file.text(2, column)};
  };
  CHECK(texts(0) == std::vector<std::string_view>{"x", "y\n", "z"});
  CHECK(texts(file.column("size")) == std::vector<std::string_view>{"1", " -2.5e-1\t", "+0x"});
  CHECK(message_of<DataError>([&] { file.refuse(2, 1, "is no finite number"); }) ==
        "data file '" + folder.path("table.csv") +
            "': line 5: column 'size': '+0x' is no finite number");
  CHECK(message_of<ValueError>([&] { (void)file.column("sizes"); }) ==
        "csv: '" + folder.path("table.csv") +
            "' has no column 'sizes' (did you mean 'size'?); it has 'name', 'size'");
  const CsvFile excel(folder.write("excel.csv", "a;b\n1;2\n"));
  CHECK_THAT(message_of<ValueError>([&] { (void)excel.column("b"); }),
             ContainsSubstring("has no column 'b'") &&
                 ContainsSubstring("it has 'a;b'; is the separator ';'? data.separator: \";\" "));
  const CsvFile tabs(folder.write("tabs.csv", "a\tb\n1\t2\n"));
  CHECK_THAT(message_of<ValueError>([&] { (void)tabs.column("b"); }),
             ContainsSubstring("; is the separator a tab? data.separator: \"\\t\" says so"));
  CHECK(message_of<DataError>([&] { file.refuse(1, 0, "is odd"); }) ==
        "data file '" + folder.path("table.csv") + "': line 3: column 'name': 'y\n' is odd");
  CHECK_THROWS_AS(file.text(3, 0), ValueError);
  CHECK_THROWS_AS(file.text(0, 2), ValueError);

  const CsvFile numbers(folder.write("numbers.csv", "x\n1\n +2 \n-0.5\n1e300\n.25\n"));
  const std::vector<std::size_t> first{0};
  CHECK(numbers.numbers(first) == std::vector<double>{1, 2, -0.5, 1e300, 0.25});
  for (const char* const text : {"", " ", "-", "+", "+-1", "--1", "1e999", "inf", "nan", "1 2",
                                 "1,5", "0x10", "one", "1e", "-\t1"}) {
    INFO(text);
    const CsvFile one(folder.write("one.csv", std::string("x\n\"") + text + "\"\n"));
    CHECK(one.text(0, 0) == text);
    CHECK(std::isnan(one.numbers(first)[0]));
  }
}

TEST_CASE("lines with too few or too many fields may be kept as rows that say nothing") {
  const TemporaryFolder folder;
  const std::string path =
      folder.write("table.csv", "a,b,c\n1,2,3\n4\n5,6,7,\"8\n\",9\n10,11,12\n13,14\n15,16,17");
  const CsvFile file(path, {.keeps_ragged = true});
  REQUIRE(file.rows() == 6);
  std::vector<std::string> told;
  for (const CsvFile::Ragged& line : file.ragged()) {
    told.push_back(std::to_string(line.row) + ", " + file.told(line));
  }
  CHECK(told == std::vector<std::string>{"1, it has 1 field, but the header has 3",
                                         "2, it has 5 fields, but the header has 3; a field "
                                         "with a separator in it needs quotes, and a line must "
                                         "not end with one",
                                         "4, it has 2 fields, but the header has 3"});
  CHECK(file.text(0, 2) == "3");
  CHECK(file.text(3, 2) == "12");
  CHECK(file.text(5, 0) == "15");
  std::vector<std::size_t> lines;
  for (std::size_t row = 0; row < 6; ++row) lines.push_back(file.line_of(row));
  CHECK(lines == std::vector<std::size_t>{2, 3, 4, 6, 7, 8});
  CHECK(file.lines(2, 4) == 3);
  CHECK_THROWS_AS(CsvFile(path), DataError);
}

TEST_CASE("blank lines at a table's end are no rows") {
  const std::vector<Row> expected{{"x", "y"}, {"1", "2"}, {"3", ""}};
  for (const char* const end : {"\n\n", "\r\n\r\n", "\n \t\n\n", "\n  "}) {
    CHECK(read_table(std::string("x,y\n1,2\n3,") + end) == expected);
  }
  CHECK(read_table("x\n1\n\n") == std::vector<Row>{{"x"}, {"1"}});
  CHECK(read_table("x\n\"\"\n") == std::vector<Row>{{"x"}, {""}});
  CHECK(read_table("x\n\"1\n\n\"\n\n") == std::vector<Row>{{"x"}, {"1\n\n"}});
  // Tabs are no blanks where they are separators.
  CHECK(read_table("x\ty\n1\t2\n\t\n", '\t') == std::vector<Row>{{"x", "y"}, {"1", "2"}, {"", ""}});
  CHECK(csv_error("\n \n") == "it is empty, but must have a header");
}

TEST_CASE("a table's first column needs no name, and blanks around a name may be left out") {
  const TemporaryFolder folder;
  const CsvFile file(folder.write("table.csv", ",x, y, z, z \n0,1,2,3,4\n"));
  CHECK(file.header() == Row{"", "x", " y", " z", " z "});
  CHECK(file.column("y") == 2);
  CHECK(file.column(" y") == 2);
  CHECK(file.column(" x ") == 1);
  CHECK(file.column(" z ") == 4);
  CHECK(file.find("") == 0);
  CHECK_FALSE(file.find("z").has_value());  // it may be either
  CHECK_THAT(message_of<ValueError>([&] { (void)file.column("z"); }),
             ContainsSubstring("it has '', 'x', ' y', ' z', ' z '"));
}

TEST_CASE("a text whose ends are not seen is told from others") {
  for (const char* const text : {"", " a", "a ", "a\t", "\na", "a\x7f",
                                 "\xc2\xa0"
                                 "a",
                                 "a\xc2\xad", "a\xe2\x80\x83",
                                 "\xe2\x80\x8b"
                                 "a",
                                 "a\xe2\x80\xaf", "a\xe2\x81\x9f",
                                 "\xe3\x80\x80"
                                 "a",
                                 "\xef\xbb\xbf"
                                 "a"}) {
    INFO(text);
    CHECK(has_unseen_ends(text));
  }
  for (const char* const text :
       {"a", "a b", "-", "\xc3\xa0", "\xe2\x80\x99tis", "caf\xc3\xa9", "\xe2\x82\xac",
        "a\xc2\xa0"
        "b"}) {
    INFO(text);
    CHECK_FALSE(has_unseen_ends(text));
  }
}

TEST_CASE("decimals are told apart by all of their digits") {
  const auto equal = [](const char* a, const char* b) { return Decimal::of(a) == Decimal::of(b); };
  for (const auto& [a, b] : {std::pair{"1", "1.0"},
                             {"10", "1e1"},
                             {"0010", "+10"},
                             {" 5\t", "5."},
                             {"-0.25", "-.25"},
                             {"0", "-0.00e7"},
                             {"120e-2", "1.2"}}) {
    INFO(a << " and " << b);
    CHECK(equal(a, b));
  }
  const std::vector<const char*> sorted{"-1e300",
                                        "-9007199254740993",
                                        "-9007199254740992",
                                        "-1.5",
                                        "-1.25",
                                        "0",
                                        "1e-7",
                                        "0.1",
                                        "0.1000000000000000055511151231257827",
                                        "9",
                                        "10",
                                        "18446744073709551615",
                                        "18446744073709551616"};
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    for (std::size_t j = 0; j < sorted.size(); ++j) {
      INFO(sorted[i] << " and " << sorted[j]);
      CHECK((*Decimal::of(sorted[i]) < *Decimal::of(sorted[j])) == (i < j));
      CHECK(equal(sorted[i], sorted[j]) == (i == j));
    }
  }
  for (const char* const text : {"", "one", "nan", "1e999", "--1"}) CHECK_FALSE(Decimal::of(text));
}

TEST_CASE(
    "a number is written with more digits than float32 has, or all before its point, or roughly") {
  for (const char* const text :
       {"100", "0.1", "-5.", " 1.6777217e7 ", "1.677721700E+07", "12e-30", "3e0", "0.016e3",
        ".5e+1", "1.7000001002500001e+18", "-6.0221407601E23", "1234567891e5"}) {
    INFO(text);
    CHECK_FALSE(is_rough(text));
  }
  for (const char* const text :
       {"1e20", "-6.02E+23", "1.6777217e8", "5.e1", ".5e2", "0.000602214076e27", "-6.02214076e23",
        "0e5", "1.000000000000000000e+20"}) {
    INFO(text);
    CHECK(is_rough(text));
  }
}

TEST_CASE("a CSV file's separator is no quote, line end or zero byte") {
  for (const char separator : {'"', '\n', '\r', '\0'}) {
    CHECK_THROWS_AS(read_table("a\n1\n", separator), ValueError);
  }
}

TEST_CASE("a line of CSV reads back as its fields, whatever they hold") {
  const std::vector<Row> rows{{"name", "a,b"},    {"plain", "with space"}, {"say \"no\"", "\""},
                              {"two\nlines", ""}, {"cr\r", "\r\n"},        {"\xef\xbb\xbf", ";"}};
  for (const char separator : {',', ';', '\t'}) {
    std::string text;
    for (const Row& row : rows) text += csv_line(row, {.separator = separator});
    CHECK(read_table(text, separator) == rows);
  }
  CHECK(csv_line({"x", "1.5"}) == "x,1.5\n");
  CHECK(read_table(csv_line({"x"}) + csv_line({""})) == std::vector<Row>{{"x"}, {""}});
  CHECK_THROWS_AS(csv_line({}), ValueError);
  CHECK_THROWS_AS(csv_line({std::string("a\0b", 3)}), ValueError);
}
