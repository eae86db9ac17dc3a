// Package console tries the web console of a node as an operator does: in a headless Chromium, by labels and buttons.
//
// A page that asks another host for anything, or says anything to the browser's console, fails its test. The tests see the
// broker from outside. They start bin/busbar, or the program that BUSBAR names.
//
// Start with browser.go.
package console
