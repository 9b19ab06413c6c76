#include <array>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>

#include <png.h>

#include "framework/base/non_copyable.h"
#include "framework/base/text.h"
#include "framework/formats/content_reader.h"
#include "framework/formats/data_file.h"
#include "framework/formats/guarded_call.h"
#include "framework/formats/image.h"

namespace lockstep::formats {
namespace {

class PngDecoder : private NonCopyable {
 public:
  PngDecoder(std::span<const std::uint8_t> bytes, const std::string& name)
      : bytes_(bytes.size()), left_(bytes), name_(name) {}
  ~PngDecoder() { png_destroy_read_struct(&png_, &info_, nullptr); }

  Image decode() {
    call([this] { read_header(); });
    Image image{png_get_image_height(png_, info_), png_get_image_width(png_, info_), 0, {}};
    check_size(image, least_bytes(image), bytes_, name_);
    call([this] { set_transforms(); });
    image.channels = png_get_channels(png_, info_);
    const auto row_bytes = static_cast<std::size_t>(image.width * image.channels);
    if ((image.channels != 1 && image.channels != 3) ||
        png_get_rowbytes(png_, info_) != row_bytes) {
      fail_file(name_, "its PNG data are of a kind that cannot be read");
    }
    image.pixels.resize(static_cast<std::size_t>(image.height) * row_bytes);
    std::uint8_t* const pixels = image.pixels.data();
    const auto height = static_cast<std::size_t>(image.height);
    call([this, pixels, height, row_bytes] { read_rows(pixels, height, row_bytes); });
    return image;
  }

 private:
  // What libpng calls. None of these may hold an object with a destructor.
  [[noreturn]] static void on_error(png_structp png, png_const_charp message) {
    auto* const self = static_cast<PngDecoder*>(png_get_error_ptr(png));
    std::snprintf(self->error_.data(), self->error_.size(), "%s", message);
    std::longjmp(self->target_, 1);  // NOLINT
  }
  static void on_warning(png_structp, png_const_charp) {}
  static void on_read(png_structp png, png_bytep to, std::size_t count) {
    auto* const self = static_cast<PngDecoder*>(png_get_io_ptr(png));
    if (self->left_.size() < count) png_error(png, "it is cut short");
    std::memcpy(to, self->left_.data(), count);
    self->left_ = self->left_.subspan(count);
  }

  template <typename Step>
  void call(const Step& step) {
    if (guarded_call(target_, step)) return;
    fail_file(name_, str("its PNG data cannot be decoded: ", error_.data()));
  }

  // As call() runs them.
  void read_header() {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, on_warning);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    if (info_ == nullptr) {
      std::snprintf(error_.data(), error_.size(), "there is no memory for libpng");
      std::longjmp(target_, 1);  // NOLINT
    }
    png_set_read_fn(png_, this, on_read);
    // All chunks but those that make the pixels are passed over: what they hold, such as colour
    // profiles, is neither kept nor applied.
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    png_read_info(png_, info_);
  }
  void set_transforms() {
    png_set_expand(png_);  // palettes, and fewer than 8 bits
    png_set_strip_alpha(png_);
    png_set_scale_16(png_);
    (void)png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
  }
  void read_rows(std::uint8_t* pixels, std::size_t height, std::size_t row_bytes) {
    const bool is_interlaced = png_get_interlace_type(png_, info_) != PNG_INTERLACE_NONE;
    for (int pass = 0; pass < (is_interlaced ? PNG_INTERLACE_ADAM7_PASSES : 1); ++pass) {
      for (std::size_t row = 0; row < height; ++row) {
        png_read_row(png_, pixels + row * row_bytes, nullptr);
      }
    }
    png_read_end(png_, nullptr);
  }

  [[nodiscard]] std::size_t least_bytes(const Image& image) const {
    const std::size_t bits = static_cast<std::size_t>(image.width) * png_get_channels(png_, info_) *
                             png_get_bit_depth(png_, info_);
    return static_cast<std::size_t>(image.height) * ((bits + 7) / 8) / kDeflateRatio;
  }

  std::size_t bytes_;
  std::span<const std::uint8_t> left_;
  const std::string& name_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::jmp_buf target_{};
  std::array<char, 200> error_{};
};

}  // namespace

Image decode_png(std::span<const std::uint8_t> bytes, const std::string& name) {
  return PngDecoder(bytes, name).decode();
}

}  // namespace lockstep::formats
