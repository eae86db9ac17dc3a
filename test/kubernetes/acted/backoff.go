package acted

import "time"

// The kubelet's pauses before it restarts a container: the first restart comes at once.
const (
	firstPause   = 10 * time.Second
	longestPause = 5 * time.Minute
	goodLife     = 10 * time.Minute // of a container, after which the pauses begin anew
)

// backoff counts the restarts of a container.
type backoff struct{ pause time.Duration }

// next returns how long the kubelet waits after a container that lived so long has ended.
func (b *backoff) next(lived time.Duration) time.Duration {
	if lived >= goodLife {
		b.pause = 0
	}
	now := b.pause
	b.pause = min(max(2*b.pause, firstPause), longestPause)
	return now
}
