// Package audit tells who changed what. A [Log] has a line of JSON for each change, and for each read of messages by an
// operator. Refused sign-ins have lines too, of which a stranger causes a bounded number.
//
// A nil log and a nil [Entry] note nothing and cost nothing, so no room asks whether a log is kept. No line has a key, a
// token or the body of a message.
//
// From the top down: http.go has the events of requests, entry.go what handlers say of one, and entities.go what a change did
// to an entity. Below them, log.go has the queue and its writer, pace.go the bound on strangers, and event.go the line itself.
package audit
