// Headers of collectives have pictures of values before and after a call, which calls must give.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "framework/collectives/all_gather.h"
#include "framework/collectives/all_to_all.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/in_place.h"
#include "framework/collectives/pargmax.h"
#include "framework/collectives/pbroadcast.h"
#include "framework/collectives/ppermute.h"
#include "framework/collectives/psum.h"
#include "framework/collectives/ragged_all_to_all.h"
#include "framework/maps/pmap.h"
#include "framework/tree/grad.h"
#include "tests/catch.h"
#include "tests/support/files.h"
#include "tests/support/programs.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// A picture's columns by name: a text for each replica.
using Picture = std::map<std::string, std::vector<std::string>>;

std::vector<std::string> cells_of(const std::string& row) {
  static const std::regex gap("  +(→ )?");
  return {std::sregex_token_iterator(row.begin(), row.end(), gap, -1), {}};
}

// Returns the pictures in the comments of functions that the headers declare, by the functions'
// names; `returns` matches the types that they return.
std::map<std::string, Picture> pictures(
    const std::vector<std::string>& headers,
    const std::string& returns = ".*\\[\\[nodiscard\\]\\] [A-Za-z_:0-9]+") {
  std::map<std::string, Picture> found;
  const std::regex row("///   (replica|[0-9]+) .*");
  const std::regex declaration(returns + " ([a-z_]+)\\([^\\\\]*");
  for (const std::string& header : headers) {
    Picture picture;
    std::vector<std::string> names;
    const auto path = std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "framework/collectives" / header;
    for (const std::string& line : lines_of(read_text(path.string() + ".h"))) {
      std::smatch match;
      if (std::regex_match(line, row)) {
        const std::vector<std::string> cells = cells_of(line.substr(6));
        if (cells[0] == "replica") names = cells;
        for (std::size_t i = 1; cells[0] != "replica" && i < cells.size(); ++i) {
          picture[names.at(i)].push_back(cells[i]);
        }
      } else if (std::regex_match(line, match, declaration)) {
        if (!found.contains(match[1])) found[match[1]] = picture;
        picture.clear();
      }
    }
  }
  return found;
}

// Reads "[[1 2] [3 4]]", "[1 2]" or "1".
Tensor tensor_of(const std::string& text) {
  static const std::regex number("[0-9]+");
  std::vector<double> values;
  for (std::sregex_iterator match(text.begin(), text.end(), number), end; match != end; ++match) {
    values.push_back(std::stod(match->str()));
  }
  const auto rows = std::ranges::count(text, ']') - 1;
  const Tensor flat = at::tensor(values, at::kDouble);
  return rows > 0 ? flat.view({rows, -1}) : text[0] == '[' ? flat : flat[0];
}

Tensor column_of(const Picture& picture, const std::string& name) {
  std::vector<Tensor> cells;
  for (const std::string& text : picture.at(name)) cells.push_back(tensor_of(text));
  return at::stack(cells);
}

Tensor number_tensor(std::int64_t number) {
  return at::full({}, number, at::kDouble);
}

}  // namespace

TEST_CASE("collectives do what their headers' pictures show") {
  const std::map<std::string, Picture> shown =
      pictures({"psum", "all_gather", "all_to_all", "axis_index", "pargmax", "pbroadcast",
                "ppermute", "ragged_all_to_all"});
  const auto table = [&](const char* name) {
    const Tensor rows = column_of(shown.at("ragged_all_to_all"), name).to(at::kLong);
    return rows[axis_index("i")];
  };
  const std::map<std::string, std::function<Tensor(const Tensor&)>> collectives{
      {"psum", [](const Tensor& x) { return psum(x, "i"); }},
      {"psum_invariant", [](const Tensor& x) { return psum_invariant(x, "i"); }},
      {"pvary", [](const Tensor& x) { return pvary(x, "i"); }},
      {"pmean", [](const Tensor& x) { return pmean(x, "i"); }},
      {"pmax", [](const Tensor& x) { return pmax(x, "i"); }},
      {"pmin", [](const Tensor& x) { return pmin(x, "i"); }},
      {"all_gather", [](const Tensor& x) { return all_gather(x, "i"); }},
      {"psum_scatter", [](const Tensor& x) { return psum_scatter(x, "i"); }},
      {"all_to_all", [](const Tensor& x) { return all_to_all(x, "i", 0, 0); }},
      {"pswapaxes", [](const Tensor& x) { return pswapaxes(x, "i", 0); }},
      {"ppermute",
       [](const Tensor& x) {
         return ppermute(x, "i", {{0, 1}, {1, 2}});
       }},
      {"pshuffle",
       [](const Tensor& x) {
         return pshuffle(x, "i", {2, 0, 1});
       }},
      {"pbroadcast", [](const Tensor& x) { return pbroadcast(x, "i", 1); }},
      {"pargmax", [](const Tensor& x) { return pargmax(x, "i"); }},
      {"pargmin", [](const Tensor& x) { return pargmin(x, "i"); }},
      {"axis_index", [](const Tensor&) { return number_tensor(axis_index("i")); }},
      {"axis_index_tensor", [](const Tensor&) { return axis_index_tensor("i"); }},
      {"axis_size", [](const Tensor&) { return number_tensor(axis_size("i")); }},
      {"own_part", [](const Tensor&) { return own_part(at::arange(6, at::kDouble), "i"); }},
      {"ragged_all_to_all", [&](const Tensor& x) {
         return ragged_all_to_all(x, at::zeros({4}, at::kDouble), table("input_offsets"),
                                  table("send_sizes"), table("output_offsets"), table("recv_sizes"),
                                  "i");
       }}};
  std::set<std::string> without_derivative;
  for (const auto& [name, picture] : shown) {
    INFO(name);
    REQUIRE(collectives.contains(name));
    const auto& collective = collectives.at(name);
    const Tensor y = column_of(picture, "y");
    const Tensor x = picture.contains("x") ? column_of(picture, "x") : at::zeros_like(y);
    CHECK(pmap([&](const Tensor& own) { return collective(own).to(at::kDouble); })(x).equal(y));
    if (!picture.contains("dy")) {
      without_derivative.insert(name);
      continue;
    }
    const auto gradient = [&](const Tensor& own, const Tensor& of_result) {
      return grad([&](const Tensor& v) { return (collective(v) * of_result).sum(); })(own);
    };
    CHECK(pmap(gradient)(x, column_of(picture, "dy")).equal(column_of(picture, "dx")));
  }
  CHECK(shown.size() == collectives.size());
  CHECK(without_derivative == std::set<std::string>{"axis_index", "axis_index_tensor", "axis_size",
                                                    "own_part", "pargmax", "pargmin"});
}

TEST_CASE("collectives that write into given tensors do what their headers' pictures show") {
  std::map<std::string, Picture> shown = pictures({"in_place"}, "void");
  for (const char* without : {"barrier", "pmean_by", "pmean_scatter_by"}) {
    CHECK(shown.at(without).empty());
    shown.erase(without);
  }
  using Work = std::function<void(const Tensor& output, const Tensor& input)>;
  const std::map<std::string, Work> collectives{
      {"pbroadcast_", [](const Tensor& x, const Tensor&) { pbroadcast_(x, "i", 1); }},
      {"psum_", [](const Tensor& x, const Tensor&) { psum_(x, "i"); }},
      {"pmean_", [](const Tensor& x, const Tensor&) { pmean_(x, "i"); }},
      {"psum_scatter_into",
       [](const Tensor& output, const Tensor& input) { psum_scatter_into(output, input, "i"); }},
      {"pmean_scatter_into",
       [](const Tensor& output, const Tensor& input) { pmean_scatter_into(output, input, "i"); }},
      {"all_gather_into",
       [](const Tensor& output, const Tensor& input) { all_gather_into(output, input, "i"); }}};
  for (const auto& [name, picture] : shown) {
    INFO(name);
    REQUIRE(collectives.contains(name));
    const auto& collective = collectives.at(name);
    const bool is_in_place = picture.contains("x");
    const Tensor input = column_of(picture, is_in_place ? "x" : "input");
    const Tensor expected = column_of(picture, is_in_place ? "x after" : "output");
    const Tensor output = is_in_place ? input.clone() : at::zeros_like(expected);
    const auto written = [&](const Tensor& own_output, const Tensor& own_input) {
      collective(own_output, own_input);
      return own_output;
    };
    CHECK(pmap(written)(output, input).equal(expected));
  }
  CHECK(shown.size() == collectives.size());
}
