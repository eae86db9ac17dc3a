package arch

import "testing"

func TestChance(t *testing.T) {
	draws := func(room, imported, draw string) map[string]string {
		return map[string]string{"test/" + room + "/x_test.go": "package x\n\nimport \"" + imported + "\"\n\nfunc f() any {\n\treturn " + draw + "\n}\n"}
	}
	judge(t, []sin{
		{"a draw that no seed repeats", draws("simulation", "math/rand/v2", "rand.IntN(3)"), "rand.IntN"},
		{"a draw of a scenario", draws("simulation/scenario", "math/rand/v2", "rand.N(3)"), "rand.N"},
		{"a generator from a seed", draws("chaos", "math/rand/v2", "rand.New(rand.NewPCG(1, 2)).IntN(3)"), ""},
		{"the seed itself", draws("chaos", "math/rand/v2", "rand.Uint64() // by chance: the seed"), ""},
		{"keys are drawn by another package", draws("chaos", "crypto/rand", "rand.Reader"), ""},
		{"real processes draw what they like", draws("conformance", "math/rand/v2", "rand.IntN(3)"), ""},
	}, func(root string) ([]string, error) { return Chance(load(t, root)), nil })
}

func TestClocks(t *testing.T) {
	bound := func(file, imported, body string) map[string]string {
		return map[string]string{file: "package x\n\nimport (\n\t_ \"" + imported + "\"\n\t\"testing\"\n\t\"time\"\n)\n\n" +
			"func f(t *testing.T, began time.Time, err error) {\n\t" + body + "\n}\n"}
	}
	const late = "if took := time.Since(began); err != nil || took > time.Second {\n\t\tt.Error(took)\n\t}"
	judge(t, []sin{
		{"a bound", bound("test/conformance/x_test.go", "os", late), "machine's clock"},
		{"a bound without a name",
			bound("storage/x_test.go", "os", "if time.Since(began) > time.Second {\n\t\tt.Fatalf(\"late\")\n\t}"), "machine's clock"},
		{"a bound on what was measured before",
			bound("storage/x_test.go", "os", "took := time.Since(began)\n\tif took > time.Second {\n\t\tt.Fatalf(\"late\")\n\t}"), "machine's clock"},
		{"a bound in a bubble", bound("storage/x_test.go", "testing/synctest", late), ""},
		{"a bound of a scenario", bound("test/simulation/scenario/x_test.go", "os", late), ""},
		{"a bound with a reason", bound("storage/x_test.go", "os", "// by the clock: no machine is a day late.\n\t"+late), ""},
		{"a measurement", bound("storage/x_test.go", "os", "took := time.Since(began)\n\tt.Log(took)"), ""},
		{"a failure of something else",
			bound("storage/x_test.go", "os", "took := time.Since(began)\n\tif err != nil {\n\t\tt.Fatal(err, took)\n\t}"), ""},
		{"a deadline of a wait", bound("storage/x_test.go", "os",
			"end := time.Now().Add(time.Minute)\n\tif time.Now().After(end) {\n\t\tt.Fatal(\"never\")\n\t}"), ""},
	}, func(root string) ([]string, error) { return Clocks(load(t, root)), nil })
}
