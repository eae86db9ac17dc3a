// Package tick has the ticker of the loops that look at something every second or more often (decision 0111).
package tick
