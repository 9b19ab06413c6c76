#include "tests/collectives/property_cases.h"

#include <algorithm>
#include <array>
#include <iostream>
#include <numeric>
#include <string>
#include <string_view>

#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/maps/mesh.h"
#include "framework/maps/pmap.h"
#include "framework/maps/shard_map.h"
#include "framework/maps/vmap.h"
#include "tests/collectives/cases.h"
#include "tests/support/settings.h"

namespace lockstep::testing {
namespace {

at::ScalarType random_type(Draw& draw) {
  constexpr std::array kTypes{at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong,
                              at::kInt,    at::kShort, at::kChar, at::kByte,     at::kBool};
  return kTypes[static_cast<std::size_t>(
      draw.between(0, static_cast<std::int64_t>(kTypes.size()) - 1))];
}

// Row-major digits of `index` over the world's axes.
std::vector<std::int64_t> coordinates(const World& world, std::int64_t index) {
  std::vector<std::int64_t> digits(world.axes.size());
  for (std::size_t axis = digits.size(); axis-- > 0;) {
    digits[axis] = index % world.axes[axis].size;
    index /= world.axes[axis].size;
  }
  return digits;
}

std::int64_t index_at(const World& world, const std::vector<std::int64_t>& digits) {
  std::int64_t index = 0;
  for (std::size_t axis = 0; axis < digits.size(); ++axis) {
    index = index * world.axes[axis].size + digits[axis];
  }
  return index;
}

std::vector<std::string> names_of(const World& world, const std::vector<std::size_t>& axes) {
  std::vector<std::string> names;
  for (const std::size_t axis : axes) names.push_back(world.axes[axis].name);
  return names;
}

std::vector<std::size_t> random_axes(Draw& draw, const World& world) {
  std::vector<std::size_t> axes;
  const auto count = static_cast<std::int64_t>(world.axes.size());
  for (const std::int64_t axis : permutation(Key(draw.bits()), count)) {
    axes.push_back(static_cast<std::size_t>(axis));
  }
  axes.resize(static_cast<std::size_t>(draw.between(1, count)));
  return axes;
}

bool same(const Tensor& result, const Tensor& expected, bool by_value) {
  if (!by_value) return same_bits(result, expected);
  return result.scalar_type() == expected.scalar_type() && result.equal(expected);
}

}  // namespace

std::uint64_t digest_of(const Tensors& leaves) {
  Key key(leaves.size());
  for (const Tensor& leaf : leaves) {
    key = key.fold(at::toString(leaf.scalar_type()));
    for (const std::int64_t size : leaf.sizes()) key = key.fold(static_cast<std::uint64_t>(size));
    key = key.fold(std::string_view(static_cast<const char*>(leaf.data_ptr()), leaf.nbytes()));
  }
  return key.bits();
}

Key property_key(const std::string& test) {
  std::cout << test << ": LOCKSTEP_SEED=" << seed() << std::endl;
  return Key(seed()).fold(test);
}

std::int64_t World::size() const {
  std::int64_t size = 1;
  for (const NamedAxis& axis : axes) size *= axis.size;
  return size;
}

std::int64_t World::replica() const {
  std::vector<std::size_t> all(axes.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return axis_index(names_of(*this, all));
}

std::string World::text() const {
  std::string text;
  for (const NamedAxis& axis : axes)
    text += str(text.empty() ? "" : " x ", axis.name, " ", axis.size);
  return text;
}

World random_world(Draw& draw, std::int64_t most) {
  World world;
  const std::int64_t count = draw.between(1, 3);
  constexpr std::array<std::int64_t, 4> kLongest{0, 8, 4, 3};
  const std::int64_t longest = kLongest[static_cast<std::size_t>(count)];
  for (const char* name : {"data", "model", "i"}) {
    if (static_cast<std::int64_t>(world.axes.size()) == count) break;
    world.axes.push_back({name, draw.between(1, std::min(longest, most / world.size()))});
  }
  std::rotate(world.axes.begin(), world.axes.begin() + draw.between(0, count - 1),
              world.axes.end());
  return world;
}

std::vector<Binding> random_bindings(Draw& draw, const World& world) {
  std::vector<Binding> bindings;
  while (bindings.size() < world.axes.size()) {
    bindings.push_back(std::array{Binding::pmap, Binding::vmap,
                                  Binding::mesh}[static_cast<std::size_t>(draw.between(0, 2))]);
  }
  return bindings;
}

std::string bindings_text(const std::vector<Binding>& bindings) {
  std::vector<std::string> names;
  for (const Binding binding : bindings) {
    names.emplace_back(binding == Binding::pmap   ? "pmap"
                       : binding == Binding::vmap ? "vmap"
                                                  : "mesh");
  }
  return join(names, " > ");
}

void bind_axes(const World& world, const std::vector<Binding>& bindings, std::size_t first,
               const std::function<void()>& body) {
  if (first == world.axes.size()) return body();
  const std::string& name = world.axes[first].name;
  const std::int64_t size = world.axes[first].size;
  const auto inner = [&](std::size_t next) {
    return [&world, &bindings, &body, next] { bind_axes(world, bindings, next, body); };
  };
  switch (bindings[first]) {
    case Binding::pmap:
      return pmap(inner(first + 1),
                  {.axis_name = name, .axis_size = size, .threads_per_replica = 1})();
    case Binding::vmap:
      return vmap(inner(first + 1), {.axis_name = name, .axis_size = size})();
    case Binding::mesh: {
      Mesh::Axes axes;
      std::size_t next = first;
      for (; next < bindings.size() && bindings[next] == Binding::mesh; ++next) {
        axes.emplace_back(world.axes[next].name, world.axes[next].size);
      }
      return shard_map(inner(next), Mesh(axes), {}, P(), {.threads_per_replica = 1})();
    }
  }
}

PropertyCase::PropertyCase(const Key& key, const World& world, DrawOperation draw_operation)
    : world_(world), key_(key) {
  Draw draw(key.fold("call"));
  named_ = random_axes(draw, world);
  std::int64_t replicas = 1;
  for (const std::size_t axis : named_) replicas *= world.axes[axis].size;
  const AxisNames names(names_of(world, named_));
  operation_ = draw_operation(draw, {names, replicas});
  text_ = str(operation_.text, " over ", names.text(), " of ", world.text());

  inputs_.resize(static_cast<std::size_t>(world.size()));
  copies_.resize(inputs_.size());
  for (std::int64_t leaf = draw.between(1, 4); leaf > 0; --leaf) {
    const auto sizes = operation_.sizes(draw);
    const auto type = random_type(draw);
    text_ += lockstep::str("; ", at::toString(type), " ", at::IntArrayRef(sizes));
    for (std::size_t replica = 0; replica < inputs_.size(); ++replica) {
      Draw own(key.fold("input").fold(replica).fold(static_cast<std::uint64_t>(leaf)));
      inputs_[replica].push_back(random_tensor(own, sizes, type));
      copies_[replica].push_back(inputs_[replica].back().clone());
    }
  }
}

PropertyCase::Group PropertyCase::group_at(std::int64_t replica) const {
  const std::vector<std::int64_t> own = coordinates(world_, replica);
  std::int64_t index = 0;
  std::int64_t size = 1;
  for (const std::size_t axis : named_) {
    index = index * world_.axes[axis].size + own[axis];
    size *= world_.axes[axis].size;
  }
  const std::vector<std::int64_t> indices = group_of(operation_.groups, index, size);
  Group group{{}, 0};
  for (std::int64_t member : indices) {
    if (member == index) group.place = group.members.size();
    std::vector<std::int64_t> digits = own;
    for (std::size_t k = named_.size(); k-- > 0;) {
      digits[named_[k]] = member % world_.axes[named_[k]].size;
      member /= world_.axes[named_[k]].size;
    }
    group.members.push_back(index_at(world_, digits));
  }
  return group;
}

std::uint64_t PropertyCase::check(std::int64_t replica) const {
  const auto own = static_cast<std::size_t>(replica);
  const auto [members, place] = group_at(replica);
  // The same on all replicas of the group, and another in other groups.
  const Key group = key_.fold("group").fold(static_cast<std::uint64_t>(members[0]));
  const Tensors results = operation_.call(inputs_[own], group, place);
  const auto failed = [&](std::size_t leaf, const char* what) {
    return lockstep::str("replica ", replica, ", leaf ", leaf, " ", what, ": ", text_);
  };
  expect(results.size() == inputs_[own].size(), failed(results.size(), "leaves came back"));
  for (std::size_t leaf = 0; leaf < results.size(); ++leaf) {
    Tensors values;
    for (const std::int64_t member : members) {
      values.push_back(copies_[static_cast<std::size_t>(member)][leaf]);
    }
    expect(results[leaf].is_contiguous(), failed(leaf, "is not contiguous"));
    expect(same(results[leaf], operation_.oracle(values, group, place), operation_.by_value),
           failed(leaf, "differs from the serial reference"));
  }
  const std::uint64_t digest = digest_of(results);
  // Results share memory neither with each other nor with the inputs.
  for (std::size_t leaf = 0; leaf < results.size(); ++leaf) {
    results[leaf].zero_();
    expect(same_bits(inputs_[own][leaf], copies_[own][leaf]), failed(leaf, "changed its input"));
  }
  return digest;
}

std::vector<PropertyCase> random_property_cases(const Key& key, const World& world,
                                                std::int64_t count) {
  std::vector<PropertyCase> cases;
  for (std::int64_t i = 0; i < count; ++i) {
    cases.emplace_back(key.fold(static_cast<std::uint64_t>(i)), world);
  }
  return cases;
}

std::vector<Case> random_cases(std::int64_t rounds) {
  std::vector<Case> cases;
  for (const OperationKind& kind : operation_kinds()) {
    for (const std::int64_t replicas : {1, 2, 3, 4, 5, 8}) {
      const auto check = [=] {
        const World world{{{"i", replicas}}};
        const Key key = Key(seed()).fold(kind.name).fold(replicas);
        for (std::int64_t i = 0; i < rounds * static_cast<std::int64_t>(kind.weight); ++i) {
          (void)PropertyCase(key.fold(i), world, kind.draw).check(axis_index("i"));
        }
      };
      cases.push_back(
          {str(kind.name, " of random trees, ", replicas, " replicas, LOCKSTEP_SEED=", seed()),
           replicas, check});
    }
  }
  return cases;
}

}  // namespace lockstep::testing
