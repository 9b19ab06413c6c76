#include "framework/formats/json_text.h"

#include <filesystem>
#include <string>
#include <vector>

#include "framework/base/text.h"
#include "framework/formats/data_file.h"
#include "tests/catch.h"
#include "tests/support/files.h"
#include "tests/support/message_of.h"

namespace lockstep::formats {
namespace {

namespace fs = std::filesystem;
using namespace testing;
using Json = nlohmann::ordered_json;

std::string nested(std::size_t levels) {
  return std::string(levels, '[') + std::string(levels, ']');
}

}  // namespace

TEST_CASE("foreign JSON is read to so many levels, whatever brackets its texts have") {
  CHECK(parse_json<Json>(nested(kMostJsonLevels)).is_array());
  for (const std::size_t levels :
       {kMostJsonLevels + 1, std::size_t{100'000}, std::size_t{2'000'000}})
    CHECK(parse_json<Json>(nested(levels)).is_discarded());
  CHECK(parse_json<Json>(R"({"a\\\"[": ")" + std::string(100, '[') + "\"}").is_object());
  CHECK(parse_json<Json>("[[],[]," + nested(15) + "]").is_array());
  CHECK(parse_json<Json>("{").is_discarded());
}

TEST_CASE("foreign JSON is read to so many names of an object, where they keep their order") {
  const auto named = [](std::size_t count) {
    std::string text = "{\"a:\":[{}";
    for (std::size_t i = 1; i < count; ++i) text += str(i == 1 ? "],\"" : ",\"", i, "\":{\"x\":1}");
    return text + "}";
  };
  CHECK(parse_json<Json>(named(kMostJsonNames)).size() == kMostJsonNames);
  CHECK(parse_json<Json>(named(kMostJsonNames + 1)).is_discarded());
  CHECK(parse_json<nlohmann::json>(named(kMostJsonNames + 1)).is_object());
}

TEST_CASE("a field that is missing or of another kind is named") {
  const Json json{{"a", 1}, {"b", "x"}};
  CHECK(json_field<int>(json, "a") == 1);
  CHECK(json_field<int>(json, "c", 7) == 7);
  CHECK(message_of<DataError>([&] { (void)json_field<int>(json, "b"); }) ==
        "'b' is of the wrong kind: \"x\"");
  CHECK(message_of<DataError>([&] { (void)json_field<int>(json, "c"); }) == "'c' is missing");
  CHECK(message_of<DataError>([&] { (void)json_field<int>(Json(3), "c"); }) == "'c' is missing");
}

TEST_CASE("files and lines without an end are refused by their name") {
  const TemporaryFolder folder;
  const std::string file = folder.write("file", "one\ntwo");
  CHECK(text_in(file) == "one\ntwo");
  std::vector<std::string> lines;
  const auto read = [&] {
    lines.clear();
    for_each_line(file, [&](std::string_view line, bool has_end) {
      lines.push_back(std::string(line) + (has_end ? "." : ""));
      return true;
    });
  };
  read();
  CHECK(lines == std::vector<std::string>{"one.", "two"});
  fs::resize_file(file, std::uintmax_t{1} << 37);  // a hole, which takes no room
  CHECK_THAT(message_of<DataError>([&] { (void)text_in(file); }),
             ContainsSubstring("data file '" + file + "': it has 137438953472 bytes"));
  CHECK_THAT(message_of<DataError>(read), ContainsSubstring(file + ":2: the line has more than "));
}

}  // namespace lockstep::formats
