#include "framework/base/stream_copy.h"

#include <cstdint>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace lockstep {

void stream_copy(ConstBytes from, Bytes to) {
#if defined(__SSE2__)
  constexpr std::size_t kLine = 64;
  // Stores past the caches need an address that is a multiple of their size.
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(to.data()) % kLine;
  if (from.size() > before + kLine) {
    copy_bytes(from.first(before), to);
    from = from.subspan(before);
    to = to.subspan(before);
    const std::size_t whole = from.size() / kLine * kLine;
    for (std::size_t i = 0; i < whole; i += kLine) {
      const auto* const source = reinterpret_cast<const __m128i*>(from.data() + i);
      auto* const target = reinterpret_cast<__m128i*>(to.data() + i);
      const __m128i a = _mm_loadu_si128(source);
      const __m128i b = _mm_loadu_si128(source + 1);
      const __m128i c = _mm_loadu_si128(source + 2);
      const __m128i d = _mm_loadu_si128(source + 3);
      _mm_stream_si128(target, a);
      _mm_stream_si128(target + 1, b);
      _mm_stream_si128(target + 2, c);
      _mm_stream_si128(target + 3, d);
    }
    _mm_sfence();
    from = from.subspan(whole);
    to = to.subspan(whole);
  }
#endif
  copy_bytes(from, to);
}

}  // namespace lockstep
