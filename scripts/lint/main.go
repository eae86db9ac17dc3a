// Command check runs the analyzers that staticcheck does not have, in one pass over the packages.
// It is a module of its own, so that the linters never become dependencies of the broker.
package main

import (
	"github.com/gordonklaus/ineffassign/pkg/ineffassign"
	"github.com/kisielk/errcheck/errcheck"
	"github.com/polyfloyd/go-errorlint/errorlint"
	"golang.org/x/tools/go/analysis/multichecker"
	"golang.org/x/tools/go/analysis/passes/nilness"
	"golang.org/x/tools/go/analysis/passes/unusedwrite"
)

func main() {
	multichecker.Main(
		errcheck.Analyzer,
		errorlint.NewAnalyzer(),
		ineffassign.Analyzer,
		nilness.Analyzer,
		unusedwrite.Analyzer,
	)
}
