#include "framework/optim/optimizer_kernels.inc"

namespace lockstep::optim {

constinit const OptimizerKernels kPlainOptimizerKernels = kernels_called("plain");

}  // namespace lockstep::optim
