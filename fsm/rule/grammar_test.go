package rule

import (
	"errors"
	"strings"
	"testing"
)

// S-219: the productions of the grammar.
func TestGrammar(t *testing.T) {
	for name, questions := range map[string][]question{
		"unary binds tighter than multiplication, multiplication than addition": {
			{"-2 * 3 + 10 = 4", isTrue},
			{"2 + 3 * 4 = 14", isTrue},
			{"2 * 3 + 4 = 10", isTrue},
			{"(2 + 3) * 4 = 20", isTrue},
			{"10 - 4 - 3 = 3", isTrue},
			{"100 / 10 / 5 = 2", isTrue},
			{"7 % 4 * 2 = 6", isTrue},
		},
		"comparison binds tighter than NOT, NOT than AND, AND than OR": {
			{"NOT 1 = 0 AND 1 = 1", isTrue},
			{"NOT (1 = 0 AND 1 = 1)", isTrue},
			{"NOT 1 = 1 OR 1 = 1", isTrue},
			{"NOT (1 = 1 OR 1 = 1)", isFalse},
			{"1 = 1 OR 1 = 1 AND 1 = 0", isTrue},
			{"(1 = 1 OR 1 = 1) AND 1 = 0", isFalse},
			{"1 = 0 AND 1 = 0 OR 1 = 1", isTrue},
			{"1 + 1 = 2 AND 2 IN (1 + 1)", isTrue},
		},
		"keywords and functions are known in any case": {
			{"color like 'r%' and not color in ('blue') or false", isTrue},
			{"Exists(color) aNd missing iS nOt nUll", isFalse},
			{"P('color') = PROPERTY('color')", isTrue},
			{"NewId() <> newid()", isTrue},
			{"TRUE = true", isTrue},
		},
		"names of properties are known in any case": {
			{"QUANTITY = 7", isTrue},
			{"User.Color = 'red'", isTrue},
			{"SYS.label = 'order'", isTrue},
			{"GRÖSSE IS NULL AND GRÖßE = 44", isTrue},
		},
		"names may be delimited": {
			{"[color] = 'red'", isTrue},
			{"\"color\" = 'red'", isTrue},
			{"[two words] = 2", isTrue},
			{"\"two words\" = 2", isTrue},
			{"[a]]b\"c] = 3", isTrue},
			{"\"a]b\"\"c\" = 3", isTrue},
			{"user.[two words] = 2", isTrue},
			{"sys.[Label] = 'order'", isTrue},
			{"sys.\"Label\" = 'order'", isTrue},
			{"[not] IS NULL", isTrue},
		},
		"a scope, a function and a word of actions are names too": {
			{"sys = 4", isTrue},
			{"p = 'color'", isTrue},
			{"set = 5", isTrue},
			{"property IS NULL", isTrue},
			{"newid IS NULL", isTrue},
			{"sys . Label = 'order'", isTrue},
		},
		"an unquoted word is a property": {{"MessageID=rule1", unknown}},
		"functions": {
			{"p('color') = 'red'", isTrue},
			{"property(p) = 'red'", isTrue},
			{"p('col' + 'or') = 'red'", isTrue},
			{"p('user.color') = 'red'", isTrue},
			{"p('SYS.Label') = 'order'", isTrue},
			{"p('other.color') IS NULL", isTrue},
			{"p ( 'color' ) = 'red'", isTrue},
		},
		"constants": {
			{"'it''s' = 'it' + '''' + 's'", isTrue},
			{"'' = ''", isTrue},
			{"'ü' < 'ý'", isTrue},
			{"0x10 = 16", isTrue},
			{"0XfF = 255", isTrue},
			{"1.5E1 = 15", isTrue},
			{"0.5e-2 = 0.005", isTrue},
			{"101.5E+5 = 10150000", isTrue},
			{"1E3 = 1000", isTrue},
			{".5 = 0.5", isTrue},
			{"2. = 2", isTrue},
			{"1894.1204 > 1894", isTrue},
			{"9223372036854775807 > 0", isTrue},
			{"-9223372036854775808 < 0", isTrue},
			{"007 = 7", isTrue},
		},
		"lists": {
			{"color IN ('red')", isTrue},
			{"color IN ('blue', 'red', 'green')", isTrue},
			{"color NOT IN ('blue', 'green')", isTrue},
			{"color IN ('blue')", isFalse},
			{"quantity IN (1, 2 + 5, 9)", isTrue},
			{"quantity IN (7.0)", isTrue},
		},
		"white space is free": {
			{"  1\t=\r\n1  ", isTrue},
			{"color='red'AND(quantity)=7", isTrue},
			{"1\u00a0=\u20031", isTrue},
			{"color IN('red','blue')", isTrue},
		},
	} {
		t.Run(name, func(t *testing.T) { askAll(t, questions) })
	}
}

// S-218, S-219: filters as the clients' documentation and samples write them.
func TestExpressionsOfSamples(t *testing.T) {
	askAll(t, []question{
		{"1=1", isTrue},
		{"1=0", isFalse},
		{"sys.Label LIKE '%der%'", isTrue},
		{"sys.Label LIKE '%bus%' OR user.color IN ('queue', 'red', 'topic')", isTrue},
		{"StoreId IN('Store1', 'Store2', 'Store3')", unknown},
		{"sys.To IN ('Store5','Store6') OR StoreId = 'Store8'", unknown},
		{"color = 'blue' AND quantity = 10", isFalse},
		{"color = 'red' AND quantity < 10", isTrue},
		{"user.color = 'red' AND sys.Label = 'order'", isTrue},
		{"(color = 'red' AND quantity > 5) OR sys.CorrelationId = 'low'", isTrue},
		{"color = @color", isTrue},
		{"quantity > @min AND color <> @COLOR", isFalse},
	}, Property{Name: "@color", Value: OfString("red")}, Property{Name: "min", Value: OfInt(5)})
}

func TestParametersDifferByCaseOnlyIfBothAreGiven(t *testing.T) {
	askAll(t, []question{{"@p = 1", isTrue}, {"@P = 2", isTrue}},
		Property{Name: "@p", Value: OfInt(1)}, Property{Name: "@P", Value: OfInt(2)})
	askAll(t, []question{{"@none = 1", unknown}, {"color LIKE @none", unknown}},
		Property{Name: "@NONE"})
}

func TestSyntaxErrors(t *testing.T) {
	const value = "expected a value (a property of this name is written in brackets), "
	for _, c := range []struct{ text, want string }{
		{"", "at character 1: expected a value, found the end"},
		{"   ", "at character 4: expected a value, found the end"},
		{"a =", "at character 4: expected a value, found the end"},
		{"a = = 1", "at character 5: expected a value, found ="},
		{"a = 1 b", "at character 7: expected AND, OR or the end, found b"},
		{"a = 1 = 1", "at character 7: expected AND, OR or the end, found ="},
		{"a = 1 AND", "at character 10: expected a value, found the end"},
		{"a = 1 AND OR b = 1", "at character 11: " + value + "found OR"},
		{"like = 1", "at character 1: " + value + "found like"},
		{"(a = 1", "at character 7: expected ), found the end"},
		{"a = 1)", "at character 6: expected AND, OR or the end, found )"},
		{"()", "at character 2: expected a value, found )"},
		{"a IS 1", "at character 6: expected NULL, found 1"},
		{"a IS NOT 1", "at character 10: expected NULL, found 1"},
		{"1 IS NULL", "at character 1: IS NULL asks for a property"},
		{"a + 1 IS NULL", "at character 3: IS NULL asks for a property"},
		{"a IN 1", "at character 6: expected (, found 1"},
		{"a IN ()", "at character 7: expected a value, found )"},
		{"a IN (1", "at character 8: expected , or ), found the end"},
		{"a IN (1,)", "at character 9: expected a value, found )"},
		{"a NOT = 1", "at character 7: expected IN or LIKE, found ="},
		{"a LIKE", "at character 7: expected a value, found the end"},
		{"a LIKE 1", "at character 8: LIKE asks for a string"},
		{"a LIKE 'x' ESCAPE 'ab'", "at character 19: ESCAPE asks for a string of one character"},
		{"a LIKE 'x' ESCAPE ''", "at character 19: ESCAPE asks for a string of one character"},
		{"a LIKE 'x\\' ESCAPE '\\'", "at character 8: the pattern ends with its escape character"},
		{"EXISTS a", "at character 8: expected (, found a"},
		{"EXISTS('a')", "at character 8: expected a property, found 'a'"},
		{"EXISTS(a", "at character 9: expected ), found the end"},
		{"foo(1) = 1", "at character 1: there is no function foo"},
		{"newid(1) = 1", "at character 7: expected ), found 1"},
		{"p() = 1", "at character 3: expected a value, found )"},
		{"p('a' = 1", "at character 7: expected ), found ="},
		{"message.Label = 1", "at character 1: the scope of a property is sys or user, not message"},
		{"[sys].Label = 1", "at character 1: the scope of a property is sys or user, not sys"},
		{"sys. = 1", "at character 6: expected the name of a property, found ="},
		{"sys.like = 1", "at character 5: expected the name of a property, found like"},
		{"a = 'x", "at character 5: a string is not closed by '"},
		{"a = 'x''", "at character 5: a string is not closed by '"},
		{"[a = 1", "at character 1: a name is not closed by ]"},
		{"\"a = 1", "at character 1: a name is not closed by \""},
		{"[] = 1", "at character 1: a name must not be empty"},
		{"\"\" = 1", "at character 1: a name must not be empty"},
		{"N'x' = a", "at character 2: expected AND, OR or the end, found 'x'"},
		{"a = 12b", "at character 5: a number must not run into a name"},
		{"a = 1_0", "at character 5: a number must not run into a name"},
		{"a = 1.5x", "at character 5: a number must not run into a name"},
		{"a = 0x", "at character 5: a number lacks its digits"},
		{"a = 0xg", "at character 5: a number must not run into a name"},
		{"a = 1e", "at character 5: a number lacks the digits of its exponent"},
		{"a = 1e+", "at character 5: a number lacks the digits of its exponent"},
		{"a = 1e999", "at character 5: a number is out of range"},
		{"a = 9223372036854775808", "at character 5: an integer is out of range"},
		{"a = -9223372036854775809", "at character 6: an integer is out of range"},
		{"a = 99999999999999999999", "at character 5: an integer is out of range"},
		{"_a = 1", "at character 1: unexpected character '_'"},
		{"größe = §", "at character 9: unexpected character '§'"},
		{"a == 1", "at character 4: expected a value, found ="},
		{"a = @", "at character 5: expected the name of a parameter after @"},
		{"a = @1", "at character 5: expected the name of a parameter after @"},
		{"a = @nope", "at character 5: parameter @nope has no value"},
		{"5", "at character 1: expected a condition, found a value"},
		{"'a'", "at character 1: expected a condition, found a value"},
		{"a + 1", "at character 3: expected a condition, found a value"},
		{"a = 1 AND 5", "at character 11: expected a condition, found a value"},
		{"newid() OR a = 1", "at character 1: expected a condition, found a value"},
		{"NOT 'a'", "at character 5: expected a condition, found a value"},
		{"a = 1; b = 2", "at character 6: expected AND, OR or the end, found ;"},
		{"SET a = 1", "at character 5: expected AND, OR or the end, found a"},
		{"a = '\xff'", "at character 6: the expression is not valid UTF-8"},
		{"a = 1 " + strings.Repeat("x", 60),
			"at character 7: expected AND, OR or the end, found " + strings.Repeat("x", 40) + "…"},
	} {
		_, err := Parse(c.text, nil)
		var syntax *SyntaxError
		if !errors.As(err, &syntax) {
			t.Errorf("%q: got %v, want a syntax error", c.text, err)
			continue
		}
		if got := strings.TrimPrefix(err.Error(), "syntax error "); got != c.want {
			t.Errorf("%q:\n got %s\nwant %s", c.text, got, c.want)
		}
	}
}
