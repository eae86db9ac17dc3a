package main

import (
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// A lost lock of a session is told from that of a message, wherever the SDK heard of it. The texts are those of a run.
func TestALostLockIsToldFromTheOther(t *testing.T) {
	for _, c := range []struct {
		code       azservicebus.Code
		text, want string
	}{
		{azservicebus.CodeLockLost, "(locklost): *Error{Condition: com.microsoft:session-lock-lost, Description: none, Info: map[]}",
			"com.microsoft:session-lock-lost"},
		{azservicebus.CodeLockLost, "(locklost): rpc: failed, status code 410 and description: The session lock has expired on the " +
			"MessageSession. Accept a new MessageSession.", "com.microsoft:session-lock-lost"},
		{azservicebus.CodeLockLost, "(locklost): rpc: failed, status code 410 and description: The lock supplied is invalid. Either the " +
			"lock expired, or the message has already been removed from the queue.", "com.microsoft:message-lock-lost"},
		{azservicebus.CodeNotFound, "(notfound): rpc: failed, status code 404", "com.microsoft:message-not-found"},
		{azservicebus.CodeTimeout, "(timeout): the session lock has expired", ""},
	} {
		if got := conditionOf(c.code, c.text); got != c.want {
			t.Errorf("%s: %q, want %q", c.text, got, c.want)
		}
	}
}
