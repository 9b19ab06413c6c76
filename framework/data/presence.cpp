#include "framework/data/presence.h"

#include <system_error>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep::data {

bool is_there(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::status(path, error).type() != std::filesystem::file_type::not_found;
}

void require_there(const std::string& source, const std::filesystem::path& path,
                   const std::string& advice) {
  if (!is_there(path))
    throw DataError(str(source, ": there is no '", path.string(), "'; ", advice));
}

}  // namespace lockstep::data
