# write_own_headers(INSTALLED FOLDER) writes headers of a user's, which have all names of those in INSTALLED and of their
# rooms: framework/base/errors.h and base/errors.h. Who has not defined OWN_PROJECT must not include them.
function(write_own_headers installed folder)
  file(GLOB_RECURSE headers RELATIVE ${installed} ${installed}/*.h)
  foreach(header ${headers})
    while(header MATCHES "^[^/]*/(.*)$")
      string(MAKE_C_IDENTIFIER ${header} name)
      file(WRITE ${folder}/${header} "#ifndef OWN_PROJECT\n#error \"included the user's own ${header}\"\n#endif\n"
                                     "constexpr int own_${name} = 1;\n")
      set(header ${CMAKE_MATCH_1})
    endwhile()
  endforeach()
endfunction()
