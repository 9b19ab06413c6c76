#include "framework/reduce/kernels.inc"

namespace lockstep::reduce {

constinit const ReduceKernels kPlainReduceKernels{"plain", reduce_type};

}  // namespace lockstep::reduce
