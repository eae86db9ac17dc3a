//go:build !sessionlist

package main

// absent.txt keeps this from being called.
func sessionList(*env) { panic(failure("the version has no list of sessions")) }
