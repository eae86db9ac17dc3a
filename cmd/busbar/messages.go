package main

import (
	"net/http"
	"strings"
)

// withMessages serves the data plane on the operations port too. Requests of operators below /api/ may look like it.
func (n *node) withMessages(operations http.Handler) http.Handler {
	operations = n.withReset(operations)
	messages := n.front.Messages(operations)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/api/") {
			operations.ServeHTTP(w, r)
			return
		}
		messages.ServeHTTP(w, r)
	})
}
