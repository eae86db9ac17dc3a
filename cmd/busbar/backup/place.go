package backup

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// OpenStore finds the store of a place: s3://BUCKET/PREFIX, or a directory.
func OpenStore(place string, o Options) (Store, error) {
	if rest, ok := strings.CutPrefix(place, "s3://"); ok {
		bucket, prefix, _ := strings.Cut(rest, "/")
		if bucket == "" {
			return nil, fmt.Errorf("%s names no bucket: write s3://BUCKET/PREFIX", place)
		}
		return openS3(bucket, strings.Trim(prefix, "/"), o)
	}
	if scheme, _, ok := strings.Cut(place, "://"); ok {
		return nil, fmt.Errorf("there is no kind of store %s://: write a directory or s3://BUCKET/PREFIX", scheme)
	}
	if place == "" {
		return nil, errors.New("the place of a backup is empty")
	}
	return directory(filepath.Clean(place)), nil
}

// Split divides the place of one backup into its store and its name.
func Split(place string) (store, name string, err error) {
	if rest, ok := strings.CutPrefix(place, "s3://"); ok {
		rest = strings.TrimRight(rest, "/")
		at := strings.LastIndexByte(rest, '/')
		if at < 1 {
			return "", "", fmt.Errorf("%s names no backup: write s3://BUCKET/PREFIX/NAME", place)
		}
		return "s3://" + rest[:at], rest[at+1:], nil
	}
	path, err := filepath.Abs(place)
	if err != nil {
		return "", "", err
	}
	store, name = filepath.Split(path)
	if name == "" {
		return "", "", fmt.Errorf("%s names no backup", place)
	}
	return store, name, nil
}
