package main

// The image of a node holds no file but the binary. Without certificate authorities it could not read the keys of an
// issuer over https. The import gives x509 those of Mozilla's list, used only where the system has none of its own.
import _ "golang.org/x/crypto/x509roots/fallback"
