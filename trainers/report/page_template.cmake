# Writes the source FILE with the page of reports: page.html of FOLDER, in which each {{NAME}} is the file of that name, of
# FOLDER or of DYGRAPHS, the folder of dygraphs. At {{data}} it is cut in two.
cmake_minimum_required(VERSION 3.25)

file(READ ${FOLDER}/page.html page)
foreach(name page.css page.js dygraph.min.css dygraph.min.js)
  cmake_path(SET path ${FOLDER}/${name})
  if(NOT EXISTS ${path})
    cmake_path(SET path ${DYGRAPHS}/${name})
  endif()
  file(READ ${path} text)
  # These name files beside dygraphs, which a page has not.
  string(REGEX REPLACE "/[/*][#@] sourceMappingURL=[^\n]*" "" text "${text}")
  if(text MATCHES "</script|</style|\\)page\"")
    message(FATAL_ERROR "${path} can't stand in a page: it has ${CMAKE_MATCH_0}")
  endif()
  string(REPLACE "{{${name}}}" "${text}" page "${page}")
endforeach()

string(FIND "${page}" "{{data}}" place)
string(SUBSTRING "${page}" 0 ${place} before)
math(EXPR place "${place} + 8")
string(SUBSTRING "${page}" ${place} -1 after)
file(WRITE ${FILE} "#include \"trainers/report/page_template.h\"

namespace lockstep::report {

const std::string_view kPageBefore = R\"page(${before})page\";
const std::string_view kPageAfter = R\"page(${after})page\";

}  // namespace lockstep::report
")
