# Installs the build into a folder of its own, builds the consumer against that alone, runs the README's
# program and compares what it prints with what the README says it prints.
file(REMOVE_RECURSE ${WORK})
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${ARGN}\n${output}")
  endif()
endfunction()
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
run(${CMAKE_COMMAND} -S ${SOURCE}/tests/consumer -B ${WORK}/build -G Ninja -DREADME=${SOURCE}/README.md
    -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_PREFIX_PATH=${WORK}/prefix;$ENV{CMAKE_PREFIX_PATH}")
run(${CMAKE_COMMAND} --build ${WORK}/build)

execute_process(COMMAND ${WORK}/build/pmean RESULT_VARIABLE status OUTPUT_VARIABLE output)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "the README's program ended with ${status}")
endif()
file(READ ${SOURCE}/README.md readme)
string(FIND "${readme}" "```\n${output}```\n" where)
if(output STREQUAL "" OR where EQUAL -1)
  message(FATAL_ERROR "the README does not show what its program prints:\n${output}")
endif()
