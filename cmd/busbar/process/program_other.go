//go:build !linux

package process

// ForgetProgram is Linux's: elsewhere the program stays in memory.
func ForgetProgram() error { return nil }
