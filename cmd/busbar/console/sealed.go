package console

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// signInLife is how long somebody may take at the provider.
const signInLife = 10 * time.Minute

// underWay is a sign-in that a browser began here. The browser keeps it in a sealed cookie, so that strangers who begin
// many cost the node nothing.
type underWay struct {
	Issuer string `json:"issuer"`
	State  string `json:"state"`
	Nonce  string `json:"nonce"`
	// Verifier is the secret behind the challenge (RFC 7636).
	Verifier string `json:"verifier"`
	// Address is the one of this node that the provider sends the browser back to.
	Address string    `json:"address"`
	Until   time.Time `json:"until"`
}

// secured has a cookie go over TLS alone if the browser reaches this node by https, also where a proxy in front ends the TLS.
func (u *underWay) secured(one *http.Cookie) *http.Cookie {
	one.Secure = one.Secure || strings.HasPrefix(u.Address, "https://")
	return one
}

// seal keeps the secrets of sign-ins from their browsers. Its key is of this process alone.
type seal struct{ gcm cipher.AEAD }

func newSeal() (*seal, error) {
	var key [32]byte
	_, _ = rand.Read(key[:]) // it never fails
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, err
	}
	gcm, err := cipher.NewGCMWithRandomNonce(block)
	return &seal{gcm}, err
}

func (s *seal) close(u *underWay) (string, error) {
	text, err := json.Marshal(u)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(s.gcm.Seal(nil, nil, text, nil)), nil
}

// open returns what was sealed; nil if it was not sealed here, or its time is over.
func (s *seal) open(text string, now time.Time) *underWay {
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil
	}
	plain, err := s.gcm.Open(nil, nil, sealed, nil)
	if err != nil {
		return nil
	}
	u := new(underWay)
	if json.Unmarshal(plain, u) != nil || !now.Before(u.Until) {
		return nil
	}
	return u
}

// signInCookie is that of a sign-in under way. The provider sends the browser back from another site, and a strict cookie
// would not come along.
func (c *Console) signInCookie(r *http.Request, value string, seconds int) *http.Cookie {
	one := c.cookie(r, value, seconds)
	one.Name += "-sign-in"
	one.SameSite = http.SameSiteLaxMode
	return one
}

// chance is a text that nobody guesses.
func chance() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // it never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}
