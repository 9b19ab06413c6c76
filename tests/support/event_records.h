#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/base/text.h"
#include "tests/support/files.h"

namespace lockstep::testing {

/// The event files of a folder, in the order in which TensorBoard reads them.
inline std::vector<std::filesystem::path> event_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) {
      files.push_back(entry.path());
    }
  }
  std::ranges::sort(files);
  return files;
}

/// A number as files of TFRecords and protobuf's messages have it: the lowest byte first.
template <typename Number>
Number number_in(std::string_view bytes) {
  if (bytes.size() < sizeof(Number)) throw std::runtime_error("a number is cut short");
  Number number{};
  std::memcpy(&number, bytes.data(), sizeof(Number));
  return number;
}

/// The CRC-32C of bytes, bit by bit.
inline std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = 0xffffffff;
  for (const char byte : bytes) {
    crc ^= static_cast<std::uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78 : 0);
  }
  return ~crc;
}

/// The records of an event file. Throws unless it is made of whole ones whose checksums are right.
inline std::vector<std::string> event_records(const std::filesystem::path& file) {
  const std::string text = read_text(file);
  std::string_view rest = text;
  const auto take = [&](std::size_t size) {
    if (rest.size() < size) throw std::runtime_error(file.string() + " ends inside of a record");
    const std::string_view taken = rest.substr(0, size);
    rest.remove_prefix(size);
    return taken;
  };
  const auto check = [&](std::string_view bytes) {
    const std::uint32_t unmasked = number_in<std::uint32_t>(take(4)) - 0xa282ead8;
    if (std::rotl(unmasked, 15) != crc32c(bytes)) {
      throw std::runtime_error(file.string() + " has a wrong checksum");
    }
  };
  std::vector<std::string> records;
  while (!rest.empty()) {
    const std::string_view size = take(8);
    check(size);
    records.emplace_back(take(number_in<std::uint64_t>(size)));
    check(records.back());
  }
  return records;
}

/// The fields of a protobuf message that a path of field numbers leads to, as their bytes: numbers
/// in eight, but float in four.
inline std::vector<std::string> fields_at(std::string_view message,
                                          std::vector<std::uint64_t> path) {
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = number_in<std::uint8_t>(message);
      message.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  const std::uint64_t wanted = path.front();
  path.erase(path.begin());
  std::vector<std::string> found;
  while (!message.empty()) {
    const std::uint64_t key = varint();
    std::string bytes(8, '\0');
    if (key % 8 == 0) {
      const std::uint64_t value = varint();
      std::memcpy(bytes.data(), &value, 8);
    } else {
      const std::size_t size = key % 8 == 1 ? 8 : key % 8 == 5 ? 4 : varint();
      if (size > message.size()) throw std::runtime_error("a field is cut short");
      bytes = message.substr(0, size);
      message.remove_prefix(size);
    }
    if (key / 8 != wanted) continue;
    if (path.empty()) {
      found.push_back(bytes);
    } else {
      for (std::string& inner : fields_at(bytes, path)) found.push_back(std::move(inner));
    }
  }
  return found;
}

/// The step of an event, which leaves it out where it is 0.
inline std::int64_t step_of(std::string_view record) {
  const std::vector<std::string> fields = fields_at(record, {2});
  return fields.empty() ? 0 : number_in<std::int64_t>(fields.front());
}

/// What TensorBoard shows of a folder, by tag and step: of scalars the values, of all else "".
/// Throws where a tag has a step twice, but for hyperparameters: each end of a run tells them.
using ShownValues = std::map<std::string, std::map<std::int64_t, std::string>>;
inline ShownValues shown_in(const std::filesystem::path& folder) {
  ShownValues shown;
  for (const std::filesystem::path& file : event_files(folder)) {
    for (const std::string& record : event_records(file)) {
      const std::int64_t step = step_of(record);
      if (!fields_at(record, {7, 1}).empty()) {  // a start, which takes later steps back
        for (auto& [tag, steps] : shown) steps.erase(steps.lower_bound(step), steps.end());
      }
      for (const std::string& value : fields_at(record, {5, 1})) {
        const std::string tag = fields_at(value, {1}).at(0);
        const std::vector<std::string> scalar = fields_at(value, {2});
        const std::string text = scalar.empty() ? "" : str(number_in<float>(scalar[0]));
        if (shown[tag].emplace(step, text).second || tag.starts_with("_hparams_/")) continue;
        throw std::runtime_error(tag + " has step " + std::to_string(step) + " twice");
      }
    }
  }
  return shown;
}

}  // namespace lockstep::testing
