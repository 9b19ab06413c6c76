#include "framework/optim/optimizer_kernels.inc"

namespace lockstep {

constinit const OptimizerKernels kPlainOptimizerKernels = kernels_called("plain");

}  // namespace lockstep
