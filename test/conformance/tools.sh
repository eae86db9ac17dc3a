# Sourced by the run.sh of each library, which is called in one of four ways:
#   run.sh VERSION [CLIENT]     runs the scenarios
#   run.sh --install VERSION    installs what they need, and no more
#   run.sh --where VERSION      does the same, and prints the directory that has it
#   run.sh --list VERSION       prints the ids of the scenarios, one a line
# What is downloaded lives outside the repository, one directory for each version of a library and
# content of the files that pin it.

set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[1]}")" && pwd)
cache=${BUSBAR_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/busbar/conformance}

only=
case ${1-} in
--install | --where | --list)
	only=$1
	shift
	;;
esac
# A run.sh whose own files pin one version sets pinned to its name before it sources this file.
version=${pinned-${1:?a version of versions.txt is missing}}
client=${2-}

# need COMMAND HINT: stops with what to do when a command is missing.
need() {
	command -v "$1" >/dev/null || {
		echo "$1 is missing: $2" >&2
		exit 1
	}
}

# pins DIRECTORY: stops when no file pins this version.
pins() {
	[[ -d $1 ]] || {
		echo "$1 is missing: the files that pin version $version" >&2
		exit 1
	}
}

# tools NAME FILE...: sets dir to the directory for that content of the files, and reports whether
# it must still be filled. A fill that was broken off is begun again.
tools() {
	local name=$1 sum
	shift
	sum=$(cd "$here" && cat "$@" | sha256sum | cut -c1-12)
	dir=$cache/$name-$version-$sum
	[[ ! -e $dir/complete ]]
}

# fresh empties dir; filled says that it is complete.
fresh() {
	rm -rf "$dir"
	mkdir -p "$dir"
}
filled() { touch "$dir/complete"; }

# With --install and --where nothing more is done than to install.
installed() {
	case $only in
	--install) exit 0 ;;
	--where) echo "$dir" && exit 0 ;;
	esac
}
