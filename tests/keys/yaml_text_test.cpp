#include <cmath>
#include <random>
#include <string>

#include "framework/keys/key_table.h"
#include "tests/catch.h"

namespace lockstep::keys {
namespace {

// Reads `text` as the value of `value`'s key, the only one of a table.
void read_back(const std::string& text, const Value& value) {
  (void)read_keys("paint: {color: " + text + "}", "file.yaml",
                  {{"paint", {{"color", value, "its color"}}}});
}

}  // namespace

TEST_CASE("printed numbers read well and back as the same double") {
  CHECK(yaml_text(0.001) == "0.001");
  CHECK(yaml_text(60.0) == "60");
  CHECK(yaml_text(0.0) == "0");
  CHECK(yaml_text(1e-8) == "1.0e-08");
  CHECK(yaml_text(1.5e-8) == "1.5e-08");
  CHECK(yaml_text(0.0001) == "0.0001");
  CHECK(yaml_text(100000.0) == "100000");
  CHECK(yaml_text(1e300) == "1.0e+300");
  const auto back = [](double value) {
    double read = -1;
    read_back(yaml_text(value), number(read, {"anything", [](double) { return true; }}));
    return read;
  };
  const unsigned seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 1000; ++i) {
    const double value =
        std::ldexp(static_cast<double>(random()), static_cast<int>(random() % 2000) - 1050);
    INFO(value);
    REQUIRE(back(value) == value);
  }
}

TEST_CASE("printed strings read back") {
  const auto back = [](const std::string& value) {
    std::string read = "nothing";
    read_back(yaml_text(value), text(read, {"anything", [](const std::string&) { return true; }}));
    return read;
  };
  for (const std::string word : {"", "a", " a ", "true", "3", "null", "a: b # c", "\"'\\",
                                 "tab\tnew\nline\r\x7f\x01", "größe/日本", "---", "{[}]*&!%@`"}) {
    INFO(word);
    CHECK(back(word) == word);
  }
}

}  // namespace lockstep::keys
