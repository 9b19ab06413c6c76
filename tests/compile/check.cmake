# Compiles each mistake of refused.cpp, without making anything of it, and looks at what the compiler says. An error must
# have the text that stands behind the case, and all that is said at most these lines.
set(most_lines 15)
set(work ${CMAKE_CURRENT_BINARY_DIR}/refused)
file(MAKE_DIRECTORY ${work}/tests/compile)
# Not -isystem, by which the compiler's own folders would come too early; with -I it leaves them where they are.
list(TRANSFORM INCLUDES PREPEND "-I")
set(compile ${COMPILER} -std=c++20 -I${work} -I${SOURCE} ${INCLUDES})
# Once for all cases, where the compiler looks for it first.
execute_process(COMMAND ${compile} -w -x c++-header ${SOURCE}/tests/compile/refused.h
                        -o ${work}/tests/compile/refused.h.gch COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${compile} -fsyntax-only ${SOURCE}/tests/compile/refused.cpp COMMAND_ERROR_IS_FATAL ANY)

file(READ ${SOURCE}/tests/compile/refused.cpp cases)
string(REGEX MATCHALL "CASE == [0-9]+ +//[^\n]*" cases "${cases}")
set(failures "")
foreach(case ${cases})
  string(REGEX MATCH "CASE == ([0-9]+) +// *(.*)" matched "${case}")
  set(number ${CMAKE_MATCH_1})
  set(text "${CMAKE_MATCH_2}")
  execute_process(COMMAND ${compile} -DCASE=${number} -fsyntax-only ${SOURCE}/tests/compile/refused.cpp
                  RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  string(REGEX MATCHALL "\n" lines "${output}")
  list(LENGTH lines count)
  # The first error is the one that says what to do.
  string(REGEX MATCH "error: [^\n]*" first "${output}")
  string(FIND "${first}" "error: static assertion failed: lockstep: ${text}" found)
  if(status EQUAL 0 OR count GREATER most_lines OR (text AND NOT found EQUAL 0))
    string(APPEND failures "case ${number}, \"${text}\": ${count} lines\n${output}\n")
  endif()
endforeach()
file(REMOVE_RECURSE ${work})
if(failures OR NOT number)
  message(FATAL_ERROR "not refused as they must be, in at most ${most_lines} lines:\n${failures}")
endif()
