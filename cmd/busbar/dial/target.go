package dial

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

	"github.com/busbar-mq/busbar/cmd/busbar/exit"
	"github.com/busbar-mq/busbar/transport/auth"
)

// tokenLife is how long the tokens of one command are valid: longer than any command runs that does
// not renew them.
const tokenLife = time.Hour

// Target is the broker that a client command speaks to, as a connection string tells it.
type Target struct {
	Host      string // host:port; one port speaks AMQP and HTTP
	Plain     bool   // UseDevelopmentEmulator=true: no TLS
	KeyName   string
	Key       string
	Signature string // instead of a key
	entity    string // EntityPath, "" if the string is for the whole namespace
	roots     *x509.CertPool
	Version   string // of this program; the broker is told
	assumed   bool   // nobody named a broker, so it is the development broker of this machine
}

// developmentString is the connection string of a node with --dev and of the official emulator.
const developmentString = "Endpoint=sb://localhost;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;" +
	"UseDevelopmentEmulator=true"

// reached adds to the error of a connection that no broker was named.
func (t *Target) reached(err error) error {
	if err == nil || !t.assumed {
		return err
	}
	return fmt.Errorf("%w; neither --connection-string nor SERVICEBUS_CONNECTION_STRING names a broker, and no context does, so that of "+
		"busbar serve --dev on this machine was tried", err)
}

// Flags are the flags that every client command has.
type Flags struct {
	Connection string
	Context    string // name of a broker in the user's file
	CAFile     string
	Output     string // after CheckOutput "table" or "json"
	Timeout    time.Duration
	Wide       bool   // a table has all columns
	Form       string // into which JSON is turned, "" for none
	json       bool   // output is "json", whatever it says
	rows       bool   // output may be "row"

	command *cobra.Command // whose flags these are; its root knows the version of this program
}

// AddFlags gives a command and its subcommands the flags that reach a broker.
func AddFlags(c *cobra.Command) *Flags {
	f := &Flags{}
	flags := c.PersistentFlags()
	f.AddReach(c, "connection string (environment: SERVICEBUS_CONNECTION_STRING)")
	flags.DurationVar(&f.Timeout, "timeout", 30*time.Second, "limit of one request")
	AddOutputFlag(c, f)
	return f
}

// AddReach adds the flags that say which broker is meant, and how it is trusted.
func (f *Flags) AddReach(c *cobra.Command, usage string) {
	f.AddBroker(c, usage)
	c.PersistentFlags().StringVar(&f.CAFile, "ca-file", "", "further certificate authority to trust, PEM")
}

// AddBroker adds the flags that say which broker is meant.
func (f *Flags) AddBroker(c *cobra.Command, usage string) {
	flags := c.PersistentFlags()
	flags.StringVar(&f.Connection, "connection-string", "", usage)
	flags.StringVar(&f.Context, "context", "", "broker that busbar context add has named (environment: BUSBAR_CONTEXT)")
}

// Target reads the connection string from the flag, a context or the environment. Without one it is the development broker.
func (f *Flags) Target() (*Target, error) {
	if err := f.CheckOutput(); err != nil {
		return nil, err
	}
	source, err := f.Source()
	if err != nil {
		return nil, err
	}
	text := source.Connection
	assumed := text == ""
	if assumed {
		text = developmentString
	}
	t, err := parseConnectionString(text)
	if err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	t.assumed = assumed
	t.Version = f.Version()
	if source.CAFile != "" {
		if t.roots, err = ReadRoots(source.CAFile); err != nil {
			return nil, exit.With(exit.Usage, err)
		}
	}
	return t, nil
}

// Version is that of the program whose command line f is a part of, "" without a command.
func (f *Flags) Version() string {
	if f.command == nil {
		return ""
	}
	return f.command.Root().Version
}

// ReadRoots adds the certificates of a file to those of the system.
func ReadRoots(file string) (*x509.CertPool, error) {
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
func parseConnectionString(text string) (*Target, error) {
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
	t := &Target{
		KeyName: parts["sharedaccesskeyname"], Key: parts["sharedaccesskey"],
		Signature: parts["sharedaccesssignature"], entity: strings.Trim(parts["entitypath"], "/"),
	}
	if flag := parts["usedevelopmentemulator"]; flag != "" {
		plain, err := strconv.ParseBool(flag)
		if err != nil {
			return nil, fmt.Errorf("connection string: UseDevelopmentEmulator is neither true nor false")
		}
		t.Plain = plain
	}
	u, err := url.Parse(parts["endpoint"])
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("connection string: Endpoint must be sb://host or sb://host:port")
	}
	t.Host = u.Host
	if u.Port() == "" {
		port := "5671"
		if t.Plain {
			port = "5672"
		}
		t.Host = net.JoinHostPort(u.Hostname(), port)
	}
	if t.Signature == "" && (t.KeyName == "" || t.Key == "") {
		return nil, fmt.Errorf("connection string: it needs SharedAccessKeyName and SharedAccessKey, " +
			"or SharedAccessSignature")
	}
	return t, nil
}

// Queue returns the entity that the command line names, or the one of the connection string.
func (t *Target) Queue(args []string) (name string, rest []string, err error) {
	if len(args) > 0 && args[0] != "" {
		return args[0], args[1:], nil
	}
	if t.entity != "" {
		return t.entity, nil, nil
	}
	return "", nil, exit.Usagef("name a queue, or give a connection string with EntityPath")
}

// Token makes the proof for an audience that is a path of this broker, "" for all of it.
func (t *Target) Token(path string, now time.Time) string {
	if t.Signature != "" {
		return t.Signature
	}
	return t.TokenUntil(path, now.Add(tokenLife))
}

// TokenUntil is Token with an end of its own. The target must have a key.
func (t *Target) TokenUntil(path string, end time.Time) string {
	return auth.NewToken(t.audience(path), t.KeyName, t.Key, end)
}

func (t *Target) audience(path string) string { return "sb://" + t.Host + "/" + path }

func (t *Target) tlsConfig() *tls.Config {
	if t.Plain {
		return nil
	}
	host, _, _ := net.SplitHostPort(t.Host)
	return &tls.Config{RootCAs: t.roots, MinVersion: tls.VersionTLS12, ServerName: host}
}

// URL is the address of the broker for a scheme, "amqp" or "http", which gets its s where TLS is on.
func (t *Target) URL(scheme string) string {
	if !t.Plain {
		scheme += "s"
	}
	return scheme + "://" + t.Host
}
