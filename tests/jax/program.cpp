#include "tests/jax/program.h"

#include <fstream>
#include <limits>
#include <map>
#include <stdexcept>

#include <ATen/ops/empty.h>
#include <nlohmann/json.hpp>

namespace lockstep::testing {
namespace {

using Json = nlohmann::json;

at::ScalarType dtype(const std::string& name) {
  static const std::map<std::string, at::ScalarType> dtypes{
      {"float64", at::kDouble},    {"float32", at::kFloat}, {"float16", at::kHalf},
      {"bfloat16", at::kBFloat16}, {"int64", at::kLong},    {"int32", at::kInt},
      {"int16", at::kShort},       {"int8", at::kChar},     {"uint8", at::kByte},
      {"bool", at::kBool}};
  const auto found = dtypes.find(name);
  if (found == dtypes.end()) throw std::runtime_error("unknown dtype '" + name + "'");
  return found->second;
}

double floating(const Json& json) {
  if (!json.is_string()) return json.get<double>();
  const std::string word = json;
  if (word == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (word == "inf") return std::numeric_limits<double>::infinity();
  if (word == "-inf") return -std::numeric_limits<double>::infinity();
  throw std::runtime_error("'" + word + "' is no number");
}

// [dtype, shape, values]
at::Tensor tensor(const Json& json) {
  const auto type = dtype(json.at(0));
  const auto sizes = json.at(1).get<std::vector<std::int64_t>>();
  const Json& values = json.at(2);
  const bool is_floating = at::isFloatingType(type);
  const auto wide = at::empty(sizes, is_floating ? at::kDouble : at::kLong);
  if (static_cast<std::size_t>(wide.numel()) != values.size()) {
    throw std::runtime_error("a tensor has not as many values as its shape says");
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (is_floating) {
      wide.data_ptr<double>()[i] = floating(values[i]);
    } else {
      wide.data_ptr<std::int64_t>()[i] =
          values[i].is_boolean() ? values[i].get<bool>() : values[i].get<std::int64_t>();
    }
  }
  return wide.to(type);
}

std::vector<at::Tensor> tensors(const Json& json) {
  std::vector<at::Tensor> result;
  for (const Json& entry : json) result.push_back(tensor(entry));
  return result;
}

std::vector<std::optional<std::int64_t>> axes(const Json& json) {
  std::vector<std::optional<std::int64_t>> result;
  for (const Json& entry : json) {
    result.push_back(entry.is_null() ? std::nullopt
                                     : std::optional<std::int64_t>(entry.get<std::int64_t>()));
  }
  return result;
}

Body body(const Json& json);

void read_permutation(const Json& json, Step& step) {
  if (step.op == "pshuffle") {
    json.get_to(step.sources);
  } else {
    json.get_to(step.pairs);
  }
}

// The fields of all operations by their keys.
using Reader = void (*)(const Json&, Step&);
const std::map<std::string, Reader>& readers() {
  static const std::map<std::string, Reader> table{
      {"op", [](const Json&, Step&) {}},
      {"x", [](const Json& json, Step& step) { json.get_to(step.x); }},
      {"tree", [](const Json& json, Step& step) { json.get_to(step.tree); }},
      {"axis",
       [](const Json& json, Step& step) {
         step.axis = json.is_string() ? std::vector<std::string>{json.get<std::string>()}
                                      : json.get<std::vector<std::string>>();
       }},
      {"groups", [](const Json& json, Step& step) { json.get_to(step.groups); }},
      {"dimension", [](const Json& json, Step& step) { json.get_to(step.dimension); }},
      {"split", [](const Json& json, Step& step) { json.get_to(step.split); }},
      {"concat", [](const Json& json, Step& step) { json.get_to(step.concat); }},
      {"source", [](const Json& json, Step& step) { json.get_to(step.source); }},
      {"tiled", [](const Json& json, Step& step) { json.get_to(step.tiled); }},
      {"perm", read_permutation},
      {"by", [](const Json& json, Step& step) { json.get_to(step.number); }},
      {"number", [](const Json& json, Step& step) { json.get_to(step.number); }},
      {"as", [](const Json& json, Step& step) { step.as = dtype(json); }},
      {"args", [](const Json& json, Step& step) { json.get_to(step.args); }},
      {"body",
       [](const Json& json, Step& step) { step.body = std::make_shared<Body>(body(json)); }},
      {"in",
       [](const Json& json, Step& step) {
         if (step.op == "shard_map") {
           json.get_to(step.in_specs);
         } else {
           step.in_axes = axes(json);
         }
       }},
      {"out",
       [](const Json& json, Step& step) {
         if (step.op == "shard_map") {
           json.get_to(step.out_specs);
         } else {
           step.out_for_all = !json.is_array();
           step.out_axes = axes(json.is_array() ? json : Json::array({json}));
         }
       }},
      {"size", [](const Json& json, Step& step) { json.get_to(step.size); }},
      {"static", [](const Json& json, Step& step) { step.static_argument = json.get<double>(); }},
      {"check_vma", [](const Json& json, Step& step) { json.get_to(step.check_vma); }},
      {"mesh", [](const Json& json, Step& step) { json.get_to(step.mesh); }},
  };
  return table;
}

Body body(const Json& json) {
  Body result;
  json.at("return").get_to(result.results);
  for (const Json& entry : json.at("steps")) {
    Step step;
    entry.at("op").get_to(step.op);
    for (const auto& [key, value] : entry.items()) {
      const auto reader = readers().find(key);
      if (reader == readers().end()) {
        throw std::runtime_error("unknown key '" + key + "' in a step '" + step.op + "'");
      }
      reader->second(value, step);
    }
    result.steps.push_back(std::move(step));
  }
  return result;
}

Outcome outcome(const Json& json) {
  if (json.contains("raises")) return {json.at("raises"), {}};
  return {"", tensors(json.at("out"))};
}

RecordedCase recorded_case(const Json& json) {
  RecordedCase one;
  json.at("name").get_to(one.name);
  one.inputs = tensors(json.at("in"));
  one.program = body(json);
  one.jax = outcome(json.at("jax"));
  if (json.contains("lockstep")) {
    one.lockstep = outcome(json.at("lockstep"));
    json.at("reason").get_to(one.reason);
  }
  if (json.contains("mentions")) json.at("mentions").get_to(one.mentions);
  if (json.contains("tolerance")) json.at("tolerance").get_to(one.tolerance);
  return one;
}

}  // namespace

std::vector<RecordedCase> read_cases(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::vector<RecordedCase> cases;
  const Json whole = Json::parse(file);
  for (const Json& json : whole.at("cases")) {
    try {
      cases.push_back(recorded_case(json));
    } catch (const std::exception& error) {
      throw std::runtime_error(path + ", case " + json.value("name", "without a name") + ": " +
                               error.what());
    }
  }
  return cases;
}

}  // namespace lockstep::testing
