// Package log has the logger that KEDA's packages take from it.
package log

import "github.com/go-logr/logr"

// Log drops what is logged.
var Log = logr.Discard()
