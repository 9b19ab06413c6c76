# Reads a header or a page for Doxygen, and writes it as Doxygen wants it, line by line: see reference.cmake.
# ROOT is the folder with the pages, MAP the page whose table describes the rooms, PAGES the pages, each within spaces.

# A file's name in identifiers; a heading's anchor, as GitHub makes it, in those of the page.
function id_of(path) {
  gsub(/[^A-Za-z0-9]/, "_", path)
  return path
}
function anchor_of(heading) {
  heading = tolower(heading)
  gsub(/[^a-z0-9_ -]/, "", heading)
  gsub(/ /, "-", heading)
  return heading
}

# The path in the tree of what a link of the page leads to.
function target_of(link, path) {
  path = folder link
  while (sub(/[^\/]+\/\.\.\//, "", path)) {}
  return path
}
# A link of the page, as one into the reference.
function led(link, file, anchor) {
  if (link ~ /^https?:/) return link
  file = link
  sub(/#.*/, "", file)
  anchor = substr(link, length(file) + 2)
  file = file == "" ? page : target_of(file)
  if (index(PAGES, " " file " ")) return "@ref " id_of(file) (anchor == "" ? "" : "_" id_of(anchor))
  if (file ~ /\.h$/ && file !~ /^(tests|trainers\/bench)\//) return "@ref lockstep/" (file == "framework/lockstep.h" ? "lockstep.h" : file)
  return file (file ~ /\.png$/ ? "" : ".txt")
}

FNR == 1 {
  is_page = FILENAME ~ /\.md$/
  if (is_page) {
    page = substr(FILENAME, length(ROOT) + 2)
    folder = page
    sub(/[^\/]*$/, "", folder)
  } else {
    room = FILENAME
    sub(/.*\/lockstep\//, "", room)
    sub(/^framework\//, "", room)
    is_umbrella = room == "lockstep.h"
    sub(/\/.*/, "", room)
    opened = is_umbrella ? "" : " /** @addtogroup " room " */ /** @{ */"
    closed = is_umbrella ? "" : "/** @} */ "
    # On the line of #pragma once, so that warnings name a header's own lines.
    $0 = "/** @file */" opened
  }
}

is_page {
  if (/^```/) is_code = !is_code
  else if (!is_code) {
    if (/^#+ /) {
      heading = $0
      sub(/^#+ /, "", heading)
      gsub(/`/, "")  # the tree of pages would show its tags
      $0 = $0 " {#" id_of(page) (FNR == 1 ? "" : "_" id_of(anchor_of(heading))) "}"
    }
    rest = $0
    $0 = ""
    while (match(rest, /\]\([^) ]+\)|src="[^"]+"/)) {
      opening = substr(rest, RSTART, 1) == "]" ? 2 : 5
      $0 = $0 substr(rest, 1, RSTART + opening - 1) led(substr(rest, RSTART + opening, RLENGTH - opening - 1)) \
           substr(rest, RSTART + RLENGTH - 1, 1)
      rest = substr(rest, RSTART + RLENGTH)
    }
    $0 = $0 rest
  }
  print
  next
}

# A group that holds a namespace would not hold what is in it. (Before a lone declaration it ends with a bare "}".)
before == "namespace lockstep {" && !/^(class|struct) [A-Za-z]+;/ { before = closed before opened }
$0 == "}  // namespace lockstep" { $0 = closed "}" opened }
# What a header's comment indents behind an empty line or a colon is code.
function write_code(i, language) {
  language = "unparsed"
  for (i = 1; i <= lines; ++i) if (code[i] ~ /[;{]( *\/\/.*)?$/) language = "cpp"
  print before " @code{." language "}"
  for (i = 1; i < lines; ++i) print code[i]
  before = code[lines] " @endcode"
  lines = 0
}
FNR > 1 {
  is_indented = /^ *\/\/\/   +[^ ]/
  if (lines > 0 ? is_indented : is_indented && before ~ /^ *\/\/\/($|.*:$)/ && !/^ *\/\/\/ +- /) {
    code[++lines] = $0
    next
  }
  if (lines > 0) write_code()
  print before
}
{ before = $0 }

END {
  if (is_page) exit
  print before "\n" closed
  if (!is_umbrella) exit
  # The rooms, as the map describes them.
  while ((getline row < MAP) > 0) {
    if (row !~ /^\| `[a-z]+\/` \|/) continue
    split(row, cell, "|")
    gsub(/^ `|\/` $/, "", cell[2])
    print "/** @defgroup " cell[2] " " cell[2] "/\n" cell[3] " */"
  }
  print "/** @defgroup models models/\n Networks by name. */"
  print "/** @defgroup trainers trainers/\n The training loop, and what the commands of train do. */"
  print "/** @namespace lockstep\n All that programs use. */"
}
