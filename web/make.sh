#!/bin/sh
# Builds the page where it can: make.sh FOLDER OUT
#
# FOLDER gets the npm packages, again only where package-lock.json has changed. Without node, npm or a
# network it says in one line what is missing and succeeds, since everything else works without the page.
here=$(dirname "$(readlink -f "$0")")
folder=$1 out=$2

leave_out() {
  rm -rf "$out"
  echo "The page of \`tandem serve\` is left out: $1." >&2
  exit 0
}

for program in node npm; do
  command -v "$program" >/dev/null || leave_out "$program is missing (Debian: apt install nodejs npm)"
done
mkdir -p "$folder" || exit 1
if ! cmp -s "$here/package-lock.json" "$folder/installed"; then
  rm -f "$folder/installed"
  cp "$here/package.json" "$here/package-lock.json" "$here/.npmrc" "$folder" || exit 1
  (cd "$folder" && npm ci --ignore-scripts --no-audit --no-fund) >"$folder/npm.log" 2>&1 ||
    leave_out "\`npm ci\` failed, perhaps without a network; see $folder/npm.log"
  cp "$here/package-lock.json" "$folder/installed" || exit 1
fi
exec node "$here/build.mjs" "$folder/node_modules" "$out"
