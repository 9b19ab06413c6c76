# Installs the pages of SOURCE, which tests/pages.txt lists, and the files that they link to, into DOCS: each at the path
# that it has in SOURCE, so that links lead where they lead there.
file(STRINGS ${SOURCE}/tests/pages.txt rows REGEX "^[^#]")
set(files "")
foreach(row ${rows})
  string(REGEX MATCH "^[^ ]+" page "${row}")
  list(APPEND files ${page})
  cmake_path(GET page PARENT_PATH folder)
  file(READ ${SOURCE}/${page} text)
  string(REPLACE "](" "src=\"" text "${text}")  # a bracket would hold a list together
  string(REGEX MATCHALL "src=\"[^][)\"#: \n]+[)\"#]" links "${text}")
  foreach(link ${links})
    string(REGEX REPLACE "^src=\"(.*).$" "\\1" file "${link}")
    cmake_path(APPEND folder ${file} OUTPUT_VARIABLE file)
    cmake_path(NORMAL_PATH file)
    list(APPEND files ${file})
  endforeach()
endforeach()
list(REMOVE_DUPLICATES files)
foreach(file ${files})
  cmake_path(GET file PARENT_PATH folder)
  file(INSTALL ${SOURCE}/${file} DESTINATION ${DOCS}/${folder})
endforeach()

# The man page shows what `TRAIN --help` prints, with CONFIGS as the folder of configs. It is made in WORK.
execute_process(COMMAND ${TRAIN} --help OUTPUT_VARIABLE help COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE " configs/" " ${CONFIGS}/" help "${help}")
# In roff a backslash begins a command, and so does a dot or an apostrophe at the beginning of a line.
string(REPLACE "\\" "\\e" help "${help}")
string(REPLACE "-" "\\-" help "${help}")
string(REGEX REPLACE "(^|\n)([.'])" "\\1\\\\&\\2" help "${help}")
file(WRITE ${WORK}/train.1 ".TH TRAIN 1\n.SH NAME\ntrain \\- trains models in data\\-parallel replicas\n.SH DESCRIPTION\n"
                           ".nf\n${help}.fi\n.SH SEE ALSO\nEach command's own \\-\\-help, and the pages in ${DOCS}.\n")
file(ARCHIVE_CREATE OUTPUT ${WORK}/train.1.gz PATHS ${WORK}/train.1 FORMAT raw COMPRESSION GZip COMPRESSION_LEVEL 9)
file(INSTALL ${WORK}/train.1.gz DESTINATION ${MAN}/man1)
