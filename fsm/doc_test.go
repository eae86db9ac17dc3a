package fsm

import (
	"os"
	"strings"
	"testing"
)

// The comment of Command lists the commands by purpose, each once.
func TestTheCommentOfCommandNamesEachCommand(t *testing.T) {
	text, err := os.ReadFile("command.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range commandTypes(t) {
		if n := strings.Count(string(text), "["+name+"]"); n != 1 {
			t.Errorf("%s stands there %d times", name, n)
		}
	}
}
