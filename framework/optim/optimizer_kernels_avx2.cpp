#ifdef __x86_64__

#include "framework/optim/optimizer_kernels.inc"

namespace lockstep::optim {

static_assert(kVectorBytes == 32, "compiled without this CPU's flags");

constinit const OptimizerKernels kAvx2OptimizerKernels = kernels_called("avx2");

}  // namespace lockstep::optim

#endif
