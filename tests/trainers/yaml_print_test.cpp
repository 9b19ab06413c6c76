#include <cmath>
#include <random>
#include <string>

#include "tests/catch.h"
#include "trainers/strict_yaml.h"

namespace lockstep {
namespace {

// What `reader` takes of the section 'paint' of a document with one key there, 'color'.
template <typename Reader>
auto read_back(const std::string& text, const Reader& reader) {
  YamlDocument document(text, "file.yaml", {{"paint", {"color"}, {}}});
  YamlSection paint = document.section("paint");
  auto value = reader(paint);
  document.finish();
  return value;
}

}  // namespace

TEST_CASE("printed numbers read well and back as the same double") {
  CHECK(yaml_number(0.001) == "0.001");
  CHECK(yaml_number(60) == "60");
  CHECK(yaml_number(0) == "0");
  CHECK(yaml_number(1e-8) == "1.0e-08");
  CHECK(yaml_number(1.5e-8) == "1.5e-08");
  CHECK(yaml_number(0.0001) == "0.0001");
  CHECK(yaml_number(100000) == "100000");
  CHECK(yaml_number(1e300) == "1.0e+300");
  const auto back = [](double value) {
    return read_back("paint: {color: " + yaml_number(value) + "}", [](YamlSection& paint) {
      return paint.number("color", -1, {"anything", [](double) { return true; }});
    });
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
  const auto back = [](const std::string& text) {
    return read_back("paint: {color: " + yaml_quoted(text) + "}", [](YamlSection& paint) {
      return paint.string("color", "", {"anything", [](const std::string&) { return true; }});
    });
  };
  for (const std::string text : {"", "a", " a ", "true", "3", "null", "a: b # c", "\"'\\",
                                 "tab\tnew\nline\r\x7f\x01", "größe/日本", "---", "{[}]*&!%@`"}) {
    INFO(text);
    CHECK(back(text) == text);
  }
}

}  // namespace lockstep
