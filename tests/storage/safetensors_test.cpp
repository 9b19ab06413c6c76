#include "framework/storage/safetensors.h"

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/errors.h"
#include "tests/catch.h"
#include "tests/support/allocated_bytes.h"
#include "tests/support/damage.h"
#include "tests/support/message_of.h"
#include "tests/support/settings.h"
#include "tests/support/temporary_folder.h"

using namespace lockstep;
using storage::parse_header;
using storage::SafetensorsHeader;
using storage::StoredTensor;

namespace {

SafetensorsHeader sample_header() {
  SafetensorsHeader header;
  header.metadata = {{"format", "pt"}, {"step", "12"}};
  header.tensors = {{.name = "layers.0.weight", .dtype = "F32", .shape = {3, 5}},
                    {.name = "größe \"1\"", .dtype = "BF16", .shape = {}},
                    {.name = "empty", .dtype = "I64", .shape = {4, 0, 7}},
                    {.name = "flags", .dtype = "BOOL", .shape = {3}}};
  return header;
}

// Returns the JSON of a file's beginning.
std::string json_of(const std::string& beginning) {
  return beginning.substr(sizeof(std::uint64_t));
}

std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

}  // namespace

TEST_CASE("a safetensors header is read as it was written") {
  SafetensorsHeader header = sample_header();
  const std::string beginning = write_header(header);
  std::uint64_t length = 0;
  std::memcpy(&length, beginning.data(), sizeof length);
  CHECK(length == beginning.size() - sizeof length);
  CHECK(beginning.size() % 64 == 0);
  CHECK(header.tensors[3].begin == 62);
  CHECK(header.tensors[3].end == 65);
  CHECK(parse_header(json_of(beginning), 65) == header);
}

TEST_CASE("a safetensors header that would be refused is not written", "[bulk]") {
  const auto refusal = [](std::vector<StoredTensor> tensors) {
    SafetensorsHeader header{.metadata = {}, .tensors = std::move(tensors)};
    return testing::message_of<ValueError>([&] { (void)write_header(header); });
  };
  const StoredTensor good{.name = "a", .dtype = "F32", .shape = {1}};
  CHECK(refusal({good}) == "no error");
  CHECK(refusal({good, good}) == "safetensors: the name 'a' stands twice");
  CHECK(refusal({{.name = "__metadata__", .dtype = "F32", .shape = {1}}}) ==
        "safetensors: a tensor can't have the name '__metadata__'");
  CHECK(refusal({{.name = "a", .dtype = "F33", .shape = {1}}}) ==
        "safetensors: tensor 'a' has the dtype 'F33'");
  CHECK(refusal({{.name = "a", .dtype = "F64", .shape = {~std::uint64_t{0}}}}) ==
        "safetensors: tensor 'a' is too large");
  CHECK_THAT(refusal({{.name = "\xff", .dtype = "F32", .shape = {1}}}),
             ContainsSubstring("no UTF-8"));
  CHECK_THAT(refusal({{.name = std::string(100'000'000, 'x'), .dtype = "F32", .shape = {1}}}),
             ContainsSubstring("and the longest has 100000000"));
}

TEST_CASE("a safetensors header may have null as metadata, and dtypes that are not known") {
  const SafetensorsHeader header =
      parse_header("{\"__metadata__\":null,\"a\":" + tensor("C64", "[2]", "[0,16]") +
                       ",\"b\":" + tensor("F4", "[4]", "[16,18]") + "}",
                   18);
  CHECK(header.metadata.empty());
  CHECK(header.tensors.at(0).bytes() == 16);
  CHECK(header.tensors.at(1).dtype == "F4");
}

TEST_CASE("tensors of a safetensors file are read, whole or in part") {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "two.safetensors";
  SafetensorsHeader header;
  header.tensors = {{.name = "a", .dtype = "U8", .shape = {3}},
                    {.name = "b", .dtype = "U8", .shape = {2, 2}}};
  std::ofstream(path, std::ios::binary) << write_header(header) << "abcdefg";
  const storage::SafetensorsFile file(path);
  CHECK(file.header() == header);
  CHECK(file.find("c") == nullptr);
  std::string part(2, ' ');
  file.read(*file.find("b"), 1, std::as_writable_bytes(std::span(part)));
  CHECK(part == "ef");
  CHECK_THROWS_AS(file.read(*file.find("b"), 3, std::as_writable_bytes(std::span(part))),
                  ValueError);
}

TEST_CASE("what breaks a rule of the safetensors format is refused, with the rule") {
  const std::string good = tensor("F32", "[2]", "[0,8]");
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "does not begin with {"},
      {" {}", "does not begin with {"},
      {"{", "has nothing at its beginning (line 1, byte 1), where a text in UTF-8 should be"},
      {"{}}", "has '}' at its beginning (line 1, byte 2), where its end should be"},
      {"{\"a\":1}", "has '1}' behind 'a'"},
      {"{\"a\":[]}", "has '[]}' behind 'a'"},
      {"{\"a\":{}}", "lacks one of"},
      {"{\"a\":" + good + ",\"a\":" + good + "}", "'a' stands twice"},
      {"{\"a\":" + tensor("F33", "[2]", "[8,0]") + "}", "is at bytes 8 to 0"},
      {"{\"a\":" + tensor("F32", "[3]", "[0,8]") + "}", "should be at 0 to 12"},
      {"{\"a\":" + tensor("F32", "[2]", "[8,16]") + "}", "should be at 0 to 8"},
      {"{\"a\":" + tensor("F32", "[2]", "[8,0]") + "}", "should be at 0 to 8"},
      {"{\"a\":" + tensor("F32", "[-2]", "[0,8]") + "}", "has '-2],"},
      {"{\"a\":" + tensor("F32", "[2.0]", "[0,8]") + "}", "has '2.0],"},
      {"{\"a\":" + tensor("F32", "[[2]]", "[0,8]") + "}",
       "where a whole number from 0 to 18446744073709551615 should be"},
      {"{\"a\":" + tensor("F32", "[2]", "[0,8,8]") + "}",
       "lacks one of dtype, shape, two data_offsets"},
      {"{\"a\":" + tensor("F32", "[2]", "[0]") + "}", "lacks one of"},
      {"{\"a\":" + tensor("F32", "[4294967296,4294967296,2]", "[0,8]") + "}", "beyond all files"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1}})", "a field 'more'"},
      {R"({"a":{"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]}})",
       "'shape' stands twice"},
      {"{\"a\":" + tensor("F32", "[2]", "[0,8") + "}", "has '}}' behind 'data_offsets'"},
      {"{\"a\":" + tensor("F32", "[02]", "[0,8]") + "}", "has '02],"},
      {"{\"a\":" + good + ",}", "has '}' behind 'data_offsets'"},
      {"{\"a\":" + good + std::string("}\0", 2), "where its end should be"},
      {"{\"a" + std::string("\0", 1) + "\":" + good + "}", "where a text in UTF-8 should be"},
      {R"({"__metadata__":{"a":1}})", "has '1}}' behind 'a'"},
      {R"({"__metadata__":{"a":"b","a":"c"}})", "'a' stands twice"},
      {"{}", "take 0 bytes, and it has 8"},
      {"{\"a\":" + good + ",\"b\":" + good + "}", "should be at 8 to 16"},
  };
  for (const auto& [text, rule] : cases) {
    INFO(text);
    const std::string message =
        testing::message_of<DataError>([&] { (void)parse_header(text, 8); });
    CHECK(message.find(rule) != std::string::npos);
  }
}

TEST_CASE("safetensors files that are damaged are refused by name") {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "bad.safetensors";
  const auto refused = [&](const std::string& content, const std::string& rule) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
    const std::string message =
        testing::message_of<DataError>([&] { storage::SafetensorsFile file(path); });
    CHECK(message.find(path.string() + ": not a safetensors file: ") == 0);
    CHECK(message.find(rule) != std::string::npos);
  };
  SafetensorsHeader header;
  header.tensors = {{.name = "a", .dtype = "F32", .shape = {2}}};
  const std::string beginning = write_header(header);
  refused("", "it has 0 bytes");
  refused(beginning, "take 8 bytes, and it has 0");
  refused(beginning + "123456789", "take 8 bytes, and it has 9");
  refused(beginning.substr(0, 20), "and the file has 20");
  refused(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}"), "should have 18446744073709551615");

  const std::uint64_t length = 100'000'001;
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(&length), sizeof length);
  std::filesystem::resize_file(path, 2 * length);
  CHECK_THAT(testing::message_of<DataError>([&] { storage::SafetensorsFile file(path); }),
             ContainsSubstring("its header should have 100000001 bytes"));
}

TEST_CASE("a list in the place of a header's text is refused before it is read, at its key") {
  std::string list = "[0";
  for (int i = 0; i < 500'000; ++i) list += ",0";
  list += "]";
  const std::vector<std::pair<std::string, std::string>> cases{
      {R"({"a":{"dtype":)" + list + R"(,"shape":[2],"data_offsets":[0,8]}})", "behind 'dtype'"},
      {R"({"__metadata__":{"format":)" + list + R"(},"a":1})", "behind 'format'"},
      {"{" + list + R"(:"a"})", "at its beginning"}};
  for (const auto& [text, place] : cases) {
    INFO(place);
    const std::uint64_t before = testing::allocated_bytes();
    const std::string message =
        testing::message_of<DataError>([&] { (void)parse_header(text, 8); });
    CHECK(testing::allocated_bytes() - before < 100'000);
    CHECK_THAT(message, ContainsSubstring("the JSON has '[0,0,0,") &&
                            ContainsSubstring(place + " (line 1, ") &&
                            ContainsSubstring("where a text in UTF-8 should be"));
  }
}

// The text is deep enough for any stack, if each level took a frame of it.
TEST_CASE("a safetensors header that nests deeper than the format is refused") {
  for (const std::string nested : {"[", "{\"a\":", "[{\"a\":"}) {
    std::string deep;
    for (int i = 0; i < 1'000'000; ++i) deep += nested;
    for (const std::string before : {"{\"a\":", R"({"a":{"shape":[)", R"({"__metadata__":{"a":)"}) {
      CHECK_THAT(testing::message_of<DataError>([&] { (void)parse_header(before + deep, 8); }),
                 ContainsSubstring("not a safetensors file: "));
    }
  }
}

// A changed header is refused, or read as one that the format allows.
TEST_CASE("a safetensors header with changed bytes is refused or a right one", "[bulk]") {
  std::cout << "safetensors: LOCKSTEP_SEED=" << testing::seed() << std::endl;
  SafetensorsHeader header = sample_header();
  const std::string whole = json_of(write_header(header));
  testing::Random random(testing::seed());
  std::size_t accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::string text = testing::changed_json(whole, random);
    try {
      const SafetensorsHeader read = parse_header(text, 65);
      ++accepted;
      std::uint64_t end = 0;
      bool is_right = true;
      for (const StoredTensor& each : read.tensors) {
        std::uint64_t bytes = storage::element_bytes(each.dtype);
        for (const std::uint64_t size : each.shape) bytes *= size;
        const bool is_known = storage::element_bytes(each.dtype) > 0;
        is_right = is_right && each.begin == end && each.end >= end &&
                   (!is_known || bytes == each.bytes());
        end = each.end;
      }
      if (!is_right || end != 65) FAIL_CHECK(text);
    } catch (const DataError&) {
    }
  }
  CHECK(accepted > 0);  // changed names and metadata
  CHECK(accepted < 10'000);
}
