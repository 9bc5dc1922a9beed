# To be sourced: signs of life of long steps.

# duration prints seconds as 3m05s.
duration() {
	if (($1 >= 60)); then printf '%dm%02ds' $(($1 / 60)) $(($1 % 60)); else printf '%ds' "$1"; fi
}

# with_progress runs a command and prints now and then that it still runs, and in the end how long
# it took.
with_progress() { # what, command…
	local what=$1 began=$SECONDS every=60 ticker status=0
	shift
	[[ ! -t 1 ]] || every=20
	# Each second it looks whether we still run: Ctrl-C ends us, but no process in the background. It
	# reads a pipe that stays empty, because a sleep would outlive it.
	{
		local said=$SECONDS quiet
		exec {quiet}<> <(:)
		while kill -0 "$$" 2>/dev/null; do
			read -rt 1 -u "$quiet" || :
			if ((SECONDS - said >= every)); then
				said=$SECONDS
				echo "   $what: still running after $(duration $((SECONDS - began)))"
			fi
		done
	} &
	ticker=$!
	"$@" || status=$?
	kill "$ticker" 2>/dev/null
	wait "$ticker" 2>/dev/null || :
	((SECONDS - began < 5)) || echo "   $what took $(duration $((SECONDS - began)))"
	return "$status"
}
