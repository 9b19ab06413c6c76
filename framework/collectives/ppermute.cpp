#include "framework/collectives/ppermute.h"

#include <cstddef>
#include <string>

#include <ATen/ops/zeros.h>

#include "framework/base/text.h"
#include "framework/collectives/differentiable.h"

namespace lockstep::collectives {
namespace {

// Marks an index of a perm as met; `text` is the perm as messages show it.
void meet(std::vector<bool>& met, std::int64_t index, const char* role, const std::string& text,
          const AxisCall& call) {
  call.require(index >= 0 && index < std::ssize(met), "perm ", text, " names ", role, " ", index,
               "; the axis has 0 to ", std::ssize(met) - 1);
  call.require(!met[static_cast<std::size_t>(index)], "perm ", text, " names ", role, " ", index,
               " twice");
  met[static_cast<std::size_t>(index)] = true;
}

std::string text_of_pairs(const SourceDestinationPairs& perm) {
  const auto text = [](const auto& pair) { return str("(", pair.first, ", ", pair.second, ")"); };
  return str("[", join(mapped(perm, text)), "]");
}

}  // namespace

Leaves ppermute_leaves(const AxisCall& call, const Leaves& leaves,
                       const SourceDestinationPairs& perm) {
  auto& replicas = replicas_of(call, {}, GroupSizes::equal);
  check_leaves(leaves, call);
  const std::string text = text_of_pairs(perm);
  std::vector<bool> sources(static_cast<std::size_t>(replicas.size()));
  std::vector<bool> destinations(sources.size());
  for (const auto& [source, destination] : perm) {
    meet(sources, source, "source", text, call);
    meet(destinations, destination, "destination", text, call);
  }
  return differentiable(
      call, replicas, leaves, "perm " + text,
      [&](const Leaves& operands) {
        int from = comm::Communicator::kNobody;
        int to = comm::Communicator::kNobody;
        for (const auto& [source, destination] : perm) {
          if (source == replicas.rank()) to = static_cast<int>(destination);
          if (destination == replicas.rank()) from = static_cast<int>(source);
        }
        return in_messages(operands, 0, [&](const Tensor& sent, bool) {
          const Tensor received = at::zeros(sent.sizes(), sent.options());
          replicas.permute(bytes_of(sent), to, bytes_of(received), from);
          return received;
        });
      },
      [&](const Leaves&) -> BackwardRule {
        SourceDestinationPairs inverse;
        for (const auto& [source, destination] : perm) inverse.emplace_back(destination, source);
        return [=](const Leaves& gradients) { return ppermute_leaves(call, gradients, inverse); };
      });
}

Leaves pshuffle_leaves(const AxisCall& call, const Leaves& leaves,
                       const std::vector<std::int64_t>& perm) {
  const std::int64_t size = replicas_of(call, {}, GroupSizes::equal).size();
  check_leaves(leaves, call);
  const std::string text = lockstep::str("[", join(perm), "]");
  call.require(std::ssize(perm) == size, "perm ", text, " has ",
               counted(std::ssize(perm), "entry", "entries"),
               "; it must be a permutation of all indices of the axis, 0 to ", size - 1);
  std::vector<bool> sources(perm.size());
  SourceDestinationPairs pairs;
  for (const std::int64_t source : perm) {
    meet(sources, source, "source", text, call);
    pairs.emplace_back(source, static_cast<std::int64_t>(pairs.size()));
  }
  return ppermute_leaves(call, leaves, pairs);
}

}  // namespace lockstep::collectives
