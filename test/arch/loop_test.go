package arch

import "testing"

func TestLooped(t *testing.T) {
	method := func(typ, body string) map[string]string {
		return map[string]string{"transport/x.go": "package transport\n\ntype " + typ + " struct{ c *conn }\n\nfunc (x *" + typ + ") do() {" + body + "}\n"}
	}
	judge(t, []sin{
		{"a method that asserts", method("link", "\n\tx.c.onLoop()\n\tx.c.post()\n"), ""},
		{"a method of another type", method("server", "\n\tx.c.post()\n"), ""},
		{"a method that does not", method("link", "\n\tx.c.post()\n"), "link.do does not begin with onLoop()"},
		{"a method without a word", method("ingress", ""), "ingress.do does not begin"},
		{"a method of what a link's end is made of", method("heldSession", "\n\tx.c.post()\n"), "heldSession.do does not begin"},
		{"a method that asserts too late", method("channel", "\n\tx.c.post()\n\tx.c.onLoop()\n"), "channel.do does not begin"},
	}, func(root string) ([]string, error) { return Looped(load(t, root)), nil })
}
