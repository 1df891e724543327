#!/bin/sh
# WordNet 3.0 for nltk from Debian's or Ubuntu's packages, without nltk's downloader and without installing them:
#   wordnet.sh FOLDER && export NLTK_DATA=FOLDER
# The packages have every file but `lexnames` (numbers and names of the lexicographers' files), which a manual page lists.
set -eu
target=$1/corpora/wordnet
mkdir -p "$target"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$work" && apt-get -qq download wordnet-base wordnet-sense-index && for file in *.deb; do dpkg -x "$file" .; done)
cp "$work"/usr/share/wordnet/* "$target"
zcat "$work"/usr/share/man/man5/lexnames.5WN.gz | awk -F '\t' '
    BEGIN { class["noun"] = 1; class["verb"] = 2; class["adj"] = 3; class["adv"] = 4 }
    /^[0-9][0-9]\t/ { name = $2; gsub(/ /, "", name); split(name, part, "."); print $1 "\t" name "\t" class[part[1]] }
' > "$target"/lexnames
test "$(wc -l < "$target"/lexnames)" -eq 45
