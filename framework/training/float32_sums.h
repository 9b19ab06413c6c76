#pragma once

namespace lockstep::training {

/// On CPUs LibTorch adds up some bfloat16 and float16 numbers in these types: a sum of ones stops
/// at 256 (bfloat16) or 2048 (float16). Errors of positive terms, in roundings of the exact result,
/// on a CPU with AVX-512 and one math thread or two:
///
///   operators                                               1.13   2.6   2.14   2.15
///   products of up to 4,096 multiplications (mm, bmm, …)     224     1      1      1
///   any product (1.13) or convolution, without AVX-512       252     4      4      4
///   backward of LayerNorm, bias: 4,096 rows                  224   224    224    224
///   backward of Embedding: 4,096 times the same row          224   224    224    224
///   backward of indexing, gather, take; index_add, …         224   224    224    224
///   backward of overlapping pools, upsampling, padding       187   223    223    223
///   backward of scaled_dot_product_attention, 512 positions    -    13     13     13
///   vector norms                                             255     1      1      1
///
/// A program that calls this anywhere computes these operators, from its start on, in float32, and
/// rounds each result once, also for modules of its own: by operator, type and, of products, by
/// shape, never by LibTorch's version. Larger products are bfloat16's own where oneDNN computes
/// them, which adds in float32: on CPUs with AVX-512, unless it is turned off. Otherwise those, and
/// convolutions (safe_convolutions.h), take float32, too. Statistics of normalizations, as
/// native_layer_norm returns them, stay float32. float32 and float64 keep their bits. Trainers and
/// models call it, by keep_convolutions_safe(); it does nothing when called.
void keep_sums_in_float32();

/// Whether one has been computed so in this process. Any thread.
[[nodiscard]] bool have_summed_in_float32();

/// Whether LibTorch leaves bfloat16 to oneDNN on this CPU.
[[nodiscard]] bool has_bfloat16_kernels();

}  // namespace lockstep::training
