#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/axes/environment.h"

// The programs that record.py ran with JAX, and what came of them: cases.json.

namespace lockstep::testing {

struct Step;

/// Steps on numbered values: first the leaves of the arguments, then each step's results, in order.
struct Body {
  std::vector<Step> steps;
  std::vector<std::size_t> results;
};

/// One step; only the fields that its operation has are set. See vocabulary.py.
struct Step {
  std::string op;
  /// The operands: one, or several that are one tree ("map": a std::map; "pair": a std::pair;
  /// otherwise a std::vector).
  std::vector<std::size_t> x;
  std::string tree;

  std::vector<std::string> axis;
  AxisIndexGroups groups;
  std::int64_t dimension = 0, split = 0, concat = 0, source = 0;
  bool tiled = false;
  std::vector<std::pair<std::int64_t, std::int64_t>> pairs;  // of ppermute
  std::vector<std::int64_t> sources;                         // of pshuffle
  double number = 0;                                         // of scale and psum_number
  at::ScalarType as = at::kFloat;                            // of the steps that make a number

  /// Of maps and gradients: the arguments, each one or more leaves that are one tree.
  std::vector<std::vector<std::size_t>> args;
  std::shared_ptr<const Body> body;
  std::vector<std::optional<std::int64_t>> in_axes, out_axes;
  bool out_for_all = true;  // out_axes has one entry for all results
  std::int64_t size = 0;
  std::optional<double> static_argument;
  std::vector<std::pair<std::string, std::int64_t>> mesh;
  /// A spec has the names of each dimension, none where it is not cut. One of out_specs is for all
  /// results.
  using Spec = std::vector<std::vector<std::string>>;
  std::vector<Spec> in_specs, out_specs;
  bool check_vma = false;
};

/// What a program gives: tensors, or an error of the type that `raises` names.
struct Outcome {
  std::string raises;
  std::vector<at::Tensor> out;
};

struct RecordedCase {
  std::string name;
  std::vector<at::Tensor> inputs;
  Body program;
  Outcome jax;
  std::optional<Outcome> lockstep;  // where it differs on purpose
  std::string reason;
  std::vector<std::string> mentions;  // what Lockstep's error says
  double tolerance = 0;               // relative and absolute
};

/// Reads the file. Throws std::runtime_error for whatever it does not know, naming it and the case.
[[nodiscard]] std::vector<RecordedCase> read_cases(const std::string& path);

}  // namespace lockstep::testing
