# Run in the folder of a build, `cpack` makes a package for the Debian release that it is run on.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_CONTACT "The Lockstep developers <developers@lockstep.example>")
set(CPACK_PACKAGE_DESCRIPTION "A program is one function that replicas run in lockstep, as threads or
processes on one host or several, and that talk through collectives over
named axes. The library has gradient averaging, ZeRO and checkpoints; the
program train takes a YAML config.")
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
# What the programs load is found in them. Who builds against the library needs what its own build needs.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
file(READ trainers/setup.sh setup)
string(REGEX MATCHALL "[a-z0-9-]+-(dev|openmp)" needed "${setup}")
list(REMOVE_DUPLICATES needed)
list(JOIN needed ", " CPACK_DEBIAN_PACKAGE_RECOMMENDS)

# What Debian wants of each package.
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(WRITE ${PROJECT_BINARY_DIR}/changelog "lockstep (${PROJECT_VERSION}) unstable; urgency=medium\n\n"
     "  * CHANGELOG.md says what has changed.\n\n -- ${CPACK_PACKAGE_CONTACT}  ${date}\n")
file(ARCHIVE_CREATE OUTPUT ${PROJECT_BINARY_DIR}/changelog.gz PATHS ${PROJECT_BINARY_DIR}/changelog
     FORMAT raw COMPRESSION GZip COMPRESSION_LEVEL 9)
install(FILES ${PROJECT_BINARY_DIR}/changelog.gz DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT debian EXCLUDE_FROM_ALL)
install(FILES LICENSE RENAME copyright DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT debian EXCLUDE_FROM_ALL)
set(CPACK_INSTALL_CMAKE_PROJECTS "${PROJECT_BINARY_DIR};lockstep;ALL;/;${PROJECT_BINARY_DIR};lockstep;debian;/")
include(CPack)
