#ifdef __x86_64__

#include "framework/optim/optimizer_kernels.inc"

namespace lockstep::optim {

static_assert(kVectorBytes == 64, "compiled without this CPU's flags");

constinit const OptimizerKernels kAvx512OptimizerKernels = kernels_called("avx512");

}  // namespace lockstep::optim

#endif
