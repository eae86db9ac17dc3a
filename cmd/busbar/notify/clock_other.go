//go:build !linux

package notify

import "time"

// monotonic has no meaning without systemd.
func monotonic() (time.Duration, bool) { return 0, false }
