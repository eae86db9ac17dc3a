package arch

import "testing"

func TestScenariosLookAtTheCodesOfFailures(t *testing.T) {
	test := func(body string) map[string]string {
		return map[string]string{scenarioDir + "/t_x_test.go": "package scenario\n\nfunc TestT1(b *bench) {\n" + body + "\n}\n"}
	}
	judge(t, []sin{
		{"a name", test("err := f()\nif err == nil { b.Fatal(1) }"), "t_x_test.go:5: any error passes"},
		{"a name of its own", test("if _, err := f(); err == nil { b.Fatalf(1) }"), "t_x_test.go:4: any error passes"},
		{"a call", test("if c.tryComplete() == nil { b.Error(1) }"), "t_x_test.go:4: any error passes"},
		{"a part of the text", test(`if err == nil || !strings.Contains(err.Error(), "x") { b.Fatal(1) }`), "any error passes"},
		{"in a loop", test("for range 2 { if s.try(m) == nil { b.Fatal(1) } }"), "any error passes"},
		{"in a case", test("switch { case x: if err == nil { b.Fatal(1) } }"), "any error passes"},
		{"compared as a truth", test(`want(b, "send", err == nil, allowed)`), "any error passes"},
		{"another error is looked at", test(`if err == nil { b.Fatal(1) }` + "\n" + `b.refused("x", other, lost)`), "any error passes"},
		{"looked at behind it", test(`if err == nil { b.Fatal(1) }` + "\n" + `b.refused("x", err, lost)`), ""},
		{"looked at by errors.Is", test(`if err == nil { b.Fatal(1) }` + "\n" + `if !errors.Is(err, context.Canceled) { b.Fatal(2) }`), ""},
		{"a truth that is looked at", test(`want(b, "send", err == nil, ok)` + "\n" + `if !ok { b.refused("send", err, lost) }`), ""},
		{"success goes on", test("if err == nil { n++ }"), ""},
		{"a failure is fatal", test("if err != nil { b.Fatal(err) }"), ""},
		{"nothing came", test("if m == nil { b.Fatal(1) }"), ""},
	}, Scenarios)
}
