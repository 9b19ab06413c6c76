#include "framework/reduce/kernels.inc"

namespace lockstep {

constinit const ReduceKernels kPlainReduceKernels{"plain", reduce_type};

}  // namespace lockstep
