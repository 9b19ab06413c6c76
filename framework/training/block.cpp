#include "framework/training/block.h"

namespace lockstep {

at::Tensor Block::operator()(const at::Tensor& input) {
  if (const auto runner = runner_.lock()) return runner->run(*this, input);
  return forward(input);
}

}  // namespace lockstep
