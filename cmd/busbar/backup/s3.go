package backup

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

const (
	awsEndpoint = "https://s3.amazonaws.com"
	partBytes   = 64 << 20
	maxParts    = 10_000
	// metadataWait bounds a question for the role of a machine, which machines elsewhere never answer.
	metadataWait = 3 * time.Second
	// discardWait bounds the deletion of a backup that failed. It goes on when the command was interrupted.
	discardWait = 30 * time.Second
)

// s3 is a store whose backups are objects PREFIX/NAME/FILE in a bucket.
type s3 struct {
	core   *minio.Core
	bucket string
	prefix string // empty, or with a slash at its end
	part   uint64 // bytes of an object in memory while it is written
}

// openS3 takes keys from the environment, from the file of AWS's command line, or from the role of the machine.
func openS3(bucket, prefix string, o Options) (Store, error) {
	if o.Endpoint == "" {
		o.Endpoint = awsEndpoint
	}
	u, err := url.Parse(o.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" {
		return nil, fmt.Errorf("the endpoint %q is no URL such as https://s3.example.net", o.Endpoint)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableCompression = true // an object is the bytes that were written
	transport.TLSClientConfig = o.TLS
	if transport.TLSClientConfig == nil {
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	keys := credentials.NewChainCredentials([]credentials.Provider{
		&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{Client: &http.Client{Timeout: metadataWait}}})
	core, err := minio.NewCore(u.Host, &minio.Options{Creds: keys, Secure: u.Scheme == "https", Transport: transport, Region: o.Region})
	if err != nil {
		return nil, fmt.Errorf("s3://%s: %w", bucket, err)
	}
	if prefix != "" {
		prefix += "/"
	}
	if o.PartBytes == 0 {
		o.PartBytes = partBytes
	}
	return &s3{core, bucket, prefix, o.PartBytes}, nil
}

func (s *s3) Where(backup string) string { return "s3://" + s.bucket + "/" + s.prefix + backup }

func (s *s3) key(backup, file string) string { return s.prefix + backup + "/" + file }

// failure tells the kinds of errors apart that callers branch on.
func (s *s3) failure(where string, err error) error {
	if err == nil {
		return nil
	}
	kind := error(nil)
	switch answer := minio.ToErrorResponse(err); {
	case answer.Code == minio.NoSuchKey, answer.Code == minio.NoSuchBucket:
		kind = fs.ErrNotExist
	case answer.StatusCode == http.StatusForbidden, answer.StatusCode == http.StatusUnauthorized:
		kind = fs.ErrPermission
	}
	if kind == nil || errors.Is(err, kind) {
		return fmt.Errorf("%s: %w", where, err)
	}
	return fmt.Errorf("%s: %w (%w)", where, kind, err)
}

// Begin finds that nothing has the name. Two that begin at once under one name are not told apart; the id of a backup does.
func (s *s3) Begin(ctx context.Context, backup string) error {
	files, err := s.Files(ctx, backup)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && len(files) == 0:
		return s.bucketExists(ctx)
	case err != nil:
		return err
	}
	return fmt.Errorf("%s: %w", s.Where(backup), fs.ErrExist)
}

func (s *s3) bucketExists(ctx context.Context) error {
	ok, err := s.core.BucketExists(ctx, s.bucket)
	if err == nil && !ok {
		return fmt.Errorf("the bucket %s: %w", s.bucket, fs.ErrNotExist)
	}
	return s.failure("the bucket "+s.bucket, err)
}

func (s *s3) Put(ctx context.Context, backup, file string, content func(io.Writer) error) error {
	out, in := io.Pipe()
	written := make(chan error, 1)
	go func() { // ends when the upload closes its end of the pipe, at the latest
		err := content(in)
		_ = in.CloseWithError(err) // nil is io.EOF for the upload
		written <- err
	}()
	_, err := s.core.Client.PutObject(ctx, s.bucket, s.key(backup, file), out, -1,
		minio.PutObjectOptions{PartSize: s.part, ContentType: "application/octet-stream"})
	_ = out.CloseWithError(fmt.Errorf("an object has at most %d parts of %d bytes: %w", maxParts, s.part, io.ErrShortWrite))
	// An upload that has read all it may ends well, and the content that it left unread has an error.
	if contentErr := <-written; contentErr != nil && (err == nil || !errors.Is(contentErr, io.ErrShortWrite)) {
		return contentErr
	}
	return s.failure(s.Where(backup)+"/"+file, err)
}

func (s *s3) Get(ctx context.Context, backup, file string) (io.ReadCloser, error) {
	body, info, _, err := s.core.GetObject(ctx, s.bucket, s.key(backup, file), minio.GetObjectOptions{})
	if err != nil {
		return nil, s.failure(s.Where(backup)+"/"+file, err)
	}
	return &object{ReadCloser: body, left: info.Size}, nil
}

// object is an object that is read. An answer that breaks off must not look like an object that ends too early.
type object struct {
	io.ReadCloser
	left int64
}

func (o *object) Read(p []byte) (int, error) {
	n, err := o.ReadCloser.Read(p)
	o.left -= int64(n)
	if o.left > 0 && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
		err = fmt.Errorf("the connection ended %d bytes before the object", o.left)
	}
	return n, err
}

func (s *s3) Backups(ctx context.Context) ([]string, error) {
	return s.names(ctx, s.prefix, true)
}

func (s *s3) Files(ctx context.Context, backup string) ([]string, error) {
	return s.names(ctx, s.key(backup, ""), false)
}

// names lists what is below a prefix: what ends with a slash, or what does not.
func (s *s3) names(ctx context.Context, prefix string, folders bool) (names []string, err error) {
	ctx, cancel := context.WithCancel(ctx) // ends the listing
	defer cancel()
	for o := range s.core.Client.ListObjects(ctx, s.bucket, minio.ListObjectsOptions{Prefix: prefix}) {
		if o.Err != nil {
			return nil, s.failure("s3://"+s.bucket+"/"+prefix, o.Err)
		}
		name, folder := strings.CutSuffix(strings.TrimPrefix(o.Key, prefix), "/")
		if name == "" || folder != folders {
			continue
		}
		if names = append(names, name); len(names) > maxListed {
			return nil, fmt.Errorf("s3://%s/%s: %w", s.bucket, prefix, errListed)
		}
	}
	return names, nil
}

func (s *s3) Discard(ctx context.Context, backup string, files []string) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardWait)
	defer cancel()
	for _, file := range files {
		key := s.key(backup, file)
		// An upload that was interrupted has parts, which the service keeps and charges for.
		err = errors.Join(err, s.failure("discard "+key, s.core.Client.RemoveIncompleteUpload(ctx, s.bucket, key)),
			s.failure("discard "+key, s.core.Client.RemoveObject(ctx, s.bucket, key, minio.RemoveObjectOptions{})))
	}
	return err
}
