// Package rule is the language of subscription rules: filters that select messages and actions that
// change the copies (S-216 to S-221).
//
// A [Source] is a rule as it is stored: the texts and values that the user gave. [Source.Compile]
// turns it into a [Rule], the same one on every replica; Filter.Match and Action.Apply then look at
// a [Message], an interface that the state machine implements over the encoded message.
//
// Logic is three-valued: a missing or null property is unknown, every operator on it is unknown,
// and only true selects (S-219). A failure of evaluation (an unknown system property, a division by
// zero, operands of the wrong type) is an error and never a panic; it concerns one subscription
// (S-221).
//
// The package is pure: it knows no clock and no chance but Message.NewID. Its answers depend on nothing but its
// arguments, so all replicas agree (S-224). Texts come from users and properties from clients. So the length of an
// expression, its nesting, the steps of an evaluation and the size of its result are bounded.
//
// Rules stand in the log as source. So a new version of the program must give old sources their old meaning, limits
// included, or replicas of two versions differ.
//
// Start with grammar.go for the language and eval.go for its meaning.
package rule
