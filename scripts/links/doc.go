// Command links checks that what pages and comments refer to is there:
// go run ./scripts/links README.md docs .github test/README.md.
//
// In Markdown files it follows relative links and anchors. A code span that names a file, a test, or a place in the
// code must be true: `storage/dir.go: Dir.Group` is a declaration in that file.
//
// It also reads the comments of all Go files below the working directory. There it checks pages and their numbered
// sections, paths, and the names of Go files and tests.
//
// # Where things are
//
//   - main.go: the command line
//   - markdown.go: links and code spans of pages
//   - comments.go: references in comments
//   - tree.go: which files, declarations and tests there are
package main
