#!/bin/sh
# Makes the locale `grouped`, which says 1.234,5, in a folder. It needs no file of Debian's package locales. localedef warns of
# all else that a locale has.
cd "$1" || exit 1
cat >ascii <<'END'
<code_set_name> ASCII
<escape_char> /
CHARMAP
<U0000>..<U007F> /x00 ASCII
END CHARMAP
END
cat >numbers <<'END'
LC_NUMERIC
decimal_point ","
thousands_sep "."
grouping 3
END LC_NUMERIC
END
localedef -c --quiet --no-archive -f ./ascii -i ./numbers ./grouped || test -s grouped/LC_NUMERIC
