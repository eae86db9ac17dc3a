// Package rulemap is the form that rules of subscriptions have in AMQP requests: maps and described lists of
// $management. [Parse] reads the description of add-rule, and [Describe] writes what enumerate-rules answers. A value
// keeps its AMQP type on the way there and back (RUL-38). The package compiles no rule and decides nothing.
package rulemap
