# Makes the reference in FOLDER/html, of the headers that users include, as the build wrote them to INCLUDE, and of the pages of
# SOURCE, its chapters, in the order in which tests/pages.txt lists them. What Doxygen warns of is an error.
# reference.awk gives Doxygen a header with the room that it belongs to, and a page with links into the reference.
cmake_minimum_required(VERSION 3.25)

find_program(doxygen doxygen)
find_path(awesome doxygen-awesome.css PATHS /usr/share/doxygen-awesome-css NO_DEFAULT_PATH)
if(NOT doxygen OR NOT awesome)
  message(FATAL_ERROR "The reference needs Doxygen and its style: apt-get install doxygen doxygen-awesome-css")
endif()

file(STRINGS ${SOURCE}/tests/pages.txt rows REGEX "^[^#]")
list(TRANSFORM rows REPLACE " .*" "" OUTPUT_VARIABLE pages)
list(APPEND pages CHANGELOG.md)
list(JOIN pages " " page_list)
list(TRANSFORM pages PREPEND "${SOURCE}/" OUTPUT_VARIABLE page_files)

# Headers with names for users. Those that are a room's own stand in a namespace of their own within lockstep, of which only keys
# is for users, too: these names are left out, and so are headers that have no others.
file(GLOB_RECURSE all_headers RELATIVE ${INCLUDE}/lockstep ${INCLUDE}/lockstep/*.h)
list(FILTER all_headers EXCLUDE REGEX "^compat/")
set(headers "")
set(internal "")
foreach(header ${all_headers})
  file(STRINGS ${INCLUDE}/lockstep/${header} ends REGEX "^}  // namespace lockstep(::keys)?$")
  if(ends)
    list(APPEND headers ${header})
  endif()
  file(STRINGS ${INCLUDE}/lockstep/${header} namespaces REGEX "^namespace (lockstep::)?[a-z_]+ {$")
  list(TRANSFORM namespaces REPLACE "^namespace (lockstep::)?([a-z_]+) {$" "lockstep::\\2")
  list(APPEND internal ${namespaces})
endforeach()
list(REMOVE_DUPLICATES internal)
list(REMOVE_ITEM internal lockstep::lockstep lockstep::keys)
list(JOIN internal " " internal)
list(JOIN headers " " header_list)
list(APPEND headers lockstep.h)
list(TRANSFORM headers PREPEND "${INCLUDE}/lockstep/" OUTPUT_VARIABLE header_files)
list(APPEND page_files ${header_files})
list(JOIN page_files "\" \"" inputs)

execute_process(COMMAND ${doxygen} --version OUTPUT_VARIABLE version COMMAND_ERROR_IS_FATAL ANY)
set(later "")
if(version VERSION_GREATER_EQUAL 1.9.5)
  set(later "HTML_COLORSTYLE = LIGHT")  # the style has a dark one of its own
endif()
file(REMOVE_RECURSE ${FOLDER}/html)
file(WRITE ${FOLDER}/Doxyfile "
PROJECT_NAME = Lockstep
PROJECT_NUMBER = ${VERSION}
INPUT = \"${inputs}\"
EXCLUDE_SYMBOLS = ${internal} torch LOCKSTEP_DETAIL_*
INPUT_FILTER = \"awk -v ROOT='${SOURCE}' -v PAGES=' ${page_list} ' -v HEADERS=' ${header_list} ' -f '${SOURCE}/framework/reference.awk'\"
OUTPUT_DIRECTORY = \"${FOLDER}\"
STRIP_FROM_PATH = \"${INCLUDE}\" \"${SOURCE}\"
STRIP_FROM_INC_PATH = \"${INCLUDE}\"
GENERATE_TAGFILE = \"${FOLDER}/lockstep.tag\"
GENERATE_LATEX = NO
QUIET = YES
WARN_AS_ERROR = FAIL_ON_WARNINGS
WARN_IF_UNDOCUMENTED = NO
JAVADOC_AUTOBRIEF = YES
MACRO_EXPANSION = YES
SHOW_GROUPED_MEMB_INC = YES
SORT_MEMBER_DOCS = NO
HIDE_SCOPE_NAMES = YES
VERBATIM_HEADERS = NO
HAVE_DOT = NO
GENERATE_TREEVIEW = YES
HTML_EXTRA_STYLESHEET = \"${awesome}/doxygen-awesome.css\" \"${awesome}/doxygen-awesome-sidebar-only.css\"
${later}
")
execute_process(COMMAND ${doxygen} ${FOLDER}/Doxyfile RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "The reference has errors")
endif()

# Every header has its page, those that lockstep.h includes first of all.
file(READ ${FOLDER}/lockstep.tag made)
string(REPLACE "<path>${INCLUDE}/" "<path>" made "${made}")
file(STRINGS ${INCLUDE}/lockstep/framework/lockstep.h included REGEX "^#include <lockstep/")
list(TRANSFORM included REPLACE "^#include <lockstep/(.*)>" "\\1")
foreach(header ${included} ${headers})
  cmake_path(GET header PARENT_PATH path)
  cmake_path(GET header FILENAME name)
  string(REGEX REPLACE "(.+)" "/\\1" path "${path}")
  string(FIND "${made}" "<name>${name}</name>\n    <path>lockstep${path}/</path>" place)
  if(place EQUAL -1)
    message(FATAL_ERROR "The reference lacks ${header}")
  endif()
endforeach()

# Other files that pages link to lie beside them at their paths, as text; of a folder the names in it.
file(GLOB chapters ${FOLDER}/html/index.html ${FOLDER}/html/md_*.html ${FOLDER}/html/*-md.html)  # as versions call them
foreach(chapter ${chapters})
  file(READ ${chapter} text)
  string(REGEX MATCHALL "(href|src)=\"[^\":#]+[\"#]" links "${text}")
  foreach(link ${links})
    string(REGEX REPLACE "^.*\"(.*).$" "\\1" link ${link})
    if(EXISTS ${FOLDER}/html/${link})
      continue()
    endif()
    string(REGEX REPLACE "\\.txt$" "" file ${SOURCE}/${link})
    cmake_path(GET link PARENT_PATH folder)
    file(MAKE_DIRECTORY ${FOLDER}/html/${folder})
    if(IS_DIRECTORY ${file})
      file(GLOB names RELATIVE ${file} ${file}/*)
      list(JOIN names "\n" names)
      file(WRITE ${FOLDER}/html/${link} "${names}\n")
    elseif(EXISTS ${file})
      file(COPY_FILE ${file} ${FOLDER}/html/${link})
    else()
      message(FATAL_ERROR "${chapter}: nothing is at ${link}")
    endif()
  endforeach()
endforeach()
message(STATUS "The reference is ${FOLDER}/html/index.html")
