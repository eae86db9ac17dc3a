// Package sink takes the lines of the audit log to where an operator wants them: a file, standard output, or syslog as in
// RFC 5424. A sink knows nothing of events. It never waits longer than a deadline, and one goroutine uses it.
//
// From the top down: open.go reads the setting, file.go and syslog.go are the sinks.
package sink
