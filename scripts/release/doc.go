// Command release writes everything of a release into one directory. The same commit gives the same bytes.
//
// The command is a module of its own, so that the broker does not depend on what makes packages and images.
//
//   - main.go: the command line, and the steps in their order
//   - build.go: programs, one a platform
//   - archive.go: tar and zip with fixed times
//   - packages.go: deb and rpm
//   - image.go: the image for containers
//   - bill.go: what each program is made of
//   - texts.go: compose files, the formula and the chart
package main
