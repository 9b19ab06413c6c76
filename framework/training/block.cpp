#include "framework/training/block.h"

#include "framework/base/errors.h"
#include "framework/training/block_gathering.h"

namespace lockstep {

at::Tensor Block::operator()(const at::Tensor& input) {
  if (const auto runner = runner_.lock()) return runner->run(*this, input);
  if (had_runner_) {
    throw Error(
        "the parameters of block '" + name() +
        "' were cut into shards by a ZeroTrainer that is gone: call its release_parameters() "
        "before it ends");
  }
  return forward(input);
}

}  // namespace lockstep
