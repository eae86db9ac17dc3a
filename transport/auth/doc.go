// Package auth turns tokens into permissions.
//
// A client proves that it knows a key of a shared access policy, by a signed token or by the key
// itself; [Policies.Verify] and [Policies.VerifyPlain] answer with a [Claim], and [Claim.Allows]
// says what the claim opens. The package opens no sockets, reads no clock and knows nothing of
// entities beyond their paths; keys never leave it in logs or JSON.
//
// JSON web tokens of configured OpenID Connect issuers count as well: [Policies.AddIssuer] says what
// they open, [Policies.SetKeys] brings the keys, which others fetch.
// [Policies.ReplaceAll] and [Policies.ReplaceIssuers] change both while clients are there: issuer.go and policy.go.
//
// Start with [Policies.Verify].
package auth
