#include "framework/collectives/ppermute.h"

#include <cstddef>
#include <string>

#include <ATen/ops/zeros.h>

#include "framework/axes/environment.h"
#include "framework/base/text.h"
#include "framework/base/wording.h"
#include "framework/collectives/differentiable.h"
#include "framework/collectives/message.h"
#include "framework/collectives/packing.h"

namespace lockstep::collectives_detail {
namespace {

// Marks indices of a perm as they are met; `text` is the perm as messages show it.
class Met {
 public:
  Met(const AxisCall& call, const std::string& text, const char* role, std::int64_t size)
      : start_(lockstep::str(call.text(), ": perm ", text)),
        role_(role),
        met_(static_cast<std::size_t>(size), false) {}

  void meet(std::int64_t index) {
    const auto size = static_cast<std::int64_t>(met_.size());
    if (index < 0 || index >= size) {
      throw ValueError(
          lockstep::str(start_, " names ", role_, " ", index, "; the axis has 0 to ", size - 1));
    }
    if (met_[static_cast<std::size_t>(index)]) {
      throw ValueError(lockstep::str(start_, " names ", role_, " ", index, " twice"));
    }
    met_[static_cast<std::size_t>(index)] = true;
  }

 private:
  std::string start_;
  const char* role_;
  std::vector<bool> met_;
};

std::string text_of(const SourceDestinationPairs& perm) {
  std::vector<std::string> pairs;
  for (const auto& [source, destination] : perm) {
    pairs.push_back(lockstep::str("(", source, ", ", destination, ")"));
  }
  return lockstep::str("[", join(pairs), "]");
}

void check_pairs(const AxisCall& call, const SourceDestinationPairs& perm, std::int64_t size) {
  const std::string text = text_of(perm);
  Met sources(call, text, "source", size);
  Met destinations(call, text, "destination", size);
  for (const auto& [source, destination] : perm) {
    sources.meet(source);
    destinations.meet(destination);
  }
}

Leaves permute_all(const AxisCall& call, Communicator& replicas, const Leaves& leaves,
                   const SourceDestinationPairs& perm) {
  int from = Communicator::kNobody;
  int to = Communicator::kNobody;
  for (const auto& [source, destination] : perm) {
    if (source == replicas.rank()) to = static_cast<int>(destination);
    if (destination == replicas.rank()) from = static_cast<int>(source);
  }
  Leaves results(leaves.size());
  for (const auto& indices : by_dtype(leaves)) {
    const at::Tensor sent = pack(leaves, indices, 1);
    const at::Tensor received = at::zeros(sent.sizes(), sent.options());
    communicate(call, [&] { replicas.permute(bytes_of(sent), to, bytes_of(received), from); });
    unpack(received, indices, leaves, results);
  }
  return results;
}

}  // namespace

std::vector<Tensor> ppermute_leaves(const char* operation, const std::vector<Tensor>& leaves,
                                    const AxisNames& axis_name, const SourceDestinationPairs& perm,
                                    std::source_location where) {
  const AxisCall call{operation, axis_name, where};
  auto& replicas = replicas_of(call, {}, GroupSizes::equal);
  check_leaves(leaves, call);
  check_pairs(call, perm, replicas.size());
  return differentiable(
      call, replicas, leaves, "perm " + text_of(perm),
      [&](const Leaves& operands) { return permute_all(call, replicas, operands, perm); },
      [&](const Leaves&) -> BackwardRule {
        SourceDestinationPairs inverse;
        for (const auto& [source, destination] : perm) inverse.emplace_back(destination, source);
        return [=](const Leaves& gradients) {
          return ppermute_leaves(operation, gradients, axis_name, inverse, where);
        };
      });
}

std::vector<Tensor> pshuffle_leaves(const std::vector<Tensor>& leaves, const AxisNames& axis_name,
                                    const std::vector<std::int64_t>& perm,
                                    std::source_location where) {
  const AxisCall call{"pshuffle", axis_name, where};
  const std::int64_t size = replicas_of(call, {}, GroupSizes::equal).size();
  check_leaves(leaves, call);
  const std::string text = lockstep::str("[", join(perm), "]");
  if (static_cast<std::int64_t>(perm.size()) != size) {
    throw ValueError(lockstep::str(
        call.text(), ": perm ", text, " has ", counted(std::ssize(perm), "entry", "entries"),
        "; it must be a permutation of all indices of the axis, 0 to ", size - 1));
  }
  Met sources(call, text, "source", size);
  SourceDestinationPairs pairs;
  for (const std::int64_t source : perm) {
    sources.meet(source);
    pairs.emplace_back(source, static_cast<std::int64_t>(pairs.size()));
  }
  return ppermute_leaves("pshuffle", leaves, axis_name, pairs, where);
}

}  // namespace lockstep::collectives_detail
