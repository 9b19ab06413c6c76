#include "framework/formats/npy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "tests/catch.h"
#include "tests/formats/sample_files.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

using namespace lockstep;
using namespace lockstep::formats;
using namespace lockstep::testing;

namespace {

template <typename T>
std::string bytes_of_values(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

template <typename T>
void check_type(const char* descr, ElementType type) {
  INFO(descr);
  const TemporaryFolder folder;
  const std::vector<T> values{T{0},
                              T{1},
                              static_cast<T>(-3),
                              static_cast<T>(1ULL << 60),
                              T{5},
                              std::bit_cast<T>(std::array<std::uint8_t, sizeof(T)>{0x7f})};
  for (const int version : {1, 2, 3}) {
    const NpyArray array(
        folder.write("a.npy", npy_file(descr, false, "(2, 3)", bytes_of_values(values), version)));
    CHECK(array.type() == type);
    CHECK(array.shape() == std::vector<std::int64_t>{2, 3});
    const auto read = array.values<T>();
    CHECK(std::vector<T>(read.begin(), read.end()) == values);
  }
}

std::string npy_error(const std::string& bytes) {
  const TemporaryFolder folder;
  const std::string path = folder.write("a.npy", bytes);
  const std::string message = message_of<DataError>([&] { const NpyArray array(path); });
  const std::string prefix = "data file '" + path + "': ";
  return message.starts_with(prefix) ? message.substr(prefix.size()) : message;
}

// A file of version 1 with this header and four bytes of data.
std::string header_error(const std::string& header) {
  return npy_error(npy_of_header(header, "abcd"));
}

}  // namespace

TEST_CASE("an array of NumPy is read in each of its types and versions") {
  check_type<std::int8_t>("|i1", ElementType::int8);
  check_type<std::int8_t>("<i1", ElementType::int8);
  check_type<std::int16_t>("<i2", ElementType::int16);
  check_type<std::int32_t>("<i4", ElementType::int32);
  check_type<std::int64_t>("<i8", ElementType::int64);
  check_type<std::uint8_t>("|u1", ElementType::uint8);
  check_type<std::uint16_t>("<u2", ElementType::uint16);
  check_type<std::uint32_t>("<u4", ElementType::uint32);
  check_type<std::uint64_t>("<u8", ElementType::uint64);
  check_type<float>("<f4", ElementType::float32);
  check_type<double>("<f8", ElementType::float64);
  CHECK(std::string(name_of(ElementType::float64)) == "float64");

  const TemporaryFolder folder;
  const NpyArray booleans(
      folder.write("b.npy", npy_file("|b1", false, "(3,)", std::string("\1\0\1", 3))));
  const auto read = booleans.values<bool>();
  CHECK(std::vector<bool>(read.begin(), read.end()) == std::vector<bool>{true, false, true});
  CHECK(message_of<ValueError>([&] { (void)booleans.values<float>(); }) ==
        "npy: '" + folder.path("b.npy") + "' has elements of type bool, not float32");
}

TEST_CASE("big-endian elements are read as the numbers that they are") {
  const TemporaryFolder folder;
  const NpyArray integers(folder.write(
      "i.npy", npy_file(">i4", false, "(2,)", std::string("\0\1\2\3\xff\xff\xff\xfe", 8))));
  CHECK(integers.type() == ElementType::int32);
  CHECK(std::ranges::equal(integers.values<std::int32_t>(), std::vector<std::int32_t>{66051, -2}));
  const NpyArray bytes(folder.write("b.npy", npy_file(">u1", false, "(2,)", "\1\2")));
  CHECK(std::ranges::equal(bytes.values<std::uint8_t>(), std::vector<std::uint8_t>{1, 2}));
  // Turned, then put in C's order: [[1, 2], [3, 4]].
  const NpyArray columns(
      folder.write("f.npy", npy_file(">u2", true, "(2, 2)", std::string("\0\1\0\3\0\2\0\4", 8))));
  CHECK(
      std::ranges::equal(columns.values<std::uint16_t>(), std::vector<std::uint16_t>{1, 2, 3, 4}));
  const NpyArray doubles(
      folder.write("d.npy", npy_file(">f8", false, "(1,)", std::string("\xc0\4\0\0\0\0\0\0", 8))));
  CHECK(doubles.values<double>()[0] == -2.5);
}

TEST_CASE("every float16 has its value") {
  // By the definition: 1.fraction times two to the exponent - 15, or 0.fraction of the least one.
  std::size_t wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto exponent = static_cast<int>(bits >> 10 & 0x1fU);
    const double fraction = (bits & 0x3ffU) / 1024.0;
    const float value = NpyFloat16{static_cast<std::uint16_t>(bits)};
    if (std::signbit(value) != (bits >> 15 == 1)) ++wrong;
    const double size =
        exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1 + fraction, exponent - 15);
    const bool is_right = exponent < 31   ? std::abs(value) == size
                          : fraction == 0 ? std::isinf(value)
                                          : std::isnan(value);
    if (!is_right) ++wrong;
  }
  CHECK(wrong == 0);
  const TemporaryFolder folder;
  const NpyArray array(
      folder.write("h.npy", npy_file(">f2", false, "(2,)", std::string("\x3e\0\xc1\0", 4))));
  CHECK(std::ranges::equal(array.values<NpyFloat16>(), std::vector<float>{1.5F, -2.5F}));
}

TEST_CASE("an array says where its elements are") {
  const TemporaryFolder folder;
  const NpyArray array(folder.write("a.npy", npy_file("|u1", false, "(2, 3)", "abcdef")));
  CHECK(array.place_of(0) == "element [0, 0]");
  CHECK(array.place_of(5) == "element [1, 2]");
}

TEST_CASE("an array in Fortran's order is given in C's") {
  const TemporaryFolder folder;
  // Element (i, j, k) of shape (2, 3, 4) is 100 i + 10 j + k.
  std::vector<std::int16_t> rows;
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j) {
      for (int k = 0; k < 4; ++k) rows.push_back(static_cast<std::int16_t>(100 * i + 10 * j + k));
    }
  }
  std::vector<std::int16_t> columns;
  for (int k = 0; k < 4; ++k) {
    for (int j = 0; j < 3; ++j) {
      for (int i = 0; i < 2; ++i) {
        columns.push_back(static_cast<std::int16_t>(100 * i + 10 * j + k));
      }
    }
  }
  const NpyArray array(
      folder.write("f.npy", npy_file("<i2", true, "(2, 3, 4)", bytes_of_values(columns))));
  CHECK(array.shape() == std::vector<std::int64_t>{2, 3, 4});
  const auto read = array.values<std::int16_t>();
  CHECK(std::vector<std::int16_t>(read.begin(), read.end()) == rows);
}

TEST_CASE("scalars, empty arrays and large ones are read") {
  const TemporaryFolder folder;
  const NpyArray scalar(folder.write("s.npy", npy_file("<f4", true, "()", std::string(4, '\0'))));
  CHECK(scalar.shape().empty());
  CHECK(scalar.values<float>().size() == 1);
  const NpyArray empty(
      folder.write("e.npy", npy_file("<f8", false, "(0, 9223372036854775807, 3)", "")));
  CHECK(empty.values<double>().empty());
  CHECK(empty.shape() == std::vector<std::int64_t>{0, 9223372036854775807, 3});

  // Large enough to be mapped.
  std::vector<std::int32_t> values(100'000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int32_t>(i * 7919);
  const NpyArray large(
      folder.write("l.npy", npy_file("<i4", false, "(100000,)", bytes_of_values(values))));
  CHECK(std::ranges::equal(large.values<std::int32_t>(), values));
}

TEST_CASE("elements that lie unaligned in a file are aligned in memory") {
  const TemporaryFolder folder;
  const std::vector<double> values{0.5, -2};
  for (std::size_t blanks = 0; blanks < 8; ++blanks) {
    const std::string header =
        "{'descr':'<f8','fortran_order':False,'shape':(2,)}" + std::string(blanks, ' ') + "\n";
    const NpyArray array(folder.write("a.npy", npy_of_header(header, bytes_of_values(values))));
    CHECK(reinterpret_cast<std::uintptr_t>(array.values<double>().data()) % alignof(double) == 0);
    CHECK(std::ranges::equal(array.values<double>(), values));
  }
}

TEST_CASE("a .npy file cut short anywhere or too long is an error") {
  const std::string bytes = npy_file("<f4", false, "(2, 3)", std::string(24, 'x'));
  CHECK(npy_error(bytes) == "no error");
  for (std::size_t kept = 1; kept < bytes.size(); ++kept) {
    INFO(kept);
    CHECK_THAT(npy_error(bytes.substr(0, kept)),
               ContainsSubstring(kept < 8                   ? "it is no .npy file"
                                 : kept < bytes.size() - 24 ? "inside its header"
                                                            : "bytes follow it"));
  }
  CHECK(npy_error(bytes + "y") ==
        "its header says (2, 3) elements of 4 bytes, but 25 bytes follow it");
}

TEST_CASE("sizes that no file can have are refused before anything is allocated") {
  for (const char* const shape :
       {"(9223372036854775807,)", "(4294967296, 4294967296)", "(3037000500, 3037000500, 8)"}) {
    CHECK_THAT(npy_error(npy_file("<f8", true, shape, "abcd")),
               ContainsSubstring("4 bytes follow"));
  }
  std::string ones = "(";
  for (int i = 0; i < 65; ++i) ones += "1, ";
  CHECK_THAT(npy_error(npy_file("<f4", false, ones + ")", "abcd")),
             ContainsSubstring("more than 64 sizes"));
  // A header of 4 GiB, by its length.
  CHECK_THAT(npy_error(std::string("\x93NUMPY\x02\0\xff\xff\xff\xff{", 13)),
             ContainsSubstring("inside its header"));
}

TEST_CASE("a header of a .npy file is read as NumPy writes it, and in no other way") {
  const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }   \n";
  CHECK(header_error(good) == "no error");
  CHECK(header_error("{\"shape\": (1, 1), \"descr\":'|S4','fortran_order':True}\n") ==
        "its elements are of type '|S4', but only those of b1, i1, i2, i4, i8, u1, u2, u4, u8, f2, "
        "f4, f8 can be read");
  const auto changed = [&](const std::string& part, const std::string& to) {
    std::string header = good;
    header.replace(header.find(part), part.size(), to);
    return header_error(header);
  };
  for (const char* const descr :
       {"'|f4'", "'=f4'", "'f4'", "'<f16'", "'<c8'", "'>S4'", "'|O'", "''", "'<'", "'<f44'"}) {
    INFO(descr);
    CHECK_THAT(changed("'<f4'", descr), ContainsSubstring("can be read"));
  }
  CHECK_THAT(changed("'<f4'", "[('a', '<f4')]"), ContainsSubstring("records can't be read"));
  CHECK_THAT(changed("'<f4'", "'<f4"), ContainsSubstring("is not as NumPy writes it"));
  CHECK_THAT(changed("False", "0"), ContainsSubstring("must be True or False"));
  CHECK_THAT(changed("'shape'", "'form'"), ContainsSubstring("key 'form'"));
  CHECK_THAT(changed("'shape'", "'descr'"), ContainsSubstring("occurs twice"));
  CHECK_THAT(changed(", 'shape': (1,)", ""), ContainsSubstring("must have the keys"));
  CHECK_THAT(changed("False, ", "False "), ContainsSubstring("a comma is missing"));
  for (const char* const shape : {"(1)", "1", "[1]", "(-1,)", "(1L,)", "(1.0,)", "(1,,)", "(,)",
                                  "(1", "(18446744073709551617,)", "(1 1)", "((1,),)"}) {
    INFO(shape);
    CHECK_THAT(changed("(1,)", shape), ContainsSubstring("is not as NumPy writes it"));
  }
  CHECK_THAT(changed("}", ""), ContainsSubstring("is not as NumPy writes it"));
  CHECK_THAT(changed("\n", ""), ContainsSubstring("must end with blanks and a line feed"));
  CHECK_THAT(changed("\n", "x\n"), ContainsSubstring("must end with blanks and a line feed"));
  CHECK_THAT(header_error(""), ContainsSubstring("is not as NumPy writes it"));
}

TEST_CASE("foreign versions, foreign files and booleans of other values are errors") {
  std::string bytes = npy_file("|b1", false, "(4,)", std::string("\0\1\1\2", 4));
  CHECK(npy_error(bytes) == "it has booleans that are neither 0 nor 1");
  bytes[6] = 4;
  CHECK(npy_error(bytes) == "its version is 4.0, but only 1.0, 2.0 and 3.0 can be read");
  bytes[6] = 1;
  bytes[7] = 1;
  CHECK_THAT(npy_error(bytes), ContainsSubstring("its version is 1.1"));
  CHECK(npy_error("PK no array") ==
        "it is an archive, as numpy.savez writes it, of which none can be read: numpy.save writes "
        "each array to a file of its own");
  CHECK(npy_error("P") == "it is no .npy file: it does not start as one");
  CHECK(npy_error("") == "it is empty");
  CHECK(npy_error("\x1f\x8b\x08") == "it is packed by gzip: unpack it first, by 'gzip -d'");
  CHECK(npy_error("BZh91AY&SY") ==
        "it is packed by bzip2, which can't be read: unpack it first, by 'bzip2 -d'");
}
