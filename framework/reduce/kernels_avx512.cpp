#ifdef __x86_64__

#include "framework/reduce/kernels.inc"

namespace lockstep::reduce {

static_assert(kVectorBytes == 64, "compiled without this CPU's flags");

constinit const ReduceKernels kAvx512ReduceKernels{"avx512", reduce_type};

}  // namespace lockstep::reduce

#endif
