// Package sockets counts the sockets that clients hold open, whatever they speak. It decides which of them has to go
// when there is room for no more.
//
// A socket is a stranger until it has shown a valid token. Strangers have limits of their own, so that they cannot
// take the places of clients. A socket whose HTTP connection waits for its next request is idle: it is closed when
// another one needs its place.
//
// Where things are: register.go has all of it.
package sockets
