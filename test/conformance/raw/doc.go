// Package raw is a client that speaks AMQP frames as a newer .NET SDK does, for what no library on the project's
// machines says. It must not hide anything: each frame is one call, and each answer is looked at by its caller.
// Start with Dial; TestRawFrames in the package above has what it is for.
package raw
