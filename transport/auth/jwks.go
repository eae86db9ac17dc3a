package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
)

// Bounds of a set of keys; real ones hold a handful.
const (
	// MaxKeySetBytes bounds a document of keys before it is parsed.
	MaxKeySetBytes = 1 << 20
	maxKeys        = 100
	minRSABits     = 2048
	maxRSABits     = 8192 // a larger one would cost milliseconds for every token
)

// key is one public key of an issuer. algorithm is "" if the issuer does not say.
type key struct {
	id, algorithm string
	public        crypto.PublicKey // *rsa.PublicKey, *ecdsa.PublicKey or ed25519.PublicKey
}

// jwk is a key as it stands in a document (RFC 7517, RFC 7518 section 6, RFC 8037).
type jwk struct {
	Kty string   `json:"kty"`
	Use string   `json:"use"`
	Ops []string `json:"key_ops"`
	Kid string   `json:"kid"`
	Alg string   `json:"alg"`
	N   string   `json:"n"`
	E   string   `json:"e"`
	Crv string   `json:"crv"`
	X   string   `json:"x"`
	Y   string   `json:"y"`
}

// parseKeys reads a JSON web key set. Keys that are for something else, of a kind that no algorithm here uses, or out of
// bounds are left out (RFC 7517 section 5); a set without any other is an error.
func parseKeys(document []byte) ([]key, error) {
	if len(document) > MaxKeySetBytes {
		return nil, fmt.Errorf("a key set of %d bytes, more than %d", len(document), MaxKeySetBytes)
	}
	var set struct {
		Keys []jwk `json:"keys"`
	}
	if err := json.Unmarshal(document, &set); err != nil {
		return nil, fmt.Errorf("key set: %w", err)
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("%d keys, more than %d", len(set.Keys), maxKeys)
	}
	var keys []key
	var useless []error
	for _, k := range set.Keys {
		if k.Use != "" && k.Use != "sig" {
			continue
		}
		switch public, err := k.public(); {
		case err != nil:
			useless = append(useless, fmt.Errorf("key %q: %w", k.Kid, err))
		case public != nil:
			keys = append(keys, key{id: k.Kid, algorithm: k.Alg, public: public})
		}
	}
	if len(keys) == 0 {
		return nil, errors.Join(append([]error{errors.New("the key set holds no key for signatures")}, useless...)...)
	}
	return keys, nil
}

// public returns nil for kinds that are not used here.
func (k *jwk) public() (crypto.PublicKey, error) {
	switch k.Kty {
	case "RSA":
		return k.rsa()
	case "EC":
		return k.ec()
	case "OKP":
		if k.Crv != "Ed25519" {
			return nil, nil
		}
		x, err := base64.RawURLEncoding.DecodeString(k.X)
		if err != nil || len(x) != ed25519.PublicKeySize {
			return nil, errors.New("x is no Ed25519 key")
		}
		return ed25519.PublicKey(x), nil
	}
	return nil, nil
}

func (k *jwk) rsa() (crypto.PublicKey, error) {
	n, err := number(k.N)
	if err != nil {
		return nil, fmt.Errorf("n: %w", err)
	}
	e, err := number(k.E)
	if err != nil {
		return nil, fmt.Errorf("e: %w", err)
	}
	if bits := n.BitLen(); bits < minRSABits || bits > maxRSABits {
		return nil, fmt.Errorf("%d bits, want %d to %d", bits, minRSABits, maxRSABits)
	}
	if !e.IsInt64() || e.Int64() < 3 || e.Int64() > 1<<31-1 || e.Bit(0) == 0 || n.Bit(0) == 0 {
		return nil, errors.New("e or n is no part of an RSA key")
	}
	return &rsa.PublicKey{N: n, E: int(e.Int64())}, nil
}

func (k *jwk) ec() (crypto.PublicKey, error) {
	var curve elliptic.Curve
	switch k.Crv {
	case "P-256":
		curve = elliptic.P256()
	case "P-384":
		curve = elliptic.P384()
	case "P-521":
		curve = elliptic.P521()
	default:
		return nil, nil
	}
	x, errX := base64.RawURLEncoding.DecodeString(k.X)
	y, errY := base64.RawURLEncoding.DecodeString(k.Y)
	size := (curve.Params().BitSize + 7) / 8
	if errX != nil || errY != nil || len(x) != size || len(y) != size {
		return nil, errors.New("x or y is no coordinate of the curve")
	}
	point := append(append([]byte{4}, x...), y...) // SEC 1 §2.3.3, uncompressed
	public, err := ecdsa.ParseUncompressedPublicKey(curve, point)
	if err != nil {
		return nil, err
	}
	return public, nil
}

func number(text string) (*big.Int, error) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) == 0 || len(b) > maxRSABits/8+1 {
		return nil, errors.New("not a number in base64url")
	}
	return new(big.Int).SetBytes(b), nil
}
