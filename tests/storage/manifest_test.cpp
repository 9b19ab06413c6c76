#include "framework/storage/manifest.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/errors.h"
#include "tests/catch.h"
#include "tests/storage/sample_checkpoint.h"
#include "tests/support/allocated_bytes.h"
#include "tests/support/damage.h"
#include "tests/support/message_of.h"
#include "tests/support/settings.h"

using namespace lockstep;
using storage::Manifest;
using storage::parse_manifest;
using storage::write_manifest;

namespace {

constexpr std::size_t kEnding = 37;

// A text with the ending that makes it a manifest's.
std::string sealed(const std::string& body) {
  return body + ",\n  \"checksum\": \"" + testing::checksum_text(body) + "\"\n}\n";
}

std::string body_of(const std::string& text) {
  return text.substr(0, text.size() - kEnding);
}

std::string refusal(const std::string& text) {
  return testing::message_of<DataError>([&] { (void)parse_manifest(text); });
}

// True if pieces cover all tensors, whose names are in order.
bool is_covered(const Manifest& manifest) {
  for (std::size_t i = 0; i < manifest.tensors.size(); ++i) {
    const storage::ManifestTensor& tensor = manifest.tensors[i];
    if (i > 0 && manifest.tensors[i - 1].name >= tensor.name) return false;
    std::uint64_t elements = 1;
    for (const std::uint64_t size : tensor.shape) elements *= size;
    std::uint64_t end = 0;
    for (const storage::ManifestPiece& piece : tensor.pieces) {
      if (piece.offset != end || piece.size == 0 || piece.file >= manifest.files.size()) {
        return false;
      }
      end += piece.size;
    }
    if (end != elements) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("a manifest is read as it was written") {
  Manifest manifest = testing::sample_manifest(12);
  manifest.counts["lowest"] = std::numeric_limits<std::int64_t>::min();
  manifest.counts["highest"] = std::numeric_limits<std::int64_t>::max();
  manifest.texts["größe \"1\"\n\t"] = std::string("a\0\x01\\ü", 6);
  manifest.texts["path"] = std::string("caf\xe9\0\xff", 6);
  manifest.files[1].name = "größe \"2\"";
  manifest.tensors[4].name = "weight \"größe\"";
  const std::string text = write_manifest(manifest);
  CHECK(parse_manifest(text) == manifest);
  CHECK(text == sealed(body_of(text)));
  CHECK(
      text.starts_with("{\n"
                       "  \"format\": \"lockstep-checkpoint\",\n"
                       "  \"format_version\": 1,\n"
                       "  \"step\": 12,\n"));
  CHECK_THAT(text, ContainsSubstring("\n    {\"name\": \"bias\", \"dtype\": \"BF16\", \"shape\": "
                                     "[6], \"pieces\": [[0, 0, 2], [1, 2, 4]]},\n"
                                     "    {\"name\": \"empty\", \"dtype\": \"I64\", \"shape\": "
                                     "[4, 0], \"pieces\": []},\n"));
  CHECK(parse_manifest(write_manifest({})) == Manifest{});
}

TEST_CASE("a manifest's figures keep their bits") {
  using Limits = std::numeric_limits<double>;
  Manifest manifest;
  std::mt19937_64 random(7);
  for (const double figure : {0.0, -0.0, 1.0, 0.1, 1e22, -1.0 / 3, Limits::max(), Limits::lowest(),
                              Limits::min(), Limits::denorm_min()}) {
    manifest.figures[std::to_string(manifest.figures.size())] = figure;
  }
  while (manifest.figures.size() < 2000) {
    const auto figure = std::bit_cast<double>(random());
    if (!std::isfinite(figure)) continue;
    manifest.figures[std::to_string(manifest.figures.size())] = figure;
  }
  const Manifest read = parse_manifest(write_manifest(manifest));
  std::size_t same = 0;
  for (const auto& [name, figure] : manifest.figures) {
    const auto bits = std::bit_cast<std::uint64_t>(figure);
    same += std::bit_cast<std::uint64_t>(read.figures.at(name)) == bits ? 1 : 0;
  }
  CHECK(same == 2000);
  CHECK(read.figures.size() == 2000);
}

TEST_CASE("a manifest of which a byte was changed is refused") {
  const std::string whole = write_manifest(testing::sample_manifest(12));
  std::size_t refused = 0;
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string text = whole;
    text[at] = static_cast<char>(text[at] ^ (1 << (at % 8)));
    refused += refusal(text).find("it is damaged or cut short") != std::string::npos ? 1 : 0;
    refused += refusal(whole.substr(0, at)).find("it is damaged or cut") != std::string::npos;
  }
  CHECK(refused == 2 * whole.size());
  CHECK_THAT(refusal(whole + "\n"), ContainsSubstring("it does not end with"));
  CHECK_THAT(refusal(""), ContainsSubstring("2d06800538d394c2, the checksum of its bytes"));
}

TEST_CASE("what breaks a rule of manifests is refused, with the rule") {
  const std::string body = body_of(write_manifest(testing::sample_manifest(12)));
  const std::string zeros(16, '0');
  // A text, its replacement, and the rule.
  const std::vector<std::vector<std::string>> cases{
      {"lockstep-checkpoint", "other", "its format is 'other'"},
      {"\"format_version\": 1", "\"format_version\": 2", "was written by a newer Lockstep"},
      {"\"format_version\": 1", "\"format_version\": 2, \"new\": {}", "newer Lockstep"},
      {"\"format_version\": 1", "\"format_version\": 0", "its format_version is 0"},
      {"\"format_version\": 1", "\"format_version\": \"1\"",
       "has '\"1\",' behind 'format_version' (line 3"},
      {"\"step\": 12,", "", "has '\"replicas\": 2,' behind 'format_version' (line 5"},
      {"\"step\": 12", "\"stepp\": 12", "where '\"step\"' should be"},
      {"\"step\": 12", "\"step\": 12, \"step\": 12", "where '\"replicas\"' should be"},
      {"\"step\": 12", "\"step\": -12", "its step is -12"},
      {"\"step\": 12", "\"step\": 12.0", "has '12.0,' behind 'step'"},
      {"\"step\": 12", "\"step\": 9223372036854775808", "to 9223372036854775807 should be"},
      {"\"step\": 12", "\"step\": null", "has 'null,' behind 'step'"},
      {"\"step\": 12", "\"step\": true", "has 'true,' behind 'step'"},
      {"\"step\": 12", "\"step\": [12]", "has '[12],' behind 'step'"},
      {"\"step\": 12", "\"step\": {}", "has '{},' behind 'step'"},
      {"\"step\": 12", "\"step\": ", "has ',' behind 'step'"},
      {"\"step\": 12", "\"step\": 012", "has '012,' behind 'step'"},
      {"\"step\": 12", std::string("\"step\": 12\0", 11), "where ',' should be"},
      {"\"samples\": 384", "\"samples\": 384,", "where a text in UTF-8 should be"},
      {"\"replicas\": 2", "\"replicas\": 0", "its replicas are 0"},
      {"\"samples\": 384", "\"samples\": 384.5", "has '384.5' behind 'samples'"},
      {"\"samples\": 384", "\"samples\": 18446744073709551615",
       "'18446744073709551615' behind 'samples'"},
      {"\"samples\": 384", "\"samples\": 1, \"samples\": 2", "'samples' stands twice"},
      {"\"loss\": 0.1", "\"loss\": 1e999", "has '1e999' behind 'loss' (line 10"},
      {"\"loss\": 0.1", "\"loss\": NaN", "has 'NaN' behind 'loss'"},
      {"\"loss\": 0.1", "\"loss\": \"0.1\"", "has '\"0.1\"' behind 'loss'"},
      {"\"config\": \"", "\"config\": \"\xff", "where a text in UTF-8 should be"},
      {"\"config\": \"", "\"config\": 1, \"x\": \"", "behind 'config' (line 13"},
      {"\"config\": \"", "\"config\": [256], \"x\": \"",
       "where a whole number from 0 to 255 should be"},
      {"\"config\": \"", "\"config\": [\"a\"], \"x\": \"",
       "where a whole number from 0 to 255 should be"},
      {"replica-0.safetensors", "", "a file can't have the name ''"},
      {"replica-0.safetensors", ".", "a file can't have the name '.'"},
      {"replica-0.safetensors", "..", "a file can't have the name '..'"},
      {"replica-0.safetensors", "../x", "a file can't have the name '../x'"},
      {"replica-0.safetensors", "manifest.json", "a file can't have the name 'manifest.json'"},
      {"replica-0.safetensors", "a\\u0000b", "a file can't have the name 'a"},
      {"replica-0.safetensors", "replica-1.safetensors", "'replica-1.safetensors' stands twice"},
      {"\"bytes\": 0", "\"bytes\": -1", "behind 'bytes' (line 16"},
      {zeros, "00", "has the checksum '00'"},
      {zeros, "000000000000000G", "has the checksum '000000000000000G'"},
      {zeros + "\"}", zeros + "\", \"more\": 1}", "has ', \"more\": 1},' behind 'checksum'"},
      {", \"checksum\": \"" + zeros + "\"", "", "has '},' behind 'bytes'"},
      {"\"files\": [", "\"files\": [1, ", "where '{' should be"},
      {"\"files\": [", "\"files\": [[], ", "where '{' should be"},
      {"\"tensors\": [", "\"tensors\": [{}, ", "where '\"name\"' should be"},
      {"\"name\": \"empty\"", "\"name\": \"bias\"", "tensor 'bias' follows 'bias'"},
      {"\"name\": \"empty\"", "\"name\": \"a\"", "tensor 'a' follows 'bias'"},
      {"\"BF16\"", "\"BF17\"", "tensor 'bias' has the dtype 'BF17'"},
      {"\"shape\": [6]", "\"shape\": [6.0]",
       "has '6.0], \"pieces\": [[0, 0, 2], [1, 2, 4]]},' behind 'shape'"},
      {"\"shape\": [6]", "\"shape\": [-6]", "where a whole number from 0 to 18446744073709551615"},
      {"\"shape\": [6]", "\"shape\": [[6]]", "has '[6]], "},
      {"\"shape\": [6]", "\"shape\": 6", "where '[' should be"},
      {"\"shape\": [6]", "\"shape\": [7]", "has pieces for 6 of its 7 elements"},
      {"\"shape\": [6]", "\"shape\": [4294967296, 4294967296]", "tensor 'bias' is too large"},
      {"\"shape\": [6]", "\"shape\": [5]", "a piece of elements 2 to 2 + 4 where one from 2 to 5"},
      {"\"shape\": [6]", "\"shape\": [0]", "a piece of elements 0 to 0 + 2 where one from 0 to 0"},
      {"[0, 0, 2]", "[0, 0, 1]", "a piece of elements 2 to 2 + 4 where one from 1 to 6"},
      {"[0, 0, 2]", "[0, 0, 3]", "a piece of elements 2 to 2 + 4 where one from 3 to 6"},
      {"[0, 0, 2]", "[2, 0, 2]", "tensor 'bias' has a piece in file 2 of 2"},
      {"[0, 0, 2]", "[1, 0, 2]", "tensor 'bias' has two pieces in file 1"},
      {"[0, 0, 2]", "[0, 0, 0], [0, 0, 2]", "has a piece without elements at 0"},
      {"[0, 0, 2]", "[0, 0, 18446744073709551615]", "elements 0 to 0 + 18446744073709551615"},
      {"[0, 0, 2], [1, 2, 4]", "[1, 2, 4], [0, 0, 2]", "a piece of elements 2 to 2 + 4"},
      {"[0, 0, 2]", "[0, 0]", "where ',' should be"},
      {"[0, 0, 2]", "[0, 0, 2, 0]", "where ']' should be"},
      {"[0, 0, 2]", "2", "where '[' should be"},
      {"[4, 0], \"pieces\": []", "[4, 0], \"pieces\": [[0, 0, 0]]", "a piece without elements"},
      {"\"pieces\": []", "\"pieces\": [{}]", "where '[' should be"},
      {"{\n  \"format\"", "[\n  \"format\"",
       "has '[' at its beginning (line 1, byte 0), where '{' should be"},
      {"{\n  \"format\"", "{}{\n  \"format\"", "where '\"format\"' should be"},
  };
  CHECK_NOTHROW(parse_manifest(sealed(body)));
  for (const auto& each : cases) {
    std::string changed = body;
    const std::size_t at = changed.find(each[0]);
    REQUIRE(at != std::string::npos);
    changed.replace(at, each[0].size(), each[1]);
    INFO(changed);
    const std::string message = refusal(sealed(changed));
    CHECK_THAT(message, ContainsSubstring("not a checkpoint's manifest: "));
    CHECK_THAT(message, ContainsSubstring(each[2]));
  }
}

TEST_CASE("a manifest's line of a file or tensor has 1 MiB at most, and texts may be longer",
          "[bulk]") {
  constexpr std::size_t kLongest = std::size_t{1} << 20;
  const std::string over = "a line has 1048577 bytes, and the most are 1048576";
  const auto name_of_last = [](Manifest& manifest, bool is_file) -> std::string& {
    return is_file ? manifest.files.back().name : manifest.tensors.back().name;
  };
  for (const bool is_file : {true, false}) {
    Manifest manifest = testing::sample_manifest(12);
    manifest.texts["config"] = std::string(2 * kLongest, 'x');
    manifest.texts["path"] = std::string(kLongest, '\xff');
    std::string& name = name_of_last(manifest, is_file);
    const std::string text = write_manifest(manifest);
    const std::size_t begin = text.find("{\"name\": \"" + name);
    name.append(kLongest - (text.find('\n', begin) - begin), 'x');
    const std::string body = body_of(write_manifest(manifest));
    CHECK(parse_manifest(sealed(body)) == manifest);
    std::string longer = body;
    longer.insert(longer.find("\"name\": \"" + name), 1, ' ');
    CHECK_THAT(refusal(sealed(longer)), ContainsSubstring("not a checkpoint's manifest: " + over));
    name += 'x';
    CHECK(testing::message_of<ValueError>([&] { (void)write_manifest(manifest); }) ==
          "manifest: " + over);
  }
}

TEST_CASE("a list in the place of a text is refused before it is read, at its key") {
  const std::string body = body_of(write_manifest(testing::sample_manifest(12)));
  std::string list = "[0";
  for (int i = 0; i < 500'000; ++i) list += ",0";
  list += "]";
  const std::vector<std::pair<std::string, std::string>> texts{{"format", "lockstep-checkpoint"},
                                                               {"name", "replica-1.safetensors"},
                                                               {"checksum", "0000000000000000"},
                                                               {"name", "weight"},
                                                               {"dtype", "BF16"}};
  for (const auto& [key, text] : texts) {
    INFO(key << " " << text);
    const std::string in_quotes = '"' + text + '"';
    std::string changed = body;
    changed.replace(changed.find(in_quotes), in_quotes.size(), list);
    changed = sealed(changed);
    const std::uint64_t before = testing::allocated_bytes();
    const std::string message = refusal(changed);
    CHECK(testing::allocated_bytes() - before < 100'000);
    CHECK_THAT(message, ContainsSubstring("the JSON has '[0,0,0,") &&
                            ContainsSubstring(" behind '" + key + "' (line ") &&
                            ContainsSubstring("where a text in UTF-8 should be"));
  }
}

// The text is deep enough for any stack, if each level took a frame of it.
TEST_CASE("a manifest that nests deeper than its format is refused") {
  const std::string body = body_of(write_manifest(testing::sample_manifest(12)));
  for (const std::string nested : {"[", "{\"a\":", "[{\"a\":"}) {
    std::string deep;
    for (int i = 0; i < 1'000'000; ++i) deep += nested;
    for (const std::string before :
         {"\"step\": ", "\"config\": ", "\"files\": [", "\"shape\": ["}) {
      std::string changed = body;
      changed.insert(body.find(before) + before.size(), deep);
      CHECK_THAT(refusal(sealed(changed)),
                 ContainsSubstring("not a checkpoint's manifest: the JSON has '"));
    }
  }
}

TEST_CASE("the parts of replicas become one manifest, by the names of tensors") {
  const Manifest whole = testing::sample_manifest(12);
  std::vector<std::string> parts;
  for (std::size_t file = 0; file < whole.files.size(); ++file) {
    std::vector<storage::ManifestTensor> tensors;
    for (storage::ManifestTensor tensor : whole.tensors) {
      const bool is_empty = tensor.pieces.empty();
      std::erase_if(tensor.pieces, [&](const auto& piece) { return piece.file != file; });
      for (storage::ManifestPiece& piece : tensor.pieces) piece.file = 0;
      if (is_empty || !tensor.pieces.empty()) tensors.insert(tensors.begin(), tensor);
    }
    parts.push_back(encode(storage::ManifestPart(whole.files[file], tensors)));
  }
  Manifest made = whole;
  made.files.clear();
  made.tensors.clear();
  add_parts(made, parts);
  CHECK(made == whole);
  CHECK_THAT(testing::message_of<DataError>([&] { add_parts(made, {parts[0] + "x"}); }),
             ContainsSubstring("what a replica has written"));
}

TEST_CASE("a manifest that would be refused is not written") {
  const auto refused = [](const auto& change) {
    Manifest manifest = testing::sample_manifest(12);
    change(manifest);
    return testing::message_of<ValueError>([&] { (void)write_manifest(manifest); });
  };
  CHECK(refused([](Manifest& m) { m.step = -1; }) == "manifest: its step is -1");
  CHECK(refused([](Manifest& m) { m.figures["x"] = std::nan(""); }) ==
        "manifest: figure 'x' is nan");
  CHECK(refused([](Manifest& m) { m.figures["x"] = HUGE_VAL; }) == "manifest: figure 'x' is inf");
  CHECK(refused([](Manifest& m) { m.texts["\xff"] = "x"; }) == "manifest: a name is no UTF-8");
  CHECK(refused([](Manifest& m) { m.files[0].checksum.clear(); }) ==
        "manifest: file 'replica-0.safetensors' has the checksum ''");
  CHECK(refused([](Manifest& m) { std::swap(m.tensors[0], m.tensors[1]); }) ==
        "manifest: tensor 'bias' follows 'empty': names should be in their order, each once");
}

TEST_CASE("the manifest of ten thousand tensors on a thousand replicas is short enough") {
  constexpr std::size_t kReplicas = 1000;
  constexpr std::size_t kTensors = 20;
  constexpr std::uint64_t kPiece = 1'000'000'000;
  Manifest manifest;
  manifest.replicas = kReplicas;
  for (std::size_t i = 0; i < kReplicas; ++i) {
    manifest.files.push_back(
        {.name = "replica-" + std::to_string(i), .checksum = std::string(16, '0')});
  }
  for (std::size_t i = 0; i < kTensors; ++i) {
    storage::ManifestTensor& tensor = manifest.tensors.emplace_back();
    tensor = {
        .name = "tensor." + std::to_string(100 + i), .dtype = "F32", .shape = {kReplicas, kPiece}};
    for (std::size_t j = 0; j < kReplicas; ++j) tensor.pieces.push_back({j, j * kPiece, kPiece});
  }
  const std::string text = write_manifest(manifest);
  CHECK(text.size() * (10'000 / kTensors) < storage::kLongestManifest);
  CHECK(parse_manifest(text) == manifest);
}

// A changed text with a right checksum is refused, or read as a manifest that could have been
// written.
TEST_CASE("a manifest with changed bytes is refused or a right one", "[bulk]") {
  std::cout << "manifest: LOCKSTEP_SEED=" << testing::seed() << std::endl;
  const std::string whole = body_of(write_manifest(testing::sample_manifest(12)));
  testing::Random random(testing::seed());
  std::size_t accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::string body = testing::changed_json(whole, random);
    try {
      const Manifest read = parse_manifest(sealed(body));
      ++accepted;
      if (!is_covered(read) || parse_manifest(write_manifest(read)) != read) FAIL_CHECK(body);
    } catch (const DataError&) {
    }
  }
  CHECK(accepted > 0);  // changed names, texts and numbers
  CHECK(accepted < 15'000);
}
