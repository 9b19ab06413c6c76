#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include <jpeglib.h>
// After the library's own header, which it needs.
#include <jerror.h>

#include "framework/base/logging.h"
#include "framework/base/non_copyable.h"
#include "framework/base/text.h"
#include "framework/formats/data_file.h"
#include "framework/formats/guarded_call.h"
#include "framework/formats/image.h"

namespace lockstep::formats {
namespace {

// A progressive picture has about 10. Each takes a pass over the picture, however few bytes it has.
constexpr int kMostScans = 100;

constexpr std::array<int, 4> kHarmless{JWRN_EXTRANEOUS_DATA, JWRN_ADOBE_XFORM, JWRN_JFIF_MAJOR,
                                       JWRN_NOT_SEQUENTIAL};

class JpegDecoder : private NonCopyable {
 public:
  JpegDecoder(std::span<const std::uint8_t> bytes, const std::string& name)
      : bytes_(bytes), name_(name) {}
  ~JpegDecoder() { jpeg_destroy_decompress(&jpeg_); }

  Image decode() {
    call([this] { read_header(); });
    Image image{jpeg_.image_height, jpeg_.image_width, 3, {}};
    check_kind();
    check_size(image, least_bytes(), bytes_.size(), name_);
    if (jpeg_.jpeg_color_space == JCS_GRAYSCALE) image.channels = 1;
    const bool is_cmyk = jpeg_.jpeg_color_space == JCS_CMYK || jpeg_.jpeg_color_space == JCS_YCCK;
    jpeg_.out_color_space = is_cmyk ? JCS_CMYK : image.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    const auto row_bytes = static_cast<std::size_t>(image.width * image.channels);
    image.pixels.resize(static_cast<std::size_t>(image.height) * row_bytes);
    std::vector<std::uint8_t> cmyk(is_cmyk ? static_cast<std::size_t>(image.width) * 4 : 0);
    std::uint8_t* const pixels = image.pixels.data();
    std::uint8_t* const cmyk_row = is_cmyk ? cmyk.data() : nullptr;
    call([this, pixels, row_bytes, cmyk_row] { read_rows(pixels, row_bytes, cmyk_row); });
    tell_oddities();
    return image;
  }

 private:
  // What libjpeg calls. None of these may hold an object with a destructor.
  [[noreturn]] static void on_error(j_common_ptr jpeg) {
    auto* const self = static_cast<JpegDecoder*>(jpeg->client_data);
    jpeg->err->format_message(jpeg, self->error_.data());
    constexpr int kLossless = 0xc3;
    if (jpeg->err->msg_code == JERR_SOF_UNSUPPORTED && jpeg->err->msg_parm.i[0] == kLossless)
      std::snprintf(self->error_.data(), self->error_.size(), "it is a lossless JPEG (SOF3)");
    std::longjmp(self->target_, 1);  // NOLINT
  }
  // Most warnings are of data that are damaged or cut short, which libjpeg would replace by gray.
  // Those passed over change no pixel: of bytes between whole parts, of numbers in headers that say
  // nothing, and of the spectral selection that Samsung's phones write wrongly into those without.
  static void on_message(j_common_ptr jpeg, int level) {
    if (level >= 0) return;
    auto* const self = static_cast<JpegDecoder*>(jpeg->client_data);
    const int code = jpeg->err->msg_code;
    for (std::size_t i = 0; i < kHarmless.size(); ++i) {
      if (code != kHarmless[i]) continue;
      jpeg->err->format_message(jpeg, self->oddity_[i].data());
      return;
    }
    on_error(jpeg);
  }
  static void on_output(j_common_ptr) {}
  static void on_progress(j_common_ptr jpeg) {
    auto* const self = static_cast<JpegDecoder*>(jpeg->client_data);
    if (self->jpeg_.input_scan_number <= kMostScans) return;
    std::snprintf(self->error_.data(), self->error_.size(), "it has more than %d scans",
                  kMostScans);
    std::longjmp(self->target_, 1);  // NOLINT
  }

  template <typename Step>
  void call(const Step& step) {
    if (guarded_call(target_, step)) return;
    fail_file(name_, str("its JPEG data cannot be decoded: ", error_.data()));
  }

  // As call() runs them.
  void read_header() {
    jpeg_.err = jpeg_std_error(&errors_);
    errors_.error_exit = on_error;
    errors_.emit_message = on_message;
    errors_.output_message = on_output;
    jpeg_.client_data = this;
    jpeg_create_decompress(&jpeg_);
    progress_.progress_monitor = on_progress;
    jpeg_.progress = &progress_;
    jpeg_mem_src(&jpeg_, bytes_.data(), static_cast<unsigned long>(bytes_.size()));
    (void)jpeg_read_header(&jpeg_, TRUE);
  }
  void read_rows(std::uint8_t* pixels, std::size_t row_bytes, std::uint8_t* cmyk_row) {
    (void)jpeg_start_decompress(&jpeg_);
    while (jpeg_.output_scanline < jpeg_.output_height) {
      std::uint8_t* const pixel_row = pixels + jpeg_.output_scanline * row_bytes;
      std::uint8_t* row = cmyk_row != nullptr ? cmyk_row : pixel_row;
      if (jpeg_read_scanlines(&jpeg_, &row, 1) == 0) break;
      if (cmyk_row != nullptr) convert_cmyk(cmyk_row, pixel_row);
    }
    (void)jpeg_finish_decompress(&jpeg_);  // reads the end, too
  }
  // Of each kind the process's first: a camera makes thousands of such files.
  void tell_oddities() const {
    static std::array<std::atomic<bool>, kHarmless.size()> are_told{};
    for (std::size_t i = 0; i < kHarmless.size(); ++i) {
      if (oddity_[i][0] == '\0' || are_told[i].exchange(true)) continue;
      log_warning(
          str("picture '", name_, "': ", oddity_[i].data(), ": that changes no pixel (said once)"));
    }
  }

  // Adobe writes 255 where there is no ink.
  void convert_cmyk(const std::uint8_t* cmyk, std::uint8_t* rgb) const {
    for (std::size_t x = 0; x < jpeg_.output_width; ++x, cmyk += 4) {
      for (int channel = 0; channel < 3; ++channel) {
        *rgb++ = static_cast<std::uint8_t>((cmyk[channel] * cmyk[3] + 127) / 255);
      }
    }
  }

  void check_kind() const {
    if (jpeg_.data_precision != 8) {
      fail_file(name_, str("it has ", jpeg_.data_precision,
                           " bits a channel, but only JPEGs of 8 can be read"));
    }
    if (jpeg_.arith_code != FALSE) {
      fail_file(name_, "it is a JPEG of arithmetic coding, which cannot be read");
    }
    constexpr std::array kSpaces{JCS_GRAYSCALE, JCS_YCbCr, JCS_RGB, JCS_CMYK, JCS_YCCK};
    if (std::ranges::count(kSpaces, jpeg_.jpeg_color_space) == 0) {
      fail_file(name_, str("it is a JPEG of ", jpeg_.num_components,
                           " channels of an unknown colour space"));
    }
  }

  // By Huffman's code each block of 8 x 8 takes a bit at least.
  [[nodiscard]] std::size_t least_bytes() const {
    std::size_t bits = 0;
    for (int i = 0; i < jpeg_.num_components; ++i) {
      const jpeg_component_info& component = jpeg_.comp_info[i];
      bits += std::size_t{component.width_in_blocks} * component.height_in_blocks;
    }
    return bits / 8;
  }

  std::span<const std::uint8_t> bytes_;
  const std::string& name_;
  jpeg_decompress_struct jpeg_{};
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  std::jmp_buf target_{};
  std::array<char, JMSG_LENGTH_MAX> error_{};
  std::array<std::array<char, JMSG_LENGTH_MAX>, kHarmless.size()> oddity_{};  // or ""
};

}  // namespace

Image decode_jpeg(std::span<const std::uint8_t> bytes, const std::string& name) {
  return JpegDecoder(bytes, name).decode();
}

}  // namespace lockstep::formats
