#include "framework/base/text_table.h"

#include "tests/catch.h"

using namespace lockstep;

TEST_CASE("a table's columns are as wide as their longest cell") {
  CHECK(
      table_text({{"", "time", "GB/s"}, {"psum", "3.02 us"}, {"all_gather", "12 ms", "1"}}, "lr") ==
      "               time  GB/s\n"
      "psum        3.02 us\n"
      "all_gather    12 ms     1\n");
  CHECK(table_text({{"f32", "8", "w", "(2)"}, {"", "16", "in all"}}, "lrl", "  ") ==
        "  f32   8  w       (2)\n"
        "       16  in all\n");
}

TEST_CASE("a table's letters are as wide as terminals show them") {
  CHECK(text_columns("a … größe") == 9);
  CHECK(text_columns("日本語") == 6);                         // wide ones
  CHECK(text_columns("e\u0301\u200b") == 1);                  // none of their own
  CHECK(text_columns(std::string("\xff\xc3\x00 ", 4)) == 4);  // no letters
  CHECK(table_text({{"größe", "日本", "x"}, {"a", "ö", "y"}}, "lr") ==
        "größe  日本  x\n"
        "a         ö  y\n");
}

TEST_CASE("a table of no rows, and rows of no cells") {
  CHECK(table_text({}, "l") == "");
  CHECK(table_text({{}, {""}}, "l", "  ") == "\n\n");
}
