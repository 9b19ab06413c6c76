#pragma once

#include <string_view>

namespace lockstep::report {

// page.html with its styles and scripts, before and behind the place of its data. The build makes
// them (page_template.cmake), so that a program needs no file where it runs.
extern const std::string_view kPageBefore;
extern const std::string_view kPageAfter;

}  // namespace lockstep::report
