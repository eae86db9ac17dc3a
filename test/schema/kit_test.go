package schema

import (
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/busbar-mq/busbar/test/cluster"
)

// run runs the program and returns what it prints, and whether it ended well.
func run(ctx context.Context, t *testing.T, args ...string) (string, bool) {
	t.Helper()
	program, err := cluster.Binary()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(ctx, program, args...)
	c.Env = []string{"HOME=" + t.TempDir()}
	out, err := c.CombinedOutput()
	return string(out), err == nil
}

// compiled returns a schema as the program prints it, and as the library reads it.
func compiled(t *testing.T, which string) (printed map[string]any, judge *jsonschema.Schema) {
	t.Helper()
	text, ok := run(t.Context(), t, "config", "schema", which)
	if !ok {
		t.Fatal(text)
	}
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", document); err != nil {
		t.Fatal(err)
	}
	if judge, err = c.Compile("schema.json"); err != nil {
		t.Fatal(err)
	}
	return document.(map[string]any), judge
}

// comment is one of Config.json: the rest of a line, or a block. No text of the files here holds what looks like one.
var comment = regexp.MustCompile(`(?m)(^|[ \t,{\[])(//.*$|/\*(?s:.*?)\*/)`)

// judged returns what the schema says of a file, which is JSON with comments or YAML.
func judged(t *testing.T, by *jsonschema.Schema, text string) error {
	t.Helper()
	if strings.HasPrefix(strings.TrimSpace(text), "{") {
		text = comment.ReplaceAllString(text, "$1")
	}
	var document any
	if err := yaml.Unmarshal([]byte(text), &document); err != nil {
		return err
	}
	plain, err := json.Marshal(document)
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(plain))
	if err != nil {
		t.Fatal(err)
	}
	return by.Validate(value)
}
