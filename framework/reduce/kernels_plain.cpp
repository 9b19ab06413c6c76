#include "framework/reduce/kernels.inc"

namespace lockstep {

constinit const ReduceKernels kPlainReduceKernels{"plain", reduce_type<false>, reduce_type<true>};

}  // namespace lockstep
