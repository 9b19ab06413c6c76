#include "framework/storage/checksum.h"

#include <new>

#include <xxhash.h>

#include "framework/base/text.h"

namespace lockstep::storage {

Checksum::Checksum()
    : state_(::XXH3_createState(), [](XXH3_state_s* state) { ::XXH3_freeState(state); }) {
  if (!state_) throw std::bad_alloc();
  ::XXH3_64bits_reset(state_.get());
}

void Checksum::add(ConstBytes bytes) {
  ::XXH3_64bits_update(state_.get(), bytes.data(), bytes.size());
}

std::string Checksum::text() const {
  return hexadecimal(::XXH3_64bits_digest(state_.get()), 16);
}

std::uint64_t checksum_of(ConstBytes bytes) {
  return ::XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace lockstep::storage
