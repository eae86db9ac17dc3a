package refusal

import "strings"

// Clip shortens what a client wrote, so that an error does not repeat all of it.
func Clip(text string) string {
	const most = 100
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}
