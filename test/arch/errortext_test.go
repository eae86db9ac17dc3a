package arch

import "testing"

func TestErrorTexts(t *testing.T) {
	body := func(s string) map[string]string {
		return map[string]string{"storage/x.go": "package storage\n\nimport \"strings\"\n\n" + s + "\n"}
	}
	const want = "storage/x.go:6: the kind of an error is found by its text"
	judge(t, []sin{
		{"a part of a text", body("func f(err error) bool {\n\treturn strings.Contains(err.Error(), \"full\")\n}"), want},
		{"the beginning of a description",
			body("func f(e *amqpError) bool {\n\treturn strings.HasPrefix(e.Description, \"full: \")\n}"), want},
		{"a text that is equal", body("func f(err error) bool {\n\treturn err.Error() == notFound\n}"), want},
		{"a switch over texts", body("func f(err error) {\n\tswitch err.Error() {\n\t}\n}"), want},
		{"a text in lower case",
			body("func f(err error) bool {\n\treturn strings.HasSuffix(strings.ToLower(err.Error()), \"full\")\n}"), want},
		{"a text by way of a variable",
			body("func f(err error) bool { text := err.Error()\n\treturn strings.Contains(text, \"full\")\n}"), want},
		{"a reason", body("func f(err error) bool {\n\t// by text: the library has no error for it\n\treturn err.Error() == \"x\"\n}"), ""},
		{"a text that is empty", body("func f(e *amqpError) bool {\n\treturn e.Description == \"\"\n}"), ""},
		{"a future", body("func f(done raft.Future) bool {\n\treturn done.Error() == nil\n}"), ""},
		{"a text that is cut", body("func f(err error) string {\n\treturn strings.TrimSuffix(err.Error(), \".\")\n}"), ""},
		{"another text", body("func f(s string) bool {\n\treturn strings.Contains(s, \"full\")\n}"), ""},
		{"a test looks at texts", map[string]string{
			"storage/x_test.go": "package storage\n\nimport \"strings\"\n\nfunc f(err error) bool { return strings.Contains(err.Error(), \"full\") }\n"}, ""},
	}, func(root string) ([]string, error) { return ErrorTexts(load(t, root)), nil })
}
