//go:build !unix

package process

// MaxDescriptors knows nothing: Windows limits a process by its memory alone.
func MaxDescriptors() (n int, known bool) { return 0, false }
