package fsm

import (
	"os"
	"strings"
	"testing"
)

// The package comment lists the commands by purpose, each once.
func TestThePackageCommentNamesEachCommand(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range commandTypes(t) {
		if n := strings.Count(string(text), "["+name+"]"); n != 1 {
			t.Errorf("%s stands there %d times", name, n)
		}
	}
}
