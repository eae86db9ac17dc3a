# Sourced by the run.sh of each language: what is downloaded lives outside the repository, one
# directory for each version of the list of what is needed.

set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[1]}")" && pwd)
cache=${BUSBAR_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/busbar/conformance}

# need COMMAND HINT: stops with what to do when a command is missing.
need() {
	command -v "$1" >/dev/null || {
		echo "$1 is missing: $2" >&2
		exit 1
	}
}

# tools NAME FILE...: sets dir to the directory for that content of the files, and reports whether
# it must still be filled. A fill that was broken off is begun again.
tools() {
	local name=$1 sum
	shift
	sum=$(cd "$here" && cat "$@" | sha256sum | cut -c1-12)
	dir=$cache/$name-$sum
	[[ ! -e $dir/complete ]]
}

# fresh empties dir; filled says that it is complete.
fresh() {
	rm -rf "$dir"
	mkdir -p "$dir"
}
filled() { touch "$dir/complete"; }

# With --install nothing more is done than to install.
installed() { [[ ${1-} != --install ]] || exit 0; }
