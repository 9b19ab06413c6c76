#include "tests/collectives/oracle.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <span>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

namespace lockstep::testing {
namespace {

using Values = std::span<const at::Tensor>;

at::Tensor random_values(Draw& draw, at::IntArrayRef sizes, at::ScalarType type) {
  const auto generator = at::detail::createCPUGenerator(draw.bits());
  if (at::isFloatingType(type)) {
    // Sizes that differ by orders of magnitude: another order of adding gives other bits.
    const at::Tensor scale = at::randn(sizes, generator, at::kDouble).mul(3).exp2();
    return (at::randn(sizes, generator, at::kDouble) * scale).clamp(-4000, 4000).to(type);
  }
  const auto bits = static_cast<int>(8 * c10::elementSize(type));
  std::int64_t low = -(std::int64_t{1} << std::min(bits - 1, 62));
  std::int64_t high = -low;  // not included; sums wrap around
  if (type == at::kByte) low = 0, high = 256;
  if (type == at::kBool) low = 0, high = 2;
  return at::empty(sizes, type).random_(low, high, generator);
}

// The same values in another layout.
at::Tensor laid_out(Draw& draw, const at::Tensor& values) {
  switch (draw.between(0, 4)) {
    case 1:
      if (values.dim() < 2) return values;
      return values.transpose(0, -1).contiguous().transpose(0, -1);
    case 2:
      return at::stack({values, values}, -1).select(-1, 1);
    case 3:
      return values.is_floating_point() ? at::_neg_view(values.neg()) : values;
    default:
      return values;
  }
}

at::Tensor tree_sum(Values values) {
  if (values.size() == 1) return values[0];
  const std::size_t left = std::bit_floor(values.size() - 1);
  return tree_sum(values.first(left)) + tree_sum(values.subspan(left));
}

std::vector<at::Tensor> converted(const std::vector<at::Tensor>& values, at::ScalarType type) {
  std::vector<at::Tensor> results;
  for (const at::Tensor& value : values) results.push_back(value.to(type));
  return results;
}

bool is_half(at::ScalarType type) {
  return type == at::kHalf || type == at::kBFloat16;
}

// The replica whose value is better than all before it. NaN is better than every number.
template <typename Better>
at::Tensor index_of_first(const std::vector<at::Tensor>& values, const Better& better) {
  at::Tensor best = values[0];
  at::Tensor index = at::zeros(best.sizes(), at::kLong);
  for (std::size_t i = 1; i < values.size(); ++i) {
    const at::Tensor wins = better(values[i], best) | (values[i].isnan() & ~best.isnan());
    best = at::where(wins, values[i], best);
    index = index.masked_fill(wins, static_cast<std::int64_t>(i));
  }
  return index;
}

}  // namespace

std::int64_t Draw::between(std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(high - low + 1));
}

at::Tensor random_tensor(Draw& draw, at::IntArrayRef sizes, at::ScalarType type) {
  if (!sizes.empty() && sizes[0] > 0 && draw.between(0, 5) == 0) {
    auto one = sizes.vec();
    one[0] = 1;
    return random_values(draw, one, type).expand(sizes);
  }
  return laid_out(draw, random_values(draw, sizes, type));
}

AxisIndexGroups random_groups(Draw& draw, std::int64_t replicas, bool equal_sizes) {
  if (draw.between(0, 2) == 0) return {};
  std::vector<std::int64_t> order(static_cast<std::size_t>(replicas));
  std::iota(order.begin(), order.end(), 0);
  for (std::int64_t i = replicas - 1; i > 0; --i) {
    std::swap(order[static_cast<std::size_t>(i)],
              order[static_cast<std::size_t>(draw.between(0, i))]);
  }
  std::int64_t size = draw.between(1, replicas);
  while (equal_sizes && replicas % size != 0) size = draw.between(1, replicas);
  AxisIndexGroups groups;
  for (auto rest = std::span(order); !rest.empty(); rest = rest.subspan(groups.back().size())) {
    const auto left = static_cast<std::int64_t>(rest.size());
    if (!equal_sizes) size = draw.between(1, left);
    const auto members = rest.first(static_cast<std::size_t>(size));
    groups.emplace_back(members.begin(), members.end());
  }
  return groups;
}

std::vector<std::int64_t> group_of(const AxisIndexGroups& groups, std::int64_t index,
                                   std::int64_t replicas) {
  for (const auto& group : groups) {
    if (std::find(group.begin(), group.end(), index) != group.end()) return group;
  }
  std::vector<std::int64_t> all(static_cast<std::size_t>(replicas));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

at::Tensor oracle_psum(const std::vector<at::Tensor>& values) {
  const auto type = values[0].scalar_type();
  if (type == at::kBool) return tree_sum(converted(values, at::kLong));
  if (is_half(type)) return tree_sum(converted(values, at::kFloat)).to(type);
  return tree_sum(values);
}

at::Tensor oracle_pmean(const std::vector<at::Tensor>& values) {
  const auto type = values[0].scalar_type();
  const auto count = static_cast<double>(values.size());
  const bool integral = !at::isFloatingType(type);
  // Half types are rounded once, after the division.
  const at::Tensor sum = integral        ? tree_sum(converted(values, at::kLong))
                         : is_half(type) ? tree_sum(converted(values, at::kFloat))
                                         : oracle_psum(values);
  const auto divided_in = type == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor mean = sum.to(divided_in) / at::full(sum.sizes(), count, divided_in);
  return integral ? mean : mean.to(type);
}

at::Tensor oracle_pmax(const std::vector<at::Tensor>& values) {
  at::Tensor result = values[0];
  for (const at::Tensor& value : values) result = at::maximum(result, value);
  return result;
}

at::Tensor oracle_pmin(const std::vector<at::Tensor>& values) {
  at::Tensor result = values[0];
  for (const at::Tensor& value : values) result = at::minimum(result, value);
  return result;
}

at::Tensor oracle_all_gather(const std::vector<at::Tensor>& values, std::int64_t axis, bool tiled) {
  return tiled ? at::cat(values, axis) : at::stack(values, axis);
}

at::Tensor oracle_psum_scatter(const std::vector<at::Tensor>& values, std::size_t place,
                               std::int64_t dimension, bool tiled) {
  const at::Tensor sum = oracle_psum(values);
  const auto index = static_cast<std::int64_t>(place);
  if (!tiled) return sum.select(dimension, index);
  const std::int64_t length = sum.size(dimension) / static_cast<std::int64_t>(values.size());
  return sum.narrow(dimension, index * length, length);
}

at::Tensor oracle_all_to_all(const std::vector<at::Tensor>& values, std::size_t place,
                             std::int64_t split_axis, std::int64_t concat_axis, bool tiled) {
  const auto index = static_cast<std::int64_t>(place);
  std::vector<at::Tensor> parts;
  for (const at::Tensor& value : values) {
    const std::int64_t length = value.size(split_axis) / static_cast<std::int64_t>(values.size());
    parts.push_back(tiled ? value.narrow(split_axis, index * length, length)
                          : value.select(split_axis, index));
  }
  return tiled ? at::cat(parts, concat_axis) : at::stack(parts, concat_axis);
}

at::Tensor oracle_ppermute(const std::vector<at::Tensor>& values, std::size_t place,
                           const std::vector<std::pair<std::int64_t, std::int64_t>>& perm) {
  for (const auto& [source, destination] : perm) {
    if (destination == static_cast<std::int64_t>(place)) {
      return values[static_cast<std::size_t>(source)];
    }
  }
  return at::zeros(values[place].sizes(), values[place].options());
}

at::Tensor oracle_pargmax(const std::vector<at::Tensor>& values) {
  return index_of_first(values, [](const at::Tensor& a, const at::Tensor& b) { return a.gt(b); });
}

at::Tensor oracle_pargmin(const std::vector<at::Tensor>& values) {
  return index_of_first(values, [](const at::Tensor& a, const at::Tensor& b) { return a.lt(b); });
}

at::Tensor oracle_ragged_all_to_all(const std::vector<at::Tensor>& operands,
                                    const at::Tensor& output,
                                    const std::vector<RaggedNumbers>& tables, std::size_t place) {
  const at::Tensor result = output.contiguous().clone();
  const std::size_t pieces = tables[0].send_sizes.size() / tables.size();
  for (std::size_t sender = 0; sender < tables.size(); ++sender) {
    for (std::size_t slot = place * pieces; slot < (place + 1) * pieces; ++slot) {
      const RaggedNumbers& table = tables[sender];
      const std::int64_t size = table.send_sizes[slot];
      if (size == 0) continue;
      result.narrow(0, table.output_offsets[slot], size)
          .copy_(operands[sender].narrow(0, table.input_offsets[slot], size));
    }
  }
  return result;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  const at::Tensor left = a.detach().resolve_neg().contiguous();
  const at::Tensor right = b.detach().resolve_neg().contiguous();
  return left.numel() == 0 || std::memcmp(left.data_ptr(), right.data_ptr(), left.nbytes()) == 0;
}

}  // namespace lockstep::testing
