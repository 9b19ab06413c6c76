# Compiles refused.cpp without making anything of it, and compares the errors with those that it must have.
set(expected
    "lockstep: this class is neither a tree nor static: name its members with LOCKSTEP_TREE(Type, members...), or pass static_argument(x)"
    "lockstep: the mapped function cannot be called with these arguments: there are too few or too many of them, they are of other types, or it is mutable"
    "lockstep: a mapped function takes its arguments by value or const reference: a Tensor& could change what replicas share"
    "lockstep: a mapped function returns a tree of tensors or nothing"
    "lockstep: psum needs the name of an axis: psum(x, \"i\")"
    "lockstep: axis_index needs the name of an axis"
    "lockstep: a differentiated function takes its arguments by value or const reference: const Tensor&, not Tensor&")
# Not -isystem, by which the compiler's own folders would come too early; with -I it leaves them where they are.
list(TRANSFORM INCLUDES PREPEND "-I")
execute_process(COMMAND ${COMPILER} -std=c++20 -fsyntax-only -I${SOURCE} ${INCLUDES}
                        ${SOURCE}/tests/compile/refused.cpp
                RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(status EQUAL 0)
  message(FATAL_ERROR "it compiles")
endif()
foreach(text ${expected})
  string(FIND "${output}" "error: static assertion failed: ${text}\n" found)
  if(found EQUAL -1)
    message(FATAL_ERROR "not refused with \"${text}\":\n${output}")
  endif()
endforeach()
string(REGEX MATCHALL "error: " errors "${output}")
list(LENGTH errors count)
list(LENGTH expected wanted)
if(NOT count EQUAL wanted)
  message(FATAL_ERROR "${count} errors instead of ${wanted}:\n${output}")
endif()
