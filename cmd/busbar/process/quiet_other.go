//go:build !linux

package process

import (
	"errors"
	"time"
)

func findMonitor() (int, error) { return 0, errors.ErrUnsupported }

func setSlack(int, time.Duration) error { return errors.ErrUnsupported }
