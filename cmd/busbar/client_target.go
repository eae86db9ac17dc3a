package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/busbar-mq/busbar/transport/auth"
)

// tokenLife is how long the tokens of one command are valid: longer than any command runs that does
// not renew them.
const tokenLife = time.Hour

// target is the broker that a client command speaks to, as a connection string tells it.
type target struct {
	host      string // host:port; one port speaks AMQP and HTTP
	plain     bool   // UseDevelopmentEmulator=true: no TLS
	keyName   string
	key       string
	signature string // instead of a key
	entity    string // EntityPath, "" if the string is for the whole namespace
	roots     *x509.CertPool
}

// clientFlags are the flags that every client command has.
type clientFlags struct {
	connection string
	caFile     string
	output     string
	timeout    time.Duration
	json       bool // output is "json", whatever it says
	rows       bool // output may be "row"
}

func addClientFlags(c *cobra.Command) *clientFlags {
	f := &clientFlags{}
	flags := c.PersistentFlags()
	flags.StringVar(&f.connection, "connection-string", "",
		"connection string (environment: SERVICEBUS_CONNECTION_STRING)")
	flags.StringVar(&f.caFile, "ca-file", "", "further certificate authority to trust, PEM")
	flags.DurationVar(&f.timeout, "timeout", 30*time.Second, "limit of one request")
	addOutputFlag(c, f)
	return f
}

func addOutputFlag(c *cobra.Command, f *clientFlags) {
	c.PersistentFlags().StringVarP(&f.output, "output", "o", "table", "table or json")
	c.PersistentFlags().BoolVar(&f.json, "json", false, "the same as -o json")
}

// target reads the connection string from the flag or the environment.
func (f *clientFlags) target() (*target, error) {
	if err := f.checkOutput(); err != nil {
		return nil, err
	}
	text := f.connection
	if text == "" {
		text = os.Getenv("SERVICEBUS_CONNECTION_STRING")
	}
	if text == "" {
		return nil, usageError("no connection string: give --connection-string or set " +
			"SERVICEBUS_CONNECTION_STRING")
	}
	t, err := parseConnectionString(text)
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	if f.caFile != "" {
		if t.roots, err = readRoots(f.caFile); err != nil {
			return nil, &exitError{exitUsage, err}
		}
	}
	return t, nil
}

func (f *clientFlags) checkOutput() error {
	if f.json {
		f.output = "json"
	}
	if f.output != "table" && f.output != "json" && !(f.rows && f.output == "row") {
		return usageError("output %q is neither table nor json", f.output)
	}
	return nil
}

// readRoots adds the certificates of a file to those of the system.
func readRoots(file string) (*x509.CertPool, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate", file)
	}
	return pool, nil
}

// parseConnectionString reads Endpoint=sb://host[:port];Name=Value;… with names in any case. Errors
// name the part, never its value: that may be a key.
func parseConnectionString(text string) (*target, error) {
	parts := map[string]string{}
	for part := range strings.SplitSeq(text, ";") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		name, value, ok := strings.Cut(part, "=")
		if !ok {
			return nil, fmt.Errorf("connection string: a part has no =")
		}
		parts[strings.ToLower(strings.TrimSpace(name))] = strings.TrimSpace(value)
	}
	t := &target{
		keyName: parts["sharedaccesskeyname"], key: parts["sharedaccesskey"],
		signature: parts["sharedaccesssignature"], entity: strings.Trim(parts["entitypath"], "/"),
	}
	if flag := parts["usedevelopmentemulator"]; flag != "" {
		plain, err := strconv.ParseBool(flag)
		if err != nil {
			return nil, fmt.Errorf("connection string: UseDevelopmentEmulator is neither true nor false")
		}
		t.plain = plain
	}
	u, err := url.Parse(parts["endpoint"])
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("connection string: Endpoint must be sb://host or sb://host:port")
	}
	t.host = u.Host
	if u.Port() == "" {
		port := "5671"
		if t.plain {
			port = "5672"
		}
		t.host = net.JoinHostPort(u.Hostname(), port)
	}
	if t.signature == "" && (t.keyName == "" || t.key == "") {
		return nil, fmt.Errorf("connection string: it needs SharedAccessKeyName and SharedAccessKey, " +
			"or SharedAccessSignature")
	}
	return t, nil
}

// queue returns the entity that the command line names, or the one of the connection string.
func (t *target) queue(args []string) (name string, rest []string, err error) {
	if len(args) > 0 && args[0] != "" {
		return args[0], args[1:], nil
	}
	if t.entity != "" {
		return t.entity, nil, nil
	}
	return "", nil, usageError("name a queue, or give a connection string with EntityPath")
}

// token makes the proof for an audience that is a path of this broker, "" for all of it.
func (t *target) token(path string, now time.Time) string {
	if t.signature != "" {
		return t.signature
	}
	return auth.NewToken(t.audience(path), t.keyName, t.key, now.Add(tokenLife))
}

func (t *target) audience(path string) string { return "sb://" + t.host + "/" + path }

func (t *target) tlsConfig() *tls.Config {
	if t.plain {
		return nil
	}
	host, _, _ := net.SplitHostPort(t.host)
	return &tls.Config{RootCAs: t.roots, MinVersion: tls.VersionTLS12, ServerName: host}
}

func (t *target) url(scheme string) string {
	if !t.plain {
		scheme += "s"
	}
	return scheme + "://" + t.host
}
