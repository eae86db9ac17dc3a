package rule

import (
	"fmt"
	"testing"
)

// S-219, T-202: every cell of the tables of three-valued logic.
func TestThreeValuedLogic(t *testing.T) {
	operand := map[answer]string{isTrue: "1 = 1", isFalse: "1 = 0", unknown: "missing = 1"}
	for _, cell := range []struct{ a, b, and, or answer }{
		{isTrue, isTrue, isTrue, isTrue},
		{isTrue, isFalse, isFalse, isTrue},
		{isTrue, unknown, unknown, isTrue},
		{isFalse, isTrue, isFalse, isTrue},
		{isFalse, isFalse, isFalse, isFalse},
		{isFalse, unknown, isFalse, unknown},
		{unknown, isTrue, unknown, isTrue},
		{unknown, isFalse, isFalse, unknown},
		{unknown, unknown, unknown, unknown},
	} {
		askAll(t, []question{
			{fmt.Sprintf("%s AND %s", operand[cell.a], operand[cell.b]), cell.and},
			{fmt.Sprintf("%s OR %s", operand[cell.a], operand[cell.b]), cell.or},
		})
	}
	askAll(t, []question{
		{"NOT 1 = 1", isFalse},
		{"NOT 1 = 0", isTrue},
		{"NOT missing = 1", unknown},
		{"NOT NOT missing = 1", unknown},
		{"NOT NOT 1 = 1", isTrue},
		{"NULL", unknown},
		{"TRUE", isTrue},
		{"FALSE", isFalse},
		{"yes", isTrue},
		{"no", isFalse},
		{"nothing", unknown},
		{"missing", unknown},
		{"(1 = 1) = TRUE", isTrue},
		{"(missing = 1) = TRUE", unknown},
	})
}

// T-202; S-219
func TestT202UnknownIsNeitherTrueNorFalse(t *testing.T) {
	askAll(t, []question{
		{"missing = 1 AND 1 = 0", isFalse},
		{"missing = 1 OR 1 = 1", isTrue},
		{"NOT missing = 1", unknown}, // and only what is true selects
		{"percent LIKE '100!%' ESCAPE '!'", isTrue},
		{"percent LIKE '10!%' ESCAPE '!'", isFalse},
		{"missing LIKE '100!%' ESCAPE '!'", unknown},
		{"Quantity IN (6, 7)", isTrue},
		{"Quantity IN (6, 8)", isFalse},
		{"Quantity IN (6, missing)", unknown},
		{"missing IN (6, 7)", unknown},
		{"missing IS NULL", isTrue},
		{"missing IS NOT NULL", isFalse},
		{"Quantity IS NULL", isFalse},
		{"sys.Missing = 1", fails},
		{"sys.Missing IS NULL", fails},
	})
}

// S-219: what is unknown makes every operator unknown, except IS NULL and EXISTS.
func TestUnknownOperands(t *testing.T) {
	for _, nothing := range []string{"missing", "nothing", "NULL", "user.missing", "p('missing')",
		"property(missing)", "sys.SessionId"} {
		for _, form := range []string{"%s = 1", "1 <> %s", "%s != %[1]s", "%s < 1", "%s <= 1", "1 > %s",
			"%s >= 1", "%s + 1 = 1", "1 - %s = 1", "%s * 2 = 0", "%s / 0 = 1", "1 %% %s = 1", "-%s = 1",
			"+%s = 1", "%s IN (1, 2)", "%s NOT IN (1, 2)", "%s LIKE 'a'", "%s NOT LIKE 'a'",
			"color LIKE %s", "color LIKE 'red' ESCAPE %s", "1 IN (2, %s)", "1 NOT IN (2, %s)"} {
			askAll(t, []question{{fmt.Sprintf(form, nothing), unknown}})
		}
	}
	askAll(t, []question{
		{"1 IN (missing, 1)", isTrue},
		{"1 NOT IN (missing, 1)", isFalse},
		{"missing IS NULL", isTrue},
		{"missing IS NOT NULL", isFalse},
		{"nothing IS NULL", isTrue},
		{"color IS NULL", isFalse},
		{"color IS NOT NULL", isTrue},
		{"(color) IS NOT NULL", isTrue},
		{"p('missing') IS NULL", isTrue},
		{"sys.SessionId IS NULL", isTrue},
		{"sys.Label IS NOT NULL", isTrue},
		{"EXISTS(missing)", isFalse},
		{"EXISTS(nothing)", isTrue},
		{"EXISTS(color)", isTrue},
		{"NOT EXISTS(color)", isFalse},
		{"EXISTS(sys.Label)", isTrue},
		{"EXISTS(sys.SessionId)", isFalse},
		{"EXISTS(sys.Nonsense)", isFalse},
	})
}

// S-219: a system property that does not exist is an error, not unknown (T-202); what cannot change
// the answer is not evaluated.
func TestEvaluationErrors(t *testing.T) {
	askAll(t, []question{
		{"sys.Nonsense = 1", fails},
		{"sys.Nonsense IS NULL", fails},
		{"p('sys.Nonsense') = 1", fails},
		{"1 = 1 AND sys.Nonsense = 1", fails},
		{"missing = 1 OR sys.Nonsense = 1", fails},
		{"sys.Nonsense = 1 OR 1 = 1", fails},
		{"1 = 1 OR sys.Nonsense = 1", isTrue},
		{"1 = 0 AND sys.Nonsense = 1", isFalse},
		{"1 IN (1, sys.Nonsense)", isTrue},
		{"1 / 0 = 1", fails},
		{"1 % 0 = 1", fails},
		{"1.0 / 0 = 1", fails},
		{"1.0 % 0.0 = 1", fails},
		{"color + 1 = 1", fails},
		{"color - color = 1", fails},
		{"color * 2 = 1", fails},
		{"yes + yes = 1", fails},
		{"-color = 1", fails},
		{"+yes = 1", fails},
		{"decimal + 1 = 1", fails},
		{"yes < no", fails},
		{"guid >= guid", fails},
		{"quantity LIKE '7'", fails},
		{"color LIKE quantity", fails},
		{"color LIKE 'r%' ESCAPE quantity", fails},
		{"color LIKE 'r%' ESCAPE percent", fails},
		{"color LIKE percent ESCAPE '%'", fails},
		{"color", fails},
		{"quantity AND 1 = 1", fails},
		{"NOT quantity", fails},
		{"p(quantity) = 1", fails},
		{"9223372036854775807 + 1 > 0", fails},
		{"min - 1 < 0", fails},
		{"min / -1 = 1", fails},
		{"-min = 1", fails},
		{"min * 2 < 0", fails},
		{"huge + 1 > 0", fails},
		{"huge * -1 < 0", fails},
	})
}

func TestEvaluationErrorsTellTheirPosition(t *testing.T) {
	for _, c := range []struct{ predicate, want string }{
		{"1 = 1 AND sys.Nonsense = 1",
			"evaluation error at character 11: there is no system property Nonsense"},
		{"größe = 44 AND 1 / (quantity - 7) = 1",
			"evaluation error at character 18: division by zero"},
		{"color", "evaluation error at character 1: expected a condition, found a value of kind string"},
		{"1 = color * 2",
			"evaluation error at character 11: * has no meaning for values of kind string and integer"},
		{"yes < no", "evaluation error at character 5: < has no meaning for values of kind boolean"},
		{"quantity LIKE 'a'",
			"evaluation error at character 10: LIKE asks for a string, not a value of kind integer"},
	} {
		f, err := Parse(c.predicate, nil)
		if err != nil {
			t.Fatal(err)
		}
		selects, err := f.Match(sample())
		if err == nil || err.Error() != c.want || selects {
			t.Errorf("%s: got %v, %v, want %s", c.predicate, selects, err, c.want)
		}
	}
}
