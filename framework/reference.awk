# Reads a header or a page for Doxygen, and writes it as Doxygen wants it, line by line: see reference.cmake.
# ROOT is the folder with the pages, PAGES are their paths in it, each within spaces, HEADERS those of the headers. The rooms of
# these are described by the table of the page framework/README.md.

# A file's name in identifiers; a heading's anchor, as GitHub makes it, in those of the page.
function id_of(path) {
  gsub(/[^A-Za-z0-9]/, "-", path)
  return path
}
function anchor_of(heading) {
  heading = tolower(heading)
  gsub(/[^a-z0-9_ -]/, "", heading)
  gsub(/ /, "-", heading)
  return heading
}

# What Doxygen reads otherwise than others: outside of code it joins a flag's two hyphens, an apostrophe ends code, but for code
# in double signs, and not all that is bold is. Code may go on in the next line of a paragraph.
function as_meant(line, parts, count, i, sign) {
  if (line ~ /^[ \/]*$/) in_code = 0
  while (match(line, /\*\*[^* ][^*]*\*\*/)) {
    line = substr(line, 1, RSTART - 1) "<b>" substr(line, RSTART + 2, RLENGTH - 4) "</b>" substr(line, RSTART + RLENGTH)
  }
  count = split(line, parts, "`")
  line = ""
  for (i = 1; i <= count; ++i) {
    if (i > 1) in_code = !in_code
    if (i == 1) sign = "`"
    else if (in_code) sign = i < count && index(parts[i], "'") ? "``" : "`"
    if (!in_code) {
      gsub(/ --/, " \\--", parts[i])
      gsub(/\(--/, "(\\--", parts[i])
    }
    line = line (i > 1 ? sign : "") parts[i]
  }
  return line
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
  if (file == "README.md" && anchor == "") return "@ref index"
  if (index(PAGES, " " file " ")) return "@ref " id_of(file) (anchor == "" ? "" : "-" id_of(anchor))
  if (index(HEADERS, " " file " ")) return "@ref lockstep/" file
  if (file == "framework/lockstep.h") return "@ref lockstep/lockstep.h"
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
      id = id_of(page) "-" id_of(anchor_of(heading))
      # Doxygen takes a README.md for its folder's unless it says that it is a page, whose sections are then
      # headings of the first level. Those of the first page would stand among the chapters in the tree.
      if (FNR == 1) sub(/^# /, page == "README.md" ? "@mainpage " : "@page " id_of(page) " ")
      else if (page == "README.md" && sub(/^## /, "<h2>@anchor " id " ")) $0 = $0 "</h2>"
      else $0 = substr($0, 2) " {#" id "}"
    }
    gsub(/<\/?(picture|source)[^>]*>/, "")  # Doxygen knows neither: the picture for light pages stays
    rest = $0
    $0 = ""
    while (match(rest, /\]\([^) ]+\)|src="[^"]+"/)) {
      mark = substr(rest, RSTART, substr(rest, RSTART, 1) == "]" ? 2 : 5)
      target = led(substr(rest, RSTART + length(mark), RLENGTH - length(mark) - 1))
      text = substr(rest, 1, RSTART - 1)
      rest = substr(rest, RSTART + RLENGTH - 1)
      # Of a link's text Doxygen would show the signs of code.
      if (target ~ /^@ref/ && match(text, /\[`[^`]*`$/)) text = substr(text, 1, RSTART) substr(text, RSTART + 2, RLENGTH - 3)
      $0 = $0 text mark target
    }
    $0 = as_meant($0 rest)
  }
  print
  next
}

# A group that holds a namespace would not hold what is in it. (Before a lone declaration it ends with a bare "}".)
before ~ /^namespace lockstep(::keys)? {$/ && !/^(class|struct) [A-Za-z]+;/ { before = closed before opened }
/^}  \/\/ namespace lockstep(::keys)?$/ { $0 = closed "}" opened }
# What a header's comment indents behind an empty line or a colon is code.
function write_code(i, language) {
  language = "unparsed"
  for (i = 1; i <= lines; ++i) if (code[i] ~ /[;{]( *\/\/.*)?$/) language = "cpp"
  print before " @code{." language "}"
  for (i = 1; i < lines; ++i) print code[i]
  before = code[lines] " @endcode"
  lines = 0
}
# Doxygen links each class's name. A word that begins a sentence, or stands behind a colon, only looks like one; but for errors.
function without_links(line, done, at) {
  if (begins && line ~ /^\/\/\/<? +[A-Z][a-z]+[ ,]/) sub(/[A-Z]/, "%&", line)
  begins = line ~ /[.:?]$|^\/\/\/$/
  while (match(line, /[.:?] +[A-Z][a-z]+[ ,]/)) {
    at = RSTART
    match(substr(line, at), /[A-Z]/)
    at += RSTART - 1
    done = done substr(line, 1, at - 1) "%"
    line = substr(line, at)
  }
  line = done line
  gsub(/%Error/, "Error", line)
  return line
}
FNR > 1 {
  is_indented = /^ *\/\/\/   +[^ ]/
  if (lines > 0 ? is_indented : is_indented && before ~ /^ *\/\/\/($|.*:$)/ && !/^ *\/\/\/ +- /) {
    code[++lines] = $0
    next
  }
  if (lines > 0) write_code()
  if ($0 !~ /^ *\/\/\//) begins = 1
  if (match($0, /\/\/\/.*/)) $0 = substr($0, 1, RSTART - 1) without_links(as_meant(substr($0, RSTART)))
  print before
}
{ before = $0 }

END {
  if (is_page) exit
  print before "\n" closed
  if (!is_umbrella) exit
  # The rooms, as the map describes them.
  while ((getline row < (ROOT "/framework/README.md")) > 0) {
    if (row !~ /^\| `[a-z]+\/` \|/) continue
    split(row, cell, "|")
    gsub(/^ `|\/` $/, "", cell[2])
    if (index(HEADERS, " framework/" cell[2] "/")) {
      text = substr(cell[3], 2)
      print "/** @defgroup " cell[2] " " cell[2] "/\n@brief %" toupper(substr(text, 1, 1)) substr(text, 2) ". */"
    }
  }
  print "/** @defgroup models models/\n@brief Networks by name. */"
  print "/** @defgroup trainers trainers/\n@brief The training loop, and what the commands of train do. */"
  print "/** @namespace lockstep\n All that programs use. */"
  print "/** @namespace lockstep::keys\n The keys of a config: what choices of one's own have. */"
}
