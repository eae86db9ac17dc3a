package main

import "testing"

// E9: the setting `namespace` is what AMQP clients are told, too.
func TestTheNamespaceReachesTheFrontEnd(t *testing.T) {
	c := defaults(false)
	c.Namespace, c.Limits.TransactionMessages = "shop.example.net", 7
	f := c.frontConfig(9)
	if f.Namespace != "shop.example.net" || f.Incarnation != 9 || f.MaxTransactionMessages != 7 {
		t.Errorf("namespace %q, life %d, %d messages", f.Namespace, f.Incarnation, f.MaxTransactionMessages)
	}
	if err := f.Validate(); err != nil {
		t.Error(err)
	}
}
