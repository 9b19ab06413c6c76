#include "framework/base/record.h"

#include "framework/base/text.h"

namespace lockstep {

void put_number(std::string& bytes, std::uint64_t number, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) bytes += static_cast<char>(number >> (8 * i) & 0xff);
}

std::uint64_t number_at(std::string_view bytes, std::size_t size) noexcept {
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < size; ++i) {
    number |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  return number;
}

void RecordReader::check(bool holds, std::string_view why) const {
  if (holds) return;
  throw DataError(
      str(what_, " is damaged: ", why, " at byte ", size_ - rest_.size(), " of ", size_));
}

std::uint64_t RecordReader::number(std::size_t size, std::uint64_t largest) {
  check(size <= rest_.size(), "it is cut short");
  const std::uint64_t number = number_at(rest_, size);
  if (number > largest) {
    check(false, str("there is ", number, ", and the largest may be ", largest));
  }
  rest_.remove_prefix(size);
  return number;
}

std::string_view RecordReader::take(std::size_t size) {
  const std::string_view taken = rest_.substr(0, size);
  rest_.remove_prefix(size);
  return taken;
}

}  // namespace lockstep
