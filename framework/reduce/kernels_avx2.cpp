#ifdef __x86_64__

#include "framework/reduce/kernels.inc"

namespace lockstep::reduce {

static_assert(kVectorBytes == 32, "compiled without this CPU's flags");

constinit const ReduceKernels kAvx2ReduceKernels{"avx2", reduce_type};

}  // namespace lockstep::reduce

#endif
