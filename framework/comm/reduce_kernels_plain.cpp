#include "framework/comm/reduce_kernels.inc"

namespace lockstep {

constinit const ReduceKernels kPlainReduceKernels{"plain", reduce_type};

}  // namespace lockstep
