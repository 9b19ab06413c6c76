#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/function.h>

namespace lockstep {

/// Makes a node of autograd's graph with the owner that this version of LibTorch uses: a shared_ptr
/// in older versions, an intrusive_ptr in newer ones.
template <typename Node, typename... Args>
auto make_node(Args&&... args) {
  using Owner = decltype(torch::autograd::Edge::function);
  if constexpr (std::is_same_v<Owner, std::shared_ptr<torch::autograd::Node>>) {
    return std::shared_ptr<Node>(new Node(std::forward<Args>(args)...),
                                 [](auto* node) { deleteNode(node); });
  } else {
    return c10::make_intrusive<Node>(std::forward<Args>(args)...);
  }
}

}  // namespace lockstep
