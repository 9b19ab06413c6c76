#pragma once

namespace lockstep {

/// Whether gradients are reduced in the midst of the backward: `automatic` does so over a network,
/// where bytes take time but no work; in shared memory a reduction is work.
enum class Overlap { automatic, on, off };

/// In what type gradients travel between replicas: bf16 sends float32 ones as bfloat16, and adds
/// what each replica's rounding leaves out to its next gradient (error feedback).
enum class Compression { none, bf16 };

/// What buffers become at each step that differ between replicas, such as the running statistics of
/// BatchNorm: floating ones their mean, or replica 0's. All others (numbers of batches, masks)
/// become replica 0's.
enum class Buffers { mean, first };

/// What follows when training draws from LibTorch's process-wide generator, so that threads,
/// processes and fewer workers no longer give the same bits: a warning, said once, or a ValueError.
enum class Randomness { warn, strict };

}  // namespace lockstep
