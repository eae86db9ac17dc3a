// Package attack does to real brokers what strangers do, with a witness beside it. The witness is a client that sends
// all the while and must find everything afterwards that was acknowledged. Each attack is bounded, over loopback
// alone, and named by the finding that it goes back to.
package attack
