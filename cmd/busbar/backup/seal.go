package backup

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"filippo.io/age"
)

// Bounds of what encryption reads.
const (
	maxKeyFileBytes = 1 << 20
	// minPassphraseBytes refuses an empty file and the like. It is no measure of strength.
	minPassphraseBytes = 8
	// A passphrase costs 2^18 steps of scrypt a file, and 256 MiB of memory. A backup may ask for four times that.
	scryptWork, maxScryptWork = 18, 20
	// maxSealHeadBytes bounds the head of an encrypted file, which age reads into memory.
	maxSealHeadBytes = 1 << 20
)

// ageIntro begins each encrypted file.
const ageIntro = "age-encryption.org/v1"

// Seal encrypts the files of a backup. A nil Seal leaves them as they are.
type Seal struct{ recipients []age.Recipient }

// NewSeal takes recipients of age as texts and in files, or a file with a passphrase. It is nil if there is none of them.
func NewSeal(recipients, files []string, passphraseFile string) (*Seal, error) {
	s := &Seal{}
	add := func(from string, r io.Reader) error {
		found, err := age.ParseRecipients(r)
		if err != nil {
			return fmt.Errorf("%s: %w", from, err)
		}
		s.recipients = append(s.recipients, found...)
		return nil
	}
	for _, text := range recipients {
		if err := add("recipient", strings.NewReader(text)); err != nil {
			return nil, err
		}
	}
	for _, path := range files {
		text, err := readKeyFile(path)
		if err == nil {
			err = add(path, bytes.NewReader(text))
		}
		if err != nil {
			return nil, err
		}
	}
	if passphraseFile == "" {
		if len(s.recipients) == 0 {
			return nil, nil
		}
		return s, nil
	}
	if len(s.recipients) > 0 {
		return nil, errors.New("a backup is encrypted to recipients or by a passphrase, not both")
	}
	phrase, err := readPassphrase(passphraseFile)
	if err != nil {
		return nil, err
	}
	r, err := age.NewScryptRecipient(phrase)
	if err != nil {
		return nil, err
	}
	r.SetWorkFactor(scryptWork)
	s.recipients = []age.Recipient{r}
	return s, nil
}

// suffix is what the name of a file has behind it.
func (s *Seal) suffix() string {
	if s == nil {
		return ""
	}
	return sealedSuffix
}

// through runs content with a writer whose bytes arrive in w encrypted.
func (s *Seal) through(w io.Writer, content func(io.Writer) error) error {
	if s == nil {
		return content(w)
	}
	sealed, err := s.wrap(w)
	if err != nil {
		return err
	}
	if err := content(sealed); err != nil {
		return err
	}
	return sealed.Close()
}

// wrap returns a writer whose bytes arrive in w encrypted, the last of them when it is closed.
func (s *Seal) wrap(w io.Writer) (io.WriteCloser, error) {
	sealed, err := age.Encrypt(w, s.recipients...)
	if err != nil {
		return nil, fmt.Errorf("encrypt: %w", err)
	}
	return sealed, nil
}

// Keys open encrypted backups. A nil Keys opens none.
type Keys struct{ identities []age.Identity }

// NewKeys takes files with identities of age, and a file with a passphrase.
func NewKeys(files []string, passphraseFile string) (*Keys, error) {
	k := &Keys{}
	for _, path := range files {
		text, err := readKeyFile(path)
		if err != nil {
			return nil, err
		}
		found, err := age.ParseIdentities(bytes.NewReader(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		k.identities = append(k.identities, found...)
	}
	if passphraseFile != "" {
		phrase, err := readPassphrase(passphraseFile)
		if err != nil {
			return nil, err
		}
		i, err := age.NewScryptIdentity(phrase)
		if err != nil {
			return nil, err
		}
		i.SetMaxWorkFactor(maxScryptWork)
		k.identities = append(k.identities, i)
	}
	return k, nil
}

// open decrypts what r has.
func (k *Keys) open(name string, r io.Reader) (io.Reader, error) {
	if k == nil || len(k.identities) == 0 {
		return nil, ErrKeys
	}
	src := &noting{r: r, head: maxSealHeadBytes}
	plain, err := age.Decrypt(src, k.identities...)
	src.head = 0
	var none *age.NoIdentityMatchError
	switch {
	case err == nil:
		return &sealedReader{src, plain}, nil
	case src.err != nil && !errors.Is(src.err, io.EOF):
		return nil, fmt.Errorf("read %s: %w", name, src.err)
	case errors.As(err, &none):
		return nil, fmt.Errorf("%s: %w", name, ErrKeys)
	}
	return nil, &Damage{File: name, Chunk: -1, Reason: "its head cannot be decrypted: " + err.Error()}
}

// noting remembers the error of a reader.
type noting struct {
	r    io.Reader
	head int // bytes that the head may still take; 0 behind it
	err  error
}

func (n *noting) Read(p []byte) (int, error) {
	if n.head > 0 {
		p = p[:min(len(p), n.head)]
	}
	k, err := n.r.Read(p)
	if n.head > 0 {
		if n.head -= k; n.head == 0 {
			return k, fmt.Errorf("a head of more than %d bytes", maxSealHeadBytes)
		}
	}
	if err != nil {
		n.err = err
	}
	return k, err
}

// sealedReader tells an error of reading from one of the bytes that were read.
type sealedReader struct {
	src   *noting
	plain io.Reader
}

func (s *sealedReader) Read(p []byte) (int, error) {
	n, err := s.plain.Read(p)
	if err != nil && !errors.Is(err, io.EOF) && (s.src.err == nil || errors.Is(s.src.err, io.EOF)) {
		err = fmt.Errorf("%w (%v)", errSealBroken, err) //nolint:errorlint // what age says is for people
	}
	return n, err
}

// sealed tells whether a stream begins as an encrypted one does. It takes nothing from it.
func sealed(r *bufio.Reader) bool {
	intro, _ := r.Peek(len(ageIntro)) // a short stream has another beginning
	return string(intro) == ageIntro
}

func readKeyFile(path string) (text []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	text, err = io.ReadAll(io.LimitReader(f, maxKeyFileBytes+1))
	if err == nil && len(text) > maxKeyFileBytes {
		err = fmt.Errorf("%s: a file with keys has at most %d bytes", path, maxKeyFileBytes)
	}
	return text, err
}

// readPassphrase reads the first line of a file.
func readPassphrase(path string) (string, error) {
	text, err := readKeyFile(path)
	if err != nil {
		return "", err
	}
	line, rest, _ := bytes.Cut(text, []byte("\n"))
	if len(bytes.TrimSpace(rest)) > 0 {
		return "", fmt.Errorf("%s: a passphrase is one line", path)
	}
	line = bytes.TrimSuffix(line, []byte("\r"))
	if len(line) < minPassphraseBytes {
		return "", fmt.Errorf("%s: a passphrase has at least %d bytes", path, minPassphraseBytes)
	}
	return string(line), nil
}
