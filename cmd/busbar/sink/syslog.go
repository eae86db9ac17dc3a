package sink

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	// facility is that of messages of security (authpriv). Acts have the severity notice, and refusals have warning (RFC 5424
	// §6.2.1).
	facility = 10
	notice   = 5
	warning  = 4
	// syslogDeadline bounds a connection and a write.
	syslogDeadline = 3 * time.Second
	// maxHost, maxMessageID are the lengths of fields (RFC 5424 §6).
	maxHost, maxMessageID = 255, 32
)

// syslog sends each line as a message of RFC 5424. Over TCP the messages are counted in octets (RFC 6587 §3.4.1), elsewhere
// each is a datagram.
type syslog struct {
	network, address string // "" for the socket of this host
	host             string
	conn             net.Conn // nil: to be opened
	counted          bool     // messages of conn have their length before them
}

func openSyslog(network, address, host string) *syslog {
	return &syslog{network: network, address: address, host: field(host, maxHost)}
}

// Write sends a line. An error closes the connection, and the next write opens another one.
func (s *syslog) Write(at time.Time, action string, refused bool, line []byte) error {
	if s.conn == nil {
		if err := s.dial(); err != nil {
			return err
		}
	}
	message := s.message(at, action, refused, bytes.TrimSuffix(line, []byte{'\n'}))
	if s.counted {
		message = append([]byte(strconv.Itoa(len(message))+" "), message...)
	}
	err := s.conn.SetWriteDeadline(time.Now().Add(syslogDeadline))
	if err == nil {
		_, err = s.conn.Write(message)
	}
	if err != nil {
		_ = s.Close() // the error of the write tells more
	}
	return err
}

// message is RFC 5424 §6: a header, no structured data, and the line. It has no mark of byte order: the line is JSON.
func (s *syslog) message(at time.Time, action string, refused bool, line []byte) []byte {
	severity := notice
	if refused {
		severity = warning
	}
	head := fmt.Sprintf("<%d>1 %s %s busbar %d %s - ", facility*8+severity, at.UTC().Format("2006-01-02T15:04:05.000000Z07:00"), s.host,
		os.Getpid(), field(action, maxMessageID))
	return append([]byte(head), line...)
}

// field is a text as a field of a header may have it: printable, without spaces, and "-" for none.
func field(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return '_'
		}
		return r
	}, text)
	if text == "" {
		return "-"
	}
	return text[:min(len(text), most)]
}

func (s *syslog) dial() (err error) {
	d := net.Dialer{Timeout: syslogDeadline}
	if s.network != "" {
		s.conn, err = d.Dial(s.network, s.address)
		s.counted = s.network == "tcp"
		return err
	}
	s.counted = false
	var errs []error
	for _, path := range localSockets {
		if s.conn, err = d.Dial("unixgram", path); err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("no syslog listens on this host: %w", errors.Join(errs...))
}

// Reopen has the next line open another connection.
func (s *syslog) Reopen() error { return s.Close() }

func (s *syslog) Close() error {
	if s.conn == nil {
		return nil
	}
	err := s.conn.Close()
	s.conn = nil
	return err
}
