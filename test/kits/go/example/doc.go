// Package orders shows a test of an application with a broker of its own.
package orders
