#include <map>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/collectives/all_gather.h"
#include "framework/collectives/all_to_all.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "tests/collectives/case_parts.h"
#include "tests/collectives/cases.h"
#include "tests/collectives/refused.h"
#include "tests/support/message_of.h"

namespace lockstep::testing {
namespace {

// The same checks for one replica as for many: `n` is in the numbers only.
void unbound_axes() {
  const Tensor x = at::ones({4});
  const std::string rest = " (error_cases.cpp): axis 'j' is not bound here; bound: 'i'";
  refused<NameError>("psum over 'j'" + rest, [&] { (void)psum(x, "j"); });
  refused<NameError>("psum over 'j'" + rest, [&] { (void)psum(1, "j"); });
  refused<NameError>("pmean over 'j'" + rest, [&] { (void)pmean(x, "j"); });
  refused<NameError>("pmax over 'j'" + rest, [&] { (void)pmax(x, "j"); });
  refused<NameError>("pmin over 'j'" + rest, [&] { (void)pmin(x, "j"); });
  refused<NameError>("all_gather over 'j'" + rest, [&] { (void)all_gather(x, "j"); });
  refused<NameError>("psum_scatter over 'j'" + rest, [&] { (void)psum_scatter(x, "j"); });
  refused<NameError>("axis_index over 'j'" + rest, [&] { (void)axis_index("j"); });
  refused<NameError>("axis_size over 'j'" + rest, [&] { (void)axis_size("j"); });
  refused<NameError>("psum over ('i', 'j')" + rest, [&] { (void)psum(x, {"i", "j"}); });
  refused<NameError>("psum over '' (error_cases.cpp): axis '' is not bound here; bound: 'i'",
                     [&] { (void)psum(x, ""); });
  refused<ValueError>("psum over ('i', 'i') (error_cases.cpp): axis 'i' stands twice", [&] {
    (void)psum(x, {"i", "i"});
  });
  refused<ValueError>("all_gather over () (error_cases.cpp): at least one axis name is needed",
                      [&] { (void)all_gather(x, AxisNames(std::vector<std::string>{})); });
}

void wrong_groups() {
  const std::int64_t n = axis_size("i");
  const Tensor x = at::ones({n});
  const auto refused_everywhere = [&](const AxisIndexGroups& groups, const std::string& rule) {
    const auto rest = " over 'i' (error_cases.cpp): axis_index_groups " + rule;
    refused<ValueError>("psum" + rest, [&] { (void)psum(x, "i", {groups}); });
    refused<ValueError>("psum" + rest, [&] { (void)psum(1, "i", {groups}); });
    refused<ValueError>("pmean" + rest, [&] { (void)pmean(x, "i", {groups}); });
    refused<ValueError>("pmax" + rest, [&] { (void)pmax(x, "i", {groups}); });
    refused<ValueError>("pmin" + rest, [&] { (void)pmin(x, "i", {groups}); });
    refused<ValueError>("all_gather" + rest,
                        [&] { (void)all_gather(x, "i", {.axis_index_groups = groups}); });
    refused<ValueError>("psum_scatter" + rest,
                        [&] { (void)psum_scatter(x, "i", {.axis_index_groups = groups}); });
  };
  const auto last = n - 1;
  refused_everywhere({{0, n}}, str("[[0, ", n, "]] names index ", n, "; the axis has 0 to ", last));
  refused_everywhere({{-1}}, str("[[-1]] names index -1; the axis has 0 to ", last));
  refused_everywhere({{0, 0}}, "[[0, 0]] names index 0 twice");
  refused_everywhere(AxisIndexGroups(1), "[[]] has an empty group");
  if (n == 1) return;
  refused_everywhere({{0, 1}},
                     "[[0, 1]] must cover every index of the axis exactly once; the axis "
                     "has 4, index 2 is missing");
  refused_everywhere({{3, 1}, {0, 3}}, "[[3, 1], [0, 3]] names index 3 twice");
  const AxisIndexGroups uneven{{0}, {3, 1, 2}};
  const std::string rule =
      " over 'i' (error_cases.cpp): axis_index_groups [[0], [3, 1, 2]] has groups "
      "of 1 and of 3; this operation needs groups of one size";
  refused<ValueError>("all_gather" + rule,
                      [&] { (void)all_gather(x, "i", {.axis_index_groups = uneven}); });
  refused<ValueError>("psum_scatter" + rule,
                      [&] { (void)psum_scatter(x, "i", {.axis_index_groups = uneven}); });
  expect(psum(1, "i", {uneven}) == (axis_index("i") == 0 ? 1 : 3), "psum(1) in uneven groups");
  expect(psum(0.5, "i", {uneven}) == (axis_index("i") == 0 ? 0.5 : 1.5), "psum(0.5) in groups");
}

void wrong_dimensions() {
  const std::int64_t n = axis_size("i");
  const Tensor x = at::ones({n, 2 * n, 3 * n + 1});
  const std::string scatter = "psum_scatter over 'i' (error_cases.cpp): scatter_dimension ";
  refused<ValueError>(
      str(scatter, "1 has length ", 2 * n, "; untiled, it must be the group's size, ", n),
      [&] { (void)psum_scatter(x, "i", {.scatter_dimension = 1}); });
  refused<ValueError>(
      str(scatter, "-1 has length ", 3 * n + 1, "; untiled, it must be the group's size, ", n),
      [&] { (void)psum_scatter(x, "i", {.scatter_dimension = -1}); });
  refused<ValueError>(str(scatter, "0 has length 0; untiled, it must be the group's size, ", n),
                      [&] { (void)psum_scatter(at::ones({0}), "i"); });
  for (const std::int64_t dimension : {3, -4}) {
    const std::string rest = str(dimension, " is out of range; it must be in [-3, 2]");
    refused<ValueError>(scatter + rest, [&] {
      (void)psum_scatter(x, "i", {.scatter_dimension = dimension, .tiled = true});
    });
    refused<ValueError>("all_gather over 'i' (error_cases.cpp): axis " + rest,
                        [&] { (void)all_gather(x, "i", {.axis = dimension, .tiled = true}); });
  }
  refused<ValueError>(
      "all_gather over 'i' (error_cases.cpp): axis -5 is out of range; it must be in [-4, 3]",
      [&] { (void)all_gather(x, "i", {.axis = -5}); });
  const std::string flat = "0 is out of range; the tensor has no dimensions";
  refused<ValueError>(scatter + flat, [&] { (void)psum_scatter(at::ones({}), "i"); });
  refused<ValueError>("all_gather over 'i' (error_cases.cpp): axis " + flat,
                      [&] { (void)all_gather(at::ones({}), "i", {.tiled = true}); });
  if (n == 1) return;
  refused<ValueError>(str(scatter, "2 has length ", 3 * n + 1,
                          "; tiled, it must be divisible by the group's size, ", n),
                      [&] { (void)psum_scatter(x, "i", {.scatter_dimension = 2, .tiled = true}); });
  refused<ValueError>(str(scatter, "0 has length 4; untiled, it must be the group's size, 2"), [&] {
    (void)psum_scatter(x, "i", {.axis_index_groups = {{0, 1}, {2, 3}}});
  });
}

void wrong_tensors() {
  using Leaves = std::vector<Tensor>;
  const std::int64_t n = axis_size("i");
  const auto refused_everywhere = [&](const Tensor& bad, const std::string& rule) {
    const Leaves x{at::ones({n}), bad};
    const auto rest = " over 'i' (error_cases.cpp): " + rule;
    refused<ValueError>("psum" + rest, [&] { (void)psum(x, "i"); });
    refused<ValueError>("pmean" + rest, [&] { (void)pmean(x, "i"); });
    refused<ValueError>("pmax" + rest, [&] { (void)pmax(x, "i"); });
    refused<ValueError>("pmin" + rest, [&] { (void)pmin(x, "i"); });
    refused<ValueError>("all_gather" + rest, [&] { (void)all_gather(x, "i"); });
    refused<ValueError>("psum_scatter" + rest, [&] { (void)psum_scatter(x, "i"); });
  };
  refused_everywhere(Tensor(), "leaf [1] is an undefined tensor");
  refused_everywhere(at::zeros({n}, at::kComplexDouble),
                     "dtype ComplexDouble is not one that collectives know");
  refused_everywhere(at::ones({n}).to_sparse(),
                     "leaf [1] is sparse; only dense tensors are supported");
  refused_everywhere(at::empty({n}, at::kMeta), "leaf [1] is on meta; only the CPU is supported");

  // The leaf is named, whatever is wrong with it, and once.
  const auto ends = [](const std::string& end, const std::function<void()>& call) {
    const std::string message = message_of<ValueError>(call);
    expect(message.ends_with(end), str("expected at the end: ", end, "\nbut got: ", message));
  };
  const Leaves complex{at::ones({n}), at::zeros({n, 3}, at::kComplexDouble)};
  ends(str("collectives know (leaf [1], ComplexDouble (", n, ", 3))"),
       [&] { (void)psum(complex, "i"); });
  const std::map<std::string, std::pair<Tensor, Leaves>> tree{
      {"a", {at::ones({n}), {}}}, {"b", {at::ones({n}), {at::ones({n}), Tensor()}}}};
  ends("leaf ['b'].1[1] is an undefined tensor", [&] { (void)psum(tree, "i"); });
  const std::map<std::string, Tensor> vectors{{"a", at::ones({n, n})}, {"b", at::ones({n})}};
  const std::string range = str("it must be in [-2, 1] (leaf ['b'], Float (", n, "))");
  ends(range, [&] { (void)all_gather(vectors, "i", {.axis = 2}); });
  ends(str("it must be in [-1, 0] (leaf ['b'], Float (", n, "))"),
       [&] { (void)all_to_all(vectors, "i", 0, 1); });
  const Leaves uneven{at::ones({n}), at::ones({n + 1, 2})};
  ends(str(", ", n, " (leaf [1], Float (", n + 1, ", 2))"),
       [&] { (void)psum_scatter(uneven, "i"); });
}

// A message ends at the line that called, also if that is two functions up.
void call_sites() {
  const auto helper = [](const Tensor& x, std::source_location where) {
    return all_gather(x, "j", {}, where);
  };
  const auto at_line = [](unsigned line) { return str("(error_cases.cpp:", line, ")"); };
  const auto names = [](const std::function<void()>& call, const std::string& place) {
    const std::string error = message_of<NameError>(call);
    expect(error.find(place) != std::string::npos, str(error, " does not name ", place));
  };
  const Tensor x = at::ones({1});
  const auto here = std::source_location::current();
  names([&] { (void)psum(x, "j"); }, at_line(here.line() + 1));
  names([&] { (void)helper(x, here); }, at_line(here.line()));
}

}  // namespace

std::vector<Case> error_cases() {
  std::vector<Case> cases;
  add_cases(cases, "axes that are not bound", {1, 4}, unbound_axes);
  add_cases(cases, "groups that are no partition", {1, 4}, wrong_groups);
  add_cases(cases, "dimensions that do not fit", {1, 4}, wrong_dimensions);
  add_cases(cases, "tensors that cannot travel", {1, 4}, wrong_tensors);
  add_cases(cases, "call sites in messages", {1, 4}, call_sites);
  add_cases(cases, "refused calls leave replicas in step", {1, 4}, [] {
    still_in_step({unbound_axes, wrong_groups, wrong_dimensions, wrong_tensors});
  });
  return cases;
}

}  // namespace lockstep::testing
